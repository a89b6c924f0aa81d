"""``/servers/{server_id}/shares``: always empty, because no host can mount shares of a file share service."""

from __future__ import annotations

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.operations import states
from nova_lite.policies import servers as policies

# --- schemas

SHARE_BODY = t.wrapped(
    "share",
    t.strict(
        {"share_id": t.UUID, "tag": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[a-zA-Z0-9-]*$"}},
        ("share_id",),
    ),
)


# --- routes

_PATH = "/servers/{server_id}/shares"


class ServerShares(Extension):
    """Responds as Nova does while its hosts do not support shares."""

    alias = "server-shares"
    title = "Shares of a server"
    routes = (
        Route("GET", _PATH, "index", since=Change.SHARES),
        Route("POST", _PATH, "create", since=Change.SHARES),
        Route("GET", _PATH + "/{id}", "show", since=Change.SHARES),
        Route("DELETE", _PATH + "/{id}", "delete", since=Change.SHARES),
    )

    @declares(policies.SHARES_INDEX, query=t.NO_PARAMETERS_STRICT, response="shares")
    def index(self, req: Request, server_id: str) -> Response:
        self.conductor.instance_get(req.context, server_id)
        return Response({"shares": []})

    @declares(policies.SHARES_CREATE, body=SHARE_BODY, status=201, response="share")
    def create(self, req: Request, server_id: str) -> Response:
        self._check_stopped(req, server_id, "create share")
        raise exceptions.Forbidden("Feature not supported until computes have not been updated.")

    @declares(policies.SHARES_SHOW, query=t.NO_PARAMETERS_STRICT, response="share")
    def show(self, req: Request, server_id: str, id: str) -> Response:
        self.conductor.instance_get(req.context, server_id)
        raise exceptions.NotFound(f"Share {id[:64]} could not be found.")

    @declares(policies.SHARES_DELETE)
    def delete(self, req: Request, server_id: str, id: str) -> Response:
        self._check_stopped(req, server_id, "delete share")
        raise exceptions.NotFound(f"Share {id[:64]} could not be found.")

    def _check_stopped(self, req: Request, server_id: str, method: str) -> None:
        instance = self.conductor.instance_get(req.context, server_id)
        if instance.vm_state not in (states.STOPPED, states.ERROR):
            raise exceptions.InstanceInvalidState(
                method=method, instance_id=server_id, attr="vm_state", state=instance.vm_state
            )

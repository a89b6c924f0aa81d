"""``/servers/{server_id}/shares``: shares that guests mount by virtiofs."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import Instance, ShareMapping
from nova_lite.operations import states
from nova_lite.policies import servers as policies

# --- schemas

#: Nova accepts longer tags, which qemu refuses when the guest starts.
_TAG: t.Schema = {"type": "string", "minLength": 1, "maxLength": 36, "pattern": "^[a-zA-Z0-9-]*$"}

SHARE_BODY = t.wrapped("share", t.strict({"share_id": t.UUID, "tag": _TAG}, ("share_id",)))


# --- routes

_PATH = "/servers/{server_id}/shares"


class ServerShares(Extension):
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
        instance = self.conductor.instance_get(req.context, server_id)
        return Response({"shares": [_view(instance, mapping) for mapping in instance.shares]})

    @declares(policies.SHARES_CREATE, body=SHARE_BODY, status=201, response="share")
    def create(self, req: Request, server_id: str) -> Response:
        body = req.data["share"]
        share_id = body["share_id"]
        instance = self.compute.attach_share(req.context, server_id, share_id, body.get("tag", share_id))
        return _whole(req, instance, share_id, status=201)

    @declares(policies.SHARES_SHOW, query=t.NO_PARAMETERS_STRICT, response="share")
    def show(self, req: Request, server_id: str, id: str) -> Response:
        return _whole(req, self.conductor.instance_get(req.context, server_id), id)

    @declares(policies.SHARES_DELETE)
    def delete(self, req: Request, server_id: str, id: str) -> Response:
        self.compute.detach_share(req.context, server_id, id)
        return Response()


def _view(instance: Instance, mapping: ShareMapping) -> dict[str, Any]:
    status = mapping.status(instance.power_state in states.GUEST_ON)
    return {"share_id": mapping.share_id, "status": status, "tag": mapping.tag}


def _whole(req: Request, instance: Instance, share_id: str, status: int = 200) -> Response:
    """Return a share, with its location for admins."""
    mapping = next((mapping for mapping in instance.shares if mapping.share_id == share_id), None)
    if mapping is None:
        raise exceptions.ShareNotFound(share_id=share_id[:64])
    view = _view(instance, mapping)
    if req.context.is_admin:
        view |= {"uuid": mapping.uuid, "export_location": mapping.location}
    return Response({"share": view}, status=status)

"""``/servers/{server_id}/os-server-password``: the password that a guest made for itself."""

from __future__ import annotations

from nova_lite.api.compute.schemas import queries
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.objects.instance import POSTED_PASSWORD
from nova_lite.policies import servers as policies

_PATH = "/servers/{server_id}/os-server-password"


class ServerPassword(Extension):
    """Encrypted by the guest with the public key of its key pair, so that only the owner can read it."""

    alias = "os-server-password"
    title = "Password that a server posted"
    routes = (
        Route("GET", _PATH, "show"),
        Route("DELETE", _PATH, "clear"),
    )

    @declares(policies.PASSWORD_SHOW, query=queries.NOTHING, answer="password")
    def show(self, req: Request, server_id: str) -> Response:
        """An empty one as long as there is none."""
        instance = self.conductor.instance_get(req.context, server_id)
        return Response({"password": instance.system_metadata.get(POSTED_PASSWORD, "")})

    @declares(policies.PASSWORD_CLEAR, status=204)
    def clear(self, req: Request, server_id: str) -> Response:
        """The guest keeps it; only what the cloud knows of it is forgotten."""
        self.conductor.instance_password_clear(req.context, server_id)
        return Response(status=204)

"""Administrators' passwords of servers.
``/servers/{server_id}/os-server-password``: the password that a guest made for itself."""

from __future__ import annotations

import secrets
import string
from typing import Any

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.objects.instance import POSTED_PASSWORD
from nova_lite.policies import servers as policies

_LENGTH = 12
#: Letters and digits that no font confuses.
_SYMBOLS = "".join(sorted(set(string.ascii_letters + string.digits) - set("0O1lI")))


def admin_password(body: dict[str, Any]) -> str:
    """The ``adminPass`` of a request, or a new one."""
    given: str | None = body.get("adminPass")
    return given or "".join(secrets.choice(_SYMBOLS) for _ in range(_LENGTH))


_PATH = "/servers/{server_id}/os-server-password"


class ServerPassword(Extension):
    """Encrypted by the guest with the public key of its key pair, so that only the owner can read it."""

    alias = "os-server-password"
    title = "Password that a server posted"
    routes = (
        Route("GET", _PATH, "show"),
        Route("DELETE", _PATH, "clear"),
    )

    @declares(policies.PASSWORD_SHOW, query=t.NO_PARAMETERS, response="password")
    def show(self, req: Request, server_id: str) -> Response:
        """An empty one as long as there is none."""
        instance = self.conductor.instance_get(req.context, server_id)
        return Response({"password": instance.system_metadata.get(POSTED_PASSWORD, "")})

    @declares(policies.PASSWORD_CLEAR, status=204)
    def clear(self, req: Request, server_id: str) -> Response:
        """The guest keeps it; only what the cloud knows of it is forgotten."""
        self.conductor.instance_password_clear(req.context, server_id)
        return Response(status=204)

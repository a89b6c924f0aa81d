"""Passwords of servers: the administrator's password of a request, and the password that a guest posted."""

from __future__ import annotations

import secrets
import string
from typing import Any

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.objects.instance import POSTED_PASSWORD
from nova_lite.policies import servers as policies

_LENGTH = 12
#: Letters and digits, except look-alikes.
_SYMBOLS = "".join(sorted(set(string.ascii_letters + string.digits) - set("0O1lI")))


def admin_password(body: dict[str, Any]) -> str:
    """Return the ``adminPass`` of a request's body, or a new password."""
    password: str | None = body.get("adminPass")
    return password or "".join(secrets.choice(_SYMBOLS) for _ in range(_LENGTH))


_PATH = "/servers/{server_id}/os-server-password"


class ServerPassword(Extension):
    """The password that a guest posted.

    The guest encrypts it with the public key of its key pair, so that only the owner can read it.
    """

    alias = "os-server-password"
    title = "Password that a server posted"
    routes = (
        Route("GET", _PATH, "show"),
        Route("DELETE", _PATH, "clear"),
    )

    @declares(policies.PASSWORD_SHOW, query=t.NO_PARAMETERS, response="password")
    def show(self, req: Request, server_id: str) -> Response:
        """Show the password. It is empty if the guest has posted none."""
        instance = self.conductor.instance_get(req.context, server_id)
        return Response({"password": instance.system_metadata.get(POSTED_PASSWORD, "")})

    @declares(policies.PASSWORD_CLEAR, status=204)
    def clear(self, req: Request, server_id: str) -> Response:
        """Clear the stored password. The guest's password does not change."""
        self.conductor.instance_password_clear(req.context, server_id)
        return Response(status=204)

"""URLs of consoles, and where a console's token leads."""

from __future__ import annotations

from nova_lite.api.compute.schemas import consoles as schemas
from nova_lite.api.compute.schemas import queries
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, action, declares
from nova_lite.base import exceptions
from nova_lite.console import tokens
from nova_lite.policies import consoles as policies

_LAST_ACTION = Change.NO_CONSOLE_ACTIONS - 1


class RemoteConsoles(Extension):
    alias = "os-consoles"
    title = "Consoles"
    routes = (
        action("servers", "os-getVNCConsole", "get_vnc_console", until=_LAST_ACTION),
        action("servers", "os-getSPICEConsole", "get_spice_console", until=_LAST_ACTION),
        action("servers", "os-getSerialConsole", "get_serial_console", until=_LAST_ACTION),
        Route("POST", "/servers/{server_id}/remote-consoles", "create", since=Change.NO_CONSOLE_ACTIONS),
    )

    @declares(policies.REMOTE_CONSOLES, body=schemas.GET_VNC, answer="console")
    def get_vnc_console(self, req: Request, id: str) -> Response:
        return self._old_answer(req, id, "vnc", "os-getVNCConsole")

    @declares(policies.REMOTE_CONSOLES, body=schemas.GET_SPICE, answer="console")
    def get_spice_console(self, req: Request, id: str) -> Response:
        return self._old_answer(req, id, "spice", "os-getSPICEConsole")

    @declares(policies.REMOTE_CONSOLES, body=schemas.GET_SERIAL, answer="console")
    def get_serial_console(self, req: Request, id: str) -> Response:
        return self._old_answer(req, id, "serial", "os-getSerialConsole")

    def _old_answer(self, req: Request, id: str, protocol: str, name: str) -> Response:
        console_type = req.data[name]["type"]
        url = self.compute.get_console_url(req.context, id, protocol, console_type)
        return Response({"console": {"type": console_type, "url": url}})

    @declares(policies.REMOTE_CONSOLES, body=schemas.CREATE, answer="remote_console")
    def create(self, req: Request, server_id: str) -> Response:
        asked = req.data["remote_console"]
        url = self.compute.get_console_url(req.context, server_id, asked["protocol"], asked["type"])
        return Response({"remote_console": {"protocol": asked["protocol"], "type": asked["type"], "url": url}})


class ConsoleAuthTokens(Extension):
    alias = "os-console-auth-tokens"
    title = "Tokens of consoles"
    routes = (Route("GET", "/os-console-auth-tokens/{id}", "show"),)

    @declares(policies.AUTH_TOKENS, query=queries.NOTHING, answer="console", faults=(401,))
    def show(self, req: Request, id: str) -> Response:
        """Before 2.31 those of RDP consoles alone, of which there are none here."""
        console = self.conductor.console_token_get(req.context, tokens.digest(id))
        if not req.has(Change.CONSOLE_TOKENS_OF_ALL_TYPES):
            raise exceptions.ConsoleTypeNotShown()
        where = {
            "instance_uuid": console.instance_uuid,
            "host": console.console.host,
            "port": console.console.port,
            "internal_access_path": console.console.internal_access_path,
        }
        if req.has(Change.SPICE_DIRECT):
            where["tls_port"] = None
        return Response({"console": where})

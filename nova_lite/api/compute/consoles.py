"""Consoles: their URLs, their tokens, and the console output of a server."""

from __future__ import annotations

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change, Versioned
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, action, declares
from nova_lite.base import exceptions
from nova_lite.console import tokens
from nova_lite.policies import consoles as policies

# --- schemas


def _action(name: str, *console_types: str) -> t.Schema:
    return t.wrapped(name, t.strict({"type": t.one_of(*console_types)}, ("type",)))


GET_VNC_BODY = _action("os-getVNCConsole", "novnc", "xvpvnc")
GET_SPICE_BODY = _action("os-getSPICEConsole", "spice-html5")
GET_SERIAL_BODY = _action("os-getSerialConsole", "serial")

_PROTOCOLS = ("vnc", "spice", "rdp", "serial")
_TYPES = ("novnc", "xvpvnc", "spice-html5", "rdp-html5", "serial")


def _create(protocols: tuple[str, ...], console_types: tuple[str, ...]) -> t.Schema:
    properties = {"protocol": t.one_of(*protocols), "type": t.one_of(*console_types)}
    return t.wrapped("remote_console", t.strict(properties, ("protocol", "type")))


CREATE_BODY = Versioned(
    {
        Change.NO_CONSOLE_ACTIONS: _create(_PROTOCOLS, _TYPES),
        Change.MKS_CONSOLE: _create((*_PROTOCOLS, "mks"), (*_TYPES, "webmks")),
        Change.SPICE_DIRECT: _create((*_PROTOCOLS, "mks"), (*_TYPES, "webmks", "spice-direct")),
    }
)


_LENGTH: t.Schema = {"type": ["integer", "string", "null"], "pattern": "^-?[0-9]+$", "minimum": -1, "maxLength": 9}

CONSOLE_OUTPUT_BODY = t.wrapped("os-getConsoleOutput", t.strict({"length": _LENGTH}))


# --- routes

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

    @declares(policies.REMOTE_CONSOLES, body=GET_VNC_BODY, response="console")
    def get_vnc_console(self, req: Request, id: str) -> Response:
        return self._console_of_action(req, id, "vnc", "os-getVNCConsole")

    @declares(policies.REMOTE_CONSOLES, body=GET_SPICE_BODY, response="console")
    def get_spice_console(self, req: Request, id: str) -> Response:
        return self._console_of_action(req, id, "spice", "os-getSPICEConsole")

    @declares(policies.REMOTE_CONSOLES, body=GET_SERIAL_BODY, response="console")
    def get_serial_console(self, req: Request, id: str) -> Response:
        return self._console_of_action(req, id, "serial", "os-getSerialConsole")

    def _console_of_action(self, req: Request, id: str, protocol: str, name: str) -> Response:
        console_type = req.data[name]["type"]
        url = self.compute.get_console_url(req.context, id, protocol, console_type)
        return Response({"console": {"type": console_type, "url": url}})

    @declares(policies.REMOTE_CONSOLES, body=CREATE_BODY, response="remote_console")
    def create(self, req: Request, server_id: str) -> Response:
        body = req.data["remote_console"]
        url = self.compute.get_console_url(req.context, server_id, body["protocol"], body["type"])
        return Response({"remote_console": {"protocol": body["protocol"], "type": body["type"], "url": url}})


class ConsoleAuthTokens(Extension):
    alias = "os-console-auth-tokens"
    title = "Tokens of consoles"
    routes = (Route("GET", "/os-console-auth-tokens/{id}", "show"),)

    @declares(policies.AUTH_TOKENS, query=t.NO_PARAMETERS, response="console", faults=(401,))
    def show(self, req: Request, id: str) -> Response:
        """Show where a console's token leads.

        Before 2.31 only tokens of RDP consoles are shown, which do not exist here.
        """
        console = self.conductor.console_token_get(req.context, tokens.digest(id))
        if not req.has(Change.CONSOLE_TOKENS_OF_ALL_TYPES):
            raise exceptions.ConsoleTypeNotShown()
        view = {
            "instance_uuid": console.instance_uuid,
            "host": console.console.host,
            "port": console.console.port or None,
            "internal_access_path": console.console.internal_access_path,
        }
        if req.has(Change.SPICE_DIRECT):
            view["tls_port"] = console.console.tls_port
        return Response({"console": view})


class ConsoleOutput(Extension):
    alias = "os-console-output"
    title = "Console output"
    routes = (action("servers", "os-getConsoleOutput", "get_console_output"),)

    @declares(policies.CONSOLE_OUTPUT, body=CONSOLE_OUTPUT_BODY, response="output")
    def get_console_output(self, req: Request, id: str) -> Response:
        length = req.data["os-getConsoleOutput"].get("length")
        lines = int(length) if length is not None and int(length) >= 0 else None
        output = "".join(filter(_is_shown, self.compute.get_console_output(req.context, id, lines)))
        if lines is not None:
            output = output.removesuffix("\n").removesuffix("\r")  # clients count lines by splitting at newlines
        return Response({"output": output})


def _is_shown(char: str) -> bool:
    """Check whether ``char`` may appear in the output.

    Other control characters break terminals and XML clients.
    """
    return char >= " " or char in "\t\r\n"

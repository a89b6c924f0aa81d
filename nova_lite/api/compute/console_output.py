"""What a server printed on its console."""

from __future__ import annotations

from nova_lite.api.compute.schemas import servers as schemas
from nova_lite.api.http.wsgi import Extension, Request, Response, action, declares
from nova_lite.policies import servers as policies


class ConsoleOutput(Extension):
    alias = "os-console-output"
    title = "Console output"
    routes = (action("servers", "os-getConsoleOutput", "get_console_output"),)

    @declares(policies.CONSOLE_OUTPUT, body=schemas.CONSOLE_OUTPUT, answer="output")
    def get_console_output(self, req: Request, id: str) -> Response:
        length = req.data["os-getConsoleOutput"].get("length")
        lines = int(length) if length is not None and int(length) >= 0 else None
        output = "".join(filter(_is_shown, self.compute.get_console_output(req.context, id, lines)))
        if lines is not None:
            output = output.removesuffix("\n").removesuffix("\r")  # clients count lines by splitting at newlines
        return Response({"output": output})


def _is_shown(char: str) -> bool:
    """Guests print control characters that break terminals and XML-minded clients; text keeps tab and newlines."""
    return char >= " " or char in "\t\r\n"

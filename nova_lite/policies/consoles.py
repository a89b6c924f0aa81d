"""Rules of consoles."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, MEMBER, rule

CONSOLE_OUTPUT = rule(
    "os_compute_api:os-console-output",
    MEMBER,
    "Read a server's console output (os-getConsoleOutput)",
    "POST /servers/{server_id}/action",
)
REMOTE_CONSOLES = rule(
    "os_compute_api:os-remote-consoles",
    MEMBER,
    "Get the URL of a server's console (until 2.5 by actions such as os-getVNCConsole)",
    "POST /servers/{server_id}/action",
    "POST /servers/{server_id}/remote-consoles",
)
AUTH_TOKENS = rule(
    "os_compute_api:os-console-auth-tokens",
    ADMIN,
    "Show a console token's host and port",
    "GET /os-console-auth-tokens/{console_token}",
)

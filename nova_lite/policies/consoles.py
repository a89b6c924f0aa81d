"""Rules of consoles."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, MEMBER, rule

CONSOLE_OUTPUT = rule(
    "os_compute_api:os-console-output",
    MEMBER,
    "Read a server's console (os-getConsoleOutput)",
    "POST /servers/{server_id}/action",
)
REMOTE_CONSOLES = rule(
    "os_compute_api:os-remote-consoles",
    MEMBER,
    "Get the URL of a server's console (os-getVNCConsole and its like up to 2.5)",
    "POST /servers/{server_id}/action",
    "POST /servers/{server_id}/remote-consoles",
)
AUTH_TOKENS = rule(
    "os_compute_api:os-console-auth-tokens",
    ADMIN,
    "Show where the console of a token is",
    "GET /os-console-auth-tokens/{console_token}",
)

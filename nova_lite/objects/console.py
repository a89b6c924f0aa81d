"""A guest's console: where its host has it, and how a browser gets there."""

from __future__ import annotations

import msgspec


class Console(msgspec.Struct, kw_only=True, frozen=True):
    """What the proxy connects to, TCP ``host``:``port``. ``access_url_base``: the proxy's own URL, for the user."""

    console_type: str
    host: str
    port: int
    access_url_base: str
    internal_access_path: str | None = None


class ConsoleTarget(msgspec.Struct, kw_only=True, frozen=True):
    """What a token stands for. ``compute_host``: that of the server when the token was made."""

    instance_uuid: str
    compute_host: str
    console: Console

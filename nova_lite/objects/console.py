"""Consoles of guests: the address on the host, and the user's URL."""

from __future__ import annotations

import msgspec


class Console(msgspec.Struct, kw_only=True, frozen=True):
    """Console of a guest at ``host``:``port`` (TCP). ``access_url_base``: the URL of the proxy for the user."""

    console_type: str
    host: str
    port: int
    access_url_base: str
    internal_access_path: str | None = None


class ConsoleTarget(msgspec.Struct, kw_only=True, frozen=True):
    """Console that a token gives access to. ``compute_host``: host of the server when the token was made."""

    instance_uuid: str
    compute_host: str
    console: Console

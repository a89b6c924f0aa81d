"""Tokens of consoles. A token opens a console once, or one of SPICE until its time is over.

Only its user gets it, in the URL. The database has its hash.
"""

from __future__ import annotations

import hashlib
import secrets
import urllib.parse

from nova_lite.objects import Console

_RANDOM_BYTES = 32


def new() -> str:
    return secrets.token_urlsafe(_RANDOM_BYTES)


def digest(token: str) -> str:
    """Return the hash by which a token is stored. The token is random, so it needs no salt."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def url(console: Console, token: str) -> str:
    """Return the URL for the user: the page of the client with the path of its WebSocket, or the WebSocket itself."""
    has_page = console.console_type in ("novnc", "spice-html5")
    query = {"path": f"?token={token}"} if has_page else {"token": token}
    base = console.access_url_base
    return f"{base}{'&' if '?' in base else '?'}{urllib.parse.urlencode(query)}"


def of_path(path: str) -> str | None:
    """Return the token of a request's path, or None."""
    values = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query).get("token")
    return values[0] if values else None

"""Tokens of consoles. A token opens a console once. Only its user gets it, in the URL; the database has its hash."""

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
    """Return the URL for the user: noVNC's page with the path of its WebSocket, or the WebSocket itself."""
    query = {"path": f"?token={token}"} if console.console_type == "novnc" else {"token": token}
    base = console.access_url_base
    return f"{base}{'&' if '?' in base else '?'}{urllib.parse.urlencode(query)}"


def of_path(path: str) -> str | None:
    """Return the token of a request's path, or None."""
    values = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query).get("token")
    return values[0] if values else None

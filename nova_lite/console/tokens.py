"""Tokens of consoles. Who has one may open a console once, so it is told to its user alone, in the URL; others know its
hash."""

from __future__ import annotations

import hashlib
import secrets
import urllib.parse

from nova_lite.objects import Console

_RANDOM_BYTES = 32


def new() -> str:
    return secrets.token_urlsafe(_RANDOM_BYTES)


def digest(token: str) -> str:
    """By which it is kept and looked up. It is random, so it needs no salt."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def url(console: Console, token: str) -> str:
    """What its user opens: noVNC's page, which is told the path of its WebSocket; or the WebSocket itself."""
    query = {"path": f"?token={token}"} if console.console_type == "novnc" else {"token": token}
    base = console.access_url_base
    return f"{base}{'&' if '?' in base else '?'}{urllib.parse.urlencode(query)}"


def of_path(path: str) -> str | None:
    """The token in a request's path, if it has one."""
    found = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query).get("token")
    return found[0] if found else None

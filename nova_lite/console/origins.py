"""Checks of the web page that opens a console. A browser always names it, in the Origin header."""

from __future__ import annotations

import urllib.parse
from collections.abc import Collection


def is_allowed(origin: str | None, host: str | None, allowed: Collection[str]) -> bool:
    """Check whether the page comes from the host of the request (its Host header), or from one of ``allowed``.

    Other programs than browsers send no Origin, and no page can misuse them.
    """
    if origin is None:
        return True
    name = _hostname(origin)
    return name is not None and (
        name == _hostname(f"//{host or ''}") or name in {hostname.lower() for hostname in allowed}
    )


def scheme_of(origin: str | None) -> str | None:
    """Return the scheme of the page's URL, empty if the origin is not a URL. None for other programs than browsers."""
    if origin is None:
        return None
    try:
        return urllib.parse.urlsplit(origin).scheme
    except ValueError:
        return ""


def _hostname(url: str) -> str | None:
    try:
        return urllib.parse.urlsplit(url).hostname
    except ValueError:
        return None

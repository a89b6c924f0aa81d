"""Checks of the web page that opens a console. A browser always names it, in the Origin header."""

from __future__ import annotations

import urllib.parse
from collections.abc import Collection

#: The URL scheme of a page, by the scheme of its console's URL.
_PAGE_SCHEMES = {"ws": "http", "wss": "https"}


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


def has_scheme_of(origin: str | None, access_url_base: str) -> bool:
    """Check whether the page was loaded with TLS if the console uses TLS. Anybody can forge a page without TLS."""
    if origin is None:
        return True
    scheme = urllib.parse.urlsplit(access_url_base).scheme
    return _scheme(origin) == _PAGE_SCHEMES.get(scheme, scheme)


def _hostname(url: str) -> str | None:
    try:
        return urllib.parse.urlsplit(url).hostname
    except ValueError:
        return None


def _scheme(url: str) -> str | None:
    try:
        return urllib.parse.urlsplit(url).scheme
    except ValueError:
        return None

"""Which pages may open consoles: a browser names the page that asks (Origin), whatever the page is."""

from __future__ import annotations

import urllib.parse
from collections.abc import Collection

#: What a page is reached by, for what the console's own URL is reached by.
_PAGE_SCHEMES = {"ws": "http", "wss": "https"}


def is_allowed(origin: str | None, host: str | None, allowed: Collection[str]) -> bool:
    """Whether the page is from the host that the browser asks (its Host header), or from one of ``allowed``. Programs
    that are no browsers send no Origin, and are not misled by pages."""
    if origin is None:
        return True
    name = _hostname(origin)
    return name is not None and (name == _hostname(f"//{host or ''}") or name in {each.lower() for each in allowed})


def has_scheme_of(origin: str | None, access_url_base: str) -> bool:
    """Whether the page was reached as safely as the console is to be: a page without TLS may be anybody's."""
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

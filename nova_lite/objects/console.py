"""Consoles of guests: the address on the host, and the user's URL."""

from __future__ import annotations

import urllib.parse

import msgspec

#: The scheme of a page, by the scheme of its WebSocket.
_PAGE_SCHEMES = {"ws": "http", "wss": "https"}


class Console(msgspec.Struct, kw_only=True, frozen=True):
    """Console of a guest at ``host``:``port`` (TCP). ``access_url_base``: the URL of the proxy for the user.

    ``tls_port``: a second port of the same console, for TLS, as SPICE has it. With it ``port`` may be 0: there is none.
    """

    console_type: str
    host: str
    port: int
    access_url_base: str
    internal_access_path: str | None = None
    tls_port: int | None = None

    def is_shown_by(self, page_scheme: str) -> bool:
        """Check whether a page whose URL has this scheme may show the console.

        A console with TLS needs a page with TLS, because an attacker on the way can forge another page.
        """
        scheme = urllib.parse.urlsplit(self.access_url_base).scheme
        return page_scheme == _PAGE_SCHEMES.get(scheme, scheme)


class ConsolePort(msgspec.Struct, kw_only=True, frozen=True):
    """A host's reply about one of its ports. ``is_current``: the guest's console is still there.

    ``tls``: the port speaks TLS from the first byte, as serial consoles can, and SPICE's second port does. VNC servers
    offer TLS in their protocol.
    """

    is_current: bool
    tls: bool = False


class ConsoleTarget(msgspec.Struct, kw_only=True, frozen=True):
    """Console that a token gives access to. ``compute_host``: host of the server when the token was made."""

    instance_uuid: str
    compute_host: str
    console: Console

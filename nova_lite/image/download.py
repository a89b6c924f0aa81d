"""Downloads of images from hosts that the operator allows, for users who name a URL.

A user must reach nothing through this service that only this machine can reach. So the host of the URL, and of each
redirection, is in ``[image] import_hosts``. The name is resolved once, and the connection goes to the address that was
checked: none of this machine or of its link, unless the operator has listed the address itself.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv6Address
from typing import NamedTuple

from nova_lite.base import exceptions, ip
from nova_lite.base.timed_socket import TimedSocket

#: Redirections that are followed, and seconds that a connection may be silent.
MAX_REDIRECTS = 3
TIMEOUT = 30.0
MAX_URL = 2048

_PORTS = {"http": 80, "https": 443}
_REDIRECTS = (301, 302, 303, 307, 308)


class Target(NamedTuple):
    """An allowed URL. ``is_listed_address``: the operator has listed its address, whatever that is."""

    scheme: str
    host: str
    port: int
    path: str
    is_listed_address: bool


def target_of(url: object, allowed: Sequence[str]) -> Target:
    """Return the parts of a URL. Raises `ValidationError` unless its host is allowed (NAME or NAME:PORT)."""
    if not isinstance(url, str) or len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise exceptions.ValidationError(detail=f"uri must be a URL of at most {MAX_URL} printable ASCII characters.")
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise exceptions.ValidationError(detail="uri is no valid URL.") from error
    if parts.scheme not in _PORTS or not host or parts.username is not None or parts.password is not None:
        raise exceptions.ValidationError(detail="uri must be http://HOST/… or https://HOST/…, without a user's name.")
    shown = f"[{host}]" if ":" in host else host
    known = {item.lower() for item in allowed}
    if f"{shown}:{port}" not in known and not (port == _PORTS[parts.scheme] and shown in known):
        raise exceptions.ValidationError(
            detail=f"Images are not imported from {host[:255]}:{port}. Ask the operator to add it to import_hosts."
        )
    path = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
    return Target(parts.scheme, host, port, path, _address(host) is not None)


@contextlib.contextmanager
def opened(url: str, allowed: Sequence[str], deadline: float) -> Iterator[tuple[Body, int | None]]:
    """Yield the body behind a URL and its announced length. ``deadline``: by `time.monotonic`.

    Raises `ImageUnacceptable`, `ValidationError` for a redirection to a host that is not allowed, or OSError.
    """
    with contextlib.ExitStack() as stack:
        for _ in range(MAX_REDIRECTS + 1):
            target = target_of(url, allowed)
            connection = stack.enter_context(contextlib.closing(_connect(target, deadline)))
            connection.request("GET", target.path, headers={"Accept-Encoding": "identity", "User-Agent": "nova-lite"})
            response = connection.getresponse()
            if response.status not in _REDIRECTS:
                break
            url = urllib.parse.urljoin(url, response.headers.get("Location", ""))
        if response.status != 200 or response.headers.get("Content-Encoding", "identity") != "identity":
            raise OSError(None, f"{target.host} responds with status {response.status}")
        yield Body(response, deadline), response.length


class Body:
    """The body of a response, until its deadline."""

    def __init__(self, response: http.client.HTTPResponse, deadline: float) -> None:
        self._response = response
        self._deadline = deadline

    def read(self, size: int, /) -> bytes:
        """Read some bytes, none at the end. Raises OSError."""
        if time.monotonic() > self._deadline:
            raise TimeoutError("the download takes too long")
        try:
            return self._response.read1(size)
        except http.client.HTTPException as error:
            raise OSError(None, f"the download is broken: {type(error).__name__}") from error


def _connect(target: Target, deadline: float) -> http.client.HTTPConnection:
    """Connect to an address that was checked. Raises OSError, also for what arrives after the deadline."""
    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = [str(item[4][0]) for item in found]
    own = ip.own_networks()
    for address in addresses:
        if not target.is_listed_address and not _is_elsewhere(address, own):
            raise OSError(None, f"{target.host} has an address of this machine or its link")
    connection = http.client.HTTPConnection(target.host, target.port, timeout=TIMEOUT)
    plain = socket.create_connection((addresses[0], target.port), timeout=TIMEOUT)
    try:
        is_plain = target.scheme == "http"
        context = None if is_plain else ssl.create_default_context()
        sock = plain if context is None else context.wrap_socket(plain, server_hostname=target.host)
        connection.sock = TimedSocket(sock, deadline, TIMEOUT)
    except BaseException:
        plain.close()
        raise
    return connection


def _is_elsewhere(text: str, own: Iterable[ip.Network] = ()) -> bool:
    """Check whether an address is neither this machine's nor its link's. Private addresses may be those of a mirror.

    ``own``: of `ip.own_networks`.
    """
    address = _address(text)
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address.sixtofour or address
    if address is None or any(address in network for network in own):
        return False
    return not (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
    )


def _address(text: str) -> ip.Address | None:
    try:
        return ip.parse(text.partition("%")[0])
    except ValueError:
        return None

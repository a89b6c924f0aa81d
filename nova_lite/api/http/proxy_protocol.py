"""Version 2 of the PROXY protocol: the header by which a load balancer tells whose connection it passes on.

Whoever sends the header chooses the client's address. So it is read only from the configured balancers (`Balancers`).
A connection of theirs without the header is one of their own, such as a check of an older balancer.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from nova_lite.base import exceptions, ip
from nova_lite.base.ip import Network

#: Word of the option for the controllers of the cloud, whose list changes while the daemon runs.
CONTROLLERS = "controllers"
#: Begin of the header. Neither TLS nor HTTP begins with it.
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
#: Bytes of addresses and extensions that a header may have.
MAX_LENGTH = 2048

_LOCAL, _PROXY = 0x20, 0x21
_HEAD = struct.Struct("!12sBBH")
#: Addresses by family and protocol: TCP over IPv4, and over IPv6. Each has source, destination, and both ports.
_ADDRESSES = {
    0x11: (socket.AF_INET, struct.Struct("!4s4sHH")),
    0x21: (socket.AF_INET6, struct.Struct("!16s16sHH")),
}


class Source(NamedTuple):
    """A client of a load balancer."""

    address: str
    port: int


class Header:
    """Header of one connection, of which bytes arrive in pieces."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> tuple[Source | None, bytes] | None:
        """Return the client and the bytes after the header, or None until the header is complete.

        The client is None if the connection is the balancer's own. Raises `ValueError` for a wrong header.
        """
        self._data += data
        begin = self._data[: len(SIGNATURE)]
        if not SIGNATURE.startswith(begin):
            return None, self._data
        if len(self._data) < _HEAD.size:
            return None
        _, command, family, length = _HEAD.unpack_from(self._data)
        if command not in (_LOCAL, _PROXY):
            raise ValueError(f"it has version and command {command:#04x}")
        if length > MAX_LENGTH:
            raise ValueError(f"it announces {length} bytes")
        end = _HEAD.size + length
        if len(self._data) < end:
            return None
        return _source(command, family, self._data[_HEAD.size : end]), self._data[end:]


def _source(command: int, family: int, content: bytes) -> Source | None:
    if command == _LOCAL or family not in _ADDRESSES:
        return None
    kind, layout = _ADDRESSES[family]
    if len(content) < layout.size:
        raise ValueError(f"its addresses have {len(content)} bytes")
    source, _, port, _ = layout.unpack_from(content)
    return Source(socket.inet_ntop(kind, source), port)


class Balancers:
    """Load balancers whose headers are believed: networks, and the present controllers."""

    def __init__(self, networks: Sequence[Network], controllers: Callable[[], Collection[str]] | None = None) -> None:
        """Set both kinds. ``controllers`` returns the addresses of the controllers, which `refresh` reads."""
        self._networks = networks
        self._find = controllers
        self._controllers: Collection[str] = ()

    def refresh(self) -> str:
        """Read the list of controllers. If that fails, the last one stays. Returns the problem, else an empty text."""
        try:
            if self._find is not None:
                self._controllers = self._find()
        except (exceptions.ConfigurationError, OSError) as error:
            return str(error)
        return ""

    def __contains__(self, address: str) -> bool:
        if address in self._controllers:
            return True
        if not self._networks:
            return False
        parsed = ip.parse(address.partition("%")[0])
        return any(parsed in network for network in self._networks)


def networks(option: Sequence[str]) -> list[Network]:
    """Return the networks of the option, without `CONTROLLERS`. Raises `ConfigurationError`."""
    found = []
    for text in option:
        if text == CONTROLLERS:
            continue
        try:
            found.append(ip.parse_network(text, strict=False))
        except ValueError as error:
            raise exceptions.ConfigurationError(
                reason=f"[api] proxy_protocol_from: {text} is no address, no network, and not {CONTROLLERS}."
            ) from error
    return found

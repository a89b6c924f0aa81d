"""The beginning of the RFB protocol (RFC 6143), which VNC speaks: versions and security types.

The proxy authenticates itself to the VNC server of a guest by VeNCrypt with TLS and X.509 certificates. Browsers speak
no VeNCrypt. So the proxy begins the protocol again with the browser, and offers no security there: the token was that.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

VERSION = b"RFB 003.008\n"
_OLD_VERSIONS = (b"RFB 003.003\n", b"RFB 003.007\n")
#: Security types, and the subtype of VeNCrypt with certificates and no password.
NONE, VENCRYPT, X509_NONE = 1, 19, 260
_VENCRYPT_VERSION = b"\x00\x02"


class RfbError(Exception):
    """The other side does not begin the protocol as this proxy expects. The text is for the operator."""


def connect(sock: socket.socket, secure: Callable[[socket.socket], socket.socket], need_tls: bool) -> socket.socket:
    """Begin the protocol with a VNC server, up to ClientInit. Return the socket of the rest.

    ``secure`` does the TLS handshake. Raises `RfbError`, or `OSError` if the connection breaks.
    """
    version = _read(sock, len(VERSION))
    if version != VERSION:
        raise RfbError(f"the server speaks {version!r}, not RFB 3.8")
    sock.sendall(VERSION)
    types = _read(sock, _read(sock, 1)[0])
    if VENCRYPT in types:
        sock = _vencrypt(sock, secure)
    elif NONE in types and not need_tls:
        sock.sendall(bytes([NONE]))
    else:
        raise RfbError(f"its VNC server offers no TLS (security types {list(types)}): vnc_tls in its qemu.conf")
    (result,) = struct.unpack("!L", _read(sock, 4))
    if result != 0:
        raise RfbError("its VNC server refuses this proxy")
    return sock


def _vencrypt(sock: socket.socket, secure: Callable[[socket.socket], socket.socket]) -> socket.socket:
    sock.sendall(bytes([VENCRYPT]))
    version = _read(sock, 2)
    if version != _VENCRYPT_VERSION:
        raise RfbError(f"its VNC server speaks VeNCrypt {version[0]}.{version[1]}, not 0.2")
    sock.sendall(_VENCRYPT_VERSION)
    if _read(sock, 1) != b"\x00":
        raise RfbError("its VNC server refuses VeNCrypt 0.2")
    (count,) = _read(sock, 1)
    subtypes = struct.unpack(f"!{count}L", _read(sock, 4 * count))
    if X509_NONE not in subtypes:
        raise RfbError(f"its VNC server has no certificate (VeNCrypt subtypes {list(subtypes)})")
    sock.sendall(struct.pack("!L", X509_NONE))
    if _read(sock, 1) != b"\x01":
        raise RfbError("its VNC server refuses VeNCrypt with certificates")
    return secure(sock)


def _read(sock: socket.socket, size: int) -> bytes:
    """Read exactly ``size`` bytes."""
    found = b""
    while len(found) < size:
        more = sock.recv(size - len(found))
        if not more:
            raise RfbError("its VNC server closes the connection")
        found += more
    return found


class Greeting:
    """The server's side of the beginning, towards a browser. Send `VERSION` first."""

    def __init__(self) -> None:
        self._input = b""
        self._step = self._read_version
        self.is_done = False

    def feed(self, data: bytes) -> bytes:
        """Take input of the browser, and return what to send. Raises `RfbError`."""
        self._input += data
        output = b""
        while not self.is_done and (reply := self._step()) is not None:
            output += reply
        return output

    @property
    def rest(self) -> bytes:
        """Input that came after the beginning: it is for the VNC server."""
        return self._input

    def _read_version(self) -> bytes | None:
        version = self._take(len(VERSION))
        if version is None:
            return None
        if version != VERSION and version not in _OLD_VERSIONS:
            raise RfbError("the client does not speak RFB")
        if version == _OLD_VERSIONS[0]:
            self.is_done = True
            return struct.pack("!L", NONE)
        self._with_result = version == VERSION
        self._step = self._read_choice
        return bytes([1, NONE])

    def _read_choice(self) -> bytes | None:
        choice = self._take(1)
        if choice is None:
            return None
        if choice != bytes([NONE]):
            raise RfbError("the client chooses a security type that was not offered")
        self.is_done = True
        return struct.pack("!L", 0) if self._with_result else b""

    def _take(self, size: int) -> bytes | None:
        if len(self._input) < size:
            return None
        taken, self._input = self._input[:size], self._input[size:]
        return taken

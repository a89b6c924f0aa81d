"""Directory server (LDAP) of an attacker, on a free port of loopback. Each search gets what a test's script sends."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

#: Tags of requests and responses (RFC 4511).
BIND, SEARCH = 0x60, 0x63
_BIND_RESPONSE, _ENTRY, _DONE, _REFERENCE = 0x61, 0x64, 0x65, 0x73
_SEQUENCE, _SET, _INTEGER, _TEXT, _ENUMERATED = 0x30, 0x31, 0x02, 0x04, 0x0A
_REFERRAL, _CONTROLS = 0xA3, 0xA0
_PAGED = b"1.2.840.113556.1.4.319"

SUCCESS, REFERRAL = 0, 10

#: Pieces of a response, which may never end.
Script = Callable[["Replies"], Iterator[bytes]]


def element(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    if len(content) < 128:
        return bytes([tag, len(content)]) + content
    length = len(content).to_bytes(4, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _number(value: int, tag: int = _INTEGER) -> bytes:
    return element(tag, value.to_bytes(4, "big"))


class Replies:
    """Makes the responses to one request."""

    def __init__(self, message_id: int) -> None:
        self._id = _number(message_id)

    def _message(self, *parts: bytes) -> bytes:
        return element(_SEQUENCE, self._id, *parts)

    def entry(self, name: str, **attributes: bytes) -> bytes:
        values = [
            element(_SEQUENCE, element(_TEXT, key.encode()), element(_SET, element(_TEXT, value)))
            for key, value in attributes.items()
        ]
        dn = element(_TEXT, f"uid={name},ou=people".encode())
        return self._message(element(_ENTRY, dn, element(_SEQUENCE, *values)))

    def user(self, name: str, key: str, dn: str = "") -> bytes:
        return self.entry(dn or name, uid=name.encode(), entryUUID=key.encode(), mail=b"")

    def reference(self, url: str) -> bytes:
        return self._message(element(_REFERENCE, element(_TEXT, url.encode())))

    def done(self, code: int = SUCCESS, referral: str = "", cookie: bytes = b"", tag: int = _DONE) -> bytes:
        parts = [_number(code, _ENUMERATED), element(_TEXT), element(_TEXT)]
        if referral:
            parts.append(element(_REFERRAL, element(_TEXT, referral.encode())))
        controls = []
        if cookie:
            page = element(_SEQUENCE, _number(0), element(_TEXT, cookie))
            control = element(_SEQUENCE, element(_TEXT, _PAGED), element(_TEXT, page))
            controls.append(element(_CONTROLS, control))
        return self._message(element(tag, *parts), *controls)


class HostileDirectory:
    """The running server. ``script``: responds to searches. ``bind``: result code of binds, and a referral.

    ``requests``: tags of all requests so far.
    """

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = "ldap://{}:{}".format(*self._listening.getsockname())
        self.requests: list[int] = []
        self.script: Script = lambda replies: iter([replies.done()])
        self.bind = (SUCCESS, "")
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def stop(self) -> None:
        for sock in (self._listening, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listening.accept()
                self._sockets.append(sock)
                self._threads.append(threading.Thread(target=self._serve, args=(sock,)))
                self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while request := _read(sock):
                size = request[1]
                message_id, tag = int.from_bytes(request[2 : 2 + size], "big"), request[2 + size]
                self.requests.append(tag)
                replies = Replies(message_id)
                if tag == BIND:
                    sock.sendall(replies.done(*self.bind, tag=_BIND_RESPONSE))
                elif tag == SEARCH:
                    for piece in self.script(replies):
                        sock.sendall(piece)


def _read(sock: socket.socket) -> bytes:
    """Return the content of a message: an integer and a request. Empty at the end."""
    start = sock.recv(2, socket.MSG_WAITALL)
    if len(start) < 2:
        return b""
    size = start[1]
    if size & 0x80:
        size = int.from_bytes(sock.recv(size & 0x7F, socket.MSG_WAITALL), "big")
    return sock.recv(size, socket.MSG_WAITALL)

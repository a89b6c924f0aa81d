"""A console, and a client of its proxy, for tests."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable

from websockify.websocket import WebSocket, WebSocketWantReadError

from nova_lite.daemon.sockets import listen

GREETING = b"RFB 003.008\n"


#: First message of a connection for SPICE's main channel, version 2.2, without capabilities.
SPICE_LINK = struct.pack("<4sIIIIBBIII", b"REDQ", 2, 2, 18, 0, 1, 0, 0, 0, 18)
#: Length of a SPICE server's reply up to its error number. Its key follows.
SPICE_REPLY = 20


def serve(listener: socket.socket, speak: Callable[[socket.socket], None]) -> None:
    """Call ``speak`` with each connection, in a thread of its own, until the listener is closed."""

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                threading.Thread(target=speak, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


class EchoConsole:
    """A console that greets, then repeats its input ``flood`` times. ``received`` counts bytes."""

    def __init__(self) -> None:
        self.flood = 1
        self.received = 0
        self.sock = listen("127.0.0.1", 0)
        self.port = int(self.sock.getsockname()[1])
        serve(self.sock, self._speak)

    def _speak(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock:
            sock.sendall(GREETING)
            while said := sock.recv(65536):
                self.received += len(said)
                sock.sendall(said * self.flood)


def request(sock: socket.socket, path: str, headers: dict[str, str] | None = None) -> None:
    """Ask for a WebSocket."""
    lines = {
        "Host": "proxy",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Version": "13",
    } | (headers or {})
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    sock.sendall(f"GET {path} HTTP/1.1\r\n{text}\r\n".encode())


def status(port: int, path: str, headers: dict[str, str] | None = None) -> int:
    """Return the status of a request for a WebSocket."""
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        request(sock, path, headers)
        return int(sock.recv(65536).split()[1])


def connect(sock: socket.socket, path: str, headers: dict[str, str] | None = None) -> WebSocket:
    """Attach websockify's client to an accepted request of ours; its own request has no query string."""
    request(sock, path, headers)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        said = sock.recv(1)
        assert said, head
        head += said
    assert head.startswith(b"HTTP/1.1 101 "), head
    client = WebSocket()
    client.client, client.socket, client._state = True, sock, "done"
    return client


def accepts_spice(reply: bytes) -> bool:
    """Check whether the reply to `SPICE_LINK` is a SPICE server's, without an error."""
    magic, major, _, _, error = struct.unpack("<4sIIII", reply[:SPICE_REPLY])
    return (magic, major, error) == (b"REDQ", 2, 0)


def read(client: WebSocket, length: int) -> bytes:
    said = b""
    while len(said) < length:
        with contextlib.suppress(WebSocketWantReadError):
            part = client.recv()
            assert part is not None, said
            said += part
    return said

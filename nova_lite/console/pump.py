"""Bytes between a browser's WebSocket and a console's socket, in both directions, until one of them ends."""

from __future__ import annotations

import select
import socket
import threading
from typing import Any

from websockify.websocket import WebSocketWantReadError, WebSocketWantWriteError

CHUNK = 64 * 1024
#: Bytes of a message that has begun and not ended; consoles have short ones.
MAX_MESSAGE = 1024 * 1024
#: Seconds without anything to do, after which it is looked whether it is to end.
TICK = 1.0
#: Seconds that either side may take to receive what it is sent.
SEND_TIMEOUT = 60.0

_NORMAL, _GOING_AWAY, _TOO_LARGE = 1000, 1001, 1009


def pump(client: Any, target: socket.socket, stopping: threading.Event) -> int:
    """``client``: websockify's WebSocket. A side that does not take what it is sent keeps the other one waiting, so
    that nothing piles up here. Returns the status that the client is to be told; raises `OSError` if a connection
    broke."""
    client.settimeout(SEND_TIMEOUT)
    target.settimeout(SEND_TIMEOUT)
    while not stopping.is_set():
        readable, _, _ = select.select([client, target], [], [], 0 if client.pending() else TICK)
        if target in readable:
            said = target.recv(CHUNK)
            if not said:
                return _NORMAL
            _send(client, said)
        if client in readable or client.pending():
            typed = _receive(client)
            if typed is None:
                return _NORMAL
            target.sendall(typed)
            if len(client._recv_buffer) + len(client._partial_msg) > MAX_MESSAGE:
                return _TOO_LARGE
    return _GOING_AWAY


def _send(client: Any, message: bytes) -> None:
    while True:
        try:
            client.sendmsg(message)
        except WebSocketWantWriteError:  # some of it is sent; it wants to be called again with the same
            continue
        return


def _receive(client: Any) -> bytes | None:
    """What has come, b"" if that is no whole message; None at the client's end."""
    try:
        message: bytes | None = client.recvmsg()
    except WebSocketWantReadError:
        return b""
    return message

"""Copies bytes between a browser's WebSocket and a console's socket, in both directions, until one of them ends."""

from __future__ import annotations

import select
import socket
import threading
from typing import Any

from websockify.websocket import WebSocketWantReadError, WebSocketWantWriteError

CHUNK = 64 * 1024
#: Largest size of an incomplete message, in bytes. Messages of consoles are short.
MAX_MESSAGE = 1024 * 1024
#: Seconds between two checks of whether the proxy is stopping.
TICK = 1.0
#: Seconds that a send to either side may take.
SEND_TIMEOUT = 60.0

_NORMAL, _GOING_AWAY, _TOO_LARGE = 1000, 1001, 1009


def pump(client: Any, target: socket.socket, stopping: threading.Event) -> int:
    """Copy bytes until one side ends or ``stopping`` is set. ``client`` is websockify's WebSocket.

    A slow side makes the other side wait, so that no data pile up here. Returns the WebSocket status for the client.
    Raises `OSError` if a connection breaks.
    """
    client.settimeout(SEND_TIMEOUT)
    target.settimeout(SEND_TIMEOUT)
    while not stopping.is_set():
        readable, _, _ = select.select([client, target], [], [], 0 if client.pending() else TICK)
        if target in readable:
            output = target.recv(CHUNK)
            if not output:
                return _NORMAL
            _send(client, output)
        if client in readable or client.pending():
            keys = _receive(client)
            if keys is None:
                return _NORMAL
            target.sendall(keys)
            if len(client._recv_buffer) + len(client._partial_msg) > MAX_MESSAGE:
                return _TOO_LARGE
    return _GOING_AWAY


def _send(client: Any, message: bytes) -> None:
    while True:
        try:
            client.sendmsg(message)
        except WebSocketWantWriteError:  # a part is sent; websockify expects the same call again
            continue
        return


def _receive(client: Any) -> bytes | None:
    """Return the next message, b"" if it is incomplete, or None if the client has closed the connection."""
    try:
        message: bytes | None = client.recvmsg()
    except WebSocketWantReadError:
        return b""
    return message

"""Copies bytes between a browser's WebSocket and a console's socket, in both directions, until one of them ends."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from typing import Any

from websockify.websocket import WebSocketWantReadError, WebSocketWantWriteError

from nova_lite.console import rfb

CHUNK = 64 * 1024
#: Largest size of an incomplete message, in bytes. Messages of consoles are short.
MAX_MESSAGE = 1024 * 1024
#: Seconds between two checks of whether the proxy is stopping.
TICK = 1.0
#: Seconds that a send to either side may take.
SEND_TIMEOUT = 60.0
#: Seconds that a browser may take to begin the RFB protocol.
GREETING_TIMEOUT = 10.0

_NORMAL, _GOING_AWAY, _TOO_LARGE = 1000, 1001, 1009


def pump(client: Any, target: socket.socket, stopping: threading.Event, largest: int | None = None) -> int:
    """Copy bytes until one side ends or ``stopping`` is set. ``client`` is websockify's WebSocket. ``largest``: as for
    `write`.

    A slow side makes the other side wait, so that no data pile up here. Returns the WebSocket status for the client.
    Raises `OSError` if a connection breaks.
    """
    client.settimeout(SEND_TIMEOUT)
    target.settimeout(SEND_TIMEOUT)
    while not stopping.is_set():
        waits = not client.pending() and not _pending(target)
        readable, _, _ = select.select([client, target], [], [], TICK if waits else 0)
        if target in readable or _pending(target):
            output = _read(target)
            if output == b"":
                return _NORMAL
            if output is not None:
                _send(client, output)
        if client in readable or client.pending():
            keys = _receive(client)
            if keys is None:
                return _NORMAL
            write(target, keys, largest)
            if len(client._recv_buffer) + len(client._partial_msg) > MAX_MESSAGE:
                return _TOO_LARGE
    return _GOING_AWAY


def write(target: socket.socket, keys: bytes, largest: int | None) -> None:
    """Send what a user types to a console. ``largest``: the most bytes of one record of TLS; None: any number."""
    step = largest or max(1, len(keys))
    for start in range(0, len(keys), step):
        target.sendall(keys[start : start + step])


def greet(client: Any, target: socket.socket) -> None:
    """Begin the RFB protocol with a browser, whose server has begun it with this proxy.

    Raises `OSError` if a connection breaks, and `rfb.RfbError`.
    """
    client.settimeout(GREETING_TIMEOUT)
    target.settimeout(SEND_TIMEOUT)
    deadline = time.monotonic() + GREETING_TIMEOUT
    greeting = rfb.Greeting()
    _send(client, rfb.VERSION)
    while not greeting.is_done:
        keys = _receive(client)
        if keys is None or time.monotonic() > deadline:
            raise rfb.RfbError("the client does not begin the protocol")
        reply = greeting.feed(keys)
        if reply:
            _send(client, reply)
    if greeting.rest:
        target.sendall(greeting.rest)


def _pending(target: socket.socket) -> bool:
    return isinstance(target, ssl.SSLSocket) and target.pending() > 0


def _read(target: socket.socket) -> bytes | None:
    """Read from a console. None: what has come so far is an incomplete record of TLS, or one without data."""
    if not isinstance(target, ssl.SSLSocket):
        return target.recv(CHUNK)
    target.settimeout(0)
    try:
        return target.recv(CHUNK)
    except ssl.SSLWantReadError:
        return None
    finally:
        target.settimeout(SEND_TIMEOUT)


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

"""Reading from the broker whatever has come at once, acknowledging it at once, and sending without preparations.

py-amqp asks its socket for each part of a frame, with a timeout that it sets and takes back: nine parts of a message,
which oslo.messaging then acknowledges by a write of its own. Each time the interpreter's lock is given away, and has to
be waited for, up to five milliseconds where others work. So the one thread that reads let a busy daemon's messages lie:
at 200 a second it was seen to do nothing else than to wait for the lock, sixteen times for each.

Here it asks for all that has come. What was read ahead waits in the connection's own buffer, which py-amqp has for what
a timeout has cut. As long as a next message is in there, the one before is not acknowledged by itself: the last one's
word is for all of them, and is given before anybody waits for more, or sends anything else.

A socket with a timeout, as oslo.messaging's have one, looks whether it may read or write before it does, and
to change its timeout is a call to the kernel as well. So whoever waits asks the kernel once, reads then, and leaves the
timeout as it is; and what is sent is written, and waited with only if the kernel has no room for it. Not with TLS,
where what the kernel has says little, nor with eventlet's sockets.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import os
import select
import socket
import struct
from typing import Any

from amqp import channel, connection, transport
from amqp.exceptions import RecoverableConnectionError

from nova_lite.base import concurrency

#: Bytes that are asked for at a time at least.
AHEAD = 16384

#: What means that nothing has come yet, of a socket, plain or with TLS.
_AGAIN = {errno.EAGAIN, errno.EINTR, errno.ENOENT}

#: Of a frame: its type, its channel, and the size of what follows, without the one byte that ends it.
_HEAD = struct.Struct(">BHI")
#: A whole frame, Basic.Ack: its head, class and method, a tag, that it is for all before as well, and the end.
_ACK = struct.Struct(">BHIHHQBB")

_THEIR_TIMEOUT = transport._AbstractTransport.having_timeout
_THEIR_WRITE = transport._AbstractTransport.write
_THEIR_BLOCKING_READ = connection.Connection.blocking_read


@functools.cache
def read_ahead() -> None:
    """For every connection of this process, from now on."""
    transport._AbstractTransport.having_timeout = _having_timeout
    transport._AbstractTransport.write = _write
    transport.TCPTransport._read = transport.SSLTransport._read = _read
    channel.Channel.basic_ack = _basic_ack
    if not concurrency.is_eventlet():
        connection.Connection.blocking_read = _blocking_read
        transport.TCPTransport._setup_transport = _set_up


def has_frame(used: Any) -> bool:
    """Whether a transport has read a whole frame that nobody has taken yet."""
    buffer: bytes = used._read_buffer
    return len(buffer) > _HEAD.size and len(buffer) > _HEAD.size + _HEAD.unpack_from(buffer)[2]


def acknowledge(used: Any) -> None:
    """What is left to be acknowledged. Raises what a lost connection does; all of it comes again then."""
    acks = _acks(used)
    for channel_id in [*acks]:
        if (tag := acks.pop(channel_id, None)) is not None:  # by another thread that sends, as it ends
            _THEIR_WRITE(used, _ACK.pack(1, channel_id, 13, 60, 80, tag, True, 0xCE))


def _acks(used: Any) -> dict[int, int]:
    """The last message of each channel that was not acknowledged yet."""
    acks: dict[int, int] = used.__dict__.setdefault("nova_lite_acks", {})
    return acks


def _having_timeout(self: Any, timeout: float | None) -> Any:
    if has_frame(self):
        return contextlib.nullcontext()
    acknowledge(self)
    return _THEIR_TIMEOUT(self, timeout)


def _blocking_read(self: Any, timeout: float | None = None) -> Any:
    """Take the next frame. Raises TimeoutError after ``timeout`` seconds, or the socket's own, and of a connection that
    another thread has closed what a lost one does."""
    used = self.transport
    if not isinstance(used, transport.TCPTransport):
        return _THEIR_BLOCKING_READ(self, timeout)
    if not has_frame(used):
        acknowledge(used)
        sock = used.sock
        if sock is None:
            raise RecoverableConnectionError("connection already closed")
        patience = used.nova_lite_patience[0] = sock.gettimeout() if timeout is None else timeout
        _wait(sock, patience)
    return self.on_inbound_frame(used.read_frame())


def _set_up(self: Any) -> None:
    """Without the transport in what it has, so that one that nobody has any more is gone at once."""
    self._read_buffer = b""
    #: Seconds for which the rest of a frame is waited for.
    self.nova_lite_patience = [self.sock.gettimeout()]
    self._quick_recv = functools.partial(_receive, self.sock, self.nova_lite_patience)
    self._write = functools.partial(_send, self.sock)


def _wait(sock: Any, timeout: float | None) -> None:
    number = sock.fileno()
    if number < 0:
        raise OSError(errno.EBADF, "The connection is closed")
    readable = select.poll()
    readable.register(number, select.POLLIN)
    if not readable.poll(None if timeout is None else math.ceil(timeout * 1000)):
        raise TimeoutError("timed out")


def _receive(sock: Any, patience: list[float | None], count: int) -> bytes:
    """What there is. Raises BlockingIOError once there is more, having waited for that."""
    try:
        if sock.gettimeout() is None:  # then the kernel would wait
            received: bytes = sock.recv(count, socket.MSG_DONTWAIT)
            return received
        return os.read(sock.fileno(), count)
    except BlockingIOError:
        _wait(sock, patience[0])
        raise


def _send(sock: Any, data: Any) -> None:
    try:
        sent = os.write(sock.fileno(), data)
    except BlockingIOError:
        sent = 0
    if sent < len(data):
        sock.sendall(data[sent:])


def _write(self: Any, data: Any) -> None:
    acknowledge(self)
    _THEIR_WRITE(self, data)


def _basic_ack(self: Any, delivery_tag: int = 0, multiple: bool = False, argsig: str = "Lb") -> None:
    if self.connection is None:
        raise RecoverableConnectionError("connection already closed")
    used = self.connection.transport
    _acks(used)[self.channel_id] = delivery_tag
    if not has_frame(used):
        acknowledge(used)


def _read(self: Any, count: int, initial: bool = False) -> bytes:
    """Exactly so many bytes. Raises OSError when the connection is closed, and what the socket raises."""
    buffer: bytes = self._read_buffer
    try:
        while len(buffer) < count:
            try:
                received = self._quick_recv(max(count - len(buffer), AHEAD))
            except OSError as error:
                if error.errno not in _AGAIN:
                    raise
                if initial and self.raise_on_initial_eintr:
                    raise TimeoutError from error
                continue
            if not received:
                raise OSError("Server unexpectedly closed connection")
            buffer += received
    finally:
        self._read_buffer = buffer
    self._read_buffer = buffer[count:]
    return buffer[:count]

"""What a daemon does while the broker has an alarm, of its memory or its disk: the broker takes no message then, and
does not say until when.

oslo.messaging waits for its word that it has a message, without end: the broker's own heartbeats keep the connection
from being given up. But the broker tells who sends that it is blocked, so whoever sends gives up then, and resets the
connection: of one that was only closed the broker would still take the message, which it had read but not looked at,
once the alarm is over, when the user was long told that nothing was done. Answers wait on: it is all that a worker has
left to do.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import struct
import threading
from typing import Any

import amqp.exceptions
from oslo_messaging._drivers import impl_rabbit

_sending = threading.local()


@functools.cache
def give_up() -> None:
    """For every connection of this process, from now on."""
    publish, on_blocked = impl_rabbit.Connection._publish, impl_rabbit.Connection._on_connection_blocked

    def brief(connection: Any, exchange: Any, *arguments: Any, **options: Any) -> None:
        # The default exchange leads to a caller's own queue: an answer.
        _sending.connection = connection if exchange.name else None
        try:
            publish(connection, exchange, *arguments, **options)
        finally:
            _sending.connection = None

    def blocked(reason: str) -> None:
        """In the thread that reads from the connection: the one that waits for the broker's word."""
        on_blocked(reason)
        connection = getattr(_sending, "connection", None)
        if connection is not None:
            _reset(connection)
            raise amqp.exceptions.RecoverableConnectionError("The broker has an alarm, and takes no messages")

    impl_rabbit.Connection._publish = brief
    impl_rabbit.Connection._on_connection_blocked = staticmethod(blocked)


def _reset(connection: Any) -> None:
    """Not closed in due form: the broker would not hear of that before its alarm is over. socket(7): with a linger of
    no seconds a close is a reset, and what was not read yet is forgotten at both ends."""
    with contextlib.suppress(AttributeError, OSError):  # it may have been lost meanwhile
        sock = connection.channel.connection.transport.sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.connection.collect()

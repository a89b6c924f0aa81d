"""Limits for unauthenticated clients: the time to send a request, and the number of connections."""

from __future__ import annotations

import collections
import io
import logging
import re
import threading
import time
from typing import Any, NamedTuple

LOG = logging.getLogger(__name__)

#: Minimum rate of a request, in bytes a second, after `ClientLimits.request` seconds.
MIN_RATE = 16 * 1024
MAX_HEADER_BYTES = 64 * 1024
#: A body up to this size must be complete before a thread gets the request.
MAX_AWAITED_BODY = 128 * 1024

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*\r\n", re.IGNORECASE)
_EXPECT = re.compile(rb"\r\nexpect:", re.IGNORECASE)


class ClientLimits(NamedTuple):
    """Limits of one client. All times are in seconds.

    - ``idle``: how long a connection may be silent between two requests, or while the server writes to it.
    - ``request``: how long the server waits for one request, headers and body. Each `MIN_RATE` bytes add one second.
    - ``connections``: connections per client address.
    - ``waiting``, ``wait``: how many complete requests may wait for a thread, and for how long.
    """

    idle: float = 60.0
    request: float = 20.0
    connections: int = 400
    waiting: int = 100
    wait: float = 5.0


class TimedReader(io.RawIOBase):
    """Reader of a socket that raises `TimeoutError` at the deadline of the request.

    Only the time spent waiting for data counts, not the application's work between two reads. ``raw`` reads from the
    socket.
    """

    def __init__(self, raw: Any, sock: Any, limits: ClientLimits) -> None:
        self._raw = raw
        self._sock = sock
        self._limits = limits
        self.next_request()

    def next_request(self) -> None:
        """Start a new request. Until its first byte arrives the connection is idle."""
        self._received = 0
        self._waited = 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._left())
        started = time.monotonic()
        count: int | None = self._raw.readinto(buffer)
        self._sock.settimeout(self._limits.idle)
        if self._received:
            self._waited += time.monotonic() - started
        self._received += count or 0
        return count

    def _left(self) -> float:
        if not self._received:
            return self._limits.idle
        left = self._limits.request + self._received / MIN_RATE - self._waited
        if left <= 0:
            raise TimeoutError("timed out")
        return min(left, self._limits.idle)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


def missing_bytes(received: bytes) -> int:
    """Return a lower bound of the bytes that are missing until a thread can work on the request; 0 if none are.

    Headers are enough if the body is large, or if the client sends the body only after ``100 Continue``.
    """
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return 1 if len(received) < MAX_HEADER_BYTES else 0
    head = received[: end + 2]
    length = _LENGTH.search(head)
    if length is None or _EXPECT.search(head) or int(length[1]) > MAX_AWAITED_BODY:
        return 0
    return max(0, end + 4 + int(length[1]) - len(received))


class ConnectionCounter:
    """Counts the open connections of each client address."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._open: collections.Counter[str] = collections.Counter()

    def enter(self, address: str) -> bool:
        """Count one more connection of the address. Return False, and count nothing, if it has reached the limit."""
        with self._lock:
            if self._open[address] >= self._limit:
                LOG.warning("%s has %d connections, which is the maximum; a new one is closed", address, self._limit)
                return False
            self._open[address] += 1
            return True

    def leave(self, address: str) -> None:
        with self._lock:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]

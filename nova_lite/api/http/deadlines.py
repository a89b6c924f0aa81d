"""What a client may take of a server before anybody knows who it is: time to send a request, and connections."""

from __future__ import annotations

import collections
import io
import logging
import re
import threading
import time
from typing import Any, NamedTuple

LOG = logging.getLogger(__name__)

#: Bytes a second that a request has to come with, once its deadline is over.
MIN_RATE = 16 * 1024
MAX_HEADER_BYTES = 64 * 1024
#: A body up to this size is waited for before anybody works on the request.
MAX_AWAITED_BODY = 128 * 1024

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*\r\n", re.IGNORECASE)
_EXPECT = re.compile(rb"\r\nexpect:", re.IGNORECASE)


class ClientLimits(NamedTuple):
    """``idle``: seconds that a connection may be silent between two requests, or while it is written to. ``request``:
    seconds that a client may keep the server waiting for one request, headers and body, and one more for each
    `MIN_RATE` bytes of it. ``connections``: how many a client's address may have. ``waiting``: how many whole requests
    may wait for a thread, and ``wait`` for how many seconds."""

    idle: float = 60.0
    request: float = 20.0
    connections: int = 400
    waiting: int = 100
    wait: float = 5.0


class TimedReader(io.RawIOBase):
    """Reads from ``raw``, which reads from the socket, and raises `TimeoutError` at the deadline of the request.

    Only waiting counts, not what the application does between two reads."""

    def __init__(self, raw: Any, sock: Any, limits: ClientLimits) -> None:
        self._raw = raw
        self._sock = sock
        self._limits = limits
        self.next_request()

    def next_request(self) -> None:
        """From here to the next byte the connection is idle."""
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


def missing_bytes(seen: bytes) -> int:
    """How many bytes at least have to come before there is a request to work on; 0 if there is one. Of large bodies,
    and of those whose client waits for a word, only the headers are needed."""
    end = seen.find(b"\r\n\r\n")
    if end < 0:
        return 1 if len(seen) < MAX_HEADER_BYTES else 0
    head = seen[: end + 2]
    length = _LENGTH.search(head)
    if length is None or _EXPECT.search(head) or int(length[1]) > MAX_AWAITED_BODY:
        return 0
    return max(0, end + 4 + int(length[1]) - len(seen))


class ConnectionCounter:
    """How many connections each address has."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._open: collections.Counter[str] = collections.Counter()

    def enter(self, address: str) -> bool:
        """Whether the address may have one more, which is then counted."""
        with self._lock:
            if self._open[address] >= self._limit:
                LOG.warning("%s has %d connections already: it gets no more", address, self._limit)
                return False
            self._open[address] += 1
            return True

    def leave(self, address: str) -> None:
        with self._lock:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]

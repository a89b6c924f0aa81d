"""A socket with one deadline for all that is sent and received.

The timeout of a socket is for each call. So a peer that sends one byte at a time keeps its client waiting for ever.
"""

from __future__ import annotations

import io
import math
import socket
import time
from typing import Any


class TimedSocket:
    """Wrapper of a connected socket, with the methods that `http.client` uses.

    Each of them raises `TimeoutError` once ``deadline``, a time of `time.monotonic`, has passed, or if it takes more
    than ``silence`` seconds.
    """

    def __init__(self, sock: socket.socket, deadline: float, silence: float = math.inf) -> None:
        self._sock = sock
        self._deadline = deadline
        self._silence = silence

    def sendall(self, data: Any) -> None:
        self.limit()
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a file to read. It does not close the socket, and a socket that is closed before it can be read."""
        return io.BufferedReader(_Reader(self, self._sock.makefile("rb", 0)))

    def close(self) -> None:
        self._sock.close()

    def limit(self) -> None:
        """Set the time limit of the next call."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(min(left, self._silence))


class _Reader(io.RawIOBase):
    """Data that a timed socket receives. The file ``raw`` reads them."""

    def __init__(self, sock: TimedSocket, raw: io.RawIOBase) -> None:
        self._sock = sock
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.limit()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()

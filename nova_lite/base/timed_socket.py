"""A socket with one deadline for all that is sent and received.

The timeout of a socket is for each call. So a peer that sends one byte at a time keeps its client waiting for ever.
"""

from __future__ import annotations

import io
import socket
import time
from typing import Any


class TimedSocket:
    """Wrapper of a connected socket, with the methods that `http.client` uses.

    Each of them raises `TimeoutError` once ``deadline``, a time of `time.monotonic`, has passed.
    """

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def sendall(self, data: Any) -> None:
        self._limit()
        self._sock.sendall(data)

    def recv_into(self, buffer: Any) -> int:
        self._limit()
        return self._sock.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a file to read. It does not close the socket."""
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        self._sock.close()

    def _limit(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)


class _Reader(io.RawIOBase):
    def __init__(self, sock: TimedSocket) -> None:
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._sock.recv_into(buffer)

"""Bytes of one connection, plain or over TLS. No method ever blocks."""

from __future__ import annotations

import collections
import contextlib
import ssl
from typing import Any

READ = 64 * 1024


class Channel:
    """A socket that does not block, with a buffer for what it does not take yet.

    ``sent``: bytes that the socket has taken. ``is_open``: requests can arrive. All methods raise OSError when the
    connection is broken.
    """

    def __init__(self, sock: Any) -> None:
        self.sock = sock
        self.sent = 0
        self.is_open = True
        self._out: collections.deque[memoryview] = collections.deque()
        self._given_back = b""

    def receive(self) -> bytes | None:
        """Return the bytes that have arrived: None if nothing has, and empty at the end of the connection."""
        if self._given_back:
            given_back, self._given_back = self._given_back, b""
            return given_back
        try:
            data: bytes = self.sock.recv(READ)
            return data
        except (BlockingIOError, InterruptedError):
            return None

    def give_back(self, data: bytes) -> None:
        """Let the next `receive` return these bytes."""
        self._given_back = data

    def read(self) -> bytes | None:
        """Return the data of the client as `receive` does, decrypted."""
        return self.receive()

    def write(self, data: bytes) -> bool:
        """Send data, after the data in the buffer. Return True if the buffer is empty afterwards."""
        if data:
            self._out.append(memoryview(data))
        return self.flush()

    def flush(self) -> bool:
        """Send the data in the buffer. Return True if it is empty afterwards."""
        while self._out:
            first = self._out[0]
            try:
                count = self.sock.send(first)
            except (BlockingIOError, InterruptedError):
                return False
            self.sent += count
            if count < len(first):
                self._out[0] = first[count:]
            else:
                self._out.popleft()
        return True

    def end(self) -> None:
        """End the server's side of the connection. What the client still sends can be read."""
        self.sock.shutdown(1)


class TlsChannel(Channel):
    """A channel over TLS. The handshake is a part of reading."""

    def __init__(self, sock: Any, context: ssl.SSLContext) -> None:
        super().__init__(sock)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_open = False

    def read(self) -> bytes | None:
        received = self.receive()
        if received == b"":
            self._incoming.write_eof()
        elif received:
            self._incoming.write(received)
        pieces = []
        try:
            if not self.is_open:
                self._tls.do_handshake()
                self.is_open = True
            while piece := self._tls.read(READ):
                pieces.append(piece)
            received = b""
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            received = b""
        finally:
            self.flush()
        if pieces:
            return b"".join(pieces)
        return b"" if received == b"" else None

    def write(self, data: bytes) -> bool:
        if data:
            self._tls.write(data)
        return self.flush()

    def flush(self) -> bool:
        if self._outgoing.pending:
            self._out.append(memoryview(self._outgoing.read()))
        return super().flush()

    def end(self) -> None:
        if self.is_open:
            with contextlib.suppress(ssl.SSLError):  # the client has not confirmed the end yet
                self._tls.unwrap()
            self.flush()
        super().end()

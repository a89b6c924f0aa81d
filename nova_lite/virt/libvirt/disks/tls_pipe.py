"""TLS between two hosts that move a server's disks: each checks the other's certificate.

The destination sends one line, with the token of the move and rsync's command. The source answers with one line, which
is empty unless it refuses. Then both carry what the two rsyncs say.

This module imports nothing of the daemons, because it is loaded for each file that is fetched.
"""

from __future__ import annotations

import json
import os
import select
import socket
import ssl
import time

#: Files of a host's certificates, by qemu's names: the authority, and certificate and key of each side.
AUTHORITY = "ca-cert.pem"
SERVER, CLIENT = ("server-cert.pem", "server-key.pem"), ("client-cert.pem", "client-key.pem")

#: Seconds for handshake and request, and seconds for which a connection may be silent afterwards.
GREETING_SECONDS, SILENT_SECONDS = 15.0, 600.0
MAX_LINE = 8192
_CHUNK = 1 << 16


class PipeError(Exception):
    """Failure of a connection. The text is for the operator."""


def server_context(directory: str) -> ssl.SSLContext:
    """Return the context of the source. ``directory``: of the host's certificates. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, directory, *SERVER)
    return context


def client_context(directory: str) -> ssl.SSLContext:
    """Return the context of the destination. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load(context, directory, *CLIENT)
    return context


def _load(context: ssl.SSLContext, directory: str, certificate: str, key: str) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(os.path.join(directory, AUTHORITY))
    context.load_cert_chain(os.path.join(directory, certificate), os.path.join(directory, key))


def read_line(sock: ssl.SSLSocket) -> str:
    """Read a line. Nothing after it is read. Raises `PipeError` or OSError."""
    line = b""
    while not line.endswith(b"\n"):
        piece = sock.recv(1)
        if not piece or len(line) > MAX_LINE:
            raise PipeError("the other host ended the connection" if not piece else "the line is too long")
        line += piece
    return line[:-1].decode(errors="replace")


def request(offer: str, command: str) -> bytes:
    """Return the destination's line."""
    return json.dumps({"offer": offer, "command": command}).encode() + b"\n"


def parse(line: str) -> tuple[str, str]:
    """Return offer and command of the destination's line. Raises `PipeError`."""
    try:
        content = json.loads(line)
        return str(content["offer"]), str(content["command"])
    except (ValueError, KeyError, TypeError) as error:
        raise PipeError("this is no request for disks") from error


def pump(sock: ssl.SSLSocket, source: int, sink: int, ends_with_source: bool) -> None:
    """Carry ``source`` to the socket, and the socket to ``sink``, until one of them has ended and all is carried.

    ``ends_with_source``: the source's end ends the connection, and not the socket's. Raises OSError.
    """
    sock.setblocking(False)
    os.set_blocking(sink, False)
    pipe = _Pipe(sock, source, sink)
    heard = time.monotonic()
    while not pipe.is_done(ends_with_source):
        if pipe.move():
            heard = time.monotonic()
        elif time.monotonic() - heard > SILENT_SECONDS:
            raise TimeoutError(None, "the other host is silent")
        else:
            pipe.wait()


class _Pipe:
    """State of `pump`: what was read and is not written yet, by direction."""

    def __init__(self, sock: ssl.SSLSocket, source: int, sink: int) -> None:
        self._sock, self._source, self._sink = sock, source, sink
        self._out = self._in = b""
        self._source_ended = self._sock_ended = self._sink_closed = False

    def is_done(self, ends_with_source: bool) -> bool:
        if ends_with_source:
            return self._source_ended and not self._out
        return self._sock_ended and not self._in

    def move(self) -> bool:
        """Read and write what is possible now. Returns whether anything was."""
        return any([self._read_source(), self._write_sock(), self._read_sock(), self._write_sink()])

    def wait(self) -> None:
        reads: list[int | socket.socket] = [] if self._source_ended or self._out else [self._source]
        if not self._sock_ended and not self._in:
            reads.append(self._sock)
        writes: list[int | socket.socket] = [self._sock] if self._out else []
        if self._in:
            writes.append(self._sink)
        select.select(reads, writes, [], 10.0)

    def _read_source(self) -> bool:
        if self._source_ended or self._out or not select.select([self._source], [], [], 0)[0]:
            return False
        self._out = os.read(self._source, _CHUNK)
        self._source_ended = not self._out
        return True

    def _write_sock(self) -> bool:
        if not self._out:
            return False
        try:
            sent = self._sock.send(self._out)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        self._out = self._out[sent:]
        return True

    def _read_sock(self) -> bool:
        if self._sock_ended or self._in:
            return False
        try:
            self._in = self._sock.recv(_CHUNK)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        self._sock_ended = not self._in
        if self._sock_ended:
            self._close_sink()
        return True

    def _write_sink(self) -> bool:
        if not self._in:
            return False
        try:
            written = os.write(self._sink, self._in)
        except BlockingIOError:
            return False
        except BrokenPipeError:  # The program has ended, and its output with it.
            self._in = b""
            return True
        self._in = self._in[written:]
        return True

    def _close_sink(self) -> None:
        """Close the program's input: nothing more comes."""
        if not self._sink_closed:
            self._sink_closed = True
            os.close(self._sink)

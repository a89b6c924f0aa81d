"""An HTTP server in this process, and raw connections to it."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nova_lite.api.http import server
from nova_lite.api.http.deploy import App
from nova_lite.api.http.limits import ClientLimits
from nova_lite.api.http.proxy_protocol import Balancers
from nova_lite.daemon import sockets

GET = b"GET / HTTP/1.1\r\nHost: cloud\r\n\r\n"


def make_certificate(path: Path) -> tuple[str, str]:
    """Return the paths of a new certificate for 127.0.0.1 and of its key."""
    certificate, key = str(path / "cert.pem"), str(path / "key.pem")
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            key,
            "-out",
            certificate,
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


class HttpSite:
    """A server of one application on loopback. ``tls``: paths of a certificate and its key."""

    def __init__(
        self,
        app: App,
        threads: int = 2,
        limits: ClientLimits | None = None,
        tls: tuple[str, str] | None = None,
        address: str = "127.0.0.1",
        balancers: Balancers | None = None,
    ) -> None:
        sock = sockets.listen(address, 0)
        self.address = sock.getsockname()[:2]
        context = sockets.tls_context(*tls, "certificate", "key") if tls else None
        self.server = server.make_server(sock, app, threads, context, limits, balancers=balancers)
        self.server.start()
        self._client = ssl.create_default_context(cafile=tls[0]) if tls else None

    def stop(self) -> None:
        self.server.stop(5)

    def connect(self, source: str = "", shake: bool = True) -> socket.socket:
        """Return a connection. ``shake``: do the handshake of TLS."""
        sock = socket.create_connection(self.address, 20, (source, 0) if source else None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._client is not None and shake:
            return self._client.wrap_socket(sock, server_hostname=self.address[0])
        return sock

    def exchange(self, data: bytes) -> bytes:
        """Send bytes on a new connection, and return all that comes until the server closes it."""
        with self.connect() as sock:
            sock.sendall(data)
            return until_closed(sock)


def until_closed(sock: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while data := sock.recv(65536):
            received += data
    return received


class Reply:
    """A response: status, headers by lower-case name, and body."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def read_reply(sock: socket.socket, method: str = "GET", more: bytes = b"") -> tuple[Reply, bytes]:
    """Return one response, and the bytes that follow it. ``more``: bytes that have been received already."""
    data = more
    while b"\r\n\r\n" not in data:
        data += _some(sock, data)
    head, _, data = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    status = int(lines[0].split(" ")[1])
    if status == 100:
        return read_reply(sock, method, data)
    if method == "HEAD" or status in (204, 304):
        return Reply(status, headers, b""), data
    if headers.get("transfer-encoding") == "chunked":
        chunks, start = [], 0
        while True:
            while (end := data.find(b"\r\n", start)) < 0:
                data += _some(sock, data)
            size, start = int(data[start:end], 16), end + 2
            while len(data) < start + size + 2:
                data += _some(sock, data)
            chunks.append(data[start : start + size])
            start += size + 2
            if size == 0:
                return Reply(status, headers, b"".join(chunks)), data[start:]
    length = int(headers["content-length"])
    while len(data) < length:
        data += _some(sock, data)
    return Reply(status, headers, data[:length]), data[length:]


def _some(sock: socket.socket, seen: bytes) -> bytes:
    data = sock.recv(65536)
    assert data, f"the connection ended after {seen!r}"
    return data


def statuses(received: bytes) -> list[int]:
    """Return the status codes of all responses in the bytes."""
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]


@contextlib.contextmanager
def serving(app: App, **options: Any) -> Iterator[HttpSite]:
    site = HttpSite(app, **options)
    try:
        yield site
    finally:
        site.stop()

"""A web server of files that breaks connections, refuses ranges, and redirects, as a test wants it."""

from __future__ import annotations

import contextlib
import re
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FileSite(ThreadingHTTPServer):
    """``files``: bytes by path. ``faults``: what to do with the next requests, one each: a number of bytes after which
    the connection breaks, or a status. ``redirects``: other addresses by path. ``requests``: path and range of each.
    ``tls``: paths of a certificate and its key."""

    def __init__(self, tls: tuple[str, str] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.faults: list[int] = []
        self.redirects: dict[str, str] = {}
        self.has_ranges = True
        self.shift = 0
        self.requests: list[tuple[str, str | None]] = []
        self.headers: list[dict[str, str]] = []
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server_port}"
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class _Handler(BaseHTTPRequestHandler):
    server: FileSite

    def do_GET(self) -> None:
        site, range_ = self.server, self.headers.get("Range")
        site.requests.append((self.path, range_))
        site.headers.append(dict(self.headers))
        fault = site.faults.pop(0) if site.faults else None
        if self.path in site.redirects:
            self._respond(302, b"", Location=site.redirects[self.path])
            return
        data = site.files.get(self.path)
        if data is None or (fault is not None and 400 <= fault < 600):
            self._respond(fault or 404, b"")
            return
        first = 0
        if site.has_ranges and range_ is not None and (match := re.fullmatch(r"bytes=(\d+)-", range_)):
            first = int(match[1])
            if first >= len(data):
                self._respond(416, b"")
                return
            place = f"bytes {first + site.shift}-{len(data) - 1}/{len(data)}"
            self._respond(206, data[first:], fault, **{"Content-Range": place})
        else:
            self._respond(200, data, fault)

    def _respond(self, status: int, data: bytes, most: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(data if most is None else data[:most])
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def serving(site: FileSite) -> Iterator[FileSite]:
    thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        site.shutdown()
        site.server_close()
        thread.join(10)

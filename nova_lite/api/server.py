"""Serving WSGI applications over HTTP: listening sockets, and a server in either concurrency mode."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import os
import socket
import ssl
import threading
from typing import Any, Protocol

from cheroot import server as cheroot_server
from cheroot import wsgi as cheroot_wsgi

from nova_lite import concurrency, exception
from nova_lite.api.deploy import App

LOG = logging.getLogger(__name__)

BACKLOG = 1024
#: Seconds that a client may keep a connection silent.
SOCKET_TIMEOUT = 60
MAX_HEADER_BYTES = 64 * 1024
MAX_KEEP_ALIVE = 1000
MAX_UNREAD_BYTES = 1024 * 1024


class Server(Protocol):
    def start(self) -> None: ...

    def stop(self, timeout: float) -> None: ...


def listen(address: str, port: int) -> socket.socket:
    """A listening socket; raises `ConfigurationError` with one clear sentence when there can be none."""
    family = socket.AF_INET6 if _is_ipv6(address) else socket.AF_INET
    try:
        sock = socket.create_server((address, port), family=family, backlog=BACKLOG)
    except OSError as error:
        why = "the port is in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error))
        raise exception.ConfigurationError(reason=f"cannot listen on {address} port {port}: {why}.") from error
    # Connections inherit it. Without, headers and body that are sent apart cost a delayed acknowledgement (40 ms).
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _is_ipv6(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).version == 6
    except ValueError:
        return False


def tls_context(cert_file: str | None, key_file: str | None) -> ssl.SSLContext:
    """Raises `ConfigurationError` when certificate or key cannot be used."""
    for option, path in (("ssl_cert_file", cert_file), ("ssl_key_file", key_file)):
        if not path or not os.access(path, os.R_OK):
            raise exception.ConfigurationError(reason=f"[api] {option} = {path}: cannot be read.")
    assert cert_file is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert_file, key_file)
    except (ssl.SSLError, OSError) as error:
        raise exception.ConfigurationError(reason=f"[api] ssl_cert_file and ssl_key_file: {error}") from error
    return context


def make(sock: socket.socket, app: App, threads: int, context: ssl.SSLContext | None) -> Server:
    """A server on ``sock``, over TLS with ``context``, in the concurrency mode of this process."""
    if context is not None:
        # The handshake is left to the connection's own thread: a slow client holds up nobody else.
        sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        app = _Https(app)
    if concurrency.is_eventlet():
        return concurrency.GreenWsgiServer(sock, app, LOG.getChild("eventlet"), SOCKET_TIMEOUT)
    return _ThreadedServer(sock, app, threads)


class _Https:
    """Tells the application that it is reached over TLS."""

    def __init__(self, app: App) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        environ["wsgi.url_scheme"] = "https"
        return self._app(environ, start_response)


class _ThreadedServer:
    """A WSGI server of native threads; idle connections wait in one selector and hold none of them."""

    def __init__(self, sock: socket.socket, app: App, threads: int) -> None:
        self._http = _Cheroot(sock, app, threads)
        self._thread = threading.Thread(target=self._http.serve, name="wsgi", daemon=True)

    def start(self) -> None:
        self._http.prepare()
        self._thread.start()

    def stop(self, timeout: float) -> None:
        self._http.shutdown_timeout = timeout
        self._http.stop()
        self._thread.join(timeout)


class _Request(cheroot_server.HTTPRequest):
    def send_headers(self) -> None:
        """The rest of a large body that was refused is not read, which would take its size in memory: hang up."""
        if getattr(self.rfile, "remaining", 0) > MAX_UNREAD_BYTES:
            self.close_connection = True
        super().send_headers()


class _Connection(cheroot_server.HTTPConnection):
    RequestHandlerClass = _Request


class _Cheroot(cheroot_wsgi.Server):
    ConnectionClass = _Connection

    def __init__(self, sock: socket.socket, app: App, threads: int) -> None:
        super().__init__(
            sock.getsockname()[:2], app, numthreads=threads, request_queue_size=BACKLOG, timeout=SOCKET_TIMEOUT
        )
        self._listening = sock
        self.max_request_header_size = MAX_HEADER_BYTES
        self.keep_alive_conn_limit = MAX_KEEP_ALIVE

    def bind(self, family: int, type: int, proto: int = 0) -> socket.socket:
        self.socket = self._listening
        return self._listening

    def prepare(self) -> None:
        super().prepare()
        # Several processes accept on this socket: who comes too late must not wait for the next connection.
        self.socket.setblocking(False)

    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
        LOG.log(level, "HTTP server: %s", msg, exc_info=traceback)

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            super().stop()

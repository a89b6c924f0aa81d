"""The HTTP server of a console proxy: websockify's handler, with one thread per connection, within limits.

The query of a request's URL contains the token, so only the path is logged.
"""

from __future__ import annotations

import contextlib
import http
import http.server
import logging
import socket
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from websockify.websockifyserver import CompatibleWebSocket, WebSockifyRequestHandler

from nova_lite.base import ip
from nova_lite.console import pump, rfb
from nova_lite.console.opening import ConsoleRefusal, Opened, Opener
from nova_lite.daemon import http_parser

LOG = logging.getLogger(__name__)

KEEPALIVE_SECONDS = 30


class _Connection:
    """A client's connection. ``deadline``: latest time of a complete request; None once a console is open."""

    def __init__(self, sock: socket.socket, client: str, deadline: float) -> None:
        self.sock = sock
        self.client = client
        self.deadline: float | None = deadline

    def hang_up(self) -> None:
        """Shut the socket down from another thread, to end its reads and writes. Bypasses TLS, which would reply."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


class ProxyServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """HTTP server on the listening socket ``sock``.

    ``web``: directory of the pages to serve, or None. ``handshake_timeout``: seconds that a client may take for a
    request. ``max_connections``: largest number of connections at the same time. ``max_per_client``: of one client.
    ``on_turn``: the thread that accepts connections calls it about twice a second.
    """

    daemon_threads = True
    block_on_close = False
    #: Read by websockify's handler.
    file_only = True

    def __init__(
        self,
        sock: socket.socket,
        opener: Opener,
        web: str | None,
        tls: ssl.SSLContext | None,
        handshake_timeout: float,
        max_connections: int,
        max_per_client: int,
        on_turn: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(sock.getsockname()[:2], ConsoleHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = sock
        self.opener = opener
        self.web = web
        self.only_upgrade = web is None
        self.stopping = threading.Event()
        self._tls = tls
        self._handshake_timeout = handshake_timeout
        self._max_connections = max_connections
        self._max_per_client = max_per_client
        self._on_turn = on_turn
        self._lock = threading.Lock()
        self._connections: dict[Any, _Connection] = {}

    # --- life

    def stop(self) -> None:
        """Accept no more connections, and close the open ones."""
        self.stopping.set()
        self.shutdown()
        self.server_close()
        with self._lock:
            connections = list(self._connections.values())
        for connection in connections:
            connection.hang_up()

    def service_actions(self) -> None:
        """Close connections whose request is late, and report that this thread turns. Called twice a second."""
        self._on_turn()
        now = time.monotonic()
        with self._lock:
            connections = self._connections.values()
            late = [item for item in connections if item.deadline is not None and item.deadline < now]
        for connection in late:
            connection.hang_up()

    # --- connections

    def verify_request(self, request: Any, client_address: Any) -> bool:
        client = ip.client_of(client_address[0])
        with self._lock:
            reason = self._reason_to_refuse(client)
            if reason is None:
                self._connections[client_address] = _Connection(request, client, self._deadline())
                return True
        LOG.warning("Connection of %s is closed: %s", client_address[0], reason)
        return False

    def _reason_to_refuse(self, client: str) -> str | None:
        if len(self._connections) >= self._max_connections:
            return f"there are {self._max_connections} connections"
        own = sum(connection.client == client for connection in self._connections.values())
        if own >= self._max_per_client:
            return f"{client} has {own} connections"
        return None

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, in its own thread."""
        try:
            with contextlib.ExitStack() as own:
                request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                request.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                request.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
                if self._tls is not None:
                    request = self._tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
                    own.callback(request.close)
                    self._connections[client_address].sock = request
                    request.do_handshake()
                ConsoleHandler(request, client_address, self)
        finally:
            with self._lock:
                self._connections.pop(client_address, None)

    def renew(self, client_address: Any) -> None:
        """Give a client time for its next request."""
        self._connections[client_address].deadline = self._deadline()

    def opened(self, client_address: Any) -> None:
        self._connections[client_address].deadline = None

    def _deadline(self) -> float:
        return time.monotonic() + self._handshake_timeout

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the error that is being handled. A broken connection is normal; any other error is a bug."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            LOG.debug("%s: %s", client_address[0], error)
        else:
            LOG.error("Unexpected error at a connection of %s", client_address[0], exc_info=error)


class _RecordedLines:
    """Reader of lines that keeps what it has read, after ``data``."""

    def __init__(self, source: Any, data: bytes) -> None:
        self.data = data
        self._source = source

    def readline(self, limit: int = -1) -> bytes:
        line: bytes = self._source.readline(limit)
        self.data += line
        return line


class ConsoleHandler(WebSockifyRequestHandler):  # type: ignore[misc]
    """Serves one connection: web pages, and then a WebSocket."""

    server: ProxyServer
    server_version = "nova-lite-proxy"
    sys_version = ""

    def setup(self) -> None:
        self.directory = self.server.web or "/nonexistent"
        super().setup()

    # --- requests

    def parse_request(self) -> bool:
        """Parse the request, and refuse what is not strictly HTTP/1.1: another reader could see another request."""
        rfile: Any = self.rfile  # type: ignore[has-type]
        self.rfile = recorded = _RecordedLines(rfile, self.raw_requestline)
        try:
            parsed: bool = super().parse_request()
        finally:
            self.rfile = rfile
        refusal = http_parser.refusal_of_head(recorded.data) if parsed else None
        if refusal is not None:
            self.send_error(http.HTTPStatus(refusal.status), refusal.sentence)
        if not parsed or refusal is not None:
            self.close_connection = True
            return False
        return True

    def handle_expect_100(self) -> bool:
        """Send no ``100 Continue``: no request has a body here."""
        return True

    def handle_one_request(self) -> None:
        super().handle_one_request()
        if not self.close_connection:
            self.server.renew(self.client_address)

    def do_GET(self) -> None:
        """Refuse ``//host/...``: a redirect that repeats it would lead to another host."""
        if self.path.startswith("//"):
            self.send_error(http.HTTPStatus.BAD_REQUEST)
        else:
            super().do_GET()

    def do_HEAD(self) -> None:
        if self.path.startswith("//"):
            self.send_error(http.HTTPStatus.BAD_REQUEST)
        else:
            super().do_HEAD()

    def end_headers(self) -> None:
        """Send no Referer, since the page's URL is a secret until the console is opened."""
        self.send_header("Referrer-Policy", "no-referrer")
        super().end_headers()

    def handle_upgrade(self) -> None:
        if not self.headers.get("Sec-WebSocket-Key") or self.headers.get("Sec-WebSocket-Version") != "13":
            self._refuse(ConsoleRefusal(http.HTTPStatus.BAD_REQUEST, "This is no request for a WebSocket."))
            return
        self.server.opened(self.client_address)
        try:
            opened = self.server.opener.open(self.path, self.headers.get("Origin"), self.headers.get("Host"))
        except ConsoleRefusal as refusal:
            self._refuse(refusal)
            return
        with opened.sock:
            self._serve(opened)

    def _refuse(self, refusal: ConsoleRefusal) -> None:
        """Send an error without a body, which some clients would take for output of the console."""
        LOG.info("%s gets no console: %s", self.client_address[0], refusal.sentence)
        self.close_connection = True
        self.send_response(refusal.status, refusal.sentence)
        self.send_header("Connection", "close")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _serve(self, opened: Opened) -> None:
        websocket = CompatibleWebSocket(self)
        websocket.accept(self.request, self.headers)
        self.close_connection = True
        target = opened.target
        LOG.info(
            "%s opens the %s console of %s", self.client_address[0], target.console.console_type, target.instance_uuid
        )
        try:
            if opened.has_begun:
                pump.greet(websocket, opened.sock)
            status = pump.pump(websocket, opened.sock, self.server.stopping, opened.largest_record)
            with contextlib.suppress(OSError):
                websocket.shutdown(socket.SHUT_RDWR, status)
        except (OSError, rfb.RfbError) as error:
            LOG.debug("Console of %s: %s", target.instance_uuid, error)
        LOG.info("%s leaves the console of %s", self.client_address[0], target.instance_uuid)

    # --- the log

    def log_message(self, format: str, *args: Any) -> None:
        """Drop the libraries' messages, which contain the token. `log_request` logs what matters."""

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        path = getattr(self, "path", "").partition("?")[0]
        LOG.info("%s %s %s %s", self.client_address[0], self.command, path, int(code) if code != "-" else code)

"""HTTP server of WSGI applications, in either concurrency mode, and its listening sockets."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import queue
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from cheroot import makefile as cheroot_makefile
from cheroot import server as cheroot_server
from cheroot import wsgi as cheroot_wsgi

from nova_lite.api.http import admission, deadlines
from nova_lite.api.http.deadlines import ClientLimits, ConnectionCounter, TimedReader
from nova_lite.api.http.deploy import App
from nova_lite.base import concurrency
from nova_lite.daemon.sockets import BACKLOG, listen
from nova_lite.rpc.admission import Priority

LOG = logging.getLogger(__name__)

MAX_KEEP_ALIVE = 1000

MAX_UNREAD_BYTES = deadlines.MAX_AWAITED_BODY


class HttpServer(Protocol):
    """A server of one socket. `make_server` makes it."""

    def start(self) -> None: ...

    def stop(self, timeout: float) -> None: ...


def listen_per_worker(address: str, port: int, count: int, early: bool = False) -> list[socket.socket]:
    """Return ``count`` listening sockets on one port, one for each worker.

    The kernel distributes connections over the sockets. If a worker dies, its successor accepts the connections that
    wait at its socket.
    """
    exclusive = listen(address, port, early=early)
    if count == 1:
        return [exclusive]
    # The exclusive bind has shown that the port is free. A shared bind succeeds even if another process has the port.
    exclusive.close()
    return [listen(address, port, shared=True, early=early) for _ in range(count)]


def make_server(
    sock: socket.socket,
    app: App,
    threads: int,
    context: ssl.SSLContext | None,
    limits: ClientLimits | None = None,
    on_turn: Callable[[], None] = lambda: None,
) -> HttpServer:
    """Return a server on ``sock`` in the concurrency mode of this process. It uses TLS if ``context`` is given.

    ``on_turn``: the thread that accepts connections calls it about twice a second. In eventlet mode that is the main
    loop's own thread, and nothing is called.
    """
    if context is not None:
        # The connection's own thread does the handshake, so that a slow client delays no other.
        sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        app = _HttpsScheme(app)
    limits = limits or ClientLimits()
    if concurrency.is_eventlet():
        reader = functools.partial(TimedReader, limits=limits)
        log = LOG.getChild("eventlet")
        return concurrency.GreenWsgiServer(sock, app, log, limits.idle, ConnectionCounter(limits.connections), reader)
    return _ThreadedServer(sock, app, threads, limits, on_turn)


class _HttpsScheme:
    """WSGI filter that sets the URL scheme of requests that arrive over TLS."""

    def __init__(self, app: App) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        environ["wsgi.url_scheme"] = "https"
        return self._app(environ, start_response)


class _ThreadedServer:
    """WSGI server with native threads. Idle connections wait in one selector and occupy no thread."""

    def __init__(
        self, sock: socket.socket, app: App, threads: int, limits: ClientLimits, on_turn: Callable[[], None]
    ) -> None:
        self._http = _CherootServer(sock, app, threads, limits, on_turn)
        self._thread = threading.Thread(target=self._http.serve, name="wsgi", daemon=True)

    def start(self) -> None:
        self._http.prepare()
        self._thread.start()

    def stop(self, timeout: float) -> None:
        self._http.shutdown_timeout = timeout
        self._http.stop()
        self._thread.join(timeout)


class _CherootRequest(cheroot_server.HTTPRequest):
    def send_headers(self) -> None:
        """Close the connection after the response if much of the body is unread.

        cheroot would read the rest into memory.
        """
        if getattr(self.rfile, "remaining", 0) > MAX_UNREAD_BYTES:
            self.close_connection = True
        super().send_headers()


class _CherootReader(cheroot_makefile.StreamReader):
    def __init__(self, sock: socket.socket, limits: ClientLimits) -> None:
        self.timed = TimedReader(socket.SocketIO(sock, "r"), sock, limits)
        super(cheroot_makefile.StreamReader, self).__init__(self.timed, io.DEFAULT_BUFFER_SIZE)
        self.bytes_read = 0


class _CherootConnection(cheroot_server.HTTPConnection):
    """A connection of a client.

    - ``counted``: it is counted among the client's connections.
    - ``since``: the start time of a request that has not arrived completely.
    - ``priority``: the priority of the waiting request.
    """

    RequestHandlerClass = _CherootRequest

    def __init__(self, server: _CherootServer, sock: socket.socket, makefile: Any) -> None:
        super().__init__(server, sock, makefile)
        self.rfile = _CherootReader(sock, server.limits)
        self.counted = False
        self.since: float | None = None
        self.priority = Priority.CHANGE

    def communicate(self) -> bool:
        self.rfile.timed.next_request()
        kept: bool = super().communicate()  # type: ignore[no-untyped-call]
        return kept

    def close(self) -> None:
        if self.counted:
            self.counted = False
            self.server.clients.leave(self.remote_addr)
        super().close()


class _CherootServer(cheroot_wsgi.Server):
    ConnectionClass = _CherootConnection

    def __init__(
        self, sock: socket.socket, app: App, threads: int, limits: ClientLimits, on_turn: Callable[[], None]
    ) -> None:
        super().__init__(
            sock.getsockname()[:2], app, numthreads=threads, request_queue_size=BACKLOG, timeout=int(limits.idle)
        )
        self._listening = sock
        self._on_turn = on_turn
        self.limits = limits
        self.clients = ConnectionCounter(limits.connections)
        self.waiting = admission.ConnectionQueue(limits.waiting, threads, limits.wait, self._refuse)
        self.requests._queue = self.waiting
        self.requests.get = self.waiting.get
        self.max_request_header_size = deadlines.MAX_HEADER_BYTES
        self.keep_alive_conn_limit = MAX_KEEP_ALIVE

    def bind(self, family: int, type: int, proto: int = 0) -> socket.socket:
        self.socket = self._listening
        return self._listening

    def prepare(self) -> None:
        super().prepare()
        # A connection that closes before it is accepted must not block the accepting thread.
        self.socket.setblocking(False)
        expire = self._connections._expire  # type: ignore[attr-defined]

        def expire_in_turn(threshold: float) -> None:
            """Do what cheroot's loop does twice a second, and report that the loop turns."""
            self._on_turn()
            expire(threshold)

        self._connections._expire = expire_in_turn  # type: ignore[attr-defined]

    def process_conn(self, conn: _CherootConnection) -> None:
        """Process a new or readable connection: hand it to a thread once its request has arrived.

        So a slow client occupies no thread. Over TLS the request cannot be inspected, so its first byte is enough.
        """
        if not conn.counted:
            conn.counted = self.clients.enter(conn.remote_addr)
            if not conn.counted:
                conn.close()
                return
        if conn.rfile.has_data() or not self._waits(conn):
            conn.since = None
            super().process_conn(conn)

    def _waits(self, conn: _CherootConnection) -> bool:
        """Return the connection to the selector until more of its request arrives. False if no more is needed."""
        try:
            received = _peek(conn.socket)
        except OSError:
            return False
        encrypted = isinstance(conn.socket, ssl.SSLSocket)
        conn.priority = admission.priority_of(received or b"")
        missing = 1 if received is None else 0 if not received or encrypted else deadlines.missing_bytes(received)
        minimum = len(received or b"") + missing if missing else 1
        with contextlib.suppress(OSError):
            conn.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, minimum)
        if not missing:
            return False
        now = time.time()
        conn.last_used = now
        if received:
            conn.since = conn.since or now
            # cheroot closes a connection ``timeout`` seconds after ``last_used``: at the deadline of the request.
            deadline = conn.since + self.limits.request + len(received) / deadlines.MIN_RATE
            conn.last_used = deadline - self.timeout
        self._connections._selector.register(  # type: ignore[attr-defined]
            conn.socket.fileno(), selectors.EVENT_READ, data=conn
        )
        return True

    def _refuse(self, conn: _CherootConnection) -> None:
        self._refused.put(conn)

    @property
    def _refused(self) -> queue.Queue[Any]:
        refused: queue.Queue[Any] = self._unservicable_conns  # type: ignore[attr-defined]
        return refused

    def _serve_unservicable(self) -> None:
        """Send responses to refused connections. Runs in a thread of its own."""
        while self.ready:
            conn = self._refused.get()
            if not isinstance(conn, _CherootConnection):
                return
            admission.send_busy_response(conn)

    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
        LOG.log(level, "HTTP server: %s", msg, exc_info=traceback)

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            super().stop()


def _peek(sock: socket.socket) -> bytes | None:
    """Return the received bytes without consuming them: empty at the end of the connection, None if there are none."""
    timeout = sock.gettimeout()
    sock.settimeout(0)
    try:
        return socket.socket.recv(sock, deadlines.MAX_HEADER_BYTES + deadlines.MAX_AWAITED_BODY, socket.MSG_PEEK)
    except BlockingIOError:
        return None
    finally:
        sock.settimeout(timeout)

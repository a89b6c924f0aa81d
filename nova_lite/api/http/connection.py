"""Connections of clients, from the handshake to the end.

A connection belongs to one thread at a time. In the states of `_ARMED` that is the loop, which waits for its socket.
While it is `State.BUSY`, it belongs to the thread that runs its job, or to the queue of that job.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import io
import logging
import math
import socket
import ssl
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import webob.exc

from nova_lite.api.http import admission, drain, limits, proxy_protocol, responses, transfers
from nova_lite.api.http.admission import Executor, Job
from nova_lite.api.http.channel import Channel, TlsChannel
from nova_lite.api.http.deploy import App
from nova_lite.api.http.drain import Drain
from nova_lite.api.http.responses import Response, Stream
from nova_lite.base import concurrency, exceptions
from nova_lite.daemon.http_parser import Refusal, Request, RequestParser

LOG = logging.getLogger(__name__)

#: Seconds for which the rest of a refused request is read and dropped. Without this, the client could miss the
#: response: closing a socket with unread data resets the connection.
LINGER = 2.0

FAILED = Refusal(500, "An unexpected error prevented the server from fulfilling your request.")
TOO_MANY_UPLOADS = "This API receives as many uploads as it can, from you or from all. Please try again in a moment."
STOPS = "the server stops"
LATE = Refusal(408, "The request did not arrive in time.")
CROWDED = Refusal(503, "This API receives more data than it can keep; nothing was done. Please try again in a moment.")


class State(enum.Enum):
    """State of a connection: for what it waits.

    READING: a request. WRITING: room for the rest of a response in memory. STREAMING, RECEIVING: the next piece of a
    transfer. WAITING: a piece of a response that comes later. NEXT: the next of several requests that arrived together.
    LINGERING: the client's end. BROKEN: its close.
    """

    BUSY = enum.auto()
    READING = enum.auto()
    WRITING = enum.auto()
    STREAMING = enum.auto()
    RECEIVING = enum.auto()
    WAITING = enum.auto()
    NEXT = enum.auto()
    LINGERING = enum.auto()
    BROKEN = enum.auto()


_WRITES = {State.WRITING, State.STREAMING, State.NEXT, State.BROKEN}


class ConnectionServer(Protocol):
    """The part of `nova_lite.api.http.server.Server` that a connection uses."""

    app: App
    executor: Executor
    context: ssl.SSLContext | None
    client_limits: limits.ClientLimits
    transfer_threads: transfers.TransferThreads
    budget: limits.BodyBudget[Connection]
    uploads: limits.Slots
    drain: Drain
    stopping: bool
    aborting: bool

    def arm(self, connection: Connection, writing: bool) -> None:
        """Let the loop call `Connection.ready` when there is something to read, or room to write."""

    def identify(self, connection: Connection, address: str) -> bool:
        """Count the connection of a load balancer as one of this address. Return False if there are too many."""

    def call(self, func: Callable[[], None]) -> None:
        """Let the loop call a function. Any native thread may call this."""

    def forget(self, connection: Connection) -> None:
        """Remove a connection that is being closed."""


class _Unread(io.RawIOBase):
    """Input of a request whose body is too large to be received before the application runs."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise webob.exc.HTTPRequestEntityTooLarge(explanation="Request is too large.")

    readline = readinto = readall = read  # type: ignore[assignment]

    def readable(self) -> bool:
        return True


class Connection:
    """A connection. ``deadline``: when the loop calls `expire`. ``environ``: part of the environment of its requests.

    ``client``: the client that limits count, empty until the header of a load balancer names it.
    """

    def __init__(
        self, server: ConnectionServer, sock: Any, address: tuple[Any, ...], client: str, is_balanced: bool = False
    ) -> None:
        """Take over a socket. ``is_balanced``: it comes from a load balancer, whose header is read first."""
        self.client = client
        self._header = proxy_protocol.Header() if is_balanced else None
        self._is_balancers_own = False
        self.descriptor: int = sock.fileno()
        self.state = State.READING
        self._server = server
        self._channel = Channel(sock) if server.context is None else TlsChannel(sock, server.context)
        self._parser = RequestParser()
        self._lock: Any = concurrency.native("threading").Lock()
        local = sock.getsockname()
        self.environ = {
            "SERVER_NAME": local[0].partition("%")[0],
            "SERVER_PORT": str(local[1]),
            "REMOTE_ADDR": address[0],
            "REMOTE_PORT": str(address[1]),
            "SCRIPT_NAME": "",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http" if server.context is None else "https",
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": True,
            "wsgi.run_once": False,
            "wsgi.input_terminated": True,
            transfers.WAITS: True,
        }
        #: Start of the request that is being received, or of the response that is being sent. None between both.
        self._since: float | None = None if server.context is None else time.monotonic()
        self._received = 0
        self._sent_before = 0
        self._ended = False
        self._served = False
        self._keep = True
        self._request: Request | None = None
        self._stream: Stream | None = None
        self._sink: transfers.BodySink | None = None
        self._upload_groups: tuple[str, ...] = ()
        self._promised: list[tuple[str, str]] = []
        limit = server.client_limits.idle if self._since is None else server.client_limits.request
        self.deadline = time.monotonic() + limit

    @property
    def is_idle(self) -> bool:
        return self.state is State.READING and self._since is None

    # --- in the loop

    def ready(self) -> None:
        """Continue, since the socket is ready.

        A client that sends something while it waits for the rest of a response, or ends, gets no more of it.
        """
        state = self._claim()
        if state is State.BUSY:  # `wake` came first, in the same turn
            return
        try:
            if state is State.READING:
                self._read()
            elif state is State.WRITING:
                self._flush()
            elif state is State.STREAMING:
                self._server.transfer_threads.put(self._send_pieces)
            elif state is State.RECEIVING:
                self._server.transfer_threads.put(self._receive_pieces)
            elif state is State.NEXT:
                self._advance()
            elif state is State.LINGERING and self._drop():
                self._arm(State.LINGERING, self.deadline)
            else:
                self.close()
        except OSError:
            self.close()

    def end_if_idle(self) -> None:
        """Close the connection, unless the client has sent something, or is about to send its first request.

        A response that waits for pieces ends, too.
        """
        is_unused = self.is_idle and self._served and not self._has_unread()
        if is_unused or (self.state is State.WAITING and self._claim() is State.WAITING):
            self.close()

    def wake(self) -> None:
        """Send more of a response: a piece of it has come."""
        with self._lock:
            if self.state is not State.WAITING:
                return
            self.state = State.BUSY
        # The time without pieces was not the client's.
        self._since, self._sent_before = time.monotonic(), self._channel.sent
        self._server.transfer_threads.put(self._send_pieces)

    def _has_unread(self) -> bool:
        try:
            return bool(self._channel.sock.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def expire(self) -> None:
        """End what the connection waits for, since its deadline has passed."""
        state = self._claim()
        if state is State.RECEIVING:
            self._fail_upload(TimeoutError("the body did not arrive in time"))
        elif state is State.READING and not self._parser.is_idle:
            self._server.budget.forget(self.client, self)
            self._send_refusal(LATE)
        elif state is not State.BUSY:
            self.close()

    def abort(self) -> None:
        """Close the connection, unless a thread works for it."""
        state = self._claim()
        if state is State.RECEIVING:
            self._fail_upload(ConnectionAbortedError(STOPS))
        elif state is not State.BUSY:
            self.close()

    def close(self) -> None:
        self.state = State.BUSY
        self._server.forget(self)
        if self._stream is not None:
            self._stream.close()
        self._channel.sock.close()

    def _claim(self) -> State:
        """Take the connection from the loop's waiting. Return the state that it had."""
        with self._lock:
            state, self.state = self.state, State.BUSY
        return state

    def _read(self) -> None:
        if self._header is not None and not self._read_header(self._header):
            return
        data = self._channel.read()
        if data:
            if self._since is None:
                self._since = time.monotonic()
            self._received += len(data)
            self._parser.feed(data)
        elif data is not None:
            self._ended = True
        self._advance()

    def _read_header(self, header: proxy_protocol.Header) -> bool:
        """Read the header of a load balancer. Return False if it is incomplete, or the connection has been closed."""
        data = self._channel.receive()
        try:
            found = header.feed(data) if data else None
        except ValueError as error:
            address = self.environ["REMOTE_ADDR"]
            self._server.executor.log(logging.WARNING, "%s sent a wrong header of a load balancer: %s", address, error)
            self.close()
            return False
        if found is None:
            if data == b"":
                self.close()
            else:
                self._arm(State.READING, self.deadline)
            return False
        source, rest = found
        self._header = None
        self._is_balancers_own = source is None
        if source is not None:
            self.environ["REMOTE_ADDR"], self.environ["REMOTE_PORT"] = source.address, str(source.port)
        if not self._server.identify(self, self.environ["REMOTE_ADDR"]):
            self.close()
            return False
        self._channel.give_back(rest)
        return True

    def _advance(self) -> None:
        """Dispatch the next request if it is complete, else wait for more of it."""
        parser = self._parser
        request = parser.requests.popleft() if parser.requests else parser.current
        if request is not None and (request.complete or self._is_large(request)):
            self._dispatch(request)
        elif parser.refusal is not None:
            self._server.budget.forget(self.client, self)
            self._send_refusal(parser.refusal)
        elif self._ended:
            self.close()
        elif request is None or self._await_body(request):
            self._arm(State.READING, self._reading_deadline())

    def _is_large(self, request: Request) -> bool:
        return max(request.announced or 0, request.size) > self._server.client_limits.body

    def _await_body(self, request: Request) -> bool:
        """Make room for the rest of a body. Return False if there is none, and the request is refused."""
        if request.expects_continue:
            request.expects_continue = False
            self._channel.write(responses.CONTINUE)
        victim = self._server.budget.set(self.client, self, request.size)
        while victim is not None and victim is not self:
            victim.give_up()
            victim = self._server.budget.set(self.client, self, request.size)
        if victim is self:
            self._server.budget.forget(self.client, self)
            self._send_refusal(CROWDED)
        return victim is None

    def give_up(self) -> None:
        """Refuse the request whose body takes memory that others need."""
        self._server.budget.forget(self.client, self)
        if self._claim() is State.READING:
            self._send_refusal(CROWDED)

    def _reading_deadline(self) -> float:
        if self._parser.is_idle and self._received == 0 and self._channel.is_open:
            self._since = None
        if self._since is None:
            return time.monotonic() + self._server.client_limits.idle
        return self._since + self._server.client_limits.request + self._received / limits.MIN_RATE

    def _dispatch(self, request: Request) -> None:
        self._server.budget.forget(self.client, self)
        self.deadline = math.inf
        self._request = request
        environ = request.environ
        if self._is_balancers_own and environ["PATH_INFO"] == drain.PATH:
            balancer, state = self.environ["REMOTE_ADDR"], environ.get(drain.STATE, "")
            if self._server.drain.refuses(balancer, state):
                self._send_refusal(drain.STOPS)
                return
        priority = admission.priority_of(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        self._server.executor.put(Job(self._answer, self._refuse_busy, priority))

    def _flush(self) -> None:
        if self._channel.flush():
            self._finish()
        else:
            self._arm(State.WRITING, self._writing_deadline())

    def _writing_deadline(self) -> float:
        """Return the deadline for the next progress, and for all that was not sent at `limits.MIN_RATE`."""
        assert self._since is not None
        slowest = self._since + (self._channel.sent - self._sent_before) / limits.MIN_RATE
        return min(time.monotonic(), slowest) + self._server.client_limits.idle

    def _drop(self) -> bool:
        """Read and drop what the client still sends. Return False at its end."""
        try:
            return bool(self._channel.sock.recv(1 << 16))
        except BlockingIOError:
            return True

    # --- in a request thread

    def _answer(self) -> None:
        request = self._request
        assert request is not None
        environ = {**self.environ, **request.environ}
        if request.complete:
            environ["wsgi.input"] = io.BytesIO(request.take_body() if request.size else b"")
            environ.setdefault("CONTENT_LENGTH", str(request.size))
        else:  # no program knows the length of chunks that are still to come
            environ["wsgi.input"] = _Unread()
            environ[transfers.RECEIVE] = self._receive_by
        try:
            response = responses.call(self._server.app, environ)
        except Exception:
            LOG.exception("HTTP server: the application failed")
            if self._sink is not None:
                self._leave_uploads()
            self._send_refusal(FAILED)
            return
        except BaseException:  # the thread is ended
            self._arm(State.BROKEN)
            raise
        if self._sink is not None and response.status.startswith("2"):
            self._begin_upload(response)
            return
        if self._sink is not None:
            self._leave_uploads()
        self._send(response)

    def _refuse_busy(self) -> None:
        self._send(Response.of(admission.busy_response()))

    def _send_refusal(self, refusal: Refusal) -> None:
        self._server.executor.log(
            logging.INFO, "%s: a request is refused with %d: %s", self.environ["REMOTE_ADDR"], *refusal
        )
        self._request = None
        self._send(Response.refusing(refusal))

    def _send(self, response: Response) -> None:
        request = self._request
        keep = request is not None and request.keep_alive and request.complete
        keep = keep and not self._server.stopping and not self._ended
        self._since = time.monotonic()
        self._sent_before = self._channel.sent
        try:
            data, self._stream, self._keep = responses.begin(request, response, keep)
        except ValueError as error:
            self._server.executor.log(logging.ERROR, "HTTP server: %s", error)
            response.close()
            self._send_refusal(FAILED)
            return
        try:
            if not self._channel.write(data):
                state = State.WRITING if self._stream is None else State.STREAMING
                self._arm(state, self._writing_deadline())
            elif self._stream is None:
                self._finish()
            else:
                self._server.transfer_threads.put(self._send_pieces)
        except OSError:
            self._arm(State.BROKEN)

    def _finish(self) -> None:
        """Wait for the next request, or end the connection: the response is sent."""
        self._request = self._sink = None
        if not self._keep or self._server.stopping:
            with contextlib.suppress(OSError):
                self._channel.end()
            self._arm(State.LINGERING, time.monotonic() + LINGER)
            return
        parser = self._parser
        self._served = True
        self._received = 0
        self._since = None if parser.is_idle else time.monotonic()
        if parser.requests or parser.refusal is not None or parser.current is not None:
            self._arm(State.NEXT)
        else:
            self._arm(State.READING, self._reading_deadline())

    def _arm(self, state: State, deadline: float = math.inf) -> None:
        """Give the connection to the loop, which waits for its socket. The caller must not touch it afterwards."""
        with self._lock:
            # `abort` has found this connection busy.
            is_aborted = state is State.RECEIVING and self._server.aborting
            if not is_aborted:
                self.deadline = deadline
                self.state = state
                self._server.arm(self, state in _WRITES)
        if is_aborted:
            self._fail_upload(ConnectionAbortedError(STOPS))

    # --- in a transfer thread

    def _send_pieces(self) -> None:
        """Send the next pieces of a response."""
        stream = self._stream
        assert stream is not None
        try:
            for _ in range(transfers.PIECES):
                if not self._channel.flush():
                    self._arm(State.STREAMING, self._writing_deadline())
                    return
                piece = stream.next()
                if isinstance(piece, transfers.Later):
                    self._wait_for(piece)
                    return
                if piece is None:
                    self._stream = None
                    stream.close()
                    self._finish()
                    return
                self._channel.write(piece)
        except OSError:
            self._arm(State.BROKEN)
        except Exception as error:
            self._server.executor.log(logging.ERROR, "HTTP server: a response ends early: %s", error)
            self._arm(State.BROKEN)
        else:
            self._server.transfer_threads.put(self._send_pieces)

    def _wait_for(self, piece: transfers.Later) -> None:
        """Let the loop wait for the next piece, unless the server stops."""
        if self._server.stopping:
            self._arm(State.BROKEN)
            return
        self._arm(State.WAITING)
        piece.when_ready(lambda: self._server.call(self.wake))

    def _receive_by(self, sink: transfers.BodySink, project: str | None) -> None:
        groups = (f"client {self.client}", f"project {project}")
        if not self._server.uploads.enter(*groups):
            raise exceptions.ServiceUnavailable(TOO_MANY_UPLOADS)
        self._upload_groups = groups
        self._sink = sink

    def _leave_uploads(self) -> None:
        self._server.uploads.leave(*self._upload_groups)
        self._sink = None

    def _begin_upload(self, response: Response) -> None:
        """Receive the body, since the application has accepted the request."""
        self._promised = [item for item in response.headers if not item[0].lower().startswith("content-")]
        response.close()
        request = self._request
        assert request is not None
        try:
            if request.expects_continue:
                self._channel.write(responses.CONTINUE)
        except OSError as error:
            self._fail_upload(error)
            return
        self._server.transfer_threads.put(self._receive_pieces)

    def _receive_pieces(self) -> None:
        """Give the next pieces of the body to the sink."""
        request, sink, parser = self._request, self._sink, self._parser
        assert request is not None
        assert sink is not None
        try:
            for _ in range(transfers.PIECES):
                if request.parts and (work := sink.write(request.take_body())) is not None:
                    self._server.executor.put(Job(functools.partial(self._work_for_upload, work)))
                    return
                if request.complete:
                    parser.requests.popleft()
                    sink.complete()
                    self._server.executor.put(Job(lambda: self._end_upload(None)))
                    return
                data = self._channel.read()
                if data is None:
                    self._arm(State.RECEIVING, self._upload_deadline())
                    return
                if not data:
                    raise ConnectionError("the client disconnected")
                self._received += len(data)
                parser.feed(data)
                if parser.refusal is not None and not request.complete:
                    raise webob.exc.HTTPBadRequest(explanation=parser.refusal.sentence)
        except Exception as error:
            self._fail_upload(error)
        else:
            self._server.transfer_threads.put(self._receive_pieces)

    def _work_for_upload(self, work: Callable[[], None]) -> None:
        """Do what the sink needs from the application, then receive the next pieces."""
        try:
            work()
        except Exception as error:
            self._end_upload(error)
        else:
            self._server.transfer_threads.put(self._receive_pieces)

    def _upload_deadline(self) -> float:
        since = self._since or time.monotonic()
        allowed = self._server.client_limits.request + self._received / limits.MIN_RATE
        return since + min(allowed, self._server.client_limits.upload)

    def _fail_upload(self, error: Exception) -> None:
        self._server.executor.put(Job(lambda: self._end_upload(error)))

    def _end_upload(self, error: Exception | None) -> None:
        sink = self._sink
        assert sink is not None
        self._leave_uploads()
        try:
            response = Response.of(sink.respond(error))
        except Exception:
            LOG.exception("HTTP server: the end of an upload failed")
            self._send_refusal(FAILED)
            return
        self._send(response._replace(headers=[*self._promised, *response.headers]))

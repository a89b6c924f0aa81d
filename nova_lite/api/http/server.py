"""HTTP server of WSGI applications, in either concurrency mode.

A server accepts from one socket of the machine, and from sockets of guests' networks that come and go.

One native thread per server, the loop, accepts connections, shakes hands, and parses requests
(`nova_lite.daemon.http_parser`). A request is handed to a thread, or green thread, when its body is complete
(`admission`). That thread runs the application and sends the response as far as the socket takes it. The loop sends
the rest. So a slow client occupies memory, but no thread.

Large bodies and responses are moved piece by piece by `transfers`, which needs no request thread either.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from nova_lite.api.http import admission, limits, transfers
from nova_lite.api.http.admission import Executor
from nova_lite.api.http.connection import Connection, State
from nova_lite.api.http.deploy import App
from nova_lite.api.http.drain import Drain
from nova_lite.api.http.limits import ClientLimits
from nova_lite.api.http.proxy_protocol import Balancers
from nova_lite.base import concurrency, ip
from nova_lite.daemon import kept_sockets
from nova_lite.daemon.sockets import BACKLOG, listen

LOG = logging.getLogger(__name__)

#: Seconds between two looks at the deadlines, and between two turns without connections.
TICK = 0.5
IDLE_TICK = 5.0
#: Seconds for which a stopping server waits for the rest of a request.
UNFINISHED = 2.0
#: Seconds for which it waits until uploads that it has aborted are recorded.
ABORTION = 1.0
#: Connections to accept before others get their turn.
ACCEPTED_AT_ONCE = 64


#: Key of the environment: id of the guests' network that a request comes from. No client can set it.
NETWORK = "nova_lite.network"


class _Listener(NamedTuple):
    """A listening socket. ``network_id``: of the network whose guests it serves; None: it is the machine's."""

    sock: Any
    network_id: str | None


class HttpServer(Protocol):
    """A server. `make_server` makes it."""

    drain: Drain

    def listen(self, sock: Any, network_id: str) -> None: ...

    def end_listening(self, sock: Any) -> None: ...

    def start(self) -> None: ...

    def stop(self, timeout: float) -> None: ...


def listen_per_worker(name: str, address: str, port: int, count: int) -> list[socket.socket]:
    """Return ``count`` listening sockets on one port, one for each worker.

    The kernel distributes connections over the sockets. If a worker dies, its successor accepts the connections that
    wait at its socket. systemd keeps the sockets while this daemon restarts (`nova_lite.daemon.kept_sockets`).
    """
    names = [f"{name}-{number}" for number in range(count)]
    socks = kept_sockets.take(names, address, port)
    if socks is None:
        socks = _listen(address, port, count)
        for socket_name, sock in zip(names, socks, strict=True):
            kept_sockets.keep(socket_name, sock)
    return socks


def _listen(address: str, port: int, count: int) -> list[socket.socket]:
    exclusive = listen(address, port)
    if count == 1:
        return [exclusive]
    # The exclusive bind has shown that the port is free. A shared bind succeeds even if another process has the port.
    exclusive.close()
    return [listen(address, port, shared=True) for _ in range(count)]


def make_server(
    sock: socket.socket | None,
    app: App,
    threads: int,
    context: ssl.SSLContext | None,
    client_limits: ClientLimits | None = None,
    on_turn: Callable[[], None] = lambda: None,
    balancers: Balancers | None = None,
) -> Server:
    """Return a server on ``sock``, if any, in the concurrency mode of this process. ``context``: it uses TLS.

    ``on_turn``: the loop calls it every few seconds. ``balancers``: whose headers name the client.
    """
    client_limits = client_limits or ClientLimits()
    executor: Executor = (
        concurrency.GreenExecutor(LOG)
        if concurrency.is_eventlet()
        else admission.RequestThreads(client_limits.waiting, threads, client_limits.wait)
    )
    return Server(sock, app, executor, context, client_limits, on_turn, balancers)


class Server:
    """A server. ``executor`` runs the application."""

    def __init__(
        self,
        sock: socket.socket | None,
        app: App,
        executor: Executor,
        context: ssl.SSLContext | None,
        client_limits: ClientLimits,
        on_turn: Callable[[], None],
        balancers: Balancers | None,
    ) -> None:
        self._on_turn = on_turn
        self._balancers = balancers
        self.app = app
        self.executor = executor
        self.context = context
        self.client_limits = client_limits
        self.transfer_threads = transfers.TransferThreads(executor)
        self.budget: limits.BodyBudget[Connection] = limits.BodyBudget()
        self.uploads = limits.Slots(limits.MAX_UPLOADS // 2, limits.MAX_UPLOADS)
        self.drain = Drain()
        self.stopping = self.aborting = False
        self._clients = limits.Slots(
            client_limits.connections, warn=lambda text, *args: executor.log(logging.WARNING, text, *args)
        )
        self._connections: dict[int, Connection] = {}
        self._native = concurrency.native("socket")
        self._listeners: dict[int, _Listener] = {}
        self._given = sock
        select = concurrency.native("select")
        self._always: int = select.EPOLLIN
        self._once: tuple[int, int] = select.EPOLLIN | select.EPOLLONESHOT, select.EPOLLOUT | select.EPOLLONESHOT
        self._poll = select.epoll()
        self._calls: collections.deque[Callable[[], None]] = collections.deque()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._accepts_again = 0.0
        self._started = self._ended = False

    # --- life, called by the daemon

    def start(self) -> None:
        self._started = True
        self._refresh_balancers()
        self.executor.start()
        self._poll.register(self._wakeup, self._always)
        if self._given is not None:
            self._listen(self._given, None)
        concurrency.native_thread(self._run, "http")

    def listen(self, sock: Any, network_id: str) -> None:
        """Accept connections of the guests of a network, too."""
        self.call(lambda: self._listen(sock, network_id))

    def end_listening(self, sock: Any) -> None:
        """Close a socket that was given to `listen`. Connections that wait there are served."""
        self.call(lambda: self._end_listening(sock.fileno()))

    def stop(self, timeout: float) -> None:
        """Accept no more, close idle connections, and wait for running requests up to ``timeout`` seconds."""
        if not self._started or self._ended:
            return
        end = time.monotonic() + timeout
        self.call(self._begin_stop)
        # The loop accepts connections until it has begun to stop. They are served, too.
        while not self.stopping and time.monotonic() < end:
            time.sleep(0.01)
        if self._given is not None:
            self._given.close()
        self._wait_for_end(min(end, time.monotonic() + UNFINISHED))
        self.call(self._close_unfinished)
        self._wait_for_end(end)
        self.call(self._close_all)
        while not self.aborting and time.monotonic() < end + UNFINISHED:
            time.sleep(0.01)
        self._wait_for_end(max(end, time.monotonic() + ABORTION))
        self.transfer_threads.stop()
        self.executor.stop(max(0.1, end - time.monotonic()))
        self.call(self._end)
        while not self._ended and time.monotonic() < end + 1:
            time.sleep(0.01)

    def _wait_for_end(self, end: float) -> None:
        """Wait until no connection is left."""
        while self._connections and time.monotonic() < end:
            time.sleep(0.02)

    # --- for connections

    def arm(self, connection: Connection, writing: bool) -> None:
        if not self._ended:
            self._poll.modify(connection.descriptor, self._once[writing])

    # --- the loop

    def call(self, func: Callable[[], None]) -> None:
        """Let the loop call a function. Any native thread may call this. It does nothing after the end."""
        if self._ended:
            return
        self._calls.append(func)
        os.eventfd_write(self._wakeup, 1)

    def _run(self) -> None:
        next_tick = 0.0
        while not self._ended:
            ready = self._poll.poll(TICK if self._connections or self._accepts_again else IDLE_TICK)
            try:
                for descriptor, _ in ready:
                    self._handle(descriptor)
                now = time.monotonic()
                if now >= next_tick:
                    next_tick = now + TICK
                    self._tick(now)
            except Exception as error:
                self.executor.log(logging.ERROR, "HTTP server: its loop failed in an unexpected way: %r", error)
        for connection in list(self._connections.values()):
            connection.close()
        self._poll.close()
        os.close(self._wakeup)

    def _handle(self, descriptor: int) -> None:
        connection = self._connections.get(descriptor)
        if connection is not None:
            try:
                connection.ready()
            except Exception as error:
                self.executor.log(logging.ERROR, "HTTP server: a connection failed in an unexpected way: %r", error)
                connection.close()
        elif descriptor == self._wakeup:
            os.eventfd_read(self._wakeup)
            while self._calls:
                self._calls.popleft()()
        elif (listener := self._listeners.get(descriptor)) is not None:
            self._accept(listener)

    def _tick(self, now: float) -> None:
        self._on_turn()
        self.executor.check()
        self._refresh_balancers()
        for connection in list(self._connections.values()):
            if connection.deadline < now:
                connection.expire()
        if self._accepts_again and not self.stopping:
            self._accepts_again = 0.0
            for listening in self._listeners:
                self._poll.register(listening, self._always)

    # --- connections, in the loop

    def _listen(self, sock: Any, network_id: str | None) -> None:
        if network_id is None:
            sock = self._native.socket(fileno=os.dup(sock.fileno()))
        sock.setblocking(False)
        self._listeners[sock.fileno()] = _Listener(sock, network_id)
        if not self._accepts_again:
            self._poll.register(sock.fileno(), self._always)

    def _end_listening(self, descriptor: int) -> None:
        listener = self._listeners.pop(descriptor, None)
        if listener is None:
            return
        if not self._accepts_again:
            self._poll.unregister(descriptor)
        for _ in range(BACKLOG // ACCEPTED_AT_ONCE):
            self._accept(listener)
        listener.sock.close()

    def _accept(self, listener: _Listener) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, address = listener.sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._rest()
                return
            # A guest may have the address of a load balancer.
            is_guest = listener.network_id is not None
            is_balanced = not is_guest and self._balancers is not None and address[0] in self._balancers
            client = "" if is_balanced else ip.client_of(address[0])
            if is_guest:
                client = f"{client} of network {listener.network_id}"
            if len(self._connections) >= limits.MAX_CONNECTIONS:
                self._close_idle()
            if len(self._connections) >= limits.MAX_CONNECTIONS or (client and not self._clients.enter(client)):
                sock.close()
                continue
            sock.setblocking(False)
            connection = Connection(self, sock, address, client, is_balanced)
            if is_guest:
                connection.environ[NETWORK] = listener.network_id
            self._connections[connection.descriptor] = connection
            self._poll.register(connection.descriptor, self._once[0])

    def _refresh_balancers(self) -> None:
        if self._balancers is not None and (problem := self._balancers.refresh()):
            self.executor.log(logging.WARNING, "The list of controllers, which are load balancers, is old: %s", problem)

    def _rest(self) -> None:
        """Accept no more until the next tick, since there is no room for a connection."""
        self._close_idle()
        if not self._accepts_again:
            for descriptor in self._listeners:
                self._poll.unregister(descriptor)
        self._accepts_again = time.monotonic()

    def _close_idle(self) -> None:
        """Close the connection that has been idle for longest."""
        idle = [connection for connection in self._connections.values() if connection.is_idle]
        if idle:
            min(idle, key=lambda connection: connection.deadline).close()

    def identify(self, connection: Connection, address: str) -> bool:
        """Count the connection of a load balancer as one of this address. Return False if there are too many."""
        client = ip.client_of(address)
        if not self._clients.enter(client):
            return False
        connection.client = client
        return True

    def forget(self, connection: Connection) -> None:
        """Remove a connection that is being closed."""
        if self._connections.pop(connection.descriptor, None) is not None:
            with contextlib.suppress(OSError):
                self._poll.unregister(connection.descriptor)
            self.budget.forget(connection.client, connection)
            if connection.client:
                self._clients.leave(connection.client)

    # --- stopping, in the loop

    def _begin_stop(self) -> None:
        self.stopping = True
        for descriptor, listener in self._listeners.items():
            if not self._accepts_again:
                self._poll.unregister(descriptor)
            listener.sock.close()
        self._listeners.clear()
        for connection in list(self._connections.values()):
            connection.end_if_idle()

    def _close_unfinished(self) -> None:
        """Close connections whose request is not complete, and has done nothing."""
        for connection in list(self._connections.values()):
            if connection.state is State.READING:
                connection.abort()

    def _close_all(self) -> None:
        """Close connections that no thread works for. Uploads that a thread works for end at their next piece."""
        self.aborting = True
        for connection in list(self._connections.values()):
            connection.abort()

    def _end(self) -> None:
        self._ended = True

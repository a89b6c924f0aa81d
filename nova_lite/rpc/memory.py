"""Messages between daemons of one process, without a broker: for a cloud in one process (`nova_lite.cmd.dev`).

Each server has threads of its own, so daemons behave as they do over a broker: a cast does not block its sender, and a
call ends after its timeout. Values become JSON on the way. Nothing is signed, as no message leaves the process.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Callable
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.futures import ResponseFuture
from nova_lite.rpc import in_process
from nova_lite.rpc.client import Message
from nova_lite.rpc.endpoint import Endpoint
from nova_lite.rpc.transport import Server, Transport

LOG = logging.getLogger(__name__)

#: Threads of a server. They start when there are messages for them.
MAX_THREADS = 64

#: Seconds for which a call without a timeout of its own waits for its reply.
CALL_TIMEOUT = 60.0


class MemoryBroker:
    """Routes messages to the servers of this process. Daemons take `connect` in place of `Transport`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers: dict[str, dict[str, MemoryServer]] = {}

    def connect(self, conf: cfg.ConfigOpts, role: str | None = None) -> MemoryTransport:
        """Return the transport of one daemon."""
        return MemoryTransport(conf, self)

    def add(self, server: MemoryServer) -> None:
        with self._lock:
            self._servers.setdefault(server.endpoint.topic, {})[server.name] = server

    def remove(self, server: MemoryServer) -> None:
        """Route no more messages to the server."""
        with self._lock:
            servers = self._servers[server.endpoint.topic]
            if servers.get(server.name) is server:
                del servers[server.name]

    def receivers(self, message: Message) -> list[MemoryServer]:
        """Return the servers that get the message.

        Raises `MessagingUnavailable` if there is none; a fanout needs none.
        """
        with self._lock:
            servers = self._servers.get(message.topic, {})
            found = [server for name, server in servers.items() if message.server in (None, name)]
        if not found and not message.fanout:
            raise exceptions.MessagingUnavailable(what=message.method)
        return found if message.fanout else found[:1]

    def depth(self, queue: str) -> int:
        """Return the number of messages that wait for a server: ``topic`` or ``topic.server``."""
        topic, _, name = queue.partition(".")
        with self._lock:
            servers = list(self._servers.get(topic, {}).values())
        return sum(server.waiting for server in servers if name in ("", server.name))


class MemoryTransport(Transport):
    """A daemon's way to the servers of a `MemoryBroker`."""

    def __init__(self, conf: cfg.ConfigOpts, broker: MemoryBroker) -> None:
        self.conf = conf
        self._broker = broker

    def call(self, message: Message) -> Any:
        (server,) = self._broker.receivers(message)
        reply = server.submit(message)
        try:
            result = reply.result(message.timeout or CALL_TIMEOUT)
        except concurrent.futures.TimeoutError:
            LOG.warning("Call %s to %s failed: no reply in time", message.method, message.topic)
            raise exceptions.MessagingUnavailable(what=message.method) from None
        except messaging.ExpectedException as error:
            raise in_process.received(error.exc_info) from None
        return in_process.typed(result, message)

    def cast(self, message: Message) -> None:
        for server in self._broker.receivers(message):
            server.submit(message).add_done_callback(lambda reply: _log_failure(message, reply))

    def depth(self, queue: str) -> int:
        return self._broker.depth(queue)

    def server(self, name: str, endpoint: Endpoint) -> MemoryServer:
        return MemoryServer(self._broker, name, endpoint)

    def share(self, role: str, host: str) -> Transport:
        return self

    def renew(self) -> None:
        """Do nothing: there is no connection that could break."""

    def cleanup(self) -> None:
        """Do nothing: there is no connection to close."""


class MemoryServer(Server):
    """A server of a `MemoryBroker`: the threads that handle the messages for an endpoint."""

    def __init__(self, broker: MemoryBroker, name: str, endpoint: Endpoint) -> None:
        self.name = name
        self.endpoint = endpoint
        self.waiting = 0
        self._lock = threading.Lock()
        self._broker = broker
        self._threads = concurrent.futures.ThreadPoolExecutor(MAX_THREADS, f"rpc-{endpoint.topic}-{name}")

    def start(self) -> None:
        self._broker.add(self)

    @property
    def workers(self) -> None:
        return None

    def stop(self) -> None:
        self._broker.remove(self)

    def wait(self) -> None:
        self._threads.shutdown()

    def submit(self, message: Message) -> concurrent.futures.Future[Any]:
        """Let a thread handle the message. The future has its plain result, or the error of `Endpoint`'s function.

        Raises `MessagingUnavailable` when the server has stopped.
        """
        reply: concurrent.futures.Future[Any] = concurrent.futures.Future()
        with self._lock:
            self.waiting += 1
        try:
            self._threads.submit(self._handle, message, reply)
        except RuntimeError as error:  # the pool's error after its shutdown
            raise exceptions.MessagingUnavailable(what=message.method) from error
        return reply

    def _handle(self, message: Message, reply: concurrent.futures.Future[Any]) -> None:
        with self._lock:
            self.waiting -= 1
        try:
            result = in_process.dispatch(self.endpoint, message)
        except Exception as error:
            reply.set_exception(_as_sent(error))
            return
        if isinstance(result, ResponseFuture):
            result.add_callback(lambda get: _deliver(get, reply))
        else:
            reply.set_result(result)


def _deliver(get: Callable[[], Any], reply: concurrent.futures.Future[Any]) -> None:
    try:
        result = get()
    except Exception as error:
        reply.set_exception(_as_sent(error))
    else:
        reply.set_result(result)


def _as_sent(error: Exception) -> Exception:
    """Return the error that the caller gets: for an unexpected one only its name and text, as over a broker."""
    if isinstance(error, messaging.ExpectedException | exceptions.NovaLiteException):
        return error
    remote: Exception = messaging.RemoteError(type(error).__name__, str(error))
    return remote


def _log_failure(message: Message, reply: concurrent.futures.Future[Any]) -> None:
    error = reply.exception()
    if error is not None:
        LOG.warning("Cast %s failed: %r", message.method, error)

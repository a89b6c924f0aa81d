"""The way over the message broker: oslo.messaging's transport, clients and servers."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import amqp.exceptions
import kombu.connection
import kombu.exceptions
import oslo_messaging as messaging
from oslo_config import cfg

from nova_lite.base import concurrency, exceptions, metrics
from nova_lite.base.context import RequestContext
from nova_lite.conf import libraries
from nova_lite.rpc import load_shedding, patches
from nova_lite.rpc.broker import EXCHANGE, reply_queues
from nova_lite.rpc.client import Message
from nova_lite.rpc.endpoint import Endpoint
from nova_lite.rpc.keys import COMPUTE
from nova_lite.rpc.signing import ALLOWED_REMOTE_EXMODS, SENDER, SignatureVerifier, Signing

LOG = logging.getLogger(__name__)

_BROKER_ERRORS = (
    messaging.MessageUndeliverable,
    messaging.MessagingTimeout,
    messaging.MessageDeliveryFailure,
    kombu.exceptions.OperationalError,
    amqp.exceptions.AMQPError,
    OSError,
)


class ContextSerializer(messaging.Serializer):  # type: ignore[misc]
    """Makes a `RequestContext` of what a message carries. `Transport`, `proxy` and `Endpoint` make values plain.

    A compute host speaks for no user, and is no admin, whatever its message says: what it may is its role's.
    """

    def serialize_entity(self, ctxt: Any, entity: Any) -> Any:
        return entity

    def deserialize_entity(self, ctxt: Any, entity: Any) -> Any:
        return entity

    def serialize_context(self, ctxt: RequestContext | dict[str, Any]) -> dict[str, Any]:
        return ctxt if isinstance(ctxt, dict) else ctxt.to_rpc()

    def deserialize_context(self, ctxt: dict[str, Any]) -> RequestContext:
        values = dict(ctxt)
        sender = values.pop(SENDER, None)
        if sender is not None and sender.role == COMPUTE:
            values = {"request_id": values.get("request_id")}
        context = RequestContext.from_rpc(values)
        context.sender = sender
        return context


class Transport:
    """This process's way to the broker for ``[DEFAULT] transport_url``: an oslo.messaging transport, which `renew`
    replaces when nothing gets through it any more. ``conf`` must be oslo.config's global object. ``role`` and ``host``
    (default: ``[DEFAULT] host``) are those of the key that signs what is sent; `beside` is for a process that is many
    hosts.

    Whoever uses one has taken it, and gives it back. One that was replaced is closed once nobody uses it: a call that
    waits for its answer, or a server that ends what it is at.
    """

    def __init__(self, conf: cfg.ConfigOpts, role: str | None = None, host: str | None = None) -> None:
        self.conf = conf
        self.signing = Signing(conf, role, host)
        self._lock = threading.Lock()
        self._users: Counter[Any] = Counter()
        self._replies = reply_queues(role or "client", host or conf.host)
        self._current = self._connect()
        self._answered_on: Any = None
        self._made: tuple[Any, Any] = (None, None)

    def call(self, message: Message) -> Any:
        failure: Exception | None = None
        with self._connected() as (transport, client):
            try:
                if self._answered_on is not transport:
                    # The first call opens the connection for replies, which waits for the broker without end.
                    require_broker(self)
                context, message_id = self.signing.signed(message)
                try:
                    answer = self._prepared(client, message).call(context, message.method, **message.arguments)
                except exceptions.NovaLiteException as error:
                    raise self.signing.unsigned_failure(message, message_id, error) from error
                self._answered_on = transport
                return self.signing.opened(message, message_id, answer)
            except _BROKER_ERRORS as error:
                failure = error
            except exceptions.MessageRefused as error:
                failure = error
            except (messaging.UnsupportedVersion, messaging.NoSuchMethod) as error:
                raise message.too_old() from error
            except messaging.RemoteError as error:
                if error.exc_type in ("UnsupportedVersion", "NoSuchMethod"):
                    raise message.too_old() from None
                raise
        # while an exception is handled, oslo.log repeats it at the end of the line
        metrics.RPC_FAILED.labels(message.topic, message.method).inc()
        LOG.warning("Call %s to %s failed: %s", message.method, message.topic, _one_line(failure))
        raise exceptions.MessagingUnavailable(what=message.method) from failure

    def cast(self, message: Message) -> None:
        try:
            with self._connected() as (_, client):
                context, _ = self.signing.signed(message)
                self._prepared(client, message).cast(context, message.method, **message.arguments)
        except _BROKER_ERRORS as error:
            raise exceptions.MessagingUnavailable(what=message.method) from error

    @staticmethod
    def _prepared(client: Any, message: Message) -> Any:
        options: dict[str, Any] = {"topic": message.topic, "version": message.version}
        if message.fanout:
            options["fanout"] = True
        else:
            options["transport_options"] = messaging.TransportOptions(at_least_once=True)
        if message.server is not None:
            options["server"] = message.server
        if message.timeout is not None:
            options["timeout"] = message.timeout
        return client.prepare(**options)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[tuple[Any, Any]]:
        """An oslo.messaging transport, and a client of it."""
        transport = self.take()
        try:
            yield transport, self._client_of(transport)
        finally:
            self.give_back(transport)

    def _client_of(self, transport: Any) -> Any:
        made_for, client = self._made
        if made_for is not transport:
            client = messaging.get_rpc_client(
                transport,
                messaging.Target(),
                serializer=ContextSerializer(),
                retry=0,  # a broker that is away is an answer at once; who can wait tries again (users get a 503)
            )
            self._made = (transport, client)
        return client

    def depth(self, queue: str) -> int:
        """How many messages wait in the broker, in a queue that there is. Raises `MessagingUnavailable`."""
        host, *_ = messaging.TransportURL.parse(self.conf).hosts or [None]
        if host is None or not host.hostname:
            return 0
        require_broker(self)
        url = messaging.TransportURL.parse(self.conf)
        try:
            with kombu.connection.Connection(  # type: ignore[no-untyped-call]
                hostname=host.hostname,
                port=host.port or 5672,
                userid=host.username,
                password=host.password,
                virtual_host=url.virtual_host or "/",
                connect_timeout=2,
                ssl=self.conf.oslo_messaging_rabbit.ssl,
            ) as connection:
                return int(connection.default_channel.queue_declare(queue, passive=True).message_count)
        except _BROKER_ERRORS as error:
            raise exceptions.MessagingUnavailable(what=f"depth of {queue}") from error

    def take(self) -> Any:
        """The oslo.messaging transport to use now."""
        with self._lock:
            self._users[self._current] += 1
            return self._current

    def give_back(self, used: Any) -> None:
        with self._lock:
            self._users[used] -= 1
        self._close_if_over(used)

    def renew(self) -> None:
        """From now on everybody takes a new one, with connections of its own."""
        fresh = self._connect()
        with self._lock:
            old, self._current = self._current, fresh
        self._close_if_over(old)

    def _connect(self) -> Any:
        made = _oslo_transport(self.conf)
        patches.name_reply_queues(made, self._replies)
        return made

    def beside(self, role: str, host: str) -> Transport:
        """The same connections, for another daemon that this process is, with a key of its own: a simulation of many
        hosts needs no thousand connections."""
        return _Beside(self, role, host)

    def cleanup(self) -> None:
        """Close the connections; nothing can be sent any more."""
        self._current.cleanup()

    def _close_if_over(self, transport: Any) -> None:
        """In a thread: a connection that nothing gets through may take long to close."""
        with self._lock:
            if transport is self._current or self._users[transport] > 0:
                return
            del self._users[transport]
        threading.Thread(target=transport.cleanup, name="close-transport", daemon=True).start()


class _Beside(Transport):
    def __init__(self, other: Transport, role: str, host: str) -> None:
        self.conf = other.conf
        self.signing = Signing(other.conf, role, host, other.signing)
        self._other = other
        self._answered_on = None

    def _client_of(self, transport: Any) -> Any:
        return self._other._client_of(transport)

    def take(self) -> Any:
        return self._other.take()

    def give_back(self, used: Any) -> None:
        self._other.give_back(used)

    def renew(self) -> None:
        self._other.renew()

    def cleanup(self) -> None:
        """The connections are the other's."""


def _oslo_transport(conf: cfg.ConfigOpts) -> Any:
    messaging.set_transport_defaults(EXCHANGE)
    libraries.set_messaging_defaults()
    patches.install()
    try:
        return messaging.get_rpc_transport(conf, allowed_remote_exmods=ALLOWED_REMOTE_EXMODS)
    except (messaging.DriverLoadFailure, messaging.InvalidTransportURL) as error:
        raise exceptions.ConfigurationError(reason=f"[DEFAULT] transport_url cannot be used: {error}") from error


class RpcServer:
    """An RPC server on the endpoint's ``topic`` and ``topic.server``; to be started once, then stopped and waited
    for."""

    def __init__(self, transport: Transport, server: str, endpoint: Endpoint) -> None:
        self._transport = transport
        self._taken = transport.take()
        self._server = messaging.get_rpc_server(
            self._taken,
            messaging.Target(topic=endpoint.topic, server=server),
            [endpoint],
            executor=concurrency.rpc_executor(),
            serializer=ContextSerializer(),
            access_policy=messaging.DefaultRPCAccessPolicy,
            server_cls=load_shedding.server_class(endpoint.classify),
        )
        self._server.dispatcher = SignatureVerifier(self._server.dispatcher, transport.signing, endpoint, server)

    def start(self) -> None:
        """Raises `MessagingUnavailable` at once when the broker is away or refuses us; oslo.messaging itself would try
        again without end, deaf to the signal that stops the daemon."""
        with contextlib.ExitStack() as undo:
            undo.callback(self._transport.give_back, self._taken)
            require_broker(self._transport)
            try:
                self._server.start()
            except _BROKER_ERRORS as error:
                raise exceptions.MessagingUnavailable(
                    f"The message broker refuses this daemon: {_one_line(error)}"
                ) from error
            undo.pop_all()

    @property
    def workers(self) -> load_shedding.Workers | None:
        """None before the start."""
        workers: load_shedding.Workers | None = self._server.workers
        return workers

    def stop(self) -> None:
        """Take no more messages."""
        self._server.stop()
        self._server.acknowledge()

    def wait(self) -> None:
        """Until what it is at has ended."""
        self._server.wait()
        self._transport.give_back(self._taken)


def require_broker(transport: Transport, timeout: float = 2.0) -> None:
    """Return if one of the transport's brokers takes connections, else raise `MessagingUnavailable`."""
    hosts = [
        (host.hostname, host.port or 5672)
        for host in messaging.TransportURL.parse(transport.conf).hosts
        if host.hostname
    ]
    failures = []
    for address in hosts:
        try:
            socket.create_connection(address, timeout).close()
            return
        except OSError as error:
            failures.append(f"{address[0]}:{address[1]} ({error.strerror or error})")
    if failures:
        raise exceptions.MessagingUnavailable(f"The message broker cannot be reached: {', '.join(failures)}.")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__

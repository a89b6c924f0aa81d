"""The transport over the message broker: oslo.messaging's transports, clients and servers."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

import amqp.exceptions
import kombu.connection
import kombu.exceptions
import oslo_messaging as messaging
from oslo_config import cfg

from nova_lite.base import concurrency, exceptions, key_files, metrics
from nova_lite.base.context import TRACEPARENT, RequestContext
from nova_lite.conf import libraries
from nova_lite.rpc import load_shedding, patches
from nova_lite.rpc.broker import EXCHANGE, reply_queues
from nova_lite.rpc.client import Message
from nova_lite.rpc.endpoint import Endpoint
from nova_lite.rpc.keys import API, COMPUTE, CONDUCTOR
from nova_lite.rpc.local import LocalClient, LocalServer, Undelivered
from nova_lite.rpc.signing import ALLOWED_REMOTE_EXMODS, MESSAGE, REQUIRED, SENDER, SignatureVerifier, Signing

LOG = logging.getLogger(__name__)

_RABBIT = "oslo_messaging_rabbit"
#: Errors of a message that its broker did not take.
_NOT_TAKEN = (
    messaging.MessageDeliveryFailure,
    kombu.exceptions.OperationalError,
    amqp.exceptions.AMQPError,
    OSError,
)
_BROKER_ERRORS = (messaging.MessageUndeliverable, messaging.MessagingTimeout, *_NOT_TAKEN)

#: A context with a signature, and the id that the reply is signed for.
_Signed: TypeAlias = tuple[dict[str, Any], str | None]

#: Seconds before a read that no broker has taken is sent again.
_RESEND_AFTER = (0.1, 0.4, 1.0)

#: Longest wait in seconds of a transport that is closed for messages that are being sent.
_CLOSE_SECONDS = 1.0


class ContextSerializer(messaging.Serializer):  # type: ignore[misc]
    """Converts between `RequestContext` and plain values. `Transport`, `proxy` and `Endpoint` convert the arguments.

    A compute host acts for no user and is no admin, whatever its message says: its role alone decides what it may do.
    """

    def serialize_entity(self, ctxt: Any, entity: Any) -> Any:
        return entity

    def deserialize_entity(self, ctxt: Any, entity: Any) -> Any:
        return entity

    def serialize_context(self, ctxt: RequestContext | dict[str, Any]) -> dict[str, Any]:
        return ctxt if isinstance(ctxt, dict) else ctxt.to_rpc()

    def deserialize_context(self, ctxt: dict[str, Any]) -> RequestContext:
        values = dict(ctxt)
        sender, message = values.pop(SENDER, None), values.pop(MESSAGE, None)
        if sender is not None and sender.role == COMPUTE:
            values = {name: values.get(name) for name in ("request_id", TRACEPARENT)}
        context = RequestContext.from_rpc(values, message)
        context.sender = sender
        return context


class Transport:
    """Connections of this process to the broker at ``[DEFAULT] transport_url``: an oslo.messaging transport.

    `renew` replaces a transport that no message passes any more. A replaced transport is closed when its last user has
    released it: a call that waits for its reply, or a server that finishes its messages. ``conf`` must be oslo.config's
    global object. ``role`` and ``host`` (default: ``[DEFAULT] host``) select the key that signs messages. `share` is
    for a process that acts as many hosts.
    """

    def __init__(self, conf: cfg.ConfigOpts, role: str | None = None, host: str | None = None) -> None:
        self.conf = conf
        self.signing = Signing(conf, role, host)
        self._lock = threading.Lock()
        self._users: Counter[Any] = Counter()
        self._replies = reply_queues(role or "client", host or conf.host)
        self._current = self._connect()
        self._replied_on: Any = None
        self._made: tuple[Any, Any] = (None, None)
        self._local = self._local_client(role)
        #: Messages that are being sent, calls until their replies.
        self._sending = 0
        self._closed = False

    def _local_client(self, role: str | None) -> LocalClient | None:
        """Return the way to a conductor on this machine. Raises `ConfigurationError`."""
        path = self.conf.rpc.conductor_socket
        if role != API or not path:
            return None
        self._client_of(self._current)  # which registers rpc_response_timeout
        return LocalClient(path, self.conf.rpc_response_timeout, self.signing.mode == REQUIRED, signing=self.signing)

    def call(self, message: Message) -> Any:
        failure: Exception | None = None
        try:
            return self._call_locally(message) if self._is_local(message) else self._call(message)
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
        # Outside the handler: oslo.log appends an exception that is being handled to the line.
        metrics.RPC_FAILED.labels(message.topic, message.method).inc()
        LOG.warning("Call %s to %s failed: %s", message.method, message.topic, _one_line(failure))
        raise exceptions.MessagingUnavailable(what=message.method) from failure

    def _is_local(self, message: Message) -> bool:
        return self._local is not None and self._local.carries(message)

    def _call_locally(self, message: Message) -> Any:
        """Call the conductor on this machine. If it does not reply, call any by the broker."""
        local = self._local
        assert local is not None
        draft = self.signing.draft(message)
        self._begin()
        try:
            return self._exchange(message, draft.message_id, lambda: local.call(draft, message))
        except Undelivered:
            pass
        finally:
            self._end()
        # A conductor that has taken a read, and is late, refuses its signature. A read may run twice.
        return self._call(message, None if message.is_read else draft.signed())

    def _call(self, message: Message, signed: _Signed | None = None) -> Any:
        """Call by the broker. ``signed``: of a call that was sent before, and must not run twice.

        A read that was not taken, as after the loss of one of several brokers, is sent again if there is a broker.
        """
        waits = iter(_RESEND_AFTER if message.is_read else ())
        while True:
            try:
                return self._call_once(message, signed)
            except _NOT_TAKEN as error:
                seconds = next(waits, None)
                if seconds is None:
                    raise
                LOG.info("The read %s is sent again in %.1f s: %s", message.method, seconds, _one_line(error))
            time.sleep(seconds)
            require_broker(self)

    def _call_once(self, message: Message, signed: _Signed | None) -> Any:
        with self._connected() as (transport, client):
            if self._replied_on is not transport:
                # The first call opens the connection for replies, and would wait for an absent broker without end.
                require_broker(self)

            context, message_id = signed or self.signing.signed(message)

            def send() -> Any:
                with patches.repeats(message.is_read and message.server is None):
                    response = self._prepared(client, message).call(context, message.method, **message.arguments)
                self._replied_on = transport
                return response

            return self._exchange(message, message_id, send)

    def _exchange(self, message: Message, message_id: str | None, send: Callable[[], Any]) -> Any:
        """Send a call, and return the content of its reply, which is signed for ``message_id``."""
        try:
            response = send()
        except exceptions.NovaLiteException as error:
            raise self.signing.unsigned_failure(message, message_id, error) from error
        return self.signing.opened(message, message_id, response)

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
        """Provide an oslo.messaging transport and a client of it."""
        self._begin()
        try:
            transport = self.take()
            try:
                yield transport, self._client_of(transport)
            finally:
                self.release(transport)
        finally:
            self._end()

    def _begin(self) -> None:
        """Count a message that is being sent. Raises `MessagingUnavailable` once the connections are closed."""
        with self._lock:
            if self._closed:
                raise exceptions.MessagingUnavailable(what="this daemon has stopped")
            self._sending += 1

    def _end(self) -> None:
        with self._lock:
            self._sending -= 1

    def _client_of(self, transport: Any) -> Any:
        made_for, client = self._made
        if made_for is not transport:
            client = messaging.get_rpc_client(
                transport,
                messaging.Target(),
                serializer=ContextSerializer(),
                retry=0,  # an absent broker is an error at once: users get a 503, other callers retry
            )
            self._made = (transport, client)
        return client

    def depth(self, queue: str) -> int:
        """Return the number of messages that wait in a queue of the broker. Raises `MessagingUnavailable`."""
        host, *_ = messaging.TransportURL.parse(self.conf).hosts or [None]
        if host is None or not host.hostname:
            return 0
        require_broker(self)
        url = messaging.TransportURL.parse(self.conf)
        try:
            with _plain_connection(self.conf, url, host, 2.0) as connection:
                return int(connection.default_channel.queue_declare(queue, passive=True).message_count)
        except _BROKER_ERRORS as error:
            raise exceptions.MessagingUnavailable(what=f"depth of {queue}") from error

    def take(self) -> Any:
        """Return the current oslo.messaging transport. The caller passes it to `release` later."""
        with self._lock:
            self._users[self._current] += 1
            return self._current

    def release(self, used: Any) -> None:
        with self._lock:
            self._users[used] -= 1
        self._close_if_unused(used)

    def renew(self) -> None:
        """Replace the oslo.messaging transport by a new one, with new connections."""
        fresh = self._connect()
        with self._lock:
            old, self._current = self._current, fresh
        self._close_if_unused(old)

    def _connect(self) -> Any:
        """Connect, with reply queues of a name that the broker's permissions can protect (`nova_lite.rpc.broker`)."""
        made = _oslo_transport(self.conf)
        if _RABBIT in self.conf:  # The options exist by now, and no connection is open before the first message.
            key_files.check_tls_client(self.conf[_RABBIT], _RABBIT, "ssl_ca_file", "ssl_cert_file", "ssl_key_file")
        patches.name_reply_queues(made, self._replies)
        return made

    def server(self, name: str, endpoint: Endpoint) -> Server:
        """Return a server of the endpoint on ``topic`` and ``topic.name``."""
        return RpcServer(self, name, endpoint)

    def share(self, role: str, host: str) -> Transport:
        """Return a transport of another daemon in this process: the same connections, another key.

        A simulation of many hosts then needs few connections.
        """
        return _SharedTransport(self, role, host)

    def cleanup(self) -> None:
        """Close the connections, shortly after the last message was sent. Nothing can be sent afterwards.

        Work in the background may still be under way when a daemon stops. What it does not send, others repeat.
        """
        with self._lock:
            self._closed = True
        end = time.monotonic() + _CLOSE_SECONDS
        while self._sending and time.monotonic() < end:
            time.sleep(0.01)
        if self._local is not None:
            self._local.close()
        self._current.cleanup()

    def _close_if_unused(self, transport: Any) -> None:
        """Close a replaced transport without users, in a thread: a broken connection may take long to close."""
        with self._lock:
            if transport is self._current or self._users[transport] > 0:
                return
            del self._users[transport]
        threading.Thread(target=transport.cleanup, name="close-transport", daemon=True).start()


class _SharedTransport(Transport):
    def __init__(self, other: Transport, role: str, host: str) -> None:
        self.conf = other.conf
        self.signing = Signing(other.conf, role, host, other.signing)
        self._local = None
        self._other = other
        self._replied_on = None

    def _client_of(self, transport: Any) -> Any:
        return self._other._client_of(transport)

    def _begin(self) -> None:
        self._other._begin()

    def _end(self) -> None:
        self._other._end()

    def take(self) -> Any:
        """Return the current oslo.messaging transport. The caller passes it to `release` later."""
        return self._other.take()

    def release(self, used: Any) -> None:
        self._other.release(used)

    def renew(self) -> None:
        """Replace the oslo.messaging transport by a new one, with new connections."""
        self._other.renew()

    def cleanup(self) -> None:
        """Do nothing: the connections belong to the other transport."""


def _oslo_transport(conf: cfg.ConfigOpts) -> Any:
    messaging.set_transport_defaults(EXCHANGE)
    libraries.set_messaging_defaults()
    patches.install()
    try:
        return messaging.get_rpc_transport(conf, allowed_remote_exmods=ALLOWED_REMOTE_EXMODS)
    except (messaging.DriverLoadFailure, messaging.InvalidTransportURL) as error:
        raise exceptions.ConfigurationError(reason=f"[DEFAULT] transport_url cannot be used: {error}") from error


class Server(Protocol):
    """A server of one endpoint. Start it once, then stop it and wait."""

    def start(self) -> None:
        """Receive messages. Raises `MessagingUnavailable` if there is no broker."""

    @property
    def workers(self) -> load_shedding.Workers | None:
        """The server's threads, if they have metrics; None before the start."""

    def stop(self) -> None:
        """Take no more messages."""

    def wait(self) -> None:
        """Wait until the running messages have ended."""


#: Makes the transport of a daemon from its configuration and role: `Transport`, or `MemoryBroker.connect`.
Connect: TypeAlias = Callable[[cfg.ConfigOpts, str | None], Transport]


class RpcServer(Server):
    """An RPC server on the endpoint's ``topic`` and ``topic.server``. Start it once, then stop it and wait."""

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
            server_cls=load_shedding.server_class(endpoint.classify, endpoint.repeated),
        )
        self._server.dispatcher = SignatureVerifier(self._server.dispatcher, transport.signing, endpoint, server)
        self._local: LocalServer | None = None
        self._socket = transport.conf.rpc.conductor_socket if endpoint.topic == CONDUCTOR else None

    def start(self) -> None:
        """Start the server. Raises `MessagingUnavailable` at once when the broker is away or refuses the daemon.

        oslo.messaging itself would retry without end, and would ignore the signal that stops the daemon.
        """
        with contextlib.ExitStack() as undo:
            undo.callback(self._transport.release, self._taken)
            require_broker(self._transport)
            try:
                self._server.start()
            except _BROKER_ERRORS as error:
                raise exceptions.MessagingUnavailable(
                    f"The message broker refuses this daemon: {_one_line(error)}"
                ) from error
            if self._socket:
                is_signed = self._transport.signing.mode == REQUIRED
                self._local = LocalServer(self._socket, self._server.take, is_signed)
            undo.pop_all()

    @property
    def workers(self) -> load_shedding.Workers | None:
        """The server's threads; None before the start."""
        workers: load_shedding.Workers | None = self._server.workers
        return workers

    def stop(self) -> None:
        """Take no more messages."""
        if self._local is not None:
            self._local.stop()
        self._server.stop()

    def wait(self) -> None:
        """Wait until the running messages have ended."""
        self._server.wait()
        self._transport.release(self._taken)


def require_broker(transport: Transport, timeout: float = 2.0) -> None:
    """Return if one of the transport's brokers accepts connections; else raise `MessagingUnavailable`."""
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


def log_in(conf: cfg.ConfigOpts, timeout: float) -> None:
    """Log in at one of the brokers of ``[DEFAULT] transport_url``, and leave. ``timeout``: seconds for each of them.

    Raises `MessagingUnavailable` with the reason of each broker.
    """
    url = messaging.TransportURL.parse(conf)
    failures = []
    for host in url.hosts:
        if not host.hostname:
            return  # A transport without a broker, as in tests.
        try:
            with _plain_connection(conf, url, host, timeout) as connection:
                connection.connect()
                return
        except amqp.exceptions.AccessRefused:
            failures.append(f"{host.hostname} refuses the user {host.username} or its password")
        except _BROKER_ERRORS as error:
            failures.append(f"{host.hostname}:{host.port or 5672}: {_one_line(error)}")
    if failures:
        raise exceptions.MessagingUnavailable(f"The message broker cannot be used: {'; '.join(failures)}.")


def _plain_connection(conf: cfg.ConfigOpts, url: Any, host: Any, timeout: float) -> Any:
    """Return a connection to one broker of a transport's URL, which is opened at its first use."""
    return kombu.connection.Connection(  # type: ignore[no-untyped-call]
        hostname=host.hostname,
        port=host.port or 5672,
        userid=host.username,
        password=host.password,
        virtual_host=url.virtual_host or "/",
        connect_timeout=timeout,
        ssl=_tls(conf),
    )


def _tls(conf: cfg.ConfigOpts) -> dict[str, Any] | bool:
    """Return kombu's TLS settings: the files that oslo.messaging uses."""
    options = conf.oslo_messaging_rabbit
    if not options.ssl:
        return False
    return {
        "ca_certs": options.ssl_ca_file or None,
        "certfile": options.ssl_cert_file or None,
        "keyfile": options.ssl_key_file or None,
        "cert_reqs": ssl.CERT_REQUIRED if options.ssl_ca_file else ssl.CERT_NONE,
    }


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__

"""Messages between daemons: oslo.messaging with typed arguments.

A service's ``rpcapi.py`` calls `Client.call` and `Client.cast` with typed values (`nova_lite.objects`); its
``manager.py`` is wrapped in `Endpoint`, which turns plain values back into what the method's annotations say. So both
sides hold the types, and the bus only ever carries plain JSON.

Errors of `nova_lite.exception` cross the bus as themselves. A lost broker becomes `MessagingUnavailable`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import socket
import threading
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import amqp.exceptions
import kombu.exceptions
import msgspec
import oslo_messaging as messaging
from oslo_config import cfg

from nova_lite import concurrency, exception, hooks
from nova_lite.context import RequestContext

LOG = logging.getLogger(__name__)

EXCHANGE = "nova_lite"

#: Default of ``rpc_response_timeout``, seconds. Our calls take milliseconds, and what was accepted survives a late
#: answer, so a user should not wait the library's whole minute for a control plane that is away.
RESPONSE_TIMEOUT = 20
ALLOWED_REMOTE_EXMODS = ["nova_lite.exception"]

_BROKER_ERRORS = (
    messaging.MessagingTimeout,
    messaging.MessageDeliveryFailure,
    kombu.exceptions.OperationalError,
    amqp.exceptions.AMQPError,
    OSError,
)


class ContextSerializer(messaging.Serializer):  # type: ignore[misc]
    """Carries `RequestContext` in each message, without its token. Entities are made plain by `Client`/`Endpoint`."""

    def serialize_entity(self, ctxt: Any, entity: Any) -> Any:
        return entity

    def deserialize_entity(self, ctxt: Any, entity: Any) -> Any:
        return entity

    def serialize_context(self, ctxt: RequestContext) -> dict[str, Any]:
        return ctxt.to_rpc()

    def deserialize_context(self, ctxt: dict[str, Any]) -> RequestContext:
        return RequestContext.from_rpc(ctxt)


class Transport:
    """This process's way to the broker for ``[DEFAULT] transport_url``: an oslo.messaging transport, which `renew`
    replaces when nothing gets through it any more. ``conf`` must be oslo.config's global object.

    Whoever uses one has taken it, and gives it back. One that was replaced is closed once nobody uses it: a call that
    waits for its answer, or a server that ends what it is at.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf
        self._lock = threading.Lock()
        self._users: Counter[Any] = Counter()
        self._current = _oslo_transport(conf)

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
        fresh = _oslo_transport(self.conf)
        with self._lock:
            old, self._current = self._current, fresh
        self._close_if_over(old)

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


def _oslo_transport(conf: cfg.ConfigOpts) -> Any:
    messaging.set_transport_defaults(EXCHANGE)
    try:
        return messaging.get_rpc_transport(conf, allowed_remote_exmods=ALLOWED_REMOTE_EXMODS)
    except (messaging.DriverLoadFailure, messaging.InvalidTransportURL) as error:
        raise exception.ConfigurationError(reason=f"[DEFAULT] transport_url cannot be used: {error}") from error


def to_plain(value: Any) -> Any:
    """Typed value to JSON-able builtins (datetimes as ISO 8601 strings, enums as their values)."""
    return msgspec.to_builtins(value, str_keys=True)


class Client:
    """Sends to one topic. ``timeout`` is for calls, in seconds; None takes ``rpc_response_timeout``."""

    def __init__(self, transport: Transport, topic: str, version: str) -> None:
        self._transport = transport
        self._target = messaging.Target(topic=topic, version=version)
        self._answered_on: Any = None
        self._made: tuple[Any, Any] = (None, None)
        with self._connected():  # making the first client registers the option
            transport.conf.set_default("rpc_response_timeout", RESPONSE_TIMEOUT)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[tuple[Any, Any]]:
        """An oslo.messaging transport, and a client of it."""
        transport = self._transport.take()
        try:
            yield transport, self._client_of(transport)
        finally:
            self._transport.give_back(transport)

    def _client_of(self, transport: Any) -> Any:
        made_for, client = self._made
        if made_for is not transport:
            client = messaging.get_rpc_client(
                transport,
                self._target,
                serializer=ContextSerializer(),
                retry=0,  # a broker that is away is an answer at once; who can wait tries again (users get a 503)
            )
            self._made = (transport, client)
        return client

    def call(
        self,
        ctxt: RequestContext,
        method: str,
        *,
        returns: Any = None,
        server: str | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Any:
        """Ask and wait. Returns a value of type ``returns``; raises the remote `NovaLiteException`, or
        `MessagingUnavailable` when no answer came in time, nobody has ever served this topic (at once, by the mandatory
        flag) or the broker is away."""
        options: dict[str, Any] = {"transport_options": messaging.TransportOptions(at_least_once=True)}
        if server is not None:
            options["server"] = server
        if timeout is not None:
            options["timeout"] = timeout
        arguments = {name: to_plain(value) for name, value in kwargs.items()}
        failure = None
        with self._connected() as (transport, client):
            if self._answered_on is not transport:
                # The first call opens the connection for replies, which waits for the broker without end.
                require_broker(self._transport)
            try:
                self._reach(method, "before")
                answer = client.prepare(**options).call(ctxt, method, **arguments)
                self._answered_on = transport
                self._reach(method, "after")
            except (messaging.MessageUndeliverable, *_BROKER_ERRORS) as error:
                failure = error
        if failure is not None:  # while an exception is handled, oslo.log repeats it at the end of the line
            LOG.warning("Call %s to %s failed: %s", method, self._target.topic, _one_line(failure))
            raise exception.MessagingUnavailable(what=method) from failure
        return None if returns is None else msgspec.convert(answer, returns, str_keys=True)

    def cast(self, ctxt: RequestContext, method: str, *, server: str | None = None, **kwargs: Any) -> None:
        """Tell and go on. A message that no queue takes raises `MessagingUnavailable` (mandatory flag), so that the
        sender knows; the database row that it was about is still there for the reconciler."""
        options: dict[str, Any] = {"transport_options": messaging.TransportOptions(at_least_once=True)}
        if server is not None:
            options["server"] = server
        self._send(options, ctxt, method, kwargs)

    def fanout(self, ctxt: RequestContext, method: str, **kwargs: Any) -> None:
        """Tell every server of the topic, if there is any."""
        self._send({"fanout": True}, ctxt, method, kwargs)

    def _send(self, options: dict[str, Any], ctxt: RequestContext, method: str, kwargs: dict[str, Any]) -> None:
        arguments = {name: to_plain(value) for name, value in kwargs.items()}
        try:
            effect = self._reach(method, "before")
            with self._connected() as (_, client):
                for _ in range({hooks.DROP: 0, hooks.DUPLICATE: 2}.get(effect or "", 1)):
                    client.prepare(**options).cast(ctxt, method, **arguments)
            self._reach(method, "after")
        except (messaging.MessageUndeliverable, *_BROKER_ERRORS) as error:
            raise exception.MessagingUnavailable(what=method) from error

    def _reach(self, method: str, where: str) -> str | None:
        effect = hooks.reach("send", method, where)
        if effect == hooks.ERROR:
            raise messaging.MessageDeliveryFailure(f"a test refuses {method}")
        return effect


class Endpoint:
    """Presents ``target``'s public methods to oslo.messaging, with their arguments converted to the annotated types.

    Every method is ``def name(self, context, **typed)``. Errors meant for the caller go back without a traceback in
    our log; all others are logged here, once. ``translate`` may turn a library's error into one of ours first.
    ``orders``: further methods by name.
    """

    def __init__(
        self,
        target: Any,
        version: str,
        translate: Callable[[Exception], Exception] | None = None,
        orders: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.target = messaging.Target(version=version)
        for name, method in (*public_methods(target), *(orders or {}).items()):
            setattr(self, name, _typed(method, translate))


def public_methods(target: Any) -> Iterable[tuple[str, Callable[..., Any]]]:
    """The RPC methods of an object: its public ones whose first parameter is ``context``."""
    for name, method in inspect.getmembers(target, inspect.ismethod):
        if not name.startswith("_") and next(iter(inspect.signature(method).parameters), None) == "context":
            yield name, method


def _typed(
    method: Callable[..., Any],
    translate: Callable[[Exception], Exception] | None,
) -> Callable[..., Any]:
    hints = typing.get_type_hints(method)

    @functools.wraps(method)
    def dispatch(ctxt: RequestContext, **kwargs: Any) -> Any:
        try:
            arguments = {
                name: msgspec.convert(value, hints.get(name, Any), str_keys=True) for name, value in kwargs.items()
            }
            hooks.reach("handle", method.__name__, "before")
            answer = to_plain(method(ctxt, **arguments))
            hooks.reach("handle", method.__name__, "after")
            return answer
        except Exception as error:
            ours = translate(error) if translate else error
            if not isinstance(ours, exception.NovaLiteException):
                LOG.exception("RPC method %s failed [%s]", method.__name__, ctxt.request_id)
                raise
            if ours.code >= 500:
                LOG.info("RPC method %s: %s [%s]", method.__name__, _one_line(ours), ctxt.request_id)
            try:
                raise ours from error
            except exception.NovaLiteException:
                raise messaging.ExpectedException() from None

    # oslo.messaging inspects the signature for nothing; keep the wrapper's own.
    del dispatch.__wrapped__
    return dispatch


class Server:
    """An RPC server on ``topic`` and ``topic.server``; to be started once, then stopped and waited for."""

    def __init__(self, transport: Transport, topic: str, server: str, endpoints: list[Endpoint]) -> None:
        self._transport = transport
        self._taken = transport.take()
        self._server = messaging.get_rpc_server(
            self._taken,
            messaging.Target(topic=topic, server=server),
            endpoints,
            executor=concurrency.rpc_executor(),
            serializer=ContextSerializer(),
            access_policy=messaging.DefaultRPCAccessPolicy,
        )

    def start(self) -> None:
        """Raises `MessagingUnavailable` at once when the broker is away or refuses us; oslo.messaging itself would try
        again without end, deaf to the signal that stops the daemon."""
        with contextlib.ExitStack() as undo:
            undo.callback(self._transport.give_back, self._taken)
            require_broker(self._transport)
            try:
                self._server.start()
            except _BROKER_ERRORS as error:
                raise exception.MessagingUnavailable(
                    f"The message broker refuses this daemon: {_one_line(error)}"
                ) from error
            undo.pop_all()

    def stop(self) -> None:
        """Take no more messages."""
        self._server.stop()

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
        raise exception.MessagingUnavailable(f"The message broker cannot be reached: {', '.join(failures)}.")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__

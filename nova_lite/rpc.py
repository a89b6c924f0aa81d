"""Messages between daemons: oslo.messaging with typed arguments.

A service's ``rpcapi.py`` calls `Client.call` and `Client.cast` with typed values (`nova_lite.objects`); its
``manager.py`` is wrapped in `Endpoint`, which turns plain values back into what the method's annotations say. So both
sides hold the types, and the bus only ever carries plain JSON.

Errors of `nova_lite.exception` cross the bus as themselves. A lost broker becomes `MessagingUnavailable`.
"""

from __future__ import annotations

import functools
import inspect
import logging
import socket
import typing
from collections.abc import Callable, Iterable
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


def get_transport(conf: cfg.ConfigOpts) -> Any:
    """The transport for ``[DEFAULT] transport_url``. ``conf`` must be oslo.config's global object."""
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

    def __init__(self, transport: Any, topic: str, version: str) -> None:
        self._transport = transport
        self._has_answered = False
        self._client = messaging.get_rpc_client(
            transport,
            messaging.Target(topic=topic, version=version),
            serializer=ContextSerializer(),
            retry=0,  # a broker that is away is an answer at once; who can wait tries again (users get a 503)
        )
        transport.conf.set_default("rpc_response_timeout", RESPONSE_TIMEOUT)

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
        client = self._client.prepare(**options)
        arguments = {name: to_plain(value) for name, value in kwargs.items()}
        if not self._has_answered:
            # The first call of a process opens the connection for replies, which waits for the broker without end.
            require_broker(self._transport)
        failure = None
        try:
            self._reach(method, "before")
            answer = client.call(ctxt, method, **arguments)
            self._has_answered = True
            self._reach(method, "after")
        except (messaging.MessageUndeliverable, *_BROKER_ERRORS) as error:
            failure = error
        if failure is not None:  # while an exception is handled, oslo.log repeats it at the end of the line
            LOG.warning("Call %s to %s failed: %s", method, self._client.target.topic, _one_line(failure))
            raise exception.MessagingUnavailable(what=method) from failure
        return None if returns is None else msgspec.convert(answer, returns, str_keys=True)

    def cast(self, ctxt: RequestContext, method: str, *, server: str | None = None, **kwargs: Any) -> None:
        """Tell and go on. A message that no queue takes raises `MessagingUnavailable` (mandatory flag), so that the
        sender knows; the database row that it was about is still there for the reconciler."""
        options: dict[str, Any] = {"transport_options": messaging.TransportOptions(at_least_once=True)}
        if server is not None:
            options["server"] = server
        self._send(self._client.prepare(**options), ctxt, method, kwargs)

    def fanout(self, ctxt: RequestContext, method: str, **kwargs: Any) -> None:
        """Tell every server of the topic, if there is any."""
        self._send(self._client.prepare(fanout=True), ctxt, method, kwargs)

    def _send(self, client: Any, ctxt: RequestContext, method: str, kwargs: dict[str, Any]) -> None:
        arguments = {name: to_plain(value) for name, value in kwargs.items()}
        try:
            effect = self._reach(method, "before")
            for _ in range({hooks.DROP: 0, hooks.DUPLICATE: 2}.get(effect or "", 1)):
                client.cast(ctxt, method, **arguments)
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
    """

    def __init__(
        self,
        target: Any,
        version: str,
        translate: Callable[[Exception], Exception] | None = None,
    ) -> None:
        self.target = messaging.Target(version=version)
        for name, method in public_methods(target):
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


def get_server(transport: Any, topic: str, server: str, endpoints: list[Endpoint]) -> Any:
    """An RPC server on ``topic`` and ``topic.server``; ``start()`` it, and ``stop(); wait()`` at the end."""
    return messaging.get_rpc_server(
        transport,
        messaging.Target(topic=topic, server=server),
        endpoints,
        executor=concurrency.rpc_executor(),
        serializer=ContextSerializer(),
        access_policy=messaging.DefaultRPCAccessPolicy,
    )


def start_server(transport: Any, server: Any) -> None:
    """Start what `get_server` made. Raises `MessagingUnavailable` at once when the broker is away or refuses us;
    oslo.messaging itself would try again without end, deaf to the signal that stops the daemon."""
    require_broker(transport)
    try:
        server.start()
    except _BROKER_ERRORS as error:
        raise exception.MessagingUnavailable(f"The message broker refuses this daemon: {_one_line(error)}") from error


def require_broker(transport: Any, timeout: float = 2.0) -> None:
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

"""The typed client of a service, made of its Protocol."""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
import typing
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, faults, tracing
from nova_lite.base.context import RequestContext
from nova_lite.rpc import contract
from nova_lite.rpc.contract import FIRST_VERSION, Contract, Kind, Method, _Routing

LOG = logging.getLogger(__name__)

P = TypeVar("P")
W = TypeVar("W")
A = ParamSpec("A")

#: The method that every endpoint serves besides its own methods, at each version that it speaks.
ECHO = "echo"

#: Seconds to wait for the reply of a server to a probe of its version.
PROBE_TIMEOUT = 5.0
#: Seconds for which the client remembers that a server speaks a version.
PROBE_LIFETIME = 60.0


@dataclasses.dataclass(frozen=True)
class Message:
    """A message to a topic, or to one server of it.

    ``server``: the server's name; None: any server of the topic. ``version``: the version that the receiver must speak.
    ``arguments``: plain values. ``timeout``: of a call, in seconds; None: ``rpc_response_timeout``. ``returns``: the
    type of a call's reply. ``is_read``: a call that may run twice, so it is sent again when no reply comes.
    """

    topic: str
    method: str
    context: RequestContext
    server: str | None = None
    version: str = FIRST_VERSION
    fanout: bool = False
    timeout: float | None = None
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    returns: Any = Any
    is_read: bool = False

    def too_old(self, spoken: str = "an older version") -> exceptions.ServiceTooOld:
        return exceptions.ServiceTooOld(
            service=self.topic,
            where=f" on host {self.server}" if self.server else "",
            method=self.method,
            spoken=spoken,
            needed=self.version,
        )


class Sender(Protocol):
    """A way to servers: `Transport` or `InProcess`."""

    conf: cfg.ConfigOpts

    def call(self, message: Message) -> Any:
        """Send the message and return its reply, of the type that the message ``returns``.

        Raises the server's `NovaLiteException`. Raises `ServiceTooOld` when the server does not know such a message.
        Raises `MessagingUnavailable` when the broker is away, no reply came in time, or (at once) no server has ever
        served the topic.
        """

    def cast(self, message: Message) -> None:
        """Send the message without waiting for a server.

        Raises `MessagingUnavailable` when no queue takes the message. The database row that the message is about is
        still there for the reconciler. A fanout needs no receiver.
        """


def to_plain(value: Any) -> Any:
    """Convert a typed value to JSON-able builtins (datetimes to ISO 8601 strings, enums to their values)."""
    return msgspec.to_builtins(value, str_keys=True)


def to_typed(value: Any, hint: Any) -> Any:
    """Convert the result of `to_plain` to a value of type ``hint``. Raises `msgspec.ValidationError`."""
    if hint is msgspec.Raw or msgspec.Raw in typing.get_args(hint):
        return msgspec.json.decode(msgspec.json.encode(value), type=hint)
    return msgspec.convert(value, hint, str_keys=True)


def proxy(protocol: type[P], transport: Sender) -> P:
    """Return the client of a service: an object with the methods of its Protocol.

    ``[upgrade_levels]`` may pin the service to an older version. The client then does not send newer messages. A
    method's fallback replaces a call that the server, or the pinned version, is too old for. Without a fallback the
    caller gets `ServiceTooOld`. A server would drop a cast that it cannot read. So before such a cast the client asks
    the server whether it speaks the cast's version.
    """
    service = contract.contract_of(typing.cast(Any, protocol))
    names = {method.wire_name: name for name, method in service.methods.items()}
    return typing.cast(P, _Client(service, tracing.sender(faults.sender(transport, names))))


def wrap(wrapper: Callable[Concatenate[P, A], W], client: P, *args: A.args, **kwargs: A.kwargs) -> W:
    """Return ``wrapper(client, ...)``: an object of a class that extends a service's Protocol by a few own methods.

    All methods that the class does not define are those of ``client``.
    """
    wrapped = wrapper(client, *args, **kwargs)
    protocol = next(base for base in type(wrapped).__mro__ if "__rpc_service__" in vars(base))
    for name in contract.contract_of(protocol).methods.keys() - vars(type(wrapped)).keys():
        setattr(wrapped, name, getattr(client, name))
    return wrapped


class _Client:
    def __init__(self, service: Contract, transport: Sender) -> None:
        self._service = service
        self._transport = transport
        self._speaks: dict[tuple[str | None, str], float] = {}
        self._reported: set[tuple[str | None, str]] = set()
        for method in (*service.methods.values(), *([service.command] if service.command else [])):
            setattr(self, method.name, functools.partial(self._invoke, method))

    def _invoke(self, method: Method, *args: Any, **kwargs: Any) -> Any:
        bound = method.signature.bind(*args, **kwargs)
        given = frozenset(bound.arguments)
        bound.apply_defaults()
        values = bound.arguments
        for arguments in dict.fromkeys((given, given - method.optional)):
            try:
                return self._send(method, values, arguments)
            except exceptions.ServiceTooOld as error:
                too_old = error
        if method.fallback is None:
            raise too_old
        self._report(method, values, too_old)
        result = method.fallback(self, **values)
        return None if method.returns is type(None) else result

    def _send(self, method: Method, values: Mapping[str, Any], given: frozenset[str]) -> Any:
        message = self._message(method, values, given)
        if method.kind is Kind.CALL:
            try:
                return self._transport.call(message)
            except exceptions.NovaLiteException as error:
                _drop_remote_class(error)
                raise
        if method.kind is Kind.CAST and message.version != FIRST_VERSION:
            self._probe(message)
        self._transport.cast(message)
        return None

    def _message(self, method: Method, values: Mapping[str, Any], given: frozenset[str]) -> Message:
        needed = method.routed(_Routing.VERSION, values) or method.since
        arguments = {}
        for name in method.arguments:
            if introduced := method.arguments_since.get(name):
                if name not in given or values[name] == method.signature.parameters[name].default:
                    continue
                needed = max(needed, introduced, key=contract.numbers)
            arguments[method.argument_wire_names.get(name, name)] = to_plain(values[name])
        message = Message(
            topic=self._service.topic,
            method=method.routed(_Routing.METHOD, values) or method.wire_name,
            context=values["context"],
            server=method.routed(_Routing.RECEIVER, values),
            version=needed,
            fanout=method.kind is Kind.FANOUT,
            timeout=method.routed(_Routing.TIMEOUT, values),
            arguments=arguments,
            returns=method.returns,
            is_read=method.is_read,
        )
        pinned = self._transport.conf.upgrade_levels[self._service.topic]
        if pinned is not None and contract.newer(needed, pinned):
            raise message.too_old(pinned)
        return message

    def _report(self, method: Method, values: Mapping[str, Any], error: exceptions.ServiceTooOld) -> None:
        """Log the first fallback of each method to each server."""
        key = (method.routed(_Routing.RECEIVER, values), method.name)
        if key not in self._reported:
            self._reported.add(key)
            LOG.info("Falling back for an older server: %s", error.message)

    def _probe(self, message: Message) -> None:
        """Raise `ServiceTooOld` if the server replies that it does not speak the message's version.

        A server that does not reply may be away. The message waits for it in its queue.
        """
        key = (message.server, message.version)
        if time.monotonic() < self._speaks.get(key, 0.0):
            return
        probe = dataclasses.replace(message, method=ECHO, timeout=PROBE_TIMEOUT, arguments={})
        try:
            self._transport.call(probe)
        except exceptions.ServiceTooOld:
            raise message.too_old() from None
        except exceptions.MessagingUnavailable:
            return
        self._speaks[key] = time.monotonic() + PROBE_LIFETIME


def _drop_remote_class(error: exceptions.NovaLiteException) -> None:
    """Give an error from the bus its own class.

    oslo.messaging makes a subclass, ``..._Remote``, whose str() has the server's traceback.
    """
    kind = type(error)
    if kind.__name__.endswith("_Remote"):
        error.__class__ = kind.__bases__[0]

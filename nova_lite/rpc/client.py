"""The typed client of a service, made of its Protocol."""

from __future__ import annotations

import dataclasses
import functools
import time
import typing
from typing import Any, Protocol, TypeVar

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, failpoints
from nova_lite.base.context import RequestContext
from nova_lite.rpc import contract
from nova_lite.rpc.contract import FIRST_VERSION, Contract, Kind, Method, _Role

P = TypeVar("P")

#: What every endpoint answers besides its own methods, at each version that it speaks.
ECHO = "echo"

#: Seconds to wait for a server that is asked whether it speaks a version, and for which the answer is remembered.
PROBE_TIMEOUT = 5.0
PROBE_KEPT = 60.0


@dataclasses.dataclass(frozen=True)
class Message:
    """``server``: its name, or any of the topic. ``version``: what the receiver has to speak. ``arguments`` are plain.
    ``timeout`` is for calls, in seconds; None: ``rpc_response_timeout``. ``returns``: the type of their answer."""

    topic: str
    method: str
    context: RequestContext
    server: str | None = None
    version: str = FIRST_VERSION
    fanout: bool = False
    timeout: float | None = None
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    returns: Any = Any

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
        """Ask and wait. Returns what the message ``returns``; raises the remote `NovaLiteException`, `ServiceTooOld`
        when the server does not know such a message, or `MessagingUnavailable` when no answer came in time, nobody has
        ever served the topic (at once) or the broker is away."""

    def cast(self, message: Message) -> None:
        """Tell and go on. A message that no queue takes raises `MessagingUnavailable`, so that the sender knows; the
        database row that it was about is still there for the reconciler. A fanout needs nobody to hear it."""


def to_plain(value: Any) -> Any:
    """Typed value to JSON-able builtins (datetimes as ISO 8601 strings, enums as their values)."""
    return msgspec.to_builtins(value, str_keys=True)


def to_typed(value: Any, hint: Any) -> Any:
    """A value of such a type from what `to_plain` made of one. Raises `msgspec.ValidationError`."""
    return msgspec.convert(value, hint, str_keys=True)


def proxy(protocol: type[P], transport: Sender) -> P:
    """The client of a service: an object with the methods of its Protocol.

    ``[upgrade_levels]`` may pin the service to an older version: what is newer is not sent but raises `ServiceTooOld`,
    as does what the other side turns out not to know. A cast that not every version knows is sent to a server once that
    has said that it does, since a cast that it cannot read would be lost there.
    """
    return typing.cast(P, _Client(contract.contract_of(typing.cast(Any, protocol)), transport))


class _Client:
    def __init__(self, service: Contract, transport: Sender) -> None:
        self._service = service
        self._transport = transport
        self._speaks: dict[tuple[str | None, str], float] = {}
        for method in (*service.methods.values(), *([service.order] if service.order else [])):
            setattr(self, method.name, functools.partial(self._send, method))

    def _send(self, method: Method, *args: Any, **kwargs: Any) -> Any:
        message = self._message(method, *args, **kwargs)
        if method.kind is Kind.CALL:
            return self._call(message)
        if method.kind is Kind.CAST and message.version != FIRST_VERSION:
            self._probe(message)
        effect = _reach(message, "before")
        for _ in range({failpoints.DROP: 0, failpoints.DUPLICATE: 2}.get(effect or "", 1)):
            self._transport.cast(message)
        _reach(message, "after")
        return None

    def _call(self, message: Message) -> Any:
        _reach(message, "before")
        try:
            answer = self._transport.call(message)
        except exceptions.NovaLiteException as error:
            _as_it_was_raised(error)
            raise
        _reach(message, "after")
        return answer

    def _message(self, method: Method, *args: Any, **kwargs: Any) -> Message:
        bound = method.signature.bind(*args, **kwargs)
        given = set(bound.arguments)
        bound.apply_defaults()
        values = bound.arguments
        needed = method.value(_Role.VERSION, values) or method.since
        arguments = {}
        for name in method.arguments:
            if came_in := method.arguments_since.get(name):
                if name not in given or values[name] == method.signature.parameters[name].default:
                    continue
                needed = max(needed, came_in, key=contract._numbers)
            arguments[name] = to_plain(values[name])
        message = Message(
            topic=self._service.topic,
            method=method.value(_Role.METHOD, values) or method.name,
            context=values["context"],
            server=method.value(_Role.RECEIVER, values),
            version=needed,
            fanout=method.kind is Kind.FANOUT,
            timeout=method.value(_Role.TIMEOUT, values),
            arguments=arguments,
            returns=method.returns,
        )
        pinned = self._transport.conf.upgrade_levels[self._service.topic]
        if pinned is not None and contract.newer(needed, pinned):
            raise message.too_old(pinned)
        return message

    def _probe(self, message: Message) -> None:
        """Raises `ServiceTooOld` if the server says that it does not speak the message's version. One that says nothing
        may be away: the message waits for it, as ever."""
        key = (message.server, message.version)
        if time.monotonic() < self._speaks.get(key, 0.0):
            return
        question = dataclasses.replace(message, method=ECHO, timeout=PROBE_TIMEOUT, arguments={})
        try:
            self._transport.call(question)
        except exceptions.ServiceTooOld:
            raise message.too_old() from None
        except exceptions.MessagingUnavailable:
            return
        self._speaks[key] = time.monotonic() + PROBE_KEPT


def _as_it_was_raised(error: exceptions.NovaLiteException) -> None:
    """The bus gives an error that comes from a server a class of its own, whose str() has the server's traceback."""
    kind = type(error)
    if kind.__name__.endswith("_Remote"):
        error.__class__ = kind.__bases__[0]


def _reach(message: Message, where: str) -> str | None:
    effect = failpoints.reach("send", message.method, where)
    if effect == failpoints.ERROR:
        raise exceptions.MessagingUnavailable(what=message.method)
    return effect

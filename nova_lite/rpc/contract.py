"""What a service's Protocol says of its RPC methods.

::

    @rpc.service("compute", version="1.1")
    class ComputeRPC(Protocol):
        @rpc.cast
        def cache_images(self, context: RequestContext, host: rpc.Receiver, images: list[Image]) -> None: ...

        @rpc.since("1.1")
        def get_vnc_console(self, context: RequestContext, host: rpc.Receiver, timeout: rpc.Timeout = None) -> str: ...

A method is a call unless it is marked as a `cast` or `fanout`. Its arguments are sent under their names, except for the
context and those that say how to send: `Receiver`, `Timeout`, `MethodName`, `Version`. A method marked `since`, and an
argument annotated with `Since` (it needs a default), came in that minor version of the service's messages.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias, TypeVar

from nova_lite.rpc.permissions import Allowed

FIRST_VERSION = "1.0"

T = TypeVar("T")


class Kind(enum.Enum):
    """call: ask and wait for the answer; cast: tell one server; fanout: tell every server of the topic."""

    CALL = "call"
    CAST = "cast"
    FANOUT = "fanout"


class _Role(enum.Enum):
    RECEIVER = "receiver"
    TIMEOUT = "timeout"
    METHOD = "method"
    VERSION = "version"


#: The host whose server is to get the message; without such an argument any server of the topic is.
Receiver: TypeAlias = Annotated[str, _Role.RECEIVER]
#: Seconds to wait for the answer; None: ``rpc_response_timeout``.
Timeout: TypeAlias = Annotated[float | None, _Role.TIMEOUT]
#: The method's name on the wire, for one that stands for many (`Contract.order`).
MethodName: TypeAlias = Annotated[str, _Role.METHOD]
#: The version that such a method came in.
Version: TypeAlias = Annotated[str, _Role.VERSION]


@dataclasses.dataclass(frozen=True)
class Since:
    """Annotation of an argument that came in ``version``."""

    version: str


@dataclasses.dataclass(frozen=True)
class Method:
    """``signature``: the client's, without self. ``arguments``: the types of what is sent, by name; ``since`` is the
    version that the method came in, ``arguments_since`` those of later arguments."""

    name: str
    kind: Kind
    signature: inspect.Signature
    roles: Mapping[_Role, str]
    arguments: Mapping[str, Any]
    returns: Any
    since: str
    arguments_since: Mapping[str, str]

    def value(self, role: _Role, values: Mapping[str, Any]) -> Any:
        return values[self.roles[role]] if role in self.roles else None


@dataclasses.dataclass(frozen=True)
class Contract:
    """A service's messages. ``order``: the method that stands for all those that the server names by itself, if the
    service has one. ``allowed``: who may call which, by the names here."""

    name: str
    topic: str
    version: str
    methods: Mapping[str, Method]
    order: Method | None
    allowed: Mapping[str, Allowed] | None = None


def service(topic: str, version: str, allowed: Mapping[str, Allowed] | None = None) -> Callable[[T], T]:
    """A Protocol of the methods on ``topic``, ``version`` being the newest that any of it came in. ``allowed``: who may
    call them, a row for each; None: everybody."""

    def mark(protocol: T) -> T:
        protocol.__rpc_service__ = (topic, version, allowed)  # type: ignore[attr-defined]
        return protocol

    return mark


def cast(method: T) -> T:
    method.__rpc_kind__ = Kind.CAST  # type: ignore[attr-defined]
    return method


def fanout(method: T) -> T:
    method.__rpc_kind__ = Kind.FANOUT  # type: ignore[attr-defined]
    return method


def since(version: str) -> Callable[[T], T]:
    def mark(method: T) -> T:
        method.__rpc_since__ = version  # type: ignore[attr-defined]
        return method

    return mark


@functools.cache
def contract_of(protocol: Any) -> Contract:
    """Raises TypeError for a Protocol that contradicts itself."""
    topic, version, allowed = protocol.__rpc_service__
    functions = {name: each for name, each in vars(protocol).items() if inspect.isfunction(each) and name[0] != "_"}
    methods = {name: _method(name, function) for name, function in functions.items()}
    for method in methods.values():
        for came_in in (method.since, *method.arguments_since.values()):
            if newer(came_in, version):
                raise TypeError(f"{protocol.__name__}.{method.name} came in {came_in}; the Protocol is at {version}")
    if allowed is not None and (unlike := allowed.keys() ^ methods.keys()):
        raise TypeError(
            f"{protocol.__name__}: who may call which does not fit the methods: {', '.join(sorted(unlike))}"
        )
    order = next((each for each in methods.values() if _Role.METHOD in each.roles), None)
    own = {name: each for name, each in methods.items() if each is not order}
    return Contract(protocol.__name__, topic, version, own, order, allowed)


def _method(name: str, function: Callable[..., Any]) -> Method:
    signature = inspect.signature(function)
    roles: dict[_Role, str] = {}
    arguments: dict[str, Any] = {}
    arguments_since: dict[str, str] = {}
    for argument, hint in typing.get_type_hints(function, include_extras=True).items():
        marks = getattr(hint, "__metadata__", ())
        role = next((mark for mark in marks if isinstance(mark, _Role)), None)
        if role is not None:
            roles[role] = argument
        elif argument not in ("context", "return"):
            arguments[argument] = hint.__origin__ if marks else hint
        for mark in marks:
            if isinstance(mark, Since):
                arguments_since[argument] = mark.version
                if signature.parameters[argument].default is inspect.Parameter.empty:
                    raise TypeError(f"{name}: {argument}, which came in {mark.version}, needs a default")
    return Method(
        name=name,
        kind=getattr(function, "__rpc_kind__", Kind.CALL),
        signature=signature.replace(parameters=list(signature.parameters.values())[1:]),
        roles=roles,
        arguments=arguments,
        returns=typing.get_type_hints(function)["return"],
        since=getattr(function, "__rpc_since__", FIRST_VERSION),
        arguments_since=arguments_since,
    )


def newer(version: str, than: str) -> bool:
    """Is the one version, ``1.n``, newer than the other?"""
    return _numbers(version) > _numbers(than)


def speaks(served: str, wanted: str) -> bool:
    """Does a server at one version understand messages of the other?"""
    return _numbers(served)[0] == _numbers(wanted)[0] and not newer(wanted, served)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))

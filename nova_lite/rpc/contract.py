"""Declarations of a service's RPC methods, and the contract that is made of them.

::

    @rpc.service("conductor", version="2.1")
    class ConductorRPC(Protocol):
        @rpc.read(rpc.API)
        def flavor_get(self, context: RequestContext, flavor_id: str) -> Flavor: ...

        @rpc.report(rpc.COMPUTE, own="host", since="2.1")
        def finish_volume_work(self, context: RequestContext, host: str, task_id: int, error: str | None) -> None: ...

`method` declares everything about one RPC method. `read`, `list_`, `change`, `delete` and `report` are `method` with
the defaults of a class of methods. Arguments travel under their names. The context and the routing arguments
(`Receiver`, `Timeout`, `MethodName`, `Version`) are not sent as arguments.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol, TypeAlias, TypeVar

from nova_lite.base.context import RequestContext
from nova_lite.rpc.admission import Priority
from nova_lite.rpc.keys import ROLES
from nova_lite.rpc.permissions import AccessRule

FIRST_VERSION = "2.0"

T = TypeVar("T")

#: Returns the priority of a call from its plain arguments.
PriorityOf: TypeAlias = Callable[[Mapping[str, Any]], Priority]
#: Replaces a call that the server is too old for. Takes the service's client and the call's arguments.
Fallback: TypeAlias = Callable[..., Any]


class Kind(enum.Enum):
    """call: wait for the reply; cast: send to one server; fanout: send to every server of the topic."""

    CALL = "call"
    CAST = "cast"
    FANOUT = "fanout"


class _Routing(enum.Enum):
    RECEIVER = "receiver"
    TIMEOUT = "timeout"
    METHOD = "method"
    VERSION = "version"


#: The host whose server gets the message. Without such an argument, any server of the topic gets it.
Receiver: TypeAlias = Annotated[str, _Routing.RECEIVER]
#: Seconds to wait for the reply. None: ``rpc_response_timeout``.
Timeout: TypeAlias = Annotated[float | None, _Routing.TIMEOUT]
#: The wire name of a command, for the method that sends commands (`Contract.command`).
MethodName: TypeAlias = Annotated[str, _Routing.METHOD]
#: The service's version that introduced the command.
Version: TypeAlias = Annotated[str, _Routing.VERSION]


@dataclasses.dataclass(frozen=True)
class Since:
    """Annotation of an argument that was added in ``version``. Such an argument needs a default.

    ``optional``: an older server gets the message without this argument, instead of `ServiceTooOld` at the caller.
    """

    version: str
    optional: bool = False


@dataclasses.dataclass(frozen=True)
class WireName:
    """Annotation of a renamed argument. Clients send it as ``name``; servers accept both names."""

    name: str


@dataclasses.dataclass(frozen=True)
class _Declaration:
    roles: frozenset[str]
    kind: Kind
    since: str
    own: str | None
    declared_priority: Priority | PriorityOf
    from_guests: bool
    replay_safe: bool
    fallback: Fallback | None
    #: The name that clients send; None: the method's own.
    wire_name: str | None


@dataclasses.dataclass(frozen=True)
class Method(_Declaration):
    """An RPC method of a contract.

    ``signature``: the client's, without self. ``routing``: the names of the routing arguments. ``arguments``: the types
    of the arguments that are sent, by name. ``arguments_since``: versions of arguments that were added later.
    ``optional``: those of them that an older server does not need. ``argument_wire_names``: the names of renamed
    arguments on the wire.
    """

    name: str
    wire_name: str
    signature: inspect.Signature
    routing: Mapping[_Routing, str]
    arguments: Mapping[str, Any]
    returns: Any
    arguments_since: Mapping[str, str]
    optional: frozenset[str]
    argument_wire_names: Mapping[str, str]

    @property
    def is_read(self) -> bool:
        """Check whether the method only reads, so that a call may run twice."""
        return self.replay_safe and self.declared_priority in (Priority.READ, Priority.LIST)

    @property
    def access(self) -> AccessRule:
        return AccessRule(self.roles, self.own)

    def routed(self, routing: _Routing, values: Mapping[str, Any]) -> Any:
        return values[self.routing[routing]] if routing in self.routing else None

    def priority(self, arguments: Mapping[str, Any], context: RequestContext) -> Priority:
        """Return the priority of a call. A call without a user is the control plane's own."""
        declared = self.declared_priority
        if context.user_id is None and not self.from_guests:
            return Priority.OWN
        return declared(arguments) if callable(declared) else declared


@dataclasses.dataclass(frozen=True)
class Contract:
    """A service's RPC methods, by name.

    ``command``: the method that sends commands, which the server names itself; None for a service without commands.
    ``access``: the rule of each method; None: every daemon may call every method.
    """

    name: str
    topic: str
    version: str
    methods: Mapping[str, Method]
    command: Method | None
    access: Mapping[str, AccessRule] | None

    @functools.cached_property
    def by_any_name(self) -> Mapping[str, Method]:
        """Methods by their names and their wire names."""
        return {name: method for method in self.methods.values() for name in (method.name, method.wire_name)}

    def priority(self, method: str, arguments: Mapping[str, Any], context: RequestContext) -> Priority:
        """Return the priority of a message. ``method``: a name or a wire name; ``arguments`` are plain values."""
        declared = self.by_any_name.get(method)
        if declared is None:
            return Priority.OWN if context.user_id is None else Priority.CHANGE
        return declared.priority(arguments, context)

    def is_replay_safe(self, method: str) -> bool:
        """Check whether a captured message of this method does no harm when it is sent again."""
        declared = self.by_any_name.get(method)
        return declared is not None and declared.replay_safe


class _Declare(Protocol):
    def __call__(
        self,
        *roles: str,
        kind: Kind = ...,
        since: str = ...,
        own: str | None = ...,
        priority: Priority | PriorityOf = ...,
        from_guests: bool = ...,
        replay_safe: bool = ...,
        fallback: Fallback | None = ...,
        wire_name: str | None = ...,
    ) -> Callable[[T], T]: ...


def method(
    *roles: str,
    kind: Kind = Kind.CALL,
    since: str = FIRST_VERSION,
    own: str | None = None,
    priority: Priority | PriorityOf = Priority.CHANGE,
    from_guests: bool = False,
    replay_safe: bool = False,
    fallback: Fallback | None = None,
    wire_name: str | None = None,
) -> Callable[[T], T]:
    """Declare an RPC method of a Protocol.

    ``roles``: the daemons that may call it. ``since``: the version of the service that introduced it. ``own``: the
    argument that must name the sender's own host (`AccessRule`). ``priority``: counts where the service sheds load.
    ``from_guests``: guests cause these calls, so a call without a user is not the control plane's own.
    ``replay_safe``: a captured message does no harm when it is sent again. Other messages are taken once by all
    conductors together. ``fallback``: what the client does when the server is too old; without one the caller gets
    `ServiceTooOld`. ``wire_name``: the name of a renamed method on the wire. Clients send it; servers answer to both.
    """
    if unknown := set(roles) - set(ROLES):
        raise TypeError(f"there is no role {', '.join(sorted(unknown))}")
    declaration = _Declaration(
        frozenset(roles), kind, since, own, priority, from_guests, replay_safe, fallback, wire_name
    )

    def mark(function: T) -> T:
        function.__rpc_method__ = declaration  # type: ignore[attr-defined]
        return function

    return mark


def _class_of_methods(priority: Priority, replay_safe: bool) -> _Declare:
    return typing.cast(_Declare, functools.partial(method, priority=priority, replay_safe=replay_safe))


#: Reads one thing.
read = _class_of_methods(Priority.READ, replay_safe=True)
#: Reads many things.
list_ = _class_of_methods(Priority.LIST, replay_safe=True)
change = _class_of_methods(Priority.CHANGE, replay_safe=False)
#: Releases resources that other requests may wait for.
delete = _class_of_methods(Priority.DELETE, replay_safe=False)
#: A daemon's report or query. Accepted work cannot end without it, whoever the user is.
report = _class_of_methods(Priority.OWN, replay_safe=False)


def service(topic: str, version: str) -> Callable[[T], T]:
    """Declare a Protocol as the methods on ``topic``. ``version``: the newest that introduced any of them."""

    def mark(protocol: T) -> T:
        protocol.__rpc_service__ = (topic, version)  # type: ignore[attr-defined]
        return protocol

    return mark


@functools.cache
def contract_of(protocol: Any) -> Contract:
    """Return the contract of a Protocol. Raises TypeError for a Protocol that contradicts itself."""
    topic, version = protocol.__rpc_service__
    functions = {
        name: value
        for part in reversed(protocol.__mro__[:-1])
        if part not in (Protocol, typing.Generic)
        for name, value in vars(part).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    methods = {name: _method(name, function) for name, function in functions.items()}
    for made in methods.values():
        for introduced in (made.since, *made.arguments_since.values()):
            if newer(introduced, version):
                raise TypeError(
                    f"{protocol.__name__}.{made.name} was introduced in {introduced}; the Protocol is at {version}"
                )
    access = {name: made.access for name, made in methods.items()}
    if any(rule.roles for rule in access.values()) and (open_to_all := [n for n, r in access.items() if not r.roles]):
        raise TypeError(f"{protocol.__name__}: no role may call {', '.join(sorted(open_to_all))}")
    wire_names = [made.wire_name for made in methods.values()]
    if taken := [
        made.name
        for made in methods.values()
        if wire_names.count(made.wire_name) > 1 or (made.wire_name != made.name and made.wire_name in methods)
    ]:
        raise TypeError(f"{protocol.__name__}: the wire names of {', '.join(sorted(taken))} are taken")
    command = next((made for made in methods.values() if _Routing.METHOD in made.routing), None)
    return Contract(
        protocol.__name__,
        topic,
        version,
        {name: made for name, made in methods.items() if made is not command},
        command,
        access if any(rule.roles for rule in access.values()) else None,
    )


def _method(name: str, function: Callable[..., Any]) -> Method:
    declaration: _Declaration = getattr(function, "__rpc_method__", _UNDECLARED)
    signature = inspect.signature(function)
    routing: dict[_Routing, str] = {}
    arguments: dict[str, Any] = {}
    arguments_since: dict[str, str] = {}
    optional: set[str] = set()
    wire_names: dict[str, str] = {}
    for argument, hint in typing.get_type_hints(function, include_extras=True).items():
        marks = getattr(hint, "__metadata__", ())
        route = next((mark for mark in marks if isinstance(mark, _Routing)), None)
        if route is not None:
            routing[route] = argument
        elif argument not in ("context", "return"):
            arguments[argument] = hint.__origin__ if marks else hint
        for mark in marks:
            if isinstance(mark, WireName):
                wire_names[argument] = mark.name
            if isinstance(mark, Since):
                arguments_since[argument] = mark.version
                if mark.optional:
                    optional.add(argument)
                if signature.parameters[argument].default is inspect.Parameter.empty:
                    raise TypeError(f"{name}: {argument}, which was added in {mark.version}, needs a default")
    signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    _check_own(name, declaration.own, arguments, routing, wire_names)
    _check_fallback(name, declaration.fallback, signature)
    return Method(
        **{**vars(declaration), "wire_name": declaration.wire_name or name},
        name=name,
        signature=signature,
        routing=routing,
        arguments=arguments,
        returns=typing.get_type_hints(function)["return"],
        arguments_since=arguments_since,
        optional=frozenset(optional),
        argument_wire_names=wire_names,
    )


_UNDECLARED = _Declaration(frozenset(), Kind.CALL, FIRST_VERSION, None, Priority.CHANGE, False, False, None, None)


def _check_own(
    name: str,
    own: str | None,
    arguments: Mapping[str, Any],
    routing: Mapping[_Routing, str],
    wire_names: Mapping[str, str],
) -> None:
    """Raise TypeError unless ``own`` names an argument that has one name on the wire.

    With two names, a sender could put its own host under one and another host under the other.
    """
    if own is None:
        return
    argument = own.split(".")[0]
    if argument not in arguments:
        raise TypeError(f"{name}: own={own!r} names no argument")
    if argument in wire_names:
        raise TypeError(f"{name}: {argument} tells the sender, so it cannot have a second name on the wire")


def _check_fallback(name: str, fallback: Fallback | None, signature: inspect.Signature) -> None:
    """Raise TypeError unless the fallback takes the service's client and the arguments of the method."""
    if fallback is None:
        return
    try:
        inspect.signature(fallback).bind(None, **dict.fromkeys(signature.parameters))
    except TypeError as error:
        raise TypeError(f"{name}: the fallback does not take its arguments: {error}") from None


def newer(version: str, than: str) -> bool:
    """Check whether one version, ``2.n``, is newer than another."""
    return numbers(version) > numbers(than)


def speaks(served: str, needed: str) -> bool:
    """Check whether a server at version ``served`` understands a message that needs ``needed``."""
    has, needs = numbers(served), numbers(needed)
    return has[0] == needs[0] and has >= needs


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))

"""Fake RPC clients, generated from the protocol of a service.

::

    client = fake_client(SchedulerRPC)
    client.script("select_destinations", [destination])   # a result, an error, or a function of the arguments
    ...
    assert client.calls == [("select_destinations", (spec,))]

A fake has the methods of the protocol and no others. Arguments must have the declared names and types, and a result has
to be of the declared type: both are converted as on the bus, so that caller and fake share no object. A method that no
test scripts returns the emptiest value of the declared type (`default_of`).

A subclass scripts methods in its body. Its methods must have the signature of the protocol::

    class FakeScheduler(FakeClient, protocol=SchedulerRPC):
        def select_destinations(self, context: RequestContext, spec: RequestSpec) -> list[Destination]:
            return self.destinations
"""

from __future__ import annotations

import datetime
import enum
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from nova_lite import rpc
from nova_lite.base.context import RequestContext
from nova_lite.rpc.client import to_plain, to_typed
from nova_lite.rpc.contract import Contract, Kind, Method, _Routing

#: A time for declared times.
SOME_TIME = datetime.datetime(2026, 11, 21, 8, 20, 32)

#: Types of the routing arguments.
_ROUTED = {route: float | None if route is _Routing.TIMEOUT else str for route in _Routing}


class FakeClient:
    """Client of a service for tests.

    - ``calls``: name and arguments of each call and cast, without the context. A command of a host has its own name.
    - ``contexts``: the context of each of them.
    - ``errors``: errors of the next calls, one each. ``error``: the error of all calls. ``cast_error``: of all casts.
    """

    contract: ClassVar[Contract]

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.contexts: list[RequestContext] = []
        self.errors: list[Exception] = []
        self.error: Exception | None = None
        self.cast_error: Exception | None = None
        self._answers: dict[str, Any] = {}

    def __init_subclass__(cls, protocol: type | None = None, **more: Any) -> None:
        """Generate the methods of ``protocol``, and check the methods that the class scripts."""
        super().__init_subclass__(**more)
        if protocol is not None:
            cls.contract = rpc.contract_of(protocol)
        methods = _methods(cls.contract)
        for name, function in list(vars(cls).items()):
            if name in methods:
                if protocol is not None:
                    assert_same_signature(function, getattr(protocol, name))
                setattr(cls, name, _generated(methods[name], function))
            elif not name.startswith("_") and _takes_a_context(function):
                raise TypeError(f"{cls.contract.name} has no method {name}")
        if protocol is not None:
            for name in methods.keys() - vars(cls).keys():
                setattr(cls, name, _generated(methods[name], None))

    def script(self, name: str, answer: Any) -> None:
        """Let a method return ``answer``, raise it (an error), or call it with the context and the arguments."""
        method = _methods(self.contract).get(name)
        if method is None:
            raise AttributeError(f"{self.contract.name} has no method {name}")
        if not callable(answer) and not isinstance(answer, Exception):
            _as_on_the_bus(answer, method.returns, f"the result of {name}")
        self._answers[name] = answer

    def own_answer(self, name: str) -> Callable[..., Any]:
        """Return what the class scripts for a method, without checks and record. A test's script may build on it."""
        return functools.partial(getattr(type(self), name).scripted, self)

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """Return the arguments of all calls of a method."""
        return [arguments for called, arguments in self.calls if called == name]

    def unscripted(self, method: Method, values: Mapping[str, Any]) -> Any:
        """Return the result of a method that no test has scripted."""
        return default_of(method.returns)

    def _invoke(self, method: Method, scripted: Callable[..., Any] | None, /, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = method.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{method.name}: {error}") from None
        bound.apply_defaults()
        hints = {**{name: _ROUTED[route] for route, name in method.routing.items()}, **method.arguments}
        values = {
            name: value if name == "context" else _as_on_the_bus(value, hints[name], f"{name} of {method.name}")
            for name, value in bound.arguments.items()
        }
        self._record(method, values)
        self._fail(method)
        return _as_on_the_bus(self._answer(method, scripted, values), method.returns, f"the result of {method.name}")

    def _record(self, method: Method, values: Mapping[str, Any]) -> None:
        hidden = {"context"}
        if _Routing.METHOD in method.routing:
            hidden |= {method.routing[_Routing.METHOD], method.routing.get(_Routing.VERSION, "")}
        self.contexts.append(values["context"])
        name = method.routed(_Routing.METHOD, values) or method.name
        self.calls.append((name, tuple(value for key, value in values.items() if key not in hidden)))

    def _fail(self, method: Method) -> None:
        if method.kind is not Kind.CALL:
            if self.cast_error is not None:
                raise self.cast_error
        elif self.errors:
            raise self.errors.pop(0)
        elif self.error is not None:
            raise self.error

    def _answer(self, method: Method, scripted: Callable[..., Any] | None, values: Mapping[str, Any]) -> Any:
        if method.name in self._answers:
            answer = self._answers[method.name]
            if isinstance(answer, Exception):
                raise answer
            return answer(*values.values()) if callable(answer) else answer
        return self.unscripted(method, values) if scripted is None else scripted(self, **values)


def fake_client(protocol: type) -> FakeClient:
    """Return a client with the methods of the protocol, none of which is scripted."""
    return _class_of(protocol)()


@functools.cache
def _class_of(protocol: type) -> type[FakeClient]:
    return types.new_class(f"Fake{protocol.__name__}", (FakeClient,), {"protocol": protocol})


def _takes_a_context(function: Any) -> bool:
    return inspect.isfunction(function) and "context" in inspect.signature(function).parameters


def _methods(contract: Contract) -> Mapping[str, Method]:
    return {**contract.methods, **({contract.command.name: contract.command} if contract.command else {})}


def _generated(method: Method, scripted: Callable[..., Any] | None) -> Callable[..., Any]:
    def call(self: FakeClient, *args: Any, **kwargs: Any) -> Any:
        return self._invoke(method, scripted, *args, **kwargs)

    call.__name__ = method.name
    call.scripted = scripted  # type: ignore[attr-defined]
    return call


def _as_on_the_bus(value: Any, hint: Any, what: str) -> Any:
    """Return a value as its receiver gets it. Raises `TypeError` unless it is of the declared type."""
    try:
        return to_typed(msgspec.json.decode(msgspec.json.encode(to_plain(value))), hint)
    except (msgspec.ValidationError, TypeError) as error:
        raise TypeError(f"{what} is {value!r}: {error}") from None


def default_of(hint: Any) -> Any:
    """Return the emptiest value of a declared type: None, false, 0, nothing, or an object of such values."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in (None, types.NoneType, Any):
        return None
    if origin in (typing.Union, types.UnionType):
        return None if types.NoneType in arguments else default_of(arguments[0])
    if origin is typing.Literal:
        return arguments[0]
    if origin is typing.Annotated:
        return default_of(arguments[0])
    if origin is tuple and Ellipsis not in arguments:
        return tuple(default_of(argument) for argument in arguments)
    if origin is not None:
        return origin()
    if issubclass(hint, enum.Enum):
        return next(iter(hint))
    if issubclass(hint, datetime.datetime):
        return SOME_TIME
    if issubclass(hint, msgspec.Struct):
        required = [field for field in msgspec.structs.fields(hint) if field.required]
        return hint(**{field.name: default_of(field.type) for field in required})
    return hint()


def assert_same_signature(fake: Any, real: Any) -> None:
    """Check that names, defaults and types agree. Markers of a protocol such as `rpc.Timeout` do not count."""
    assert typing.get_type_hints(fake) == typing.get_type_hints(real), fake
    parameters = [inspect.signature(side).parameters.values() for side in (fake, real)]
    shapes = [[(item.name, item.default) for item in side] for side in parameters]
    assert shapes[0] == shapes[1], fake

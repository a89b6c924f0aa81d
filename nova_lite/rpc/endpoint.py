"""The server's side of a service: its functions, held against its Protocol, with typed arguments."""

from __future__ import annotations

import inspect
import logging
import time
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import oslo_messaging as messaging

from nova_lite.base import exceptions, failpoints, metrics
from nova_lite.base.batching import ResponseFuture
from nova_lite.base.context import RequestContext
from nova_lite.rpc.admission import Priority
from nova_lite.rpc.client import ECHO, to_plain, to_typed
from nova_lite.rpc.contract import Method, contract_of
from nova_lite.rpc.keys import Peer

LOG = logging.getLogger(__name__)

Function = Callable[..., Any]
Translate = Callable[[Exception], Exception]
#: Of a verified message: its sender, method and id. False: it was taken before.
Once = Callable[[Peer, str, str], bool]


class Endpoint:
    """What oslo.messaging serves: each method of the Protocol, carried out by the one function of that name.

    ``targets`` are objects, whose public methods with a ``context`` count, or tables of functions by name. Every
    function is ``def name(context, **typed)``. One that returns a `ResponseFuture` releases its thread. ``orders``: the
    functions that the Protocol's `MethodName` method stands for.
    Raises `ConfigurationError` for a method that is missing (unless ``partial``), served twice or has another
    signature.

    Arguments that a function does not know come from a newer sender, which does not need them read, and are left out.
    ``classify`` returns the priority of a message; without it none is refused (`nova_lite.rpc.load_shedding`). ``once``
    checks each signed message against the shared replay cache, after the process's own (`nova_lite.rpc.signing`).
    Errors meant for the caller go back without a traceback in our log; all others are logged here, once. ``translate``
    may turn a library's error into one of ours first.
    """

    def __init__(
        self,
        protocol: type,
        *targets: Any,
        orders: Mapping[str, Function] | None = None,
        partial: bool = False,
        translate: Translate | None = None,
        classify: Callable[..., Priority] | None = None,
        once: Once | None = None,
    ) -> None:
        service = contract_of(protocol)
        self.classify = classify
        self.once = once
        self.target = messaging.Target(version=service.version)
        self.topic = service.topic
        wanted = dict(service.methods)
        served = [item for target in targets for item in _functions(target)]
        if service.order is not None:
            wanted |= dict.fromkeys(orders or (), service.order)
            served += (orders or {}).items()
        self.allowed = service.allowed
        if service.allowed is not None and service.order is not None:
            self.allowed = dict(service.allowed) | dict.fromkeys(orders or (), service.allowed[service.order.name])
        names = [name for name, _ in served]
        for name in wanted.keys() - set(names) if not partial else ():
            raise exceptions.ConfigurationError(reason=f"{service.name}: {name} is not served")
        for name, function in served:
            if name not in wanted or names.count(name) > 1:
                problem = "served twice" if name in wanted else "no method of it"
                raise exceptions.ConfigurationError(reason=f"{service.name}: {name} is {problem}")
            _check(service.name, name, wanted[name], function)
            setattr(self, name, _typed(name, wanted[name].arguments, function, translate))

    def echo(self, ctxt: RequestContext) -> None:
        """That the answer comes is the answer."""


assert hasattr(Endpoint, ECHO)


def _functions(target: Any) -> Iterator[tuple[str, Function]]:
    if isinstance(target, Mapping):
        yield from target.items()
        return
    for name, method in inspect.getmembers(target, inspect.ismethod):
        if not name.startswith("_") and next(iter(inspect.signature(method).parameters), None) == "context":
            yield name, method


def _check(service: str, name: str, method: Method, function: Function) -> None:
    """The function takes what is sent (or None, too), and answers what is expected, now or later. What came in a later
    version may be missing."""
    hints = typing.get_type_hints(function)
    hints.pop("context", None)
    expected = {**method.arguments, "return": method.returns}
    if hints.keys() != expected.keys() or any(hints[key] not in _as_good_as(hint) for key, hint in expected.items()):
        raise exceptions.ConfigurationError(
            reason=f"{service}: {name} is {_shown(method.arguments, method.returns)}, but served as "
            + _shown({key: hint for key, hint in hints.items() if key != "return"}, hints.get("return"))
        )
    parameters = inspect.signature(function).parameters
    for argument in method.arguments_since:
        if parameters[argument].default is inspect.Parameter.empty:
            raise exceptions.ConfigurationError(reason=f"{service}: {name} is served without a default for {argument}")


def _as_good_as(hint: Any) -> tuple[Any, ...]:
    later: Any = ResponseFuture
    return hint, typing.Optional[hint], typing.Union[hint, later[hint]]  # noqa: UP007, UP045 - made at run time


def _shown(arguments: Mapping[str, Any], returns: Any) -> str:
    return f"({', '.join(f'{name}: {hint}' for name, hint in arguments.items())}) -> {returns}"


def _typed(name: str, hints: Mapping[str, Any], function: Function, translate: Translate | None) -> Function:
    seconds = metrics.RPC.labels(name)

    def dispatch(ctxt: RequestContext, **kwargs: Any) -> Any:
        began = time.perf_counter()
        answer = None
        try:
            answer = done(ctxt, lambda: carried_out(ctxt, kwargs))
            return answer.mapped(lambda get: told(ctxt, began, get)) if isinstance(answer, ResponseFuture) else answer
        finally:
            if not isinstance(answer, ResponseFuture):
                seconds.observe(time.perf_counter() - began)

    def told(ctxt: RequestContext, began: float, get: Callable[[], Any]) -> Any:
        try:
            return done(ctxt, get)
        finally:
            seconds.observe(time.perf_counter() - began)

    def carried_out(ctxt: RequestContext, kwargs: dict[str, Any]) -> Any:
        arguments = {key: to_typed(value, hints[key]) for key, value in kwargs.items() if key in hints}
        failpoints.reach("handle", name, "before")
        return function(ctxt, **arguments)

    def done(ctxt: RequestContext, get: Callable[[], Any]) -> Any:
        try:
            answer = get()
            if isinstance(answer, ResponseFuture):
                return answer
            answer = to_plain(answer)
            failpoints.reach("handle", name, "after")
            return answer
        except Exception as error:
            ours = translate(error) if translate else error
            if not isinstance(ours, exceptions.NovaLiteException):
                LOG.exception("RPC method %s failed [%s]", name, ctxt.request_id)
                raise
            if ours.code >= 500:
                LOG.info("RPC method %s: %s [%s]", name, " ".join(ours.message.split()), ctxt.request_id)
            try:
                raise ours.with_traceback(None) from None  # how it came about is nothing that the caller is told
            except exceptions.NovaLiteException:
                raise messaging.ExpectedException() from None

    return dispatch

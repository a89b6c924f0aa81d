"""The server's side of a service: functions that are checked against its Protocol, with typed arguments."""

from __future__ import annotations

import inspect
import logging
import time
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import oslo_messaging as messaging

from nova_lite.base import exceptions, faults, metrics, structured_logs, tracing
from nova_lite.base.context import DaemonIdentity, RequestContext
from nova_lite.base.futures import ResponseFuture
from nova_lite.rpc.admission import Priority
from nova_lite.rpc.client import ECHO, to_plain, to_typed
from nova_lite.rpc.contract import Method, contract_of

LOG = logging.getLogger(__name__)

Function = Callable[..., Any]
Translate = Callable[[Exception], Exception]
#: Takes the sender, method and id of a verified message. Returns False if the message was taken before.
Once = Callable[[DaemonIdentity, str, str], bool]


def records_message(function: Function) -> Function:
    """Declare that a function records its ``context.message`` in its first transaction
    (`nova_lite.db.core.replay_cache.record`), and does nothing before that a repeated message must not do again.
    """
    function.records_message = True  # type: ignore[attr-defined]
    return function


class Endpoint:
    """The object that oslo.messaging serves: one function for each method of the Protocol.

    ``targets``: objects, whose public methods with a ``context`` count, or tables of functions by name. Every function
    is ``def name(context, **typed)``. A function that returns a `ResponseFuture` releases its thread. ``commands``: the
    functions of commands, by their names on the wire.
    Raises `ConfigurationError` for a method that is missing (unless ``partial``), is served twice or has another
    signature.

    A renamed method is served under its name and under its wire name; likewise an argument. Arguments that a function
    does not know come from a newer sender. The endpoint ignores them.
    ``classify`` returns the priority of a message; without it no message is refused (`nova_lite.rpc.load_shedding`).
    ``once`` checks each signed message against the shared replay cache, after the process's own cache
    (`nova_lite.rpc.signing`). Functions of ``recorders`` check their messages (`records_message`). Errors meant for the
    caller are not logged with a traceback; all others are logged here, once. ``translate`` may convert a library's
    error to one of ours first.
    """

    def __init__(
        self,
        protocol: type,
        *targets: Any,
        commands: Mapping[str, Function] | None = None,
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
        methods = dict(service.methods)
        served = [item for target in targets for item in _functions(target)]
        if service.command is not None:
            methods |= dict.fromkeys(commands or (), service.command)
            served += (commands or {}).items()
        names = [name for name, _ in served]
        for name in methods.keys() - set(names) if not partial else ():
            raise exceptions.ConfigurationError(reason=f"{service.name}: {name} is not served")
        recorders = set()
        for name, function in served:
            if name not in methods or names.count(name) > 1:
                problem = "served twice" if name in methods else "no method of it"
                raise exceptions.ConfigurationError(reason=f"{service.name}: {name} is {problem}")
            method = methods[name]
            _check(service.name, name, method, function)
            seamed = tracing.handler(f"{service.topic}.{name}", faults.call(f"handle/{name}", function))
            dispatch = _typed(name, method, seamed, translate)
            setattr(self, name, dispatch)
            if method is not service.command:
                setattr(self, method.wire_name, dispatch)
            if getattr(function, "records_message", False) and not method.replay_safe:
                recorders |= {name, method.wire_name}
        #: Names of methods whose functions record their messages.
        self.recorders = frozenset(recorders)
        #: Names on the wire of reads, which their callers send again while they have no reply.
        self.repeated = frozenset(method.wire_name for method in methods.values() if method.is_read)
        self.access = (
            None
            if service.access is None
            else {name: method.access for name, method in (*methods.items(), *service.by_any_name.items())}
        )

    def echo(self, ctxt: RequestContext) -> None:
        """Return: the reply shows that messages reach this server."""


assert hasattr(Endpoint, ECHO)


def _functions(target: Any) -> Iterator[tuple[str, Function]]:
    if isinstance(target, Mapping):
        yield from target.items()
        return
    for name, method in inspect.getmembers(target, inspect.ismethod):
        if not name.startswith("_") and next(iter(inspect.signature(method).parameters), None) == "context":
            yield name, method


def _check(service: str, name: str, method: Method, function: Function) -> None:
    """Raise `ConfigurationError` unless the function has the method's arguments and result.

    The function may also return None, or a `ResponseFuture` of the result. Arguments of a later version need a default.
    """
    hints = typing.get_type_hints(function)
    hints.pop("context", None)
    expected = {**method.arguments, "return": method.returns}
    if hints.keys() != expected.keys() or not all(_fits(hints[key], hint) for key, hint in expected.items()):
        raise exceptions.ConfigurationError(
            reason=f"{service}: {name} is {_shown(method.arguments, method.returns)}, but served as "
            + _shown({key: hint for key, hint in hints.items() if key != "return"}, hints.get("return"))
        )
    parameters = inspect.signature(function).parameters
    for argument in method.arguments_since:
        if parameters[argument].default is inspect.Parameter.empty:
            raise exceptions.ConfigurationError(reason=f"{service}: {name} is served without a default for {argument}")


def _fits(served: Any, hint: Any) -> bool:
    future: Any = ResponseFuture
    # Types made at run time take long, and nearly all are equal.
    return served == hint or served in (typing.Optional[hint], typing.Union[hint, future[hint]])  # noqa: UP007, UP045


def _shown(arguments: Mapping[str, Any], returns: Any) -> str:
    return f"({', '.join(f'{name}: {hint}' for name, hint in arguments.items())}) -> {returns}"


def _typed(name: str, method: Method, function: Function, translate: Translate | None) -> Function:
    """Return a function that takes plain values, for oslo.messaging. It returns plain values, or typed ones to a
    verified sender.
    """
    seconds = metrics.RPC.labels(name)
    hints = {
        key: (name, hint)
        for name, hint in method.arguments.items()
        for key in (method.argument_wire_names.get(name, name), name)
    }

    def dispatch(ctxt: RequestContext, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = None
        try:
            result = finish(ctxt, lambda: call(ctxt, kwargs))
            return (
                result.map(lambda get: finish_later(ctxt, start, get)) if isinstance(result, ResponseFuture) else result
            )
        finally:
            if not isinstance(result, ResponseFuture):
                seconds.observe(time.perf_counter() - start)

    def finish_later(ctxt: RequestContext, start: float, get: Callable[[], Any]) -> Any:
        try:
            return finish(ctxt, get)
        finally:
            seconds.observe(time.perf_counter() - start)

    def call(ctxt: RequestContext, kwargs: dict[str, Any]) -> Any:
        arguments = {}
        for key, value in kwargs.items():
            if key in hints:
                argument, hint = hints[key]
                arguments[argument] = to_typed(value, hint)
        with structured_logs.about(arguments.get("instance_uuid") or _instance_of(arguments.get("command"))):
            return function(ctxt, **arguments)

    def finish(ctxt: RequestContext, get: Callable[[], Any]) -> Any:
        try:
            result = get()
            # The signature of a reply to a verified sender covers its encoded text (`nova_lite.rpc.signing`).
            is_typed = ctxt.sender is not None or isinstance(result, ResponseFuture)
            return result if is_typed else to_plain(result)
        except Exception as error:
            ours = translate(error) if translate else error
            if not isinstance(ours, exceptions.NovaLiteException):
                LOG.exception("RPC method %s failed [%s]", name, ctxt.request_id)
                raise
            if ours.code >= 500:
                LOG.info("RPC method %s: %s [%s]", name, " ".join(ours.message.split()), ctxt.request_id)
            try:
                raise ours.with_traceback(None) from None  # the caller does not need the traceback
            except exceptions.NovaLiteException:
                raise messaging.ExpectedException() from None

    return dispatch


def _instance_of(command: Any) -> str | None:
    """Return the instance of a command to a host."""
    return getattr(getattr(command, "instance", None), "uuid", None)

"""Seams: the places where a daemon under a fault test passes `nova_lite.base.failpoints`.

A seam wraps what the code behind it calls: the message sender, an RPC handler, a transaction, a driver's method, or a
request to another service. It is installed once, where the object is made. Without ``NOVA_LITE_FAILPOINTS`` each
function here returns its argument unchanged, so that no call costs more. The code between the seams knows no failpoint.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeAlias, TypeVar

from nova_lite.base import exceptions, failpoints
from nova_lite.base.futures import ResponseFuture

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

#: Name of a point, or a function that makes the name from a call's arguments.
Point: TypeAlias = str | Callable[..., str]

#: Key of a session's ``info``: the name of its transaction.
TRANSACTION = "failpoint"


def call(point: Point, function: Callable[P, R], refused: Callable[[], Exception] | None = None) -> Callable[P, R]:
    """Return ``function`` with ``<point>/before`` and, if it succeeds, ``<point>/after``.

    ``refused``: makes the error of the effect ERROR; without it the points have no such effect. If the function returns
    a `ResponseFuture`, ``after`` follows the response.
    """
    if not failpoints.are_on():
        return function

    @functools.wraps(function)
    def passing(*args: P.args, **kwargs: P.kwargs) -> Any:
        name = point if isinstance(point, str) else point(*args, **kwargs)

        def finish(result: Any) -> Any:
            _pass(name, "after", refused)
            return result

        _pass(name, "before", refused)
        result = function(*args, **kwargs)
        return result.map(lambda get: finish(get())) if isinstance(result, ResponseFuture) else finish(result)

    return passing


def methods(target: T, points: Mapping[str, Point], refused: Callable[[], Exception] | None = None) -> T:
    """Return ``target``, whose methods in ``points`` pass their points as in `call`. Methods that it lacks are ignored.

    Calls from its own other methods pass them as well.
    """
    if failpoints.are_on():
        for name, point in points.items():
            if hasattr(target, name):
                setattr(target, name, call(point, getattr(target, name), refused))
    return target


def sender(transport: T, names: Mapping[str, str]) -> T:
    """Return a `nova_lite.rpc.client.Sender` whose messages pass ``send/<method>``. ``names``: methods by wire name."""
    return typing.cast(T, _Sender(transport, names)) if failpoints.are_on() else transport


class _Sender:
    def __init__(self, transport: Any, names: Mapping[str, str]) -> None:
        self.conf = transport.conf
        self._transport = transport
        self._names = names

    def call(self, message: Any) -> Any:
        self._pass(message, "before")
        reply = self._transport.call(message)
        self._pass(message, "after")
        return reply

    def cast(self, message: Any) -> None:
        effect = self._pass(message, "before")
        for _ in range({failpoints.DROP: 0, failpoints.DUPLICATE: 2}.get(effect or "", 1)):
            self._transport.cast(message)
        self._pass(message, "after")

    def _pass(self, message: Any, where: str) -> str | None:
        method = message.method
        return _pass(
            f"send/{self._names.get(method, method)}", where, lambda: exceptions.MessagingUnavailable(what=method)
        )


def transactions(database: Any, refused: Callable[[str], Exception]) -> None:
    """Wrap `nova_lite.db.core.engine.Database.write` of this database: each transaction passes ``commit/<function>``.

    The first point is the last thing before the commit, the second one the first thing after it. ``refused`` makes the
    error of a commit with this name.
    """
    if not failpoints.are_on():
        return
    write, announce = database.write, database.announce

    def named_write(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        # The method of a wing is a partial function.
        name = getattr(getattr(function, "func", function), "__name__", "").lstrip("_")

        def named(uow: Any, *arguments: Any, **keywords: Any) -> T:
            uow.session.info[TRANSACTION] = name
            uow.after_commit(lambda: _pass(f"commit/{name}", "after"))
            return function(uow, *arguments, **keywords)

        result: T = write(named, *args, **kwargs)
        return result

    def announced(uow: Any) -> None:
        announce(uow)
        uow.session.flush()
        name = uow.session.info[TRANSACTION]
        _pass(f"commit/{name}", "before", lambda: refused(name))

    database.write, database.announce = named_write, announced


def _pass(name: str, where: str, refused: Callable[[], Exception] | None = None) -> str | None:
    """Pass a point. Raises the error of ``refused`` if a test wants one. Returns the effect for a message."""
    effect = failpoints.reach(name, where)
    if effect == failpoints.ERROR and refused is not None:
        raise refused()
    return effect

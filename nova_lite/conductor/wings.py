"""Wings of the conductor: parts that ``[DEFAULT] wings`` loads (`nova_lite.rpcapi.conductor.wings`)."""

from __future__ import annotations

import functools
import inspect
import logging
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, plugins
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.rpcapi.compute import ComputeRPC

LOG = logging.getLogger(__name__)

#: Group of entry points, each a subclass of `ConductorWing`.
NAMESPACE = "nova_lite.wings.conductor"

#: Function of `nova_lite.db`: a unit of work, ``conf`` and ``context`` if it names them, and the method's arguments.
Function = Callable[..., Any]


class ConductorWing:
    """Conductor's half of a wing. ``reads``, ``changes``: functions of users' methods, by name."""

    reads: Mapping[str, Function] = {}
    changes: Mapping[str, Function] = {}

    def __init__(self, db: Database, conf: cfg.ConfigOpts, compute: ComputeRPC) -> None:
        self.db = db
        self.conf = conf
        self.compute = compute

    def report(self, host: str, report: Any) -> Any:
        """Record a report of the wing on a host, and return what it has to do."""
        raise NotImplementedError

    def workers(self) -> Iterator[tuple[str, float, Callable[[], object]]]:
        """Yield name, interval in seconds, and function of periodic work."""
        yield from ()

    def wake_hosts(self, wing: str, kind: type[Any]) -> None:
        """Wake the hosts that events of this kind name (``host``), once their transactions are committed."""

        def look(uow: UnitOfWork) -> None:
            changed = sorted({event.host for event in uow.published(kind)})
            uow.after_commit(lambda: self._wake(wing, changed))

        self.db.subscribe(look, kind)

    def _wake(self, wing: str, hosts: list[str]) -> None:
        for host in hosts:
            try:
                self.compute.wing_wake_up(get_admin_context(), host, wing)
            except exceptions.NovaLiteException as error:
                LOG.info("Host %s looks at the changes of the wing %s later: %s", host, wing, error.message)


class Wings:
    """The RPC methods of wings."""

    def __init__(self, db: Database, conf: cfg.ConfigOpts, compute: ComputeRPC) -> None:
        kinds = plugins.load(NAMESPACE, conf.wings, "[DEFAULT] wings")
        made = [kind(db, conf, compute) for kind in kinds]
        self.loaded: dict[str, ConductorWing] = dict(zip(conf.wings, made, strict=True))

    def wing_read(self, context: RequestContext, wing: str, name: str, arguments: dict[str, Any]) -> Any:
        found = self._wing(wing)
        return found.db.read(_bound(found.reads, name, found.conf, context, arguments))

    def wing_change(self, context: RequestContext, wing: str, name: str, arguments: dict[str, Any]) -> Any:
        found = self._wing(wing)
        return found.db.write(_bound(found.changes, name, found.conf, context, arguments))

    def wing_report(self, context: RequestContext, host: str, wing: str, report: Any) -> Any:
        return self._wing(wing).report(host, report)

    def _wing(self, name: str) -> ConductorWing:
        if name not in self.loaded:
            raise exceptions.NotServed(what=name[:64], instead=" This cloud's conductor does not load it.")
        return self.loaded[name]


def _bound(
    functions: Mapping[str, Function],
    method: str,
    conf: cfg.ConfigOpts,
    context: RequestContext,
    arguments: dict[str, Any],
) -> Function:
    """Return the function of a method, which then takes the unit of work alone. Arguments are converted to its types.

    Arguments that it does not know come from a newer API.
    """
    if method not in functions:
        raise exceptions.InvalidInput(reason=f"there is no method {method[:64]}")
    function = functions[method]
    hints = typing.get_type_hints(function)
    given = {
        name: msgspec.convert(value, hints[name], str_keys=True) for name, value in arguments.items() if name in hints
    }
    ours = {"conf": conf, "context": context}
    own = {name: ours[name] for name in ours.keys() & inspect.signature(function).parameters.keys()}
    return functools.partial(function, **(given | own))

"""Takes protections of the protocol out of this process, one at a time, to see what notices that.

`GUARDS` has a context manager for each rule of `tests.model.protections` that a trace can show. A trace shows what was
done, so it does not show a rule without which something is left undone.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.compute.fencing import FencingTokenStore, Record
from nova_lite.compute.jobs import InstanceLocks
from nova_lite.conductor.engine import build_reports
from nova_lite.conductor.engine.accept import Acceptor
from nova_lite.conductor.engine.advance import StepMachine
from nova_lite.conductor.engine.build_reports import BuildReports
from nova_lite.conductor.engine.context import ActionContext
from nova_lite.conductor.engine.deadlines import Deadlines
from nova_lite.conductor.reconciler import Reconciler
from nova_lite.db.core import actions
from nova_lite.operations import states
from tests.faults import without


def _one_driver() -> AbstractContextManager[object]:
    """Let a thread claim a place although it has lost its lease."""

    def any_lease(uow: Any, uuids: Mapping[int, str], owners: Iterable[int], step: str) -> dict[int, Any]:
        found = {number: pair for number, pair in actions.lock_all(uow, uuids).items() if pair[1].finish_time is None}
        for instance, action in found.values():
            action.step, instance.task_state = step, states.SCHEDULING
        return found

    return mock.patch.object(actions, "still_leased", any_lease)


def _confirmation() -> AbstractContextManager[object]:
    kept = mock.patch.object(Reconciler, "_repeat_step", Reconciler._repeat_step)
    return then(kept, without.confirmation)


def _revocation() -> AbstractContextManager[object]:
    names = ("revoke_failed_build", "_revoke")
    return mock.patch.multiple(FencingTokenStore, **dict.fromkeys(names, lambda self, *args: None))


def _fence_before_report() -> AbstractContextManager[object]:
    return mock.patch.object(FencingTokenStore, "revoke_failed_build", lambda self, result: None)


def _instance_lock() -> AbstractContextManager[object]:
    return mock.patch.object(InstanceLocks, "hold", lambda self, *args: contextlib.nullcontext())


def _report_generation() -> AbstractContextManager[object]:
    def any_build(uow: Any, instance: Any, action: Any, uuid: str, host: str, generation: int) -> ActionContext:
        if instance is None or instance.deleted or instance.task_state == states.DELETING:
            raise exceptions.InstanceGone(instance_id=uuid)
        if action is None or action.step != operations.BUILD:
            raise exceptions.StaleReport(instance_id=uuid, generation=generation, host=host)
        return ActionContext(uow, instance, action)

    return mock.patch.object(build_reports, "_still_building", any_build)


def _action_order() -> AbstractContextManager[object]:
    return mock.patch.object(Record, "is_in_order", lambda self, *args: True)


def _cleanup() -> AbstractContextManager[object]:
    return mock.patch.object(StepMachine, "record_offline", lambda self, ctx, step: self.done(ctx))


def _late_success() -> AbstractContextManager[object]:
    built = BuildReports._built

    def never_late(self: BuildReports, uow: Any, result: Any, locked: Any) -> None:
        _, action, _ = build_reports._open(uow, result.instance_uuid, locked)
        if action is not None and action.step == operations.COMPENSATE:
            raise exceptions.StaleReport(
                instance_id=result.instance_uuid, generation=result.generation, host=result.host
            )
        built(self, uow, result, locked)

    return mock.patch.object(BuildReports, "_built", never_late)


def _lasting_delete() -> AbstractContextManager[object]:
    expire = Deadlines._expire

    def fail(self: Deadlines, ctx: ActionContext, step: operations.Step) -> None:
        if ctx.action.action == operations.DELETE.kind:
            self.transitions.fail(ctx, "it is late", reported=False)
        else:
            expire(self, ctx, step)

    return mock.patch.object(Deadlines, "_expire", fail)


def _undo_first() -> AbstractContextManager[object]:
    supersede = Acceptor._supersede

    def at_once(self: Acceptor, uow: Any, instance: Any, definition: operations.Operation, known: Any) -> None:
        supersede(self, uow, instance, dataclasses.replace(definition, preempts=True), known)

    return mock.patch.object(Acceptor, "_supersede", at_once)


@contextlib.contextmanager
def then(patch: AbstractContextManager[object], change: Callable[[], None]) -> Iterator[None]:
    """Change what the patch puts back."""
    with patch:
        change()
        yield


GUARDS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "one driver": _one_driver,
    "confirmation": _confirmation,
    "revocation": _revocation,
    "fence before report": _fence_before_report,
    "instance lock": _instance_lock,
    "report generation": _report_generation,
    "action order": _action_order,
    "cleanup": _cleanup,
    "late success": _late_success,
    "lasting delete": _lasting_delete,
    "undo first": _undo_first,
}

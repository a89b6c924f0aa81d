"""Faults that this project has had, each of them made again by a small change of the code.

The commit that mended a fault is named, so that ``git show`` has the whole story. A fault is made again in its
substance: the code around it has changed since.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from unittest import mock

import sqlalchemy as sa

from nova_lite.base import clock, files
from nova_lite.compute import manager as compute_manager
from nova_lite.compute.fencing import NEVER, FencingTokenStore, Record
from nova_lite.compute.operations import HANDLERS
from nova_lite.compute.reconciler import DomainReconciler
from nova_lite.conductor.engine.keyed_executor import KeyedExecutor
from nova_lite.conductor.engine.unavailable_hosts import Transitions
from nova_lite.conductor.hosts import domains
from nova_lite.conductor.hosts.publisher import HostPublisher
from nova_lite.conductor.operations.create import endpoints
from nova_lite.conductor.reconciler import Reconciler
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, InstanceAction
from nova_lite.db.hosts import hosts, services
from nova_lite.objects import Destination, RequestSpec
from nova_lite.operations.types import HostStep, Operation, Step
from nova_lite.rpc.client import Message
from nova_lite.scheduler import hosts as scheduler_hosts
from nova_lite.scheduler.hosts import HostView
from nova_lite.scheduler.manager import SchedulerManager
from tests.simulation import bus

#: Virtual seconds that no run has.
_NEVER = 1e6
#: Age of old records, in seconds. It is as short as all times of a simulated cloud.
_AGE = 5.0


class PastFault(NamedTuple):
    """A fault. ``commit``: mended it. ``undo``: takes that away."""

    commit: str
    undo: Callable[[], AbstractContextManager[object]]


@contextlib.contextmanager
def _both(first: AbstractContextManager[object], second: AbstractContextManager[object]) -> Iterator[None]:
    """Change two things, for a run and not before it."""
    with first, second:
        yield


def _unclaimed_places() -> AbstractContextManager[object]:
    """Refuse a create for places that were decided, and perhaps never claimed."""

    def decide(self: SchedulerManager, spec: RequestSpec) -> list[Destination]:
        destinations = self._decide(self._hosts.snapshot(), spec)
        self._hosts.consume(destinations, spec)
        return destinations

    return mock.patch.object(SchedulerManager, "_decide_and_consume", decide)


def _missed_capacity() -> AbstractContextManager[object]:
    """Accept a refusal of a scheduler that missed what another conductor has freed."""

    def publish(self: HostPublisher) -> int:
        self.publish()
        return 0

    return mock.patch.object(HostPublisher, "publish_before_refusal", publish)


def _old_report() -> AbstractContextManager[object]:
    """Accept what a host saw before it carried a later command out."""
    return mock.patch.object(domains, "_is_older", lambda report, last: False)


def _vanished_domain() -> AbstractContextManager[object]:
    """Do not ask which domains should be on a host."""
    return mock.patch.object(DomainReconciler, "_report_lost", lambda self, scan: None)


def _unsynced_changes() -> AbstractContextManager[object]:
    """Write a fencing record without a sync, unless it revokes more than before."""
    write = FencingTokenStore._write

    def write_some(self: FencingTokenStore, record: Record, **changes: Any) -> None:
        durable = changes.get("revoked_generation", NEVER) > record.revoked_generation
        with mock.patch.object(self, "_write_file", functools.partial(files.write_atomically, durable=durable)):
            write(self, record, **changes)

    return mock.patch.object(FencingTokenStore, "_write", write_some)


def _second_create() -> AbstractContextManager[object]:
    """Ignore the key by which a client names a create that it sends again."""
    incoming = endpoints.incoming_create

    def without_key(context: Any, request: Any) -> Any:
        request.idempotency_key = None
        return incoming(context, request)

    return mock.patch.object(endpoints, "incoming_create", without_key)


def _unfinished_files() -> AbstractContextManager[object]:
    """Leave the files that a killed daemon has not finished."""
    return mock.patch.object(files, "remove_unfinished", lambda directory, writer="": None)


def _records_by_age() -> AbstractContextManager[object]:
    """Remove fencing records by their age on the wall clock."""
    write, seen = FencingTokenStore._write, dict[str, float]()

    def timed(self: FencingTokenStore, record: Record, **changes: Any) -> None:
        write(self, record, **changes)
        seen[self._path(record.uuid)] = time.time()

    def prune(self: compute_manager.ComputeManager) -> None:
        store = self.host.fencing
        old = [one for one in store.without_domain() if seen.get(store._path(one.uuid), 0.0) < time.time() - _AGE]
        store.prune(old, 0)

    return _both(
        mock.patch.object(FencingTokenStore, "_write", timed),
        mock.patch.object(compute_manager.ComputeManager, "prune_fencing_records", prune),
    )


def _deaf_conductor() -> AbstractContextManager[object]:
    """Take hosts for dead whose reports this conductor could not get."""
    expire = Reconciler._expire_services

    def expire_always(self: Reconciler, due: Any) -> None:
        self._listening_since, self._last_sweep = float("-inf"), clock.monotonic()
        expire(self, due._replace(quiet=0.0))

    def silent_before(uow: UnitOfWork, conf: Any, newest: Any) -> Any:
        return uow.now - datetime.timedelta(seconds=conf.service_down_time)

    return _both(
        mock.patch.object(Reconciler, "_expire_services", expire_always),
        mock.patch.object(services, "silent_before", silent_before),
    )


def _outdated_scheduler() -> AbstractContextManager[object]:
    """Let a scheduler refuse that could not read the hosts, also if a conductor knows later states of them."""
    is_current = property(lambda self: True, lambda self, value: None)
    return _both(
        mock.patch.object(SchedulerManager, "_is_current", is_current, create=True),
        mock.patch.object(HostView, "known_generations", lambda self: _NEVER),
    )


def _unheard_return() -> AbstractContextManager[object]:
    """Leave the actions of a host that was silent until it counted as down, and reports again."""
    report_alive = services.report_alive

    def report(*args: Any) -> tuple[Any, bool]:
        return report_alive(*args)[0], False

    return mock.patch.object(services, "report_alive", report)


def _uncounted_failures() -> AbstractContextManager[object]:
    """Take the last action that has not failed for the last that a host has carried out."""

    def last(uow: UnitOfWork, instance: Instance) -> tuple[int, int]:
        query = sa.select(sa.func.max(InstanceAction.id)).where(
            InstanceAction.instance_uuid == instance.uuid,
            InstanceAction.generation == instance.generation,
            InstanceAction.host == instance.host,
            InstanceAction.finish_time.is_not(None),
            InstanceAction.message.is_(None),
        )
        return uow.session.scalar(query) or 0, 0

    return mock.patch.object(actions, "last_order", last)


def _admitted_anyway() -> AbstractContextManager[object]:
    """Let a host serve that an operator has forced down, whatever its epoch."""

    def locked(uow: UnitOfWork, host: str, epoch: int, identity: str = "") -> Any:
        return services.locked(uow, host, services.COMPUTE)

    return _both(
        mock.patch.object(hosts, "admit", lambda uow, host, identity="": 0),
        mock.patch.object(hosts, "check_epoch", locked),
    )


def _lost_offline_step() -> AbstractContextManager[object]:
    """Do not find the step at which a delete waits for a host that is away."""
    step = Operation.step

    def by_name(self: Operation, name: str) -> Step:
        found = step(self, name)
        if found.name != name:
            raise LookupError(f"{self.kind} has no step {name}")
        return found

    return mock.patch.object(Operation, "step", by_name)


def _unknown_power() -> AbstractContextManager[object]:
    """Ignore the power states of domains that a host reports."""
    return mock.patch.object(domains, "_follow", lambda uow, host, instance, report: False)


def _endless_calls() -> AbstractContextManager[object]:
    """Let calls wait for their replies as long as these take."""
    call = bus.SimulatedTransport.call

    def wait(self: bus.SimulatedTransport, message: Message) -> Any:
        return call(self, dataclasses.replace(message, timeout=_NEVER))

    return mock.patch.object(bus.SimulatedTransport, "call", wait)


def _old_place_of_a_host() -> AbstractContextManager[object]:
    """Compare versions of hosts without their uuids, so that one with the id of a removed one looks older."""
    return _both(
        mock.patch.object(
            scheduler_hosts,
            "_is_newer",
            lambda state, known: (state.id, state.generation) > (known.id, known.generation),
        ),
        mock.patch.object(HostView, "known_generations", lambda self: _NEVER),
    )


def _undos_not_begun() -> AbstractContextManager[object]:
    """Count all undos of a failed action as carried out, also those of another host, or that have not begun."""

    def last(self: Operation, name: str, payload: Any, host: str, failed: bool) -> int | None:
        if failed and not self.is_undo(name):
            return None
        course = [undo for step in reversed(self.steps) for undo in step.undo] if failed else list(self.steps)
        names = [step.name for step in course]
        done = course[: names.index(name) + 1] if name in names else course
        commands = [step for step in done if isinstance(step, HostStep) and step.is_sequenced]
        return self.sequence(commands[-1].name) if commands else None

    return mock.patch.object(Operation, "last_sequence", last)


def _unsynced_removals() -> AbstractContextManager[object]:
    """Write that nothing of a server is left on a host only with the result of its delete."""
    mark_removed = FencingTokenStore.mark_removed

    def mark(self: FencingTokenStore, instance_uuid: str) -> None:
        with mock.patch.object(self, "_write_file", lambda path, data: None):
            mark_removed(self, instance_uuid)

    return mock.patch.object(FencingTokenStore, "mark_removed", mark)


def _needs_guest(method: str) -> AbstractContextManager[object]:
    """Repeat a command until the host has the guest, which may be missing for ever."""
    handle = HANDLERS[method]

    def find_first(host: Any, command: Any) -> Any:
        host.driver.guests.get(command.instance.uuid)
        return handle(host, command)

    return mock.patch.dict(HANDLERS, {method: find_first})


def _late_answers() -> AbstractContextManager[object]:
    """Drop the answer of a scheduler that is slower than the pauses between two tries."""
    return _both(
        mock.patch.object(actions, "retry_lease", lambda conf, action: actions.backoff(conf, action.attempts)),
        mock.patch.object(KeyedExecutor, "is_running", lambda self, key: False),
    )


def _lost_amid_a_move() -> AbstractContextManager[object]:
    """Let steps of a move wait for their host, also if an operator has forced it down."""
    return mock.patch.object(Transitions, "pass_forced_down_host", lambda self, ctx: None)


#: Past faults by their names.
PAST_FAULTS = {
    "a place that was decided and never claimed": PastFault("5d7d4043", _unclaimed_places),
    "capacity that another conductor has freed": PastFault("1f4aae83", _missed_capacity),
    "a guest's state from before its last command": PastFault("7124466e", _old_report),
    "a domain that has vanished": PastFault("798dd3a6", _vanished_domain),
    "changes of records that are not synced": PastFault("f3fde396", _unsynced_changes),
    "a create that is sent again": PastFault("4c1fce76", _second_create),
    "files that a killed daemon was writing": PastFault("59b26527", _unfinished_files),
    "records that are removed by their age": PastFault("b30536cf", _records_by_age),
    "hosts of a conductor that heard nothing": PastFault("d1b419f7", _deaf_conductor),
    "a scheduler that does not know the hosts": PastFault("1aca8c6a", _outdated_scheduler),
    "the step of a delete whose host is away": PastFault("5c68200d", _lost_offline_step),
    "a guest's power state that nobody follows": PastFault("495938ee", _unknown_power),
    "calls that wait for ever": PastFault("d2fb14d4", _endless_calls),
    "a host that was silent and reports": PastFault("d50f92ed", _unheard_return),
    "a guest's state from before a failed command": PastFault("a157bc42", _uncounted_failures),
    "a host that has the id of a removed one": PastFault("3f91cfd8", _old_place_of_a_host),
    "an undo that has not begun": PastFault("3bdbf3c6", _undos_not_begun),
    "a removal that is not written": PastFault("1cdbaf3a", _unsynced_removals),
    "a move whose guest is missing": PastFault("615e11ef", functools.partial(_needs_guest, "finish_revert_resize")),
    "a host that is forced down and serves": PastFault("18f4836f", _admitted_anyway),
    "a scheduler that answers late": PastFault("f4f7ac19", _late_answers),
    "a host that is lost amid a move": PastFault("78f253fc", _lost_amid_a_move),
    "a live migration whose guest is missing": PastFault(
        "ae2ef27c", functools.partial(_needs_guest, "post_live_migration_at_destination")
    ),
}

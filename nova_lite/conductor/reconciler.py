"""The reconciler: repeats the current step of unfinished actions, and ends actions that are past their deadline.

Every conductor runs one. A sweep leases due actions by conditional updates and repeats their steps. Everything that it
does may be done twice.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import logging
from collections.abc import Callable

import msgspec

from nova_lite import operations
from nova_lite.base import clock, exceptions, metrics, tracing
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.base.timing import TIMING, ConductorTiming
from nova_lite.conductor.engine import build_reports
from nova_lite.conductor.engine.clock_guard import ClockGuard
from nova_lite.conductor.engine.context import build_request, command_of, lock_action
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.engine.keyed_executor import KeyedExecutor
from nova_lite.conductor.engine.scheduling import Scheduling
from nova_lite.conductor.network.attach import InterfaceAttacher
from nova_lite.conductor.volume.cinder import CinderWorker
from nova_lite.conductor.volume.tasks import VolumeTasks
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork, translate
from nova_lite.db.hosts import services
from nova_lite.db.image import images
from nova_lite.db.servers import instances, server_migrations
from nova_lite.db.upkeep.due import Due, due_work
from nova_lite.objects import ActionCommand, BuildOutcome, BuildRequest, BuildResult
from nova_lite.operations.states import PowerState

LOG = logging.getLogger(__name__)

#: Seconds within which a host has to confirm a fence.
FENCE_TIMEOUT = 30.0

#: Threads that send commands, and the same number of threads that wait for hosts to confirm fences.
PARALLEL_STEPS = 4

#: Most batches of one sweep. The next sweep takes the rest.
BATCHES = 16

#: The key of all requests to the scheduler: one batch at a time.
_BATCH = "schedule"


class _Due(msgspec.Struct):
    """An action whose step is to be repeated, as its rows were when it was leased."""

    action_id: int
    kind: str
    step: str
    method: str
    instance_uuid: str
    host: str | None
    generation: int
    context: RequestContext
    build: BuildRequest | None = None
    command: ActionCommand | None = None


class Reconciler:
    """Repeats steps, and begins the operations that follow from time alone, such as reclaiming deleted servers."""

    def __init__(
        self,
        engine: ActionEngine,
        scheduling: Scheduling,
        attacher: InterfaceAttacher,
        volumes: VolumeTasks,
        cinder: CinderWorker,
        timing: ConductorTiming = TIMING.conductor,
    ) -> None:
        self.batch = timing.reconcile_batch
        self.engine = engine
        self.attacher = attacher
        self.cinder = cinder
        self.volumes = volumes
        self.scheduling = scheduling
        self.db = engine.db
        self.conf = engine.conf
        self._last_sweep = self._listening_since = clock.monotonic()
        self._clock = ClockGuard()
        self._scheduling = KeyedExecutor("schedule", 1)
        self._fences = KeyedExecutor("fence", PARALLEL_STEPS)
        self._commands = KeyedExecutor("command", PARALLEL_STEPS)
        self.executors = (self._scheduling, self._fences, self._commands)

    def sweep(self) -> int:
        """Make one pass, and return the number of actions that it took."""
        with metrics.timed(metrics.RECONCILE_DURATION):
            return self._sweep()

    def _sweep(self) -> int:
        due = self.db.read(due_work, self.conf)
        self._expire_services(due)
        if due.shelved:
            self._offload_shelved()
        is_ahead = self._clock.is_ahead(due.now)
        if due.soft_deleted and not is_ahead:
            self._reclaim()
        if due.unconfirmed and not is_ahead:
            self._confirm()
        if due.uploads and not is_ahead:
            self._requeue_uploads()
        for task_id in self.volumes.due() if due.volumes else ():
            task = self._guarded(functools.partial(self.volumes.drive, task_id))
            self._commands.run(f"volume task {task_id}", [task])
        for device_uuid in self.cinder.due() if due.cinder else ():
            task = self._guarded(functools.partial(self.cinder.process, device_uuid))
            self._commands.run(f"cinder {device_uuid}", [task])
        for instance_uuid, request_id in self.attacher.due() if due.attaches else ():
            task = self._guarded(functools.partial(self.attacher.delete_port, instance_uuid, request_id))
            self._commands.run(f"attach {request_id}", [task])
        return self._repeat_actions() if due.actions else 0

    def _requeue_uploads(self) -> None:
        for image_id in self.db.write(images.requeue_abandoned):
            LOG.warning("Image %s is queued again: its upload ended without a result, as the API was killed", image_id)

    def _repeat_actions(self) -> int:
        taken = 0
        for _ in range(BATCHES):
            busy = operations.SCHEDULE if self._scheduling.is_running(_BATCH) else None
            ids = self.db.read(actions.due, self.batch, busy)
            owner = actions.new_owner()
            due = self._take(ids, owner) if ids else []
            self._start(due, owner)
            taken += len(due)
            if len(ids) < self.batch:
                break
        return taken

    def _take(self, ids: list[int], owner: str) -> list[_Due]:
        """Lease these actions in one transaction. If a corrupt row prevents that, lease each in its own."""
        try:
            return self.db.write(self._take_due, ids, owner)
        except Exception as error:
            _raise_if_unavailable(error)
            LOG.warning("Due actions are leased one by one, because a row is corrupt: %r", error)
        return [item for action_id in ids for item in self._take_one(action_id, owner)]

    def _take_one(self, action_id: int, owner: str) -> list[_Due]:
        try:
            return self.db.write(self._take_due, [action_id], owner)
        except Exception as error:
            _raise_if_unavailable(error)
            LOG.exception("Action %d is put off: its row, or its instance's, is corrupt", action_id)
        self.db.write(actions.put_off, action_id)
        return []

    def _start(self, due: list[_Due], owner: str) -> None:
        """Start the steps in threads: a slow scheduler, a silent host, and all others do not delay each other."""
        for item in due:
            metrics.ACTION_RETRIES.labels(item.kind, item.step).inc()
        to_schedule = [item for item in due if item.step == operations.SCHEDULE]
        if to_schedule:
            requests = [(item.context, [item.instance_uuid]) for item in to_schedule]
            self._scheduling.run(_BATCH, [self._guarded(lambda: self.scheduling.run(requests, owner))])
        fences: dict[str, list[Callable[[], None]]] = {}
        for item in due:
            if item.step == operations.SCHEDULE:
                continue
            step = tracing.work(item.step, item.context, item.instance_uuid, self._repeat_step)
            repeat = self._guarded(functools.partial(step, item))
            if item.method == "fence_instance":
                fences.setdefault(str(item.host), []).append(repeat)
            else:
                self._commands.run(str(item.action_id), [repeat])
        for host, tasks in fences.items():
            self._fences.run(host, tasks)

    def _guarded(self, effect: Callable[[], None]) -> Callable[[], None]:
        """Return the effect with its failures logged."""
        return functools.partial(self.engine.guarded, effect)

    def _offload_shelved(self) -> None:
        """Begin to offload servers that have been shelved for long enough. Another conductor may be faster."""
        for instance_uuid in self.db.read(self._to_offload):
            context = get_admin_context()
            with contextlib.suppress(exceptions.Conflict, exceptions.InstanceNotFound):
                command = self.engine.accept_action(context, instance_uuid, operations.SHELVE_OFFLOAD.kind, {})
                self.engine.send(command, context)

    def _to_offload(self, uow: UnitOfWork) -> list[str]:
        before = uow.now - datetime.timedelta(seconds=self.conf.shelved_offload_time)
        return instances.to_offload(uow, before, self.batch)

    def _reclaim(self) -> None:
        """Delete servers that were soft-deleted long enough ago, at most one batch in each sweep."""
        seconds = self.conf.reclaim_instance_interval
        old = self.db.read(instances.to_reclaim, seconds, self.batch)
        if old:
            LOG.info("Reclaiming soft-deleted servers: %s", ", ".join(old))
            self._begin("reclaim", old, operations.DELETE)

    def _confirm(self) -> None:
        """Confirm moves that have waited long enough for their owners, at most one batch in each sweep."""
        seconds = self.conf.resize_confirm_window
        old = self.db.read(server_migrations.unconfirmed, seconds, self.batch)
        if old:
            LOG.info("Confirming resizes and migrations: %s", ", ".join(old))
            self._begin("confirm", old, operations.CONFIRM_RESIZE)

    def _begin(self, key: str, instance_uuids: list[str], definition: operations.Operation) -> None:
        """Begin an operation on these servers, which no user has requested."""

        def begin(instance_uuid: str) -> None:
            context = get_admin_context()
            self.engine.send(self.engine.accept_action(context, instance_uuid, definition.kind, {}), context)

        self._commands.run(key, [self._guarded(functools.partial(begin, uuid)) for uuid in instance_uuids])

    def _expire_services(self, due: Due) -> None:
        """Mark silent hosts as down.

        For ``service_down_time`` after this conductor started, stood still, or was without broker or database, no host
        is marked: the conductor itself may have missed their reports.
        """
        now = clock.monotonic()
        limit = 2 * self.conf.report_interval + 1
        if now - self._last_sweep > limit or due.quiet > limit:
            self._listening_since = now
        self._last_sweep = now
        if not due.silent or now - self._listening_since < self.conf.service_down_time:
            return
        for host in self.db.write(services.expire, self.conf):
            LOG.warning("Host %s has not reported for %d s: it counts as down", host, self.conf.service_down_time)

    def _take_due(self, uow: UnitOfWork, ids: list[int], owner: str) -> list[_Due]:
        due = []
        for ctx in self.engine.take_due(uow, owner, ids):
            action, step = ctx.action, ctx.step
            item = _Due(
                action_id=action.id,
                kind=action.action,
                step=action.step,
                method=step.method if isinstance(step, operations.HostStep) else "",
                instance_uuid=action.instance_uuid,
                host=action.host,
                generation=action.generation,
                context=ctx.context,
            )
            if action.step == operations.BUILD:
                item.build = build_request(ctx)
            elif item.method:
                item.command = command_of(ctx)
            due.append(item)
        return due

    def stop(self) -> None:
        """Drop the steps that have not begun."""
        for executor in self.executors:
            executor.stop()

    def _repeat_step(self, item: _Due) -> None:
        LOG.info("Repeating %s of %s (step %s, host %s)", item.kind, item.instance_uuid, item.step, item.host)
        if item.build is not None and item.host is not None:
            self.scheduling.send(item.context, item.host, item.build)
        elif item.method == "fence_instance":
            self._fence(item)
        elif item.command is not None:
            self.engine.send(item.command, item.context)
        else:
            self.engine.service_calls.make(item.action_id)

    def _fence(self, item: _Due) -> None:
        """Undo a build: its host confirms that it will never finish it, or reports that it has."""
        if item.host is None:
            return
        try:
            fenced = self.engine.compute.fence_instance(
                item.context, item.host, item.instance_uuid, item.generation, timeout=FENCE_TIMEOUT
            )
        except exceptions.ServiceUnavailable:
            LOG.info("Host %s does not confirm the end of the build of %s yet", item.host, item.instance_uuid)
            return
        if not fenced:
            LOG.warning("Host %s runs %s although its build is past its deadline", item.host, item.instance_uuid)
        self.db.write(self._fenced if fenced else self._revived, item.action_id)

    def _fenced(self, uow: UnitOfWork, action_id: int) -> None:
        """Record that the host has confirmed: nothing of the instance is there, and nothing will be."""
        ctx = lock_action(uow, action_id)
        if ctx is not None and ctx.action.step == operations.COMPENSATE and not ctx.instance.deleted:
            ctx.instance.power_state = PowerState.NOSTATE
            self.engine.transitions.advance(ctx)

    def _revived(self, uow: UnitOfWork, action_id: int) -> None:
        """Record that the build has succeeded after all."""
        ctx = lock_action(uow, action_id)
        if ctx is not None and ctx.action.step == operations.COMPENSATE and not ctx.instance.deleted:
            uuid, host, generation = ctx.instance.uuid, str(ctx.action.host), ctx.action.generation
            result = BuildResult(instance_uuid=uuid, generation=generation, host=host, outcome=BuildOutcome.BUILT)
            result.power_state = PowerState.RUNNING
            build_reports.built(self.engine, ctx, result)


def _raise_if_unavailable(error: Exception) -> None:
    """Raise the error if it means that the database is away, and not that a row is corrupt."""
    if isinstance(translate(error), exceptions.DatabaseUnavailable):
        raise error

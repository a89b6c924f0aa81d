"""The reconciler: drives whatever was accepted and is not finished, and ends what is past its deadline.

Every conductor runs one. A sweep takes due actions by conditional lease updates and drives each one's current step
again; all it does is harmless when done twice.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import logging
import time
from collections.abc import Callable

import msgspec

from nova_lite import operations
from nova_lite.base import exceptions, metrics
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.conductor.endpoints.volumes import VolumeEndpoints
from nova_lite.conductor.engine import build_reports
from nova_lite.conductor.engine.cinder import CinderDriver
from nova_lite.conductor.engine.context import build_request, command_of, lock_action
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.engine.keyed_executor import KeyedExecutor
from nova_lite.conductor.engine.network_attach import InterfaceAttacher
from nova_lite.conductor.engine.scheduling import Scheduling
from nova_lite.db import actions, instances, server_migrations, services
from nova_lite.db.due import Due, look
from nova_lite.db.engine import UnitOfWork, translate
from nova_lite.objects import ActionCommand, BuildRequest
from nova_lite.operations.states import PowerState

LOG = logging.getLogger(__name__)

#: Seconds that a host has to confirm a fence.
FENCE_TIMEOUT = 30.0

#: Threads that send orders, and as many that wait for hosts to confirm fences.
PARALLEL_DRIVES = 4

#: Batches that one sweep takes if there are so many; the next sweep goes on.
BATCHES = 16


class _Due(msgspec.Struct):
    """One action to drive, as its rows were when it was taken."""

    action_id: int
    kind: str
    step: str
    method: str
    instance_uuid: str
    host: str | None
    generation: int
    context: RequestContext
    build: BuildRequest | None = None
    command_of: ActionCommand | None = None


class Reconciler:
    def __init__(
        self, engine: ActionEngine, scheduling: Scheduling, attacher: InterfaceAttacher, cinder: CinderDriver
    ) -> None:
        self.engine = engine
        self.attacher = attacher
        self.cinder = cinder
        self.volumes = VolumeEndpoints(engine)
        self.scheduling = scheduling
        self.db = engine.db
        self.conf = engine.conf
        self._last_sweep = self._listening_since = time.monotonic()
        self._scheduler = KeyedExecutor("schedule", 1)
        self._fences = KeyedExecutor("fence", PARALLEL_DRIVES)
        self._orders = KeyedExecutor("order", PARALLEL_DRIVES)
        self.lanes = (self._scheduler, self._fences, self._orders)

    def sweep(self) -> int:
        """One pass; returns how many actions were taken."""
        with metrics.timed(metrics.RECONCILE_DURATION):
            return self._sweep()

    def _sweep(self) -> int:
        due = self.db.read(look, self.conf)
        self._expire_services(due)
        if due.shelved:
            self._offload_shelved()
        if due.soft_deleted:
            self._reclaim()
        if due.unconfirmed:
            self._confirm()
        for task_id in self.volumes.due() if due.volumes else ():
            drive = self._guarded(functools.partial(self.volumes.drive, task_id))
            self._orders.drive(f"volume task {task_id}", [drive])
        for device_uuid in self.cinder.due() if due.cinder else ():
            drive = self._guarded(functools.partial(self.cinder.drive, device_uuid))
            self._orders.drive(f"cinder {device_uuid}", [drive])
        for instance_uuid, request_id in self.attacher.due() if due.attaches else ():
            drive = self._guarded(functools.partial(self.attacher.take_back, instance_uuid, request_id))
            self._orders.drive(f"attach {request_id}", [drive])
        return self._drive_actions() if due.actions else 0

    def _drive_actions(self) -> int:
        taken = 0
        for _ in range(BATCHES):
            ids = self.db.read(actions.due, self.conf)
            owner = actions.new_owner()
            due = self._take(ids, owner) if ids else []
            self._drive(due, owner)
            taken += len(due)
            if len(ids) < self.conf.conductor.reconcile_batch:
                break
        return taken

    def _take(self, ids: list[int], owner: str) -> list[_Due]:
        """All of these in one transaction. If that cannot be, because one of them makes no sense, each in its own."""
        try:
            return self.db.write(self._take_due, ids, owner)
        except Exception as error:
            _raise_if_unavailable(error)
            LOG.warning("Due actions are taken one by one, one of them cannot be: %r", error)
        return [item for action_id in ids for item in self._take_one(action_id, owner)]

    def _take_one(self, action_id: int, owner: str) -> list[_Due]:
        try:
            return self.db.write(self._take_due, [action_id], owner)
        except Exception as error:
            _raise_if_unavailable(error)
            LOG.exception("Action %d is put off: its row, or its instance's, makes no sense", action_id)
        self.db.write(actions.put_off, action_id)
        return []

    def _drive(self, due: list[_Due], owner: str) -> None:
        """What waits for the scheduler, for hosts' answers, and for nobody: none of them holds up another."""
        for item in due:
            metrics.ACTION_RETRIES.labels(item.kind, item.step).inc()
        to_schedule = [item for item in due if item.step == operations.SCHEDULE]
        if to_schedule:
            uuids = [item.instance_uuid for item in to_schedule]
            self._scheduler.drive(
                "", [self._guarded(lambda: self.scheduling.run(to_schedule[0].context, uuids, owner))]
            )
        fences: dict[str, list[Callable[[], None]]] = {}
        for item in due:
            if item.step == operations.SCHEDULE:
                continue
            redrive = self._guarded(functools.partial(self._redrive, item))
            if item.method == "fence_instance":
                fences.setdefault(str(item.host), []).append(redrive)
            else:
                self._orders.drive(str(item.action_id), [redrive])
        for host, drives in fences.items():
            self._fences.drive(host, drives)

    def _guarded(self, effect: Callable[[], None]) -> Callable[[], None]:
        return functools.partial(self.engine.guarded, effect)

    def _offload_shelved(self) -> None:
        """Begin to offload what is shelved for long enough; another conductor may be faster."""
        for instance_uuid in self.db.read(self._to_offload):
            context = get_admin_context()
            with contextlib.suppress(exceptions.Conflict, exceptions.InstanceNotFound):
                order = self.engine.accept_action(context, instance_uuid, operations.SHELVE_OFFLOAD.kind, {})
                self.engine.send(order, context)

    def _to_offload(self, uow: UnitOfWork) -> list[str]:
        before = uow.now - datetime.timedelta(seconds=self.conf.shelved_offload_time)
        return instances.to_offload(uow, before, self.conf.conductor.reconcile_batch)

    def _reclaim(self) -> None:
        """Delete for good what was soft-deleted long enough ago, so many of them in one sweep."""
        seconds = self.conf.reclaim_instance_interval
        old = self.db.read(instances.to_reclaim, seconds, self.conf.conductor.reconcile_batch)
        if old:
            LOG.info("Reclaiming what was soft-deleted: %s", ", ".join(old))
            self._ask("reclaim", old, operations.DELETE)

    def _confirm(self) -> None:
        """Confirm moves that have waited long enough for their owners' word, so many of them in one sweep."""
        seconds = self.conf.resize_confirm_window
        old = self.db.read(server_migrations.unconfirmed, seconds, self.conf.conductor.reconcile_batch)
        if old:
            LOG.info("Confirming what was resized or migrated: %s", ", ".join(old))
            self._ask("confirm", old, operations.CONFIRM_RESIZE)

    def _ask(self, lane: str, instance_uuids: list[str], row: operations.Operation) -> None:
        """Have an operation accepted that nobody asks for but time."""

        def ask(instance_uuid: str) -> None:
            context = get_admin_context()
            self.engine.send(self.engine.accept_action(context, instance_uuid, row.kind, {}), context)

        self._orders.drive(lane, [self._guarded(functools.partial(ask, uuid)) for uuid in instance_uuids])

    def _expire_services(self, due: Due) -> None:
        """Count silent hosts as down. For one lease after this conductor started, stood still, or was without broker or
        database, nobody is: it may be this conductor that received nothing."""
        now = time.monotonic()
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
                item.command_of = command_of(ctx)
            due.append(item)
        return due

    def stop(self) -> None:
        for lane in self.lanes:
            lane.stop()

    def _redrive(self, item: _Due) -> None:
        LOG.info("Driving %s of %s again (step %s, host %s)", item.kind, item.instance_uuid, item.step, item.host)
        if item.build is not None and item.host is not None:
            self.scheduling.send(item.context, item.host, item.build)
        elif item.method == "fence_instance":
            self._fence(item)
        elif item.command_of is not None:
            self.engine.send(item.command_of, item.context)
        else:
            self.engine.service_calls.make(item.action_id)

    def _fence(self, item: _Due) -> None:
        """A build that is undone: have its host confirm that it will not, or find out that it did."""
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
        """The host has confirmed: nothing of the instance is there, nor will be."""
        ctx = lock_action(uow, action_id)
        if ctx is not None and ctx.action.step == operations.COMPENSATE and not ctx.instance.deleted:
            ctx.instance.power_state = PowerState.NOSTATE
            self.engine.transitions.advance(ctx)

    def _revived(self, uow: UnitOfWork, action_id: int) -> None:
        """The build had succeeded after all: the instance is what its owner asked for."""
        ctx = lock_action(uow, action_id)
        if ctx is not None and ctx.action.step == operations.COMPENSATE and not ctx.instance.deleted:
            build_reports.built(self.engine, ctx, PowerState.RUNNING, None)


def _raise_if_unavailable(error: Exception) -> None:
    """Raise it if it says that the database is away, and not that a row is wrong."""
    if isinstance(translate(error), exceptions.DatabaseUnavailable):
        raise error

"""The reconciler: drives whatever was accepted and is not finished, and ends what is past its deadline.

Every conductor runs one. A sweep takes due actions by conditional lease updates and drives each one's current step
again; all it does is harmless when done twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent import futures

import msgspec

from nova_lite import exception, operations
from nova_lite.conductor.db import actions, services
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.operations import building, scheduling
from nova_lite.conductor.operations.engine import Engine, lock_act, ticket
from nova_lite.conductor.operations.scheduling import Scheduling
from nova_lite.context import RequestContext
from nova_lite.objects import ActionTicket, BuildRequest
from nova_lite.states import PowerState

LOG = logging.getLogger(__name__)

#: Seconds that a host has to confirm a fence.
FENCE_TIMEOUT = 30.0

#: Drives that wait for other daemons at the same time; a scheduler that is away must not hold up deletes.
PARALLEL_DRIVES = 4


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
    ticket: ActionTicket | None = None


class Reconciler:
    def __init__(self, engine: Engine, scheduling: Scheduling) -> None:
        self.engine = engine
        self.scheduling = scheduling
        self.db = engine.db
        self.conf = engine.conf
        self._last_sweep = self._listening_since = time.monotonic()
        self._pool = futures.ThreadPoolExecutor(PARALLEL_DRIVES, thread_name_prefix="reconciler")

    def sweep(self) -> int:
        """One pass; returns how many actions were taken."""
        for host in self.db.write(self._expire_services):
            LOG.warning("Host %s has not reported for %d s: it counts as down", host, self.conf.service_down_time)
        owner = actions.new_owner()
        due = self.db.write(self._take_due, owner)
        to_schedule = [item for item in due if item.step == operations.SCHEDULE]
        if to_schedule:
            uuids = [item.instance_uuid for item in to_schedule]
            self._drive(lambda: self.scheduling.run(to_schedule[0].context, uuids, owner))
        for item in due:
            if item.step != operations.SCHEDULE:
                self._drive(lambda item=item: self._redrive(item))  # type: ignore[misc]
        return len(due)

    def _expire_services(self, uow: UnitOfWork) -> list[str]:
        """Count silent hosts as down. For one lease after this conductor started, stood still, or was without broker or
        database, nobody is: it may be this conductor that received nothing."""
        now = time.monotonic()
        limit = 2 * self.conf.report_interval + 1
        if now - self._last_sweep > limit or services.seconds_since_heartbeat(uow) > limit:
            self._listening_since = now
        self._last_sweep = now
        if now - self._listening_since < self.conf.service_down_time:
            return []
        return services.expire(uow, self.conf)

    def _take_due(self, uow: UnitOfWork, owner: str) -> list[_Due]:
        due = []
        for act in self.engine.take_due(uow, owner):
            action, step = act.action, act.step
            item = _Due(
                action_id=action.id,
                kind=action.action,
                step=action.step,
                method=step.method if isinstance(step, operations.OnHost) else "",
                instance_uuid=action.instance_uuid,
                host=action.host,
                generation=action.generation,
                context=act.context,
            )
            if action.step == operations.BUILD:
                item.build = scheduling.build_request(act)
            elif item.method:
                item.ticket = ticket(act)
            due.append(item)
        return due

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _drive(self, func: Callable[[], None]) -> None:
        self._pool.submit(self.engine.guarded, func)

    def _redrive(self, item: _Due) -> None:
        LOG.info("Driving %s of %s again (step %s, host %s)", item.kind, item.instance_uuid, item.step, item.host)
        if item.build is not None and item.host is not None:
            self.scheduling.send(item.context, item.host, item.build)
        elif item.method == "fence_instance":
            self._fence(item)
        elif item.ticket is not None:
            self.engine.send(item.ticket, item.context)
        else:
            self.engine.tell_network(item.action_id)

    def _fence(self, item: _Due) -> None:
        """A build that is undone: have its host confirm that it will not, or find out that it did."""
        if item.host is None:
            return
        try:
            fenced = self.engine.compute.fence_instance(
                item.context, item.host, item.instance_uuid, item.generation, timeout=FENCE_TIMEOUT
            )
        except exception.ServiceUnavailable:
            LOG.info("Host %s does not confirm the end of the build of %s yet", item.host, item.instance_uuid)
            return
        if not fenced:
            LOG.warning("Host %s runs %s although its build is past its deadline", item.host, item.instance_uuid)
        self.db.write(self._fenced if fenced else self._revived, item.action_id)

    def _fenced(self, uow: UnitOfWork, action_id: int) -> None:
        """The host has confirmed: nothing of the instance is there, nor will be."""
        act = lock_act(uow, action_id)
        if act is not None and act.action.step == operations.COMPENSATE and not act.instance.deleted:
            self.engine.advance(act)

    def _revived(self, uow: UnitOfWork, action_id: int) -> None:
        """The build had succeeded after all: the instance is what its owner asked for."""
        act = lock_act(uow, action_id)
        if act is not None and act.action.step == operations.COMPENSATE and not act.instance.deleted:
            building.built(self.engine, act, PowerState.RUNNING, None)

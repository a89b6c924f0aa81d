"""Disables and drains hosts whose machines have a problem, if ``[host_health] action`` says so.

The oldest conductor that is up does it. Each move is a migration like any other, and the state is in the database. So
another conductor continues with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from nova_lite import operations
from nova_lite.base import clock, exceptions, metrics, threads
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.base.timing import TIMING, ConductorTiming
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.hosts import room
from nova_lite.conductor.hosts.balancing import specs_of
from nova_lite.conf.host_health import DRAIN, REPORT
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import InstanceAction
from nova_lite.db.hosts import host_health, hosts, services
from nova_lite.db.servers import server_migrations
from nova_lite.objects import ActionCommand, HostHealth, RequestSpec
from nova_lite.rpcapi.scheduler import SchedulerRPC

LOG = logging.getLogger(__name__)

#: Event of a move that no user requested. Its details say why.
EVENT = "conductor_drain_host"

#: Seconds between two searches for room for the servers of a host.
ROOM_INTERVAL = 60.0


class HealthKeeper:
    """The conductor's periodic work about hosts that will fail."""

    def __init__(
        self,
        engine: ActionEngine,
        scheduler: SchedulerRPC,
        clock: Callable[[], float] = clock.monotonic,
        timing: ConductorTiming = TIMING.conductor,
    ) -> None:
        self._timing = timing
        self._engine = engine
        self._db = engine.db
        self._conf = engine.conf
        self._scheduler = scheduler
        self._clock = clock
        self._lock = threads.Lock()
        self._known: list[HostHealth] = []
        self._next_search: dict[str, float] = {}
        #: Reasons that were logged, by host, and are not logged again while they are the same.
        self._logged: dict[str, str] = {}
        #: Refusals by host and server: the time of the clock until which the server waits, and the reason.
        self._refused: dict[str, dict[str, tuple[float, str]]] = {}

    def samples(self) -> Iterable[tuple[str, metrics.Sample]]:
        """Yield the number of problems of each host, by kind."""
        with self._lock:
            known = self._known
        for health in known:
            kinds = [problem.kind for problem in health.problems]
            for kind in sorted(set(kinds)):
                yield metrics.sample(metrics.HOST_PROBLEMS, kinds.count(kind), health.host, kind)

    def run_if_first(self) -> None:
        """Look at all hosts, and act as the options say. Call it every few seconds."""
        is_first = self._db.read(services.is_first, services.CONDUCTOR, self._conf.host)
        known = self._db.read(host_health.list_) if is_first else []
        with self._lock:
            self._known = known
        if not known or self._conf.host_health.action == REPORT:
            return
        if self._db.read(host_health.has_enabled):
            for host in self._db.write(host_health.settle):
                LOG.info("Host %s was enabled: its present problems count no more", host)
        for host in self._db.read(host_health.to_disable, self._conf):
            self._disable(host)
        if self._conf.host_health.action == DRAIN:
            for host in self._db.read(host_health.in_state, host_health.DISABLED):
                self._begin_drain(host)
            draining = self._db.read(host_health.in_state, host_health.DRAINING)
            self._refused = {host: self._refused.get(host, {}) for host in draining}
            for host in draining:
                self._drain(host)

    # --- disable

    def _disable(self, host: str) -> None:
        refusal = ""
        try:
            reason = self._db.write(host_health.disable_failing, self._conf, host)
        except exceptions.Conflict as error:
            refusal, reason = error.message, ""
        if refusal:
            self._log_once(host, f"Host {host} has a problem, and stays enabled: {refusal}")
        elif reason:
            LOG.warning("Host %s is disabled: %s", host, reason)

    def _log_once(self, host: str, text: str) -> None:
        if self._logged.get(host) != text:
            self._logged[host] = text
            LOG.warning("%s", text)

    # --- drain

    def _begin_drain(self, host: str) -> None:
        now = self._clock()
        if now < self._next_search.get(host, now):
            return
        self._next_search[host] = now + ROOM_INTERVAL
        if missing := self._without_room(host):
            self._log_once(host, f"Host {host} is not drained: {missing} of its servers would find no room")
        elif self._db.write(host_health.begin_drain, host, self._db.read(server_migrations.newest_id)):
            LOG.warning("Host %s is drained because of its health", host)

    def _without_room(self, host: str) -> int:
        """Return the number of servers of a host that would find no place among the others."""
        specs = self._db.read(_specs_of_host, host)
        specs.sort(key=lambda spec: -spec.flavor.memory_mb)
        return room.without_room(
            specs, room.hosts_passing(self._scheduler, specs), self._db.read(hosts.states), (host,)
        )

    def _drain(self, host: str) -> None:
        drain = self._db.read(host_health.drain_of, host)
        if drain.ended:
            self._db.write(host_health.forget_ended, host)
        for instance_uuid in drain.confirm:
            self._begin(host, instance_uuid, operations.CONFIRM_RESIZE)
        self._move(host, drain)
        if not drain.left and self._db.write(host_health.end_drain, host):
            LOG.warning("Host %s is drained: no server is left", host)

    def _move(self, host: str, drain: host_health.Drain) -> None:
        """Begin as many moves as the options allow. A server that was refused lately waits, and the next one moves."""
        free = self._timing.health_moves - drain.moving
        moves = dict.fromkeys(drain.live, operations.LIVE_MIGRATE) | dict.fromkeys(drain.cold, operations.MIGRATE)
        waiting = {*moves, *drain.confirm}
        refused = {uuid: kept for uuid, kept in self._refused[host].items() if uuid in waiting}
        self._refused[host] = refused
        for instance_uuid, operation in moves.items():
            if free <= 0:
                break
            if refused.get(instance_uuid, (0.0, ""))[0] <= self._clock():
                free -= self._begin(host, instance_uuid, operation)

    def _begin(self, host: str, instance_uuid: str, operation: operations.Operation) -> bool:
        """Begin a move, or the confirmation of one. Return False if it is refused, which is logged once."""
        context, refusal = get_admin_context(), ""
        try:
            command = self._db.write(self._begin_drain_move, context, host, instance_uuid, operation)
        except (exceptions.Conflict, exceptions.Invalid, exceptions.NotFound) as error:
            refusal = error.message
        refused = self._refused[host]
        if refusal:
            if refused.get(instance_uuid, (0.0, ""))[1] != refusal:
                LOG.warning("Server %s does not leave host %s now: %s", instance_uuid, host, refusal)
            refused[instance_uuid] = (self._clock() + host_health.RETRY.total_seconds(), refusal)
            return False
        refused.pop(instance_uuid, None)
        self._engine.send(command, context)
        return True

    def _begin_drain_move(
        self, uow: UnitOfWork, context: RequestContext, host: str, instance_uuid: str, operation: operations.Operation
    ) -> ActionCommand:
        """Accept a move, or the confirmation of a cold one, of a server of a host that is drained."""
        payload = {"host": None, "forced": False, "block": None} if operation is operations.LIVE_MIGRATE else {}
        command = self._engine.accept_in(uow, context, instance_uuid, operation.kind, payload)
        action = uow.session.get(InstanceAction, command.action_id)
        assert action is not None
        actions.note_event(uow, action, EVENT, f"Host {host} has a problem, and is drained.")
        DRAIN_CHECKS[operation.kind](uow, host, instance_uuid)
        return command


def _check_live(uow: UnitOfWork, host: str, instance_uuid: str) -> None:
    host_health.require_draining(uow, host)


#: Functions that check and record what a drain has begun, by the kind of its operation.
DRAIN_CHECKS: dict[str, Callable[[UnitOfWork, str, str], None]] = {
    operations.LIVE_MIGRATE.kind: _check_live,
    operations.MIGRATE.kind: host_health.begin_cold_move,
    operations.CONFIRM_RESIZE.kind: host_health.require_cold_move,
}


def _specs_of_host(uow: UnitOfWork, host: str) -> list[RequestSpec]:
    return specs_of(uow, host_health.servers_of(uow, host))

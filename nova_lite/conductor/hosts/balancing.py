"""Moves servers off hosts under pressure: reads the measured load, makes a plan, and begins its moves.

The oldest conductor that is up does this periodically. The planner (`nova_lite.balance.planner`) decides. The scheduler
lists the hosts that pass its filters. Each move is a live migration like any other. While two conductors both take
themselves for the oldest, only the newer plan's moves begin (`nova_lite.db.hosts.balance`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable

import msgspec

from nova_lite import operations
from nova_lite.balance import planner
from nova_lite.base import exceptions, metrics, threads
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.engine.placement_request import IS_PRESENT, request_spec
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import InstanceAction
from nova_lite.db.hosts import balance, services
from nova_lite.db.servers import instances
from nova_lite.objects import ActionCommand, BalancePlan, RequestSpec
from nova_lite.objects.balance import RESOURCES, BalanceMove
from nova_lite.rpcapi.scheduler import SchedulerRPC

LOG = logging.getLogger(__name__)

#: Event of a live migration that no user requested. Its details say why.
EVENT = "conductor_relieve_host"
#: Servers in one message to the scheduler.
_PAGE = 50


class Balancer:
    """The conductor's periodic work that relieves hosts, and the RPC method `balance_hosts`."""

    def __init__(self, engine: ActionEngine, scheduler: SchedulerRPC) -> None:
        self._engine = engine
        self._db = engine.db
        self._conf = engine.conf
        self._scheduler = scheduler
        self._limits = balance.limits_of(engine.conf)
        self._lock = threads.Lock()
        self._pressures: dict[str, dict[str, float]] = {}
        #: Moves of the last dry run, which are not logged again.
        self._shown: set[tuple[str, str]] = set()

    def run_if_first(self) -> None:
        """Make a plan if this is the oldest conductor that is up, and begin its moves unless it is a dry run."""
        is_first = self._mode != balance.OFF and self._db.read(services.is_first, services.CONDUCTOR, self._conf.host)
        if not is_first:
            self._publish({})
            return
        found = self._plan(run=self._mode == balance.ON, explain=False)
        if self._mode == balance.DRY_RUN:
            self._show(found)

    def balance_hosts(self, context: RequestContext, run: bool) -> BalancePlan:
        if self._mode == balance.OFF:
            raise exceptions.BalancingIsOff()
        return self._plan(run=run, explain=True)

    def samples(self) -> Iterable[tuple[str, metrics.Sample]]:
        """Yield the pressure of each host, and how far the hosts are apart."""
        with self._lock:
            pressures = self._pressures
        for host, shares in pressures.items():
            for resource, share in shares.items():
                yield metrics.sample(metrics.HOST_PRESSURE, share, host, resource)
        for resource in RESOURCES if pressures else ():
            shares_of = [shares[resource] for shares in pressures.values() if resource in shares]
            if shares_of:
                yield metrics.sample(metrics.PRESSURE_SPREAD, spread(shares_of), resource)

    @property
    def _mode(self) -> str:
        return str(self._conf.conductor.rebalance)

    def _publish(self, pressures: dict[str, dict[str, float]]) -> None:
        with self._lock:
            self._pressures = pressures

    # --- plan

    def _plan(self, run: bool, explain: bool) -> BalancePlan:
        """Make a plan, and begin its moves if ``run``.

        A plan that may move servers has a number, and its figures are read after that.
        """
        self._settle()
        number = 0
        cloud = self._db.read(balance.read_cloud, self._conf)
        hot = planner.hot_hosts(cloud, self._limits)
        if run and hot:
            number = self._db.write(balance.begin_plan)
            cloud = self._db.read(balance.read_cloud, self._conf)
            hot = planner.hot_hosts(cloud, self._limits)
        if hot != self._db.read(balance.hot):
            self._db.write(balance.note_hot, hot)
        fitting = self._fitting(planner.candidates(cloud, self._limits))
        cloud, found = self._plan_of(cloud, lambda uuid: fitting.get(uuid, ()), explain)
        found.mode = self._mode
        self._publish(planner.pressures(cloud))
        for move in found.moves if run else ():
            move.begun = self._begin(number, move)
        return found

    def _plan_of(self, cloud: planner.Cloud, fits: planner.Fits, explain: bool) -> tuple[planner.Cloud, BalancePlan]:
        """Make a plan. The servers of each target are read, too, which may change the plan."""
        read: set[str] = set()
        while True:
            found = planner.make_plan(cloud, self._limits, fits, explain=explain)
            targets = {move.target for move in found.moves} - read
            if not targets:
                return cloud, found
            read |= targets
            cloud = self._db.read(balance.read_cloud, self._conf, read)

    def _fitting(self, servers: list[planner.Server]) -> dict[str, list[str]]:
        """Return the hosts that pass the scheduler's filters, by server."""
        specs = self._db.read(specs_of, [server.uuid for server in servers], True) if servers else []
        found: dict[str, list[str]] = {}
        for start in range(0, len(specs), _PAGE):
            page = specs[start : start + _PAGE]
            names = self._scheduler.fitting_hosts(get_admin_context(), page)
            found |= {spec.instance_uuids[0]: hosts for spec, hosts in zip(page, names, strict=True)}
        return found

    def _show(self, found: BalancePlan) -> None:
        """Log the moves of a dry run, each once while it is planned."""
        shown = {(move.instance_uuid, move.target) for move in found.moves}
        for move in found.moves:
            if (move.instance_uuid, move.target) not in self._shown:
                metrics.BALANCE_MOVES.labels("planned").inc()
                LOG.info("Dry run: server %s would move to %s. %s", move.instance_uuid, move.target, move.reason)
        self._shown = shown

    # --- moves

    def _begin(self, number: int, move: BalanceMove) -> bool:
        """Begin a move. Return False if it may not begin any more."""
        context, refusal = get_admin_context(), ""
        try:
            command = self._db.write(self._begin_move, context, number, move)
        except (exceptions.Conflict, exceptions.Invalid, exceptions.NotFound) as error:
            refusal = error.message
        if refusal:
            metrics.BALANCE_MOVES.labels("refused").inc()
            LOG.info("Server %s does not move to %s: %s", move.instance_uuid, move.target, refusal)
            return False
        metrics.BALANCE_MOVES.labels("begun").inc()
        LOG.info("Server %s moves to %s. %s", move.instance_uuid, move.target, move.reason)
        self._engine.send(command, context)
        return True

    def _begin_move(self, uow: UnitOfWork, context: RequestContext, number: int, move: BalanceMove) -> ActionCommand:
        """Check the budget, and accept the live migration, in one transaction."""
        balance.check_move(uow, self._conf, number, move)
        payload = {"host": move.target, "forced": False, "block": None}
        kind = operations.LIVE_MIGRATE.kind
        command = self._engine.accept_in(uow, context, move.instance_uuid, kind, payload)
        action = uow.session.get(InstanceAction, command.action_id)
        assert action is not None
        actions.note_event(uow, action, EVENT, move.reason)
        balance.add_move(uow, move, command.action_id)
        return command

    def _settle(self) -> None:
        if not self._db.read(balance.has_running):
            return
        for ended in self._db.write(balance.settle_moves):
            metrics.BALANCE_MOVES.labels(ended.result).inc()
            text = "has moved to" if ended.result == balance.DONE else "has not moved to"
            LOG.info("Server %s %s %s after %.0f s", ended.instance_uuid, text, ended.target, ended.seconds)


def spread(shares: list[float]) -> float:
    """Return the standard deviation of shares."""
    mean = math.fsum(shares) / len(shares)
    return math.sqrt(math.fsum((share - mean) ** 2 for share in shares) / len(shares))


def specs_of(uow: UnitOfWork, uuids: list[str], is_live: bool = False) -> list[RequestSpec]:
    """Return what the scheduler has to know of servers that leave their hosts. ``is_live``: they run meanwhile."""
    rows = instances.rows_by_uuid(uow, uuids)
    found = []
    for uuid in uuids:
        row = rows.get(uuid)
        if row is not None and row.host is not None:
            spec = request_spec(uow, row, [], {row.host: IS_PRESENT}, is_live=is_live)
            free = {"forced_host": None, "forced_node": None, "requested_destination": None}
            found.append(msgspec.structs.replace(spec, **free, current_zone=services.zone_of(uow, row.host)))
    return found

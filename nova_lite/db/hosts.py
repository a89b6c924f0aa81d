"""Compute hosts: their reports, whether they may serve, and what schedulers know of them.

A host's reports write its service and its nodes; a heartbeat that brings nothing new only renews the lease.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db import actions, compute_nodes, host_aggregates, services
from nova_lite.db.compute_nodes import Placed
from nova_lite.db.engine import UnitOfWork, utcnow
from nova_lite.db.models import Aggregate, AggregateHost, Allocation, ComputeNode, Instance, Service
from nova_lite.db.services import COMPUTE
from nova_lite.db.statements import UpdateEach
from nova_lite.objects import HostReport, HostState

#: Of compute hosts' services.
TOPIC = "compute"

# --- reports


def register_host(uow: UnitOfWork, conf: cfg.ConfigOpts, report: HostReport) -> int:
    """First report after a start: what is open on the host is due. The epoch that it serves in."""
    actions.make_due(uow, report.host)
    epoch = admit(uow, report.host, report.identity)
    record(uow, conf, report)
    services.pin(uow, report.host, report.identity)
    return epoch


def report_state(uow: UnitOfWork, conf: cfg.ConfigOpts, report: HostReport) -> None:
    """Heartbeat. Work before hosts: claims take their locks in that order, too."""
    actions.renew_leases(uow, conf, report.host, report.building, report.acting)
    check_epoch(uow, report.host, report.epoch, report.identity)
    if record(uow, conf, report, registers=False):
        actions.make_due(uow, report.host)


_LEASES = (
    sa.select(
        *(ComputeNode.id, Service.id.label("service_id"), Service.host, Service.topic, Service.version, Service.up),
        *(Service.forced_down, Service.boot_id, Service.epoch, Service.identity, Service.identity_epoch),
        *(Service.report_count,),
        *(*compute_nodes.REPORTED, utcnow().label("read_at")),
    )
    .join(Service, Service.id == ComputeNode.service_id)
    .where(Service.binary == COMPUTE, Service.host.in_(sa.bindparam("hosts", expanding=True)))
    .order_by(Service.id, ComputeNode.id)
    .with_for_update(of=(Service, ComputeNode), skip_locked=True)
)


_RENEWAL = UpdateEach(Service.id, Service.report_count, last_seen_up=utcnow())


def renew_hosts(uow: UnitOfWork, reports: Sequence[HostReport]) -> list[bool]:
    """The leases of hosts whose heartbeats bring nothing new, by one update. False for each that has to be reported by
    `report_state`: it is at work, is not (or not yet, or not any more) admitted as what it says, something of it has
    changed, or somebody else has its rows locked, for whom the others do not wait."""
    found: dict[str, list[Any]] = {}
    names = sorted({report.host for report in reports})
    for row in uow.session.connection().execute(_LEASES, {"hosts": names}):
        found.setdefault(row.host, []).append(row)
    inventories: dict[int, dict[str, Any]] = {}
    renewed = [_is_the_same(report, found.get(report.host, []), inventories) for report in reports]
    numbers: dict[int, int] = {}
    for report, same in zip(reports, renewed, strict=True):
        if same:
            service_id = found[report.host][0].service_id
            numbers[service_id] = max(report.number, numbers.get(service_id, 0))
    if numbers:
        _RENEWAL.run(uow, numbers)
    compute_nodes.write_inventories(uow, inventories)
    return renewed


def _is_the_same(report: HostReport, rows: Sequence[Any], inventories: dict[int, dict[str, Any]]) -> bool:
    """Whether `report_state` would change nothing but when the host was seen, and what only users see of it, which is
    put into ``inventories``. ``rows``: of its nodes, locked."""
    if not rows or report.building or report.acting or not (report.serving and report.hypervisor_up):
        return False
    service = rows[0]
    if not service.up or service.forced_down or _is_another(report.identity, service):
        return False
    is_now = (service.epoch, service.topic, service.version, service.boot_id)
    if is_now != (report.epoch, TOPIC, report.version, report.boot_id):
        return False
    if report.number and report.number <= service.report_count:
        return False
    changed = compute_nodes.quiet_changes(report, rows)
    if changed is not None:
        inventories.update(changed)
    return changed is not None


def record(uow: UnitOfWork, conf: cfg.ConfigOpts, host_report: HostReport, registers: bool = True) -> bool:
    """Write a host's report to its service and nodes. True if its daemon (re)started since the last one, or counted as
    down: what is open there was not sent meanwhile. Raises what `_check_number` does, unless it ``registers``."""
    aggregates = host_aggregates.of_hosts(uow, [host_report.host]).get(host_report.host, [])
    zone = host_aggregates.zone(aggregates) or conf.compute.default_availability_zone
    serving = host_report.serving
    service, came_up = services.report_alive(
        uow, host_report.host, COMPUTE, TOPIC, host_report.version, zone, serving, host_report.hypervisor_up
    )
    if not registers:
        _check_number(service, host_report)
    service.report_count = host_report.number
    restarted = service.boot_id != host_report.boot_id
    service.boot_id = host_report.boot_id
    uow.session.flush()
    compute_nodes.report(uow, service, host_report, aggregates)
    return restarted or came_up


def _check_number(service: Service, report: HostReport) -> None:
    """Whoever hears a heartbeat could send it again, and so make a host seem to be there that is not. Raises
    `HeartbeatIsOld` unless it is newer than the newest that was taken, and `HostNotAdmitted` for another start of the
    daemon than the one that has registered."""
    if not report.number:
        return
    if report.boot_id != service.boot_id:
        raise exceptions.HostEpochOver(host=report.host)
    if report.number <= service.report_count:
        raise exceptions.HeartbeatIsOld(host=report.host)


def admit(uow: UnitOfWork, host: str, identity: str = "") -> int:
    """The epoch that a host may begin to serve in; `HostForcedDown` while it may not.

    Raises `HostIsAnother` for a machine that is not the one of this name: two of one name would each run its servers.
    By forcing the host down an operator says that the first one runs nothing any more; the next to register is it then.
    """
    service = services.locked(uow, host, COMPUTE)
    return 0 if service is None else _admitted(service, identity)


def _admitted(service: Service, identity: str) -> int:
    if service.forced_down:
        raise exceptions.HostForcedDown(host=service.host)
    if _is_another(identity, service):
        raise exceptions.HostIsAnother(host=service.host)
    return service.epoch


def _is_another(identity: str, service: Any) -> bool:
    """``service``: its row, or what was read of it."""
    known = service.identity if service.epoch == service.identity_epoch else None
    return bool(identity and known and identity != known)


def check_epoch(uow: UnitOfWork, host: str, epoch: int, identity: str = "") -> None:
    """Raises `HostNotAdmitted` unless the host registered since it was last forced down, or forgotten."""
    service = services.locked(uow, host, COMPUTE)
    if service is None or _admitted(service, identity) != epoch:
        raise exceptions.HostEpochOver(host=host)


def apply_aggregates(uow: UnitOfWork, conf: cfg.ConfigOpts, host: str) -> None:
    """Bring a host's zone and capacities in line with its aggregates, which have changed."""
    service = services.locked(uow, host, COMPUTE)
    if service is None:
        return
    aggregates = host_aggregates.of_hosts(uow, [host]).get(host, [])
    service.availability_zone = host_aggregates.zone(aggregates) or conf.compute.default_availability_zone
    compute_nodes.apply_aggregates(uow, service, aggregates)
    compute_nodes.touch_all(uow, service)


def is_up(uow: UnitOfWork, host: str) -> bool:
    """Is the compute daemon of ``host`` alive, and not forced down?"""
    query = sa.select(Service.id).where(
        Service.host == host, Service.binary == COMPUTE, Service.up.is_(True), Service.forced_down.is_(False)
    )
    return uow.session.scalars(query).first() is not None


def exists(uow: UnitOfWork, host: str) -> bool:
    query = sa.select(Service.id).where(Service.host == host, Service.binary == COMPUTE)
    return uow.session.scalars(query).first() is not None


def is_forced_down(uow: UnitOfWork, host: str) -> bool:
    """Whether the host is forced down; its row is locked until the transaction ends."""
    service = services.locked(uow, host, COMPUTE)
    return service is not None and service.forced_down


# --- for the scheduler

#: A line for each instance that holds something of a node: its uuid, whether a task is under way, and its flavor.
_PLACED = (
    sa.select(
        sa.func.aggregate_strings(
            Allocation.instance_uuid
            + sa.case((Instance.task_state.is_(None), " 0 "), else_=" 1 ")
            + sa.func.coalesce(Instance.flavorid, ""),
            "\n",
        )
    )
    .select_from(Allocation)
    .outerjoin(Instance, Instance.uuid == Allocation.instance_uuid)
    .where(Allocation.compute_node_id == ComputeNode.id)
    .scalar_subquery()
)


_STATES = (
    sa.select(ComputeNode, _PLACED, *host_aggregates.COLUMNS)
    .outerjoin(AggregateHost, AggregateHost.host == ComputeNode.host)
    .outerjoin(Aggregate, Aggregate.id == AggregateHost.aggregate_id)
    .execution_options(populate_existing=True)
)
_STATES_OF = _STATES.where(ComputeNode.id.in_(sa.bindparam("node_ids", expanding=True))).order_by(
    ComputeNode.id, Aggregate.id
)


def states(
    uow: UnitOfWork, node_ids: Sequence[int] | None = None, after: int = 0, limit: int | None = None
) -> list[HostState]:
    """Hosts as the scheduler sees them: those of these ids, also what this transaction deleted; or all, or the first
    ``limit`` with an id above ``after``. One query: a node's row comes once for each aggregate of its host."""
    if node_ids is None:
        page = sa.select(ComputeNode.id).where(ComputeNode.id > after).order_by(ComputeNode.id).limit(limit).subquery()
        query = _STATES.join(page, page.c.id == ComputeNode.id).order_by(ComputeNode.id, Aggregate.id)
        read = uow.session.execute(query)
    else:
        read = uow.session.execute(_STATES_OF, {"node_ids": list(node_ids)})
    found: list[HostState] = []
    for node, rows in itertools.groupby(read, key=lambda row: row[0]):
        (_, placed, *first), *others = rows
        aggregates = host_aggregates.made_of((first, *(row[2:] for row in others)))
        found.append(compute_nodes.to_state(node, _placed(placed), aggregates))
    return found + [uow.deleted_nodes[node_id] for node_id in node_ids or () if node_id in uow.deleted_nodes]


def page_of_states(uow: UnitOfWork, after: int = 0, limit: int | None = None) -> list[HostState]:
    return states(uow, after=after, limit=limit)


def freed_lately(uow: UnitOfWork, seconds: float) -> dict[int, datetime.datetime]:
    """By the ids of nodes that got a place back within so many seconds: when."""
    query = sa.select(ComputeNode.id, ComputeNode.freed_at)
    query = query.where(ComputeNode.freed_at >= uow.now - datetime.timedelta(seconds=seconds))
    return {row.id: row.freed_at for row in uow.session.execute(query)}


def _placed(lines: str | None) -> list[Placed]:
    """``lines``: what `_PLACED` says of one node."""
    words = (line.split(" ", 2) for line in lines.split("\n")) if lines else ()
    return [Placed(uuid, flavorid or None, bool(int(working))) for uuid, working, flavorid in words]


#: Of an instance's node, as part of a query for it.
FAILED_BUILDS = (
    sa.select(ComputeNode.failed_builds)
    .where(ComputeNode.host == Instance.host, ComputeNode.node == Instance.node)
    .scalar_subquery()
)


def build_failed(uow: UnitOfWork, host: str, node: str) -> None:
    """Count it; the claim's release tells the schedulers."""
    uow.change(
        sa.update(ComputeNode)
        .where(ComputeNode.host == host, ComputeNode.node == node)
        .values(failed_builds=ComputeNode.failed_builds + 1)
    )


def build_succeeded(uow: UnitOfWork, host: str, node: str) -> None:
    """Forget earlier failures; most of the time there are none."""
    query = sa.select(ComputeNode).where(
        ComputeNode.host == host, ComputeNode.node == node, ComputeNode.failed_builds > 0
    )
    for row in uow.session.scalars(query):
        row.failed_builds = 0
        compute_nodes.touch(uow, row)

"""Compute hosts: their reports, whether they may serve, and their state for schedulers.

A host's report writes its service and its nodes. A heartbeat without changes only renews the lease.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork, utcnow
from nova_lite.db.core.events import HostRemoved
from nova_lite.db.core.models import (
    Aggregate,
    AggregateHost,
    Allocation,
    ComputeNode,
    Instance,
    InstanceAction,
    Service,
)
from nova_lite.db.core.statements import UpdateEach
from nova_lite.db.hosts import compute_nodes, host_aggregates, host_health, host_storage, leases, services
from nova_lite.db.hosts.compute_nodes import Placed
from nova_lite.db.hosts.services import COMPUTE
from nova_lite.objects import HostReport, HostState, HostVersion, Lease, LeaseRequest, StorageReport

#: Topic of compute hosts' services.
TOPIC = "compute"

# --- reports


def register_host(uow: UnitOfWork, conf: cfg.ConfigOpts, report: HostReport) -> int:
    """Store the first report after a start, make the host's open actions due, and return the epoch that it serves
    in.
    """
    actions.make_due(uow, report.host)
    epoch = admit(uow, report.host, report.identity)
    record(uow, conf, report)
    services.pin(uow, report.host, report.identity)
    leases.registered(uow, report.host)
    host_storage.registered(uow, report.host)
    if report.health is not None:
        host_health.record(uow, report.host, report.health)
    return epoch


def report_state(uow: UnitOfWork, conf: cfg.ConfigOpts, report: HostReport) -> None:
    """Store a heartbeat. Work is locked before hosts, in the same order as claims."""
    actions.renew_leases(uow, conf, report.host, report.building, report.acting)
    check_epoch(uow, report.host, report.epoch, report.identity)
    if record(uow, conf, report, registers=False):
        actions.make_due(uow, report.host)
    if report.health is not None:
        host_health.record(uow, report.host, report.health)


def renew_lease(uow: UnitOfWork, conf: cfg.ConfigOpts, request: LeaseRequest) -> Lease:
    """Record a request of a host that fences itself, and return its lease. See `leases.renew`."""
    return leases.renew(uow, conf, request, check_epoch(uow, request.host, request.epoch, request.identity))


def report_storage(uow: UnitOfWork, report: StorageReport) -> list[str]:
    """Record what a host sees in its directory of disks, and return the hosts that share it."""
    check_epoch(uow, report.host, report.epoch, report.identity)
    return host_storage.record(uow, report)


_LEASES = (
    sa.select(
        ComputeNode.id,
        Service.id.label("service_id"),
        Service.host,
        Service.topic,
        Service.version,
        Service.up,
        Service.forced_down,
        Service.boot_id,
        Service.epoch,
        Service.identity,
        Service.identity_epoch,
        Service.report_count,
        *compute_nodes.REPORTED,
        utcnow().label("read_at"),
    )
    .join(Service, Service.id == ComputeNode.service_id)
    .where(Service.binary == COMPUTE, Service.host.in_(sa.bindparam("hosts", expanding=True)))
    .order_by(Service.id, ComputeNode.id)
    .with_for_update(of=(Service, ComputeNode), skip_locked=True)
)


_RENEWAL = UpdateEach(Service.id, Service.report_count, last_seen_up=utcnow())


def renew_hosts(uow: UnitOfWork, reports: Sequence[HostReport]) -> list[bool]:
    """Renew the leases of hosts whose heartbeats bring no change, by one update. Returns one flag per report.

    False means that `report_state` has to store the report: the host has work, is not admitted under this identity, or
    has changes, or another transaction holds its rows.
    """
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
    """Check whether `report_state` would only change the time and what users see. The latter goes into ``inventories``.
    ``rows``: of its nodes, locked.
    """
    if not rows or report.building or report.acting or report.health is not None:
        return False
    if not (report.serving and report.hypervisor_up):
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
    """Write a host's report to its service and nodes.

    Returns True if its daemon (re)started since the last report, or counted as down: its open actions were not sent
    meanwhile. Raises the errors of `_check_number`, unless it ``registers``.
    """
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
    """Reject replayed heartbeats, which would make a dead host look alive.

    Raises `HeartbeatIsOld` unless the number is higher than the last accepted one. Raises `HostNotAdmitted` for another
    start of the daemon than the registered one.
    """
    if not report.number:
        return
    if report.boot_id != service.boot_id:
        raise exceptions.HostEpochOver(host=report.host)
    if report.number <= service.report_count:
        raise exceptions.HeartbeatIsOld(host=report.host)


def admit(uow: UnitOfWork, host: str, identity: str = "") -> int:
    """Return the epoch that a host may serve in. Raises `HostForcedDown` while it may not serve.

    Raises `HostIsAnother` for another machine under a registered name: two machines of one name would both run its
    servers. An operator who forces the host down declares that the first machine runs nothing any more. The next
    machine to register gets the name.
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
    """Check whether another identity is registered. ``service``: its row, or the columns that were read."""
    known = service.identity if service.epoch == service.identity_epoch else None
    return bool(identity and known and identity != known)


def check_epoch(uow: UnitOfWork, host: str, epoch: int, identity: str = "") -> Service:
    """Return the host's row, locked. Raise `HostNotAdmitted` unless the host registered since it was last forced down,
    fenced or deleted."""
    service = services.locked(uow, host, COMPUTE)
    if service is None or _admitted(service, identity) != epoch:
        raise exceptions.HostEpochOver(host=host)
    return service


def apply_aggregates(uow: UnitOfWork, conf: cfg.ConfigOpts, host: str) -> None:
    """Update a host's zone and capacities after a change of its aggregates."""
    service = services.locked(uow, host, COMPUTE)
    if service is None:
        return
    aggregates = host_aggregates.of_hosts(uow, [host]).get(host, [])
    service.availability_zone = host_aggregates.zone(aggregates) or conf.compute.default_availability_zone
    compute_nodes.apply_aggregates(uow, service, aggregates)
    compute_nodes.touch_all(uow, service)


def is_up(uow: UnitOfWork, host: str) -> bool:
    """Check whether the compute daemon of ``host`` is alive and not forced down."""
    query = sa.select(Service.id).where(
        Service.host == host, Service.binary == COMPUTE, Service.up.is_(True), Service.forced_down.is_(False)
    )
    return uow.session.scalars(query).first() is not None


def exists(uow: UnitOfWork, host: str) -> bool:
    query = sa.select(Service.id).where(Service.host == host, Service.binary == COMPUTE)
    return uow.session.scalars(query).first() is not None


def is_forced_down(uow: UnitOfWork, host: str) -> bool:
    """Check whether the host is forced down, and lock its row until the transaction ends."""
    service = services.locked(uow, host, COMPUTE)
    return service is not None and service.forced_down


# --- for the scheduler

#: A text line for each instance with an allocation on a node: its uuid, whether a task runs, and its flavor.
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
    """Return hosts as the scheduler sees them: the given nodes, including nodes that this transaction deleted, or the
    first ``limit`` with an id above ``after``.

    One query: a node's row appears once for each aggregate of its host.
    """
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
    removed = {event.state.id: event.state for event in uow.published(HostRemoved)}
    return found + [removed[node_id] for node_id in node_ids or () if node_id in removed]


def page_of_states(
    uow: UnitOfWork, after: int = 0, limit: int | None = None, ids: list[int] | None = None
) -> list[HostState]:
    """Return the hosts with these ids, or the first ``limit`` with an id above ``after``."""
    return states(uow, node_ids=ids, after=after, limit=limit)


#: Allocations of instances with a task. A task has an open action, and there are few of these.
_WORKING = (
    sa.select(Allocation.compute_node_id, Allocation.id)
    .join(InstanceAction, InstanceAction.instance_uuid == Allocation.instance_uuid)
    .join(Instance, Instance.uuid == Allocation.instance_uuid)
    .where(InstanceAction.finish_time.is_(None), Instance.task_state.is_not(None))
    .distinct()
    .subquery()
)
_IO_OPS = (
    sa.select(_WORKING.c.compute_node_id, sa.func.count().label("io_ops"))
    .group_by(_WORKING.c.compute_node_id)
    .subquery()
)
_VERSIONS = (
    sa.select(ComputeNode.id, ComputeNode.generation, _IO_OPS.c.io_ops, *compute_nodes.FREE_DISK)
    .outerjoin(_IO_OPS, _IO_OPS.c.compute_node_id == ComputeNode.id)
    .where(ComputeNode.id > sa.bindparam("after"))
    .order_by(ComputeNode.id)
)


def page_of_versions(uow: UnitOfWork, after: int = 0, limit: int | None = None) -> list[HostVersion]:
    """Return the versions of the first ``limit`` nodes with an id above ``after``."""
    return [
        HostVersion(
            id=row.id,
            generation=row.generation,
            io_ops=row.io_ops or 0,
            disk_available_least=compute_nodes.free_disk(row.disk_gb, row.total, row.free),
        )
        for row in uow.session.execute(_VERSIONS.limit(limit), {"after": after})
    ]


def freed_lately(uow: UnitOfWork, seconds: float) -> tuple[int, dict[int, datetime.datetime]]:
    """Return the sum of all generations, and by node id when a node last got capacity back, within so many seconds."""
    generations = known_generations(uow)
    query = sa.select(ComputeNode.id, ComputeNode.freed_at)
    query = query.where(ComputeNode.freed_at >= uow.now - datetime.timedelta(seconds=seconds))
    return generations, {row.id: row.freed_at for row in uow.session.execute(query)}


def known_generations(uow: UnitOfWork) -> int:
    """Return the sum of the nodes' generations. A scheduler whose hosts have a smaller sum is outdated."""
    return int(uow.session.scalar(sa.select(sa.func.coalesce(sa.func.sum(ComputeNode.generation), 0))) or 0)


def _placed(lines: str | None) -> list[Placed]:
    """Parse the text of `_PLACED` for one node."""
    words = (line.split(" ", 2) for line in lines.split("\n")) if lines else ()
    return [Placed(uuid, flavorid or None, bool(int(working))) for uuid, working, flavorid in words]


#: Failed builds of an instance's node, as a column of a query for the instance.
FAILED_BUILDS = (
    sa.select(ComputeNode.failed_builds)
    .where(ComputeNode.host == Instance.host, ComputeNode.node == Instance.node)
    .scalar_subquery()
)


def build_failed(uow: UnitOfWork, host: str, node: str) -> None:
    """Count a failed build. The release of the claim notifies the schedulers."""
    uow.change(
        sa.update(ComputeNode)
        .where(ComputeNode.host == host, ComputeNode.node == node)
        .values(failed_builds=ComputeNode.failed_builds + 1)
    )


def build_succeeded(uow: UnitOfWork, host: str, node: str) -> None:
    """Reset the count of failed builds, which is mostly zero."""
    query = sa.select(ComputeNode).where(
        ComputeNode.host == host, ComputeNode.node == node, ComputeNode.failed_builds > 0
    )
    for row in uow.session.scalars(query):
        row.failed_builds = 0
        compute_nodes.touch(uow, row)

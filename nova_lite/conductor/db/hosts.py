"""Compute hosts: their reports, whether they may serve, and what schedulers know of them.

A host's reports write its service and its nodes; a heartbeat that brings nothing new only renews the lease.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite import exception
from nova_lite.conductor.db import actions, compute_nodes, host_aggregates, services
from nova_lite.conductor.db.compute_nodes import Placed
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Aggregate, AggregateHost, Allocation, ComputeNode, Instance, Service
from nova_lite.conductor.db.services import COMPUTE
from nova_lite.objects import HostReport, HostState

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
    if record(uow, conf, report):
        actions.make_due(uow, report.host)


def record(uow: UnitOfWork, conf: cfg.ConfigOpts, host_report: HostReport) -> bool:
    """Write a host's report to its service and nodes. True if its daemon (re)started since the last one, or counted as
    down: what is open there was not sent meanwhile."""
    aggregates = host_aggregates.of_hosts(uow, [host_report.host]).get(host_report.host, [])
    zone = host_aggregates.zone(aggregates) or conf.compute.default_availability_zone
    serving = host_report.serving
    service, came_up = services.report_alive(
        uow, host_report.host, COMPUTE, "compute", host_report.version, zone, serving, host_report.hypervisor_up
    )
    restarted = service.boot_id != host_report.boot_id
    service.boot_id = host_report.boot_id
    uow.session.flush()
    compute_nodes.report(uow, service, host_report, aggregates)
    return restarted or came_up


def admit(uow: UnitOfWork, host: str, identity: str = "") -> int:
    """The epoch that a host may begin to serve in; `HostForcedDown` while it may not.

    Raises `HostIsAnother` for a machine that is not the one of this name: two of one name would each run its servers.
    By forcing the host down an operator says that the first one runs nothing any more; the next to register is it then.
    """
    service = services.locked(uow, host, COMPUTE)
    if service is None:
        return 0
    if service.forced_down:
        raise exception.HostForcedDown(host=host)
    known = service.identity if service.epoch == service.identity_epoch else None
    if identity and known and identity != known:
        raise exception.HostIsAnother(host=host)
    return service.epoch


def check_epoch(uow: UnitOfWork, host: str, epoch: int, identity: str = "") -> None:
    """Raises `HostNotAdmitted` unless the host registered since it was last forced down, or forgotten."""
    if services.locked(uow, host, COMPUTE) is None or admit(uow, host, identity) != epoch:
        raise exception.HostEpochOver(host=host)


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


def states(
    uow: UnitOfWork, node_ids: Sequence[int] | None = None, after: int = 0, limit: int | None = None
) -> list[HostState]:
    """Hosts as the scheduler sees them: those of these ids, also what this transaction deleted; or all, or the first
    ``limit`` with an id above ``after``. One query: a node's row comes once for each aggregate of its host."""
    wanted = ComputeNode.id > after if node_ids is None else ComputeNode.id.in_(node_ids)
    page = sa.select(ComputeNode.id).where(wanted).order_by(ComputeNode.id).limit(limit).subquery()
    query = (
        sa.select(ComputeNode, _PLACED, *host_aggregates.COLUMNS)
        .join(page, page.c.id == ComputeNode.id)
        .outerjoin(AggregateHost, AggregateHost.host == ComputeNode.host)
        .outerjoin(Aggregate, Aggregate.id == AggregateHost.aggregate_id)
        .order_by(ComputeNode.id, Aggregate.id)
        .execution_options(populate_existing=True)
    )
    found: list[HostState] = []
    for node, rows in itertools.groupby(uow.session.execute(query), key=lambda row: row[0]):
        (_, placed, *first), *others = rows
        aggregates = host_aggregates.made_of((first, *(row[2:] for row in others)))
        found.append(compute_nodes.to_state(node, _placed(placed), aggregates))
    return found + [uow.deleted_nodes[node_id] for node_id in node_ids or () if node_id in uow.deleted_nodes]


def page_of_states(uow: UnitOfWork, after: int = 0, limit: int | None = None) -> list[HostState]:
    return states(uow, after=after, limit=limit)


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

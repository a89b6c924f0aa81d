"""Services, compute nodes and what schedulers know of them.

A host's reports write its service and its nodes. Everything the scheduler cares about raises the node's generation and
puts it into ``uow.touched_nodes``; a heartbeat that brings nothing new only renews the lease.

Locks are taken service first, node second.
"""

from __future__ import annotations

import datetime
import math
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy import exc

from nova_lite import exception
from nova_lite.conductor.db import host_facts, paging
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Allocation, ComputeNode, Instance, Service
from nova_lite.conductor.db.statements import insert_if_missing
from nova_lite.objects import AvailabilityZone, HostAggregate, HostReport, HostState, Inventory
from nova_lite.objects import ComputeNode as ComputeNodeObject
from nova_lite.objects import Service as ServiceObject

Row = TypeVar("Row", Service, ComputeNode)

#: Nova's names, which clients show and match.
COMPUTE = "nova-compute"
INTERNAL_ZONE = "internal"

#: Parts of an inventory that decide where instances go.
_SCHEDULED_BY = (
    *("hypervisor_type", "hypervisor_version", "cpu_arch", "supported_hv_types", "supported_vm_modes"),
    "capabilities",
)

_SERVICE_FIELDS = ServiceObject.__struct_fields__


# --- reports


def report(uow: UnitOfWork, conf: cfg.ConfigOpts, host_report: HostReport) -> bool:
    """A compute host is alive and has this. True when its daemon has (re)started since the last report."""
    aggregates = host_facts.aggregates_of(uow, [host_report.host]).get(host_report.host, [])
    zone = host_facts.zone(aggregates) or conf.compute.default_availability_zone
    serving = host_report.serving
    service = _report_alive(uow, host_report.host, COMPUTE, "compute", host_report.version, zone, serving)
    restarted = service.boot_id != host_report.boot_id
    service.boot_id = host_report.boot_id
    uow.session.flush()
    known = {node.node: node for node in uow.session.scalars(sa.select(ComputeNode).filter_by(host=host_report.host))}
    for inventory in host_report.inventories:
        node = known.pop(inventory.node, None)
        if node is None:
            _add_node(uow, service, host_report, inventory, aggregates)
        else:
            _update_node(uow, node, host_report, inventory, aggregates)
    for node in known.values():
        _close_node(uow, node)
    return restarted


def admit(uow: UnitOfWork, host: str) -> int:
    """The epoch that a host may begin to serve in; `HostForcedDown` while it may not."""
    service = _locked_service(uow, host, COMPUTE)
    if service is None:
        return 0
    if service.forced_down:
        raise exception.HostForcedDown(host=host)
    return service.epoch


def check_epoch(uow: UnitOfWork, host: str, epoch: int) -> None:
    """Raises `HostNotAdmitted` unless the host registered since it was last forced down, or forgotten."""
    if _locked_service(uow, host, COMPUTE) is None or admit(uow, host) != epoch:
        raise exception.HostEpochOver(host=host)


def report_service(uow: UnitOfWork, host: str, binary: str, topic: str, version: str) -> None:
    """A daemon that runs no instances is alive."""
    _report_alive(uow, host, nova_name(binary), topic, version, INTERNAL_ZONE)


def nova_name(binary: str) -> str:
    """``nova-lite-scheduler`` as clients know it: ``nova-scheduler``."""
    return binary.replace("nova-lite-", "nova-", 1)


def seconds_since_heard(uow: UnitOfWork) -> float:
    """Since the newest heartbeat of any daemon, our own among them; 0 when there never was one."""
    newest = uow.session.execute(sa.select(sa.func.max(Service.last_seen_up))).scalar_one()
    return 0.0 if newest is None else (uow.now - newest).total_seconds()


def expire_services(uow: UnitOfWork, conf: cfg.ConfigOpts) -> list[str]:
    """Services whose lease lapsed go down. Returns the names of the compute hosts among them."""
    latest = uow.now - datetime.timedelta(seconds=conf.service_down_time)
    silent = uow.session.scalars(
        sa.select(Service).where(Service.up.is_(True), Service.last_seen_up < latest).with_for_update()
    ).all()
    for service in silent:
        service.up = False
        _touch_nodes(uow, service)
    return sorted(service.host for service in silent if service.binary == COMPUTE)


def _report_alive(
    uow: UnitOfWork, host: str, binary: str, topic: str, version: str, zone: str, serving: bool = True
) -> Service:
    """Its service row, locked and brought up to date. One that does not serve (yet) stays what it was, up or down."""
    service = _locked_service(uow, host, binary)
    if service is None:
        insert_if_missing(
            uow,
            Service,
            {
                "uuid": str(uuid.uuid4()),
                "host": host,
                "binary": binary,
                "topic": topic,
                "version": version,
                "up": serving,
                "availability_zone": zone,
                "last_seen_up": uow.now,
                "created_at": uow.now,
            },
        )
        service = _locked_service(uow, host, binary)
        assert service is not None
    service.last_seen_up = uow.now
    if (service.topic, service.version, service.availability_zone) != (topic, version, zone):
        service.topic, service.version, service.availability_zone = topic, version, zone
        _touch_nodes(uow, service)
    if serving and not service.up and not service.forced_down:
        service.up = True
        _touch_nodes(uow, service)
    return service


def _locked_service(uow: UnitOfWork, host: str, binary: str) -> Service | None:
    query = sa.select(Service).where(Service.host == host, Service.binary == binary)
    return uow.session.scalars(query.with_for_update().execution_options(populate_existing=True)).first()


def _add_node(
    uow: UnitOfWork,
    service: Service,
    host_report: HostReport,
    inventory: Inventory,
    aggregates: Sequence[HostAggregate],
) -> None:
    reported = _as_reported(host_report, inventory)
    node = ComputeNode(
        uuid=str(uuid.uuid4()),
        service_id=service.id,
        host=host_report.host,
        node=inventory.node,
        created_at=uow.now,
        **_capacity(reported, aggregates),
        **reported,
    )
    uow.session.add(node)
    uow.session.flush()
    uow.touched_nodes.add(node.id)


def _update_node(
    uow: UnitOfWork,
    node: ComputeNode,
    host_report: HostReport,
    inventory: Inventory,
    aggregates: Sequence[HostAggregate],
) -> None:
    reported = _as_reported(host_report, inventory)
    capacity = _capacity(reported, aggregates)
    before, now = node.inventory, reported["inventory"]
    matters = any(getattr(node, name) != value for name, value in capacity.items()) or any(
        before.get(name) != now.get(name) for name in _SCHEDULED_BY
    )
    for name, value in (capacity | reported).items():
        if getattr(node, name) != value:
            setattr(node, name, value)
            node.updated_at = uow.now
    if matters:
        _touch_node(uow, node)


def _close_node(uow: UnitOfWork, node: ComputeNode) -> None:
    """Its host does not report it any more: nothing new goes there; what is there keeps its allocations."""
    if node.vcpus or node.memory_mb or node.disk_gb:
        node.vcpus = node.memory_mb = node.disk_gb = 0
        _touch_node(uow, node)


def apply_aggregates(uow: UnitOfWork, conf: cfg.ConfigOpts, host: str) -> None:
    """Bring a host's zone and capacities in line with its aggregates, which have changed."""
    service = _locked_service(uow, host, COMPUTE)
    if service is None:
        return
    aggregates = host_facts.aggregates_of(uow, [host]).get(host, [])
    service.availability_zone = host_facts.zone(aggregates) or conf.compute.default_availability_zone
    for node in uow.session.scalars(sa.select(ComputeNode).where(ComputeNode.service_id == service.id)):
        if node.vcpus or node.memory_mb or node.disk_gb:
            names = ("inventory", "reserved", *(ratio for _, _, ratio, _ in _RESOURCES))
            reported = {name: getattr(node, name) for name in names}
            for name, value in _capacity(reported, aggregates).items():
                setattr(node, name, value)
    _touch_nodes(uow, service)


#: Resource, its name in reservations, its ratio (also a key of aggregates), and an aggregate's key for reservations.
_RESOURCES = (
    ("vcpus", "vcpus", "cpu_allocation_ratio", "reserved_host_cpus"),
    ("memory_mb", "memory_mb", "ram_allocation_ratio", "reserved_host_memory_mb"),
    ("disk_gb", "disk_gb", "disk_allocation_ratio", "reserved_host_disk_gb"),
)


def _capacity(reported: dict[str, Any], aggregates: Sequence[HostAggregate]) -> dict[str, int]:
    """What may be given out of each resource: (total - reserved) * ratio, rounded down. An aggregate's own ratio or
    reservation takes the place of the host's; the least of several."""
    capacity = {}
    for resource, reservation, ratio, reserved_key in _RESOURCES:
        reserved = host_facts.least(aggregates, reserved_key, reported["reserved"].get(reservation, 0))
        factor = host_facts.least(aggregates, ratio, reported[ratio])
        capacity[resource] = max(0, math.floor((reported["inventory"][resource] - reserved) * factor))
    return capacity


def _as_reported(host_report: HostReport, inventory: Inventory) -> dict[str, Any]:
    return {
        "inventory": msgspec.to_builtins(inventory),
        "reserved": {
            "vcpus": host_report.reserved_cpus,
            "memory_mb": host_report.reserved_memory_mb,
            "disk_gb": host_report.reserved_disk_gb,
        },
        "cpu_allocation_ratio": host_report.cpu_allocation_ratio,
        "ram_allocation_ratio": host_report.ram_allocation_ratio,
        "disk_allocation_ratio": host_report.disk_allocation_ratio,
    }


def _touch_nodes(uow: UnitOfWork, service: Service) -> None:
    uow.session.flush()
    for node in uow.session.scalars(sa.select(ComputeNode).where(ComputeNode.service_id == service.id)):
        _touch_node(uow, node)


def _touch_node(uow: UnitOfWork, node: ComputeNode) -> None:
    """The database counts, not we: claims raise the generation at the same time."""
    uow.change(sa.update(ComputeNode).where(ComputeNode.id == node.id).values(generation=ComputeNode.generation + 1))
    uow.touched_nodes.add(node.id)


# --- for the scheduler and for decisions


class _Placed(NamedTuple):
    """An instance on a node."""

    uuid: str
    flavorid: str | None
    working: bool


def states(
    uow: UnitOfWork, node_ids: Sequence[int] | None = None, after: int = 0, limit: int | None = None
) -> list[HostState]:
    """Hosts as the scheduler sees them: those of these ids, also what this transaction deleted; or all, or the first
    ``limit`` with an id above ``after``."""
    query = sa.select(ComputeNode).order_by(ComputeNode.id).execution_options(populate_existing=True)
    query = query.where(ComputeNode.id > after) if node_ids is None else query.where(ComputeNode.id.in_(node_ids))
    rows = uow.session.scalars(query.limit(limit)).all()
    some = node_ids is not None or limit is not None
    placed = _placed(uow, [row.id for row in rows] if some else None)
    aggregates = host_facts.aggregates_of(uow, {row.host for row in rows} if some else None)
    gone = [uow.deleted_nodes[node_id] for node_id in node_ids or () if node_id in uow.deleted_nodes]
    return [_state(row, placed.get(row.id, []), aggregates.get(row.host, [])) for row in rows] + gone


def _placed(uow: UnitOfWork, node_ids: Sequence[int] | None) -> dict[int, list[_Placed]]:
    """Node id to the instances that hold something of it."""
    query = sa.select(
        Allocation.compute_node_id, Allocation.instance_uuid, Instance.flavorid, Instance.task_state
    ).outerjoin(Instance, Instance.uuid == Allocation.instance_uuid)
    if node_ids is not None:
        query = query.where(Allocation.compute_node_id.in_(node_ids))
    found: dict[int, list[_Placed]] = {}
    for node_id, instance_uuid, flavorid, task_state in uow.session.execute(query):
        found.setdefault(node_id, []).append(_Placed(instance_uuid, flavorid, task_state is not None))
    return found


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
        _touch_node(uow, row)


def is_up(uow: UnitOfWork, host: str) -> bool:
    """Is the compute daemon of ``host`` alive, and not forced down?"""
    query = sa.select(Service.id).where(
        Service.host == host, Service.binary == COMPUTE, Service.up.is_(True), Service.forced_down.is_(False)
    )
    return uow.session.scalars(query).first() is not None


def exists(uow: UnitOfWork, host: str) -> bool:
    query = sa.select(Service.id).where(Service.host == host, Service.binary == COMPUTE)
    return uow.session.scalars(query).first() is not None


def zone_exists(uow: UnitOfWork, zone: str) -> bool:
    """Does any service that is enabled make it a zone for instances?"""
    query = sa.select(Service.id).where(Service.availability_zone == zone, Service.disabled.is_(False))
    return zone != INTERNAL_ZONE and uow.session.scalars(query).first() is not None


def node_exists(uow: UnitOfWork, host: str | None, node: str | None) -> bool:
    """Is there such a node? None: any."""
    asked = {name: value for name, value in (("host", host), ("node", node)) if value is not None}
    return uow.session.scalars(sa.select(ComputeNode.id).filter_by(**asked)).first() is not None


def is_forced_down(uow: UnitOfWork, host: str) -> bool:
    """And stays so until this transaction has ended."""
    service = _locked_service(uow, host, COMPUTE)
    return service is not None and service.forced_down


def _state(row: ComputeNode, placed: Sequence[_Placed] = (), aggregates: Sequence[HostAggregate] = ()) -> HostState:
    inventory, service = row.inventory, row.service
    return HostState(
        id=row.id,
        host=row.host,
        node=row.node,
        generation=row.generation,
        up=service.up and not service.forced_down,
        disabled=service.disabled,
        vcpus=row.vcpus,
        memory_mb=row.memory_mb,
        disk_gb=row.disk_gb,
        vcpus_used=row.vcpus_used,
        memory_mb_used=row.memory_mb_used,
        disk_gb_used=row.disk_gb_used,
        availability_zone=service.availability_zone,
        instances=[each.uuid for each in placed],
        flavors=dict(Counter(each.flavorid for each in placed if each.flavorid is not None)),
        io_ops=sum(each.working for each in placed),
        failed_builds=row.failed_builds,
        host_ip=inventory.get("host_ip"),
        aggregates=list(aggregates),
        **{name: inventory[name] for name in _SCHEDULED_BY if name in inventory},
    )


# --- services, for the API


def service_list(uow: UnitOfWork, host: str | None = None, binary: str | None = None) -> list[ServiceObject]:
    query = sa.select(Service).order_by(Service.id)
    if host is not None:
        query = query.where(Service.host == host)
    if binary is not None:
        query = query.where(Service.binary == binary)
    return [to_service(row) for row in uow.session.scalars(query)]


def service_update(uow: UnitOfWork, service_id: str, changes: dict[str, Any]) -> ServiceObject:
    """Change ``disabled``, ``disabled_reason``, ``forced_down``.

    Enabling clears the reason. Forcing down raises the epoch: what the host did before does not count any more. A
    compute host that is no longer forced down is up again once it has registered.
    """
    unknown = sorted(set(changes) - {"disabled", "disabled_reason", "forced_down"})
    if unknown:
        raise exception.InvalidInput(reason=f"{', '.join(unknown)} of a service cannot be changed")
    service = _service(uow, service_id)
    before = (service.up, service.disabled, service.forced_down)
    if "disabled" in changes:
        service.disabled = bool(changes["disabled"])
        service.disabled_reason = None
    if changes.get("disabled_reason") is not None:
        service.disabled_reason = changes["disabled_reason"]
    if "forced_down" in changes:
        if changes["forced_down"] and not service.forced_down:
            service.epoch += 1
            service.up = False
        service.forced_down = bool(changes["forced_down"])
    service.updated_at = uow.now
    if (service.up, service.disabled, service.forced_down) != before:
        _touch_nodes(uow, service)
    return to_service(service)


def service_delete(uow: UnitOfWork, service_id: str) -> None:
    """Forget a daemon, and a host's nodes with it. `ServiceInUse` while the host has instances."""
    service = _service(uow, service_id)
    if service.binary == COMPUTE:
        _delete_nodes(uow, service)
    uow.session.delete(service)
    uow.session.flush()


def _delete_nodes(uow: UnitOfWork, service: Service) -> None:
    in_use = exception.ServiceInUse(service_id=service.uuid, reason=f"host {service.host} still has instances.")
    placed = sa.select(Instance.id).where(Instance.host == service.host, Instance.deleted.is_(False))
    if uow.session.scalars(placed.limit(1)).first() is not None:
        raise in_use
    nodes = uow.session.scalars(sa.select(ComputeNode).where(ComputeNode.service_id == service.id)).all()
    for node in nodes:
        state = _state(node)
        state.deleted, state.up, state.generation = True, False, state.generation + 1
        uow.deleted_nodes[node.id] = state
        uow.touched_nodes.add(node.id)
    try:
        with uow.session.begin_nested():
            for node in nodes:
                uow.session.delete(node)
    except exc.IntegrityError as error:
        raise in_use from error


def to_service(row: Service) -> ServiceObject:
    return ServiceObject(**{name: getattr(row, name) for name in _SERVICE_FIELDS})


def _service(uow: UnitOfWork, service_id: str) -> Service:
    row = _by_id(uow, Service, service_id, lock=True)
    if row is None:
        raise exception.ServiceNotFound(service_id=service_id)
    return row


def availability_zones(uow: UnitOfWork) -> list[AvailabilityZone]:
    """By name. A zone is available when any service in it is enabled."""
    zones: dict[str, AvailabilityZone] = {}
    for service in service_list(uow):
        name = service.availability_zone
        zone = zones.setdefault(name, AvailabilityZone(name=name, available=False))
        zone.available = zone.available or not service.disabled
        zone.hosts.setdefault(service.host, []).append(service)
    return [zones[name] for name in sorted(zones)]


# --- compute nodes, for the API


def node_list(
    uow: UnitOfWork, hostname_pattern: str | None = None, limit: int | None = None, marker: str | None = None
) -> list[ComputeNodeObject]:
    """``hostname_pattern``: substring of the node's name; ``marker``: uuid or numeric id."""
    query = sa.select(ComputeNode)
    if hostname_pattern is not None:
        query = query.where(ComputeNode.node.contains(hostname_pattern, autoescape=True))
    start = None if marker is None else _by_id(uow, ComputeNode, marker)
    if marker is not None and start is None:
        raise exception.MarkerNotFound(marker=marker)
    order = paging.Order({"id": ComputeNode.id}, ["id"], ["asc"], tie_breaker=ComputeNode.id)
    rows = uow.session.scalars(order.page(query, start, limit)).all()
    return _to_nodes(uow, rows)


def node_get(uow: UnitOfWork, node_id: str) -> ComputeNodeObject:
    """``node_id``: uuid or numeric id."""
    row = _by_id(uow, ComputeNode, node_id)
    if row is None:
        raise exception.ComputeNodeNotFound(node_id=node_id)
    return _to_nodes(uow, [row])[0]


def _to_nodes(uow: UnitOfWork, rows: Iterable[ComputeNode]) -> list[ComputeNodeObject]:
    rows = list(rows)
    running = _count(uow, rows, sa.true())
    working = _count(uow, rows, Instance.task_state.is_not(None))
    return [
        ComputeNodeObject(
            id=row.id,
            uuid=row.uuid,
            host=row.host,
            node=row.node,
            service=to_service(row.service),
            inventory=msgspec.convert(row.inventory, Inventory),
            vcpus_used=row.vcpus_used,
            memory_mb_used=row.memory_mb_used,
            disk_gb_used=row.disk_gb_used,
            running_vms=running.get((row.host, row.node), 0),
            current_workload=working.get((row.host, row.node), 0),
            generation=row.generation,
            cpu_allocation_ratio=row.cpu_allocation_ratio,
            ram_allocation_ratio=row.ram_allocation_ratio,
            disk_allocation_ratio=row.disk_allocation_ratio,
        )
        for row in rows
    ]


def _count(
    uow: UnitOfWork, rows: list[ComputeNode], condition: sa.ColumnElement[bool]
) -> dict[tuple[str | None, str | None], int]:
    """Instances per (host, node)."""
    query = (
        sa.select(Instance.host, Instance.node, sa.func.count())
        .where(Instance.host.in_([row.host for row in rows]), Instance.deleted.is_(False), condition)
        .group_by(Instance.host, Instance.node)
    )
    return {(host, node): count for host, node, count in uow.session.execute(query)}


def _by_id(uow: UnitOfWork, model: type[Row], reference: str, lock: bool = False) -> Row | None:
    """A row by its uuid, or by its number."""
    query = sa.select(model)
    if reference.isascii() and reference.isdigit() and len(reference) < 19:
        query = query.where(model.id == int(reference))
    else:
        query = query.where(model.uuid == reference)
    if lock:
        query = query.with_for_update()
    return uow.session.scalars(query).first()

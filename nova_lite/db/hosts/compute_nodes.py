"""Compute nodes: inventories that hosts report, and the views of the scheduler and the API.

A change that matters to the scheduler raises the node's generation and publishes `HostChanged`.
"""

from __future__ import annotations

import datetime
import math
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy import exc

from nova_lite.base import exceptions, ip, machine_networks
from nova_lite.db.core import paging
from nova_lite.db.core.engine import UnitOfWork, utcnow
from nova_lite.db.core.events import HostChanged, HostRemoved
from nova_lite.db.core.models import AggregateHost, Allocation, ComputeNode, Instance, Service
from nova_lite.db.core.rows import to_object
from nova_lite.db.core.statements import UpdateEach, by_reference
from nova_lite.db.hosts import host_aggregates, pci_claims
from nova_lite.hardware import traits
from nova_lite.objects import ComputeNode as ComputeNodeObject
from nova_lite.objects import HostAggregate, HostReport, HostState, Inventory, NUMACell, NUMAUsage, PCIDevice
from nova_lite.objects import Service as ServiceObject

#: Parts of an inventory that schedulers receive unchanged, and parts that decide where instances go.
_TOLD = (
    "hypervisor_type",
    "hypervisor_version",
    "cpu_arch",
    "supported_hv_types",
    "supported_vm_modes",
    "capabilities",
)
_SCHEDULED_BY = (*_TOLD, "numa", "pci", "host_ip")

#: Parts of an inventory that only users see. The uptime changes with each heartbeat and is written now and then.
_ALWAYS = {"uptime"}
_QUIET = _ALWAYS | {"running_vms", "disk_available_least", "tunnel_ip", "cpu_info"}
_SHOWN_AGE = datetime.timedelta(minutes=1)

#: Columns of a node that hold a report.
REPORTED = (
    ComputeNode.node, ComputeNode.inventory, ComputeNode.reserved, ComputeNode.updated_at, ComputeNode.vcpus,
    ComputeNode.memory_mb, ComputeNode.disk_gb, ComputeNode.cpu_allocation_ratio, ComputeNode.ram_allocation_ratio,
    ComputeNode.disk_allocation_ratio,
)  # fmt: skip

#: Share of the disk by which free space has to change to be published at once. A smaller change waits for the next
#: report.
_DISK_STEP = 0.05


def report(uow: UnitOfWork, service: Service, host_report: HostReport, aggregates: Sequence[HostAggregate]) -> None:
    """Replace the nodes of a host by the reported ones."""
    known = {node.node: node for node in uow.session.scalars(_OF_HOST, {"host": host_report.host})}
    for inventory in host_report.inventories:
        reported = _as_reported(host_report, inventory)
        values = _capacity(reported, aggregates) | reported
        node = known.pop(inventory.node, None)
        if node is None:
            _add(uow, service, inventory.node, values)
        else:
            _update(uow, node, values)
    for node in known.values():
        if is_reported(node):
            # A node that is no longer reported gets nothing new. Instances there keep their allocations.
            node.vcpus = node.memory_mb = node.disk_gb = 0
            touch(uow, node)


_OF_HOST = sa.select(ComputeNode).where(ComputeNode.host == sa.bindparam("host"))


def _add(uow: UnitOfWork, service: Service, name: str, values: dict[str, Any]) -> None:
    new = {"uuid": str(uuid.uuid4()), "service_id": service.id, "host": service.host, "created_at": uow.now}
    node = ComputeNode(node=name, **new, **values)
    uow.session.add(node)
    uow.session.flush()
    uow.publish(HostChanged(node.id))


def _update(uow: UnitOfWork, node: ComputeNode, values: dict[str, Any]) -> None:
    before, now = node.inventory, values["inventory"]
    matters = any(getattr(node, resource) != values[resource] for resource, *_ in _RESOURCES) or any(
        before.get(name) != now.get(name) for name in _SCHEDULED_BY
    )
    matters = matters or _disk_changed(before, now)
    if before.get("pci") != now.get("pci"):
        pci_claims.compare(uow, node.id, [device.address for device in pci_devices(now)])
    for name, value in values.items():
        if getattr(node, name) != value:
            setattr(node, name, value)
            node.updated_at = uow.now
    if matters:
        touch(uow, node)


def _disk_changed(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Check whether the free disk space changed enough to matter. Every write of a guest changes it a little."""
    was, is_now = before.get("disk_available_least"), now.get("disk_available_least")
    if was is None or is_now is None:
        return False
    return bool(abs(is_now - was) > now["disk_gb"] * _DISK_STEP)


def quiet_changes(report: HostReport, rows: Sequence[Any]) -> dict[int, dict[str, Any]] | None:
    """Return, by node id, the inventories to write that decide nothing; None if `report` would do more than that.

    ``rows``: for each node of the host its `REPORTED` columns and ``read_at``, the database's time.
    """
    known = {row.node: row for row in rows}
    found: dict[int, dict[str, Any]] = {}
    for inventory in report.inventories:
        row = known.pop(inventory.node, None)
        reported = _as_reported(report, inventory)
        now = reported.pop("inventory")
        if row is None or not is_reported(row) or any(getattr(row, name) != value for name, value in reported.items()):
            return None
        changed = {name for name in row.inventory.keys() | now.keys() if row.inventory.get(name) != now.get(name)}
        if not changed <= _QUIET or _disk_changed(row.inventory, now):
            return None
        if changed and (changed != _ALWAYS or row.updated_at is None or row.read_at - row.updated_at >= _SHOWN_AGE):
            found[row.id] = now
    return None if any(is_reported(row) for row in known.values()) else found


def is_reported(row: Any) -> bool:
    """Check whether anything of a node may be claimed. A node that is no longer reported offers nothing."""
    return bool(row.vcpus or row.memory_mb or row.disk_gb)


def write_inventories(uow: UnitOfWork, inventories: dict[int, dict[str, Any]]) -> None:
    """Write the inventories of locked nodes, by id, in one statement."""
    if inventories:
        _INVENTORIES.run(uow, inventories)


_INVENTORIES = UpdateEach(ComputeNode.id, ComputeNode.inventory, updated_at=utcnow())


def apply_aggregates(uow: UnitOfWork, service: Service, aggregates: Sequence[HostAggregate]) -> None:
    """Recompute the capacities of a host's nodes after a change of its aggregates."""
    for node in uow.session.scalars(sa.select(ComputeNode).where(ComputeNode.service_id == service.id)):
        if is_reported(node):
            for name, value in _capacity(_reported(node), aggregates).items():
                setattr(node, name, value)


#: Resource, its name in reservations, its ratio (also a key of aggregates), and an aggregate's key for reservations.
_RESOURCES = (
    ("vcpus", "vcpus", "cpu_allocation_ratio", "reserved_host_cpus"),
    ("memory_mb", "memory_mb", "ram_allocation_ratio", "reserved_host_memory_mb"),
    ("disk_gb", "disk_gb", "disk_allocation_ratio", "reserved_host_disk_gb"),
)


def _capacity(reported: dict[str, Any], aggregates: Sequence[HostAggregate]) -> dict[str, Any]:
    """Return the capacity of each resource: (total - reserved) * ratio, rounded down.

    An aggregate's ratio or reservation replaces the host's. Of several values the smallest counts.
    """
    return {
        resource: max(0, math.floor((reported["inventory"][resource] - limit.reserved) * limit.ratio))
        for resource, limit in _limits(reported, aggregates).items()
    }


class Limit(NamedTuple):
    """Reservation and allocation ratio of one resource of a node."""

    reserved: float
    ratio: float


def limits(row: ComputeNode, aggregates: Sequence[HostAggregate]) -> dict[str, Limit]:
    """Return the reservation and the ratio of each resource of a node with these aggregates."""
    return _limits(_reported(row), aggregates)


def _limits(reported: dict[str, Any], aggregates: Sequence[HostAggregate]) -> dict[str, Limit]:
    return {
        resource: Limit(
            host_aggregates.least(aggregates, reserved_key, reported["reserved"].get(reservation, 0)),
            host_aggregates.least(aggregates, ratio, reported[ratio]),
        )
        for resource, reservation, ratio, reserved_key in _RESOURCES
    }


def _reported(row: ComputeNode) -> dict[str, Any]:
    names = ("inventory", "reserved", *(ratio for _, _, ratio, _ in _RESOURCES))
    return {name: getattr(row, name) for name in names}


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


def touch_all(uow: UnitOfWork, service: Service) -> None:
    """Touch every node of the host."""
    uow.session.flush()
    for node in uow.session.scalars(_OF_SERVICE, {"service_id": service.id}):
        touch(uow, node, at_once=True)


_OF_SERVICE = sa.select(ComputeNode).where(ComputeNode.service_id == sa.bindparam("service_id"))


def touch(uow: UnitOfWork, node: ComputeNode, at_once: bool = False) -> None:
    """Raise the node's generation in SQL, since claims raise it concurrently."""
    uow.change(_TOUCH, {"node_id": node.id})
    uow.publish(HostChanged(node.id, at_once))


_TOUCH = (
    sa.update(ComputeNode)
    .where(ComputeNode.id == sa.bindparam("node_id"))
    .values(generation=ComputeNode.generation + 1)
)


class Placed(NamedTuple):
    """An instance on a node."""

    uuid: str
    flavorid: str | None
    working: bool


def to_state(row: ComputeNode, placed: Sequence[Placed] = (), aggregates: Sequence[HostAggregate] = ()) -> HostState:
    inventory, service = row.inventory, row.service
    return to_object(
        HostState,
        row,
        up=service.up and not service.forced_down,
        disabled=service.disabled,
        availability_zone=service.availability_zone,
        instances=[item.uuid for item in placed],
        flavors=dict(Counter(item.flavorid for item in placed if item.flavorid is not None)),
        io_ops=sum(item.working for item in placed),
        host_ip=inventory.get("host_ip"),
        aggregates=list(aggregates),
        numa=numa_cells(inventory),
        numa_used=numa_used(row.numa_used),
        pci=pci_devices(inventory),
        pci_used=row.pci_used or [],
        **_scheduled_by(row),
    )


def _scheduled_by(row: ComputeNode) -> dict[str, Any]:
    """Return the values that the scheduler uses."""
    inventory = row.inventory
    found = {name: inventory[name] for name in _TOLD if name in inventory}
    found["disk_available_least"] = free_disk(row.disk_gb, inventory["disk_gb"], inventory.get("disk_available_least"))
    return found


#: Columns with the arguments of `free_disk`.
FREE_DISK = (
    ComputeNode.disk_gb,
    ComputeNode.inventory["disk_gb"].as_integer().label("total"),
    ComputeNode.inventory["disk_available_least"].as_integer().label("free"),
)


def free_disk(capacity: int, total: int, free: int | None) -> int | None:
    """Return the free disk space by which a scheduler decides, in GB. None where more disk is claimed than exists."""
    return free if capacity <= total else None


def numa_cells(inventory: dict[str, Any]) -> list[NUMACell]:
    """Return the NUMA cells of a reported inventory."""
    return msgspec.convert(inventory.get("numa", []), list[NUMACell])


def pci_devices(inventory: dict[str, Any]) -> list[PCIDevice]:
    """Return the PCI devices of a reported inventory."""
    return msgspec.convert(inventory.get("pci", []), list[PCIDevice])


def traits_of_host(uow: UnitOfWork, instance: Instance) -> list[str]:
    """Return the traits of the instance's host."""
    query = sa.select(ComputeNode.inventory).where(ComputeNode.host == instance.host, ComputeNode.node == instance.node)
    return list((uow.session.scalar(query) or {}).get("capabilities", {}).get(traits.CAPABILITY, ()))


def numa_used(column: dict[str, Any] | None) -> NUMAUsage:
    return msgspec.convert(column or {}, NUMAUsage)


def delete_of(uow: UnitOfWork, service: Service) -> None:
    """Delete the nodes of a host and remove it from its aggregates. Raises `ServiceInUse` while anything is, or may be,
    on the host.
    """
    placed = sa.select(Instance.id).where(Instance.host == service.host, Instance.deleted == sa.false())
    if uow.session.scalars(placed.limit(1)).first() is not None:
        raise exceptions.ServiceHostsInstances()
    nodes = uow.session.scalars(sa.select(ComputeNode).where(ComputeNode.service_id == service.id)).all()
    for node in nodes:
        state = to_state(node)
        state.deleted, state.up, state.generation = True, False, state.generation + 1
        uow.publish(HostRemoved(state))
    try:
        with uow.session.begin_nested():
            for node in nodes:
                uow.session.delete(node)
        uow.session.execute(sa.delete(AggregateHost).where(AggregateHost.host == service.host))
    except exc.IntegrityError as error:
        raise _why_in_use(uow, service) from error


def _why_in_use(uow: UnitOfWork, service: Service) -> exceptions.ServiceInUse:
    """Return the error that names what keeps the host in use: instances, moves from or to it, or deletes that it has
    not confirmed.
    """
    moving = (
        sa.select(Instance.id)
        .join(Allocation, Allocation.instance_uuid == Instance.uuid)
        .join(ComputeNode, ComputeNode.id == Allocation.compute_node_id)
        .where(ComputeNode.service_id == service.id, Instance.deleted == sa.false())
    )
    if uow.session.scalars(moving.limit(1)).first() is not None:
        return exceptions.ServiceHasMigrations()
    return exceptions.ServiceHasCleanups(host=service.host)


# --- for the API


def addresses(uow: UnitOfWork) -> set[str]:
    """Return the addresses that hosts reported: their own, and those of their tunnels."""
    columns = (ComputeNode.inventory[name].as_string() for name in ("host_ip", "tunnel_ip"))
    return {address for row in uow.session.execute(sa.select(*columns)) for address in row if address}


def networks_in_use(uow: UnitOfWork, version: int) -> list[ip.Network]:
    """Return the ranges that hosts, and the machine of this conductor, use outside of the cloud's bridges.

    A route that has a whole range for projects is no use of it: hosts have better routes to the subnets in it.
    """
    database = sa.make_url(uow.conf.database.connection).host
    texts = set(machine_networks.used(uow.conf, *([database] if database else [])))
    for ranges in uow.session.scalars(sa.select(ComputeNode.inventory["networks"])):
        texts.update(ranges or ())
    found = [ip.parse_network(text) for text in sorted(texts)]
    of_projects = [ip.parse_network(text) for text in uow.conf.network.project_ranges]
    return [
        network
        for network in found
        if network.version == version and not any(ip.is_subnet(item, network) for item in of_projects)
    ]


def addresses_by_host(uow: UnitOfWork) -> dict[str, str]:
    """Return the address that each host reported."""
    query = sa.select(ComputeNode.host, ComputeNode.inventory["host_ip"].as_string()).order_by(ComputeNode.host)
    return {host: address for host, address in uow.session.execute(query) if address}


def list_(
    uow: UnitOfWork, hostname_pattern: str | None = None, limit: int | None = None, marker: str | None = None
) -> list[ComputeNodeObject]:
    """Return nodes in pages. ``hostname_pattern``: substring of the node's name; ``marker``: uuid or numeric id."""
    query = sa.select(ComputeNode)
    if hostname_pattern is not None:
        query = query.where(ComputeNode.node.contains(hostname_pattern, autoescape=True))
    start = paging.start(marker, lambda node_id: by_reference(uow, ComputeNode, node_id))
    order = paging.Order({"id": ComputeNode.id}, ["id"], ["asc"], tie_breaker=ComputeNode.id)
    return _to_nodes(uow, uow.session.scalars(order.page(query, start, limit)).all())


def exists(uow: UnitOfWork, host: str | None, node: str | None) -> bool:
    """Check whether there is such a node. None matches any host or node."""
    asked = {name: value for name, value in (("host", host), ("node", node)) if value is not None}
    return uow.session.scalars(sa.select(ComputeNode.id).filter_by(**asked)).first() is not None


def get(uow: UnitOfWork, node_id: str) -> ComputeNodeObject:
    """Return the node with this uuid or numeric id."""
    row = by_reference(uow, ComputeNode, node_id)
    if row is None:
        raise exceptions.ComputeNodeNotFound(node_id=node_id)
    return _to_nodes(uow, [row])[0]


def _to_nodes(uow: UnitOfWork, rows: Sequence[ComputeNode]) -> list[ComputeNodeObject]:
    query = (
        sa.select(Instance.host, Instance.node, sa.func.count(), sa.func.count(Instance.task_state))
        .where(Instance.host.in_([row.host for row in rows]), Instance.deleted == sa.false())
        .group_by(Instance.host, Instance.node)
    )
    counts = {
        (host, node): {"running_vms": running, "current_workload": working}
        for host, node, running, working in uow.session.execute(query)
    }
    return [
        to_object(
            ComputeNodeObject,
            row,
            service=to_object(ServiceObject, row.service),
            inventory=msgspec.convert(row.inventory, Inventory),
            numa_used=numa_used(row.numa_used),
            **counts.get((row.host, row.node), {}),
        )
        for row in rows
    ]

"""Compute nodes, their devices and allocations as the Placement API shows them. Names of devices are Nova's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec
import sqlalchemy as sa

from nova_lite.base import cpu_sets, exceptions
from nova_lite.base.ids import derived_id
from nova_lite.db.core import paging
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Aggregate, AggregateHost, Allocation, ComputeNode, Instance
from nova_lite.db.hosts import compute_nodes, host_aggregates
from nova_lite.hardware import pci, traits
from nova_lite.objects import (
    HostAggregate,
    InstanceNUMATopology,
    ListQuery,
    PCIDevice,
    ResourceAllocation,
    ResourceInventory,
    ResourceProvider,
)
from nova_lite.objects.placement import DISK_GB, MEMORY_MB, PCPU, VCPU

#: Resource classes of the resources that every node counts.
_COUNTED = {"vcpus": VCPU, "memory_mb": MEMORY_MB, "disk_gb": DISK_GB}

_PROVIDER_FILTERS = {"uuid": ComputeNode.uuid, "name": ComputeNode.node}
_ALLOCATION_FILTERS = {
    "provider": ComputeNode.uuid,
    "consumer": Allocation.instance_uuid,
    "project_id": Instance.project_id,
    "user_id": Instance.user_id,
}


def providers(uow: UnitOfWork, query: ListQuery) -> list[ResourceProvider]:
    """Return nodes in the order of their uuids. ``query``: filters by ``uuid`` and ``name``."""
    select = sa.select(ComputeNode).where(*_conditions(_PROVIDER_FILTERS, query))
    rows = uow.session.scalars(paging.by_id(select, ComputeNode.uuid, [sa.true()], query)).all()
    hosts = {row.host for row in rows}
    aggregates, uuids = host_aggregates.of_hosts(uow, hosts), _uuids_of_aggregates(uow, hosts)
    return [_provider(row, aggregates.get(row.host, []), uuids.get(row.host, [])) for row in rows]


def allocations(uow: UnitOfWork, query: ListQuery) -> list[ResourceAllocation]:
    """Return allocations in the order of their ids. ``query``: filters by ``provider``, ``consumer``, ``project_id``,
    ``user_id``.
    """
    columns = (
        Allocation.id,
        Allocation.vcpus,
        Allocation.memory_mb,
        Allocation.disk_gb,
        Allocation.numa,
        Allocation.pci,
        Allocation.created_at,
        Allocation.instance_uuid,
        Instance.generation,
        Instance.project_id,
        Instance.user_id,
        ComputeNode.uuid,
        ComputeNode.node,
        ComputeNode.generation.label("provider_generation"),
    )
    select = (
        sa.select(*columns)
        .join(ComputeNode, ComputeNode.id == Allocation.compute_node_id)
        .join(Instance, Instance.uuid == Allocation.instance_uuid)
        .where(*_conditions(_ALLOCATION_FILTERS, query))
    )
    marker = None if query.marker is None else SimpleNamespace(id=int(query.marker))
    order = paging.Order({"id": Allocation.id}, ["id"], ["asc"], tie_breaker=Allocation.id)
    return [_allocation(row) for row in uow.session.execute(order.page(select, marker, query.limit))]


def _conditions(columns: dict[str, Any], query: ListQuery) -> list[sa.ColumnElement[bool]]:
    unknown = query.filters.keys() - columns.keys()
    if unknown:
        raise exceptions.InvalidInput(reason=f"Unknown filters: {', '.join(sorted(unknown))}")
    return [columns[name].in_(values) for name, values in query.filters.items()]


def _uuids_of_aggregates(uow: UnitOfWork, hosts: Collection[str]) -> dict[str, list[str]]:
    rows = uow.session.execute(
        sa.select(AggregateHost.host, Aggregate.uuid)
        .join(Aggregate, Aggregate.id == AggregateHost.aggregate_id)
        .where(AggregateHost.host.in_(hosts))
        .order_by(Aggregate.uuid)
    )
    found: dict[str, list[str]] = {}
    for host, uuid in rows:
        found.setdefault(host, []).append(uuid)
    return found


def _provider(row: ComputeNode, aggregates: list[HostAggregate], uuids: list[str]) -> ResourceProvider:
    service = row.service
    shown = set(row.inventory.get("capabilities", {}).get(traits.CAPABILITY, ()))
    if service.disabled:
        shown.add(traits.DISABLED)
    node = ResourceProvider(
        uuid=row.uuid,
        name=row.node,
        generation=row.generation,
        up=service.up and not service.forced_down,
        inventories=_inventories(row, aggregates),
        traits=sorted(shown),
        aggregates=uuids,
        changed_at=row.updated_at or row.created_at,
    )
    node.devices = _devices(row, node)
    return node


def _devices(row: ComputeNode, node: ResourceProvider) -> list[ResourceProvider]:
    """Return the providers of a node's devices. Devices that exclude each other are reserved for a claimed one."""
    if not compute_nodes.is_reported(row):
        return []
    offered, used = compute_nodes.pci_devices(row.inventory), set(row.pci_used or ())
    free = {device.address for device in pci.unused(offered, used)}
    found: dict[str, ResourceProvider] = {}
    for device in offered:
        name, resource_class = _device_name(row.node, device), _device_class(device)
        provider = found.get(name)
        if provider is None:
            provider = found[name] = msgspec.structs.replace(
                node,
                uuid=_device_uuid(node.uuid, name),
                name=name,
                inventories={},
                traits=[] if device.resource_class else [traits.MANAGED_PCI_DEVICE],
                aggregates=[],
                parent=node.uuid,
            )
        inventory = provider.inventories.setdefault(resource_class, ResourceInventory(total=0, used=0, capacity=0))
        is_used = device.address in used
        inventory.total += 1
        inventory.used += is_used
        inventory.capacity += is_used or device.address in free
        inventory.reserved = inventory.total - inventory.capacity
    return list(found.values())


def _device_name(node: str, device: PCIDevice) -> str:
    """Return the name of the provider of a device: its GPU, its physical function, or itself."""
    if device.resource_class:
        return f"{node}_pci_{device.parent}".replace(":", "_").replace(".", "_")
    return f"{node}_{device.parent or device.address}"


def _device_class(device: PCIDevice) -> str:
    return device.resource_class or f"CUSTOM_PCI_{device.vendor_id}_{device.product_id}".upper()


def _device_uuid(node_uuid: str, name: str) -> str:
    return derived_id(UUID(node_uuid), name)


def _inventories(row: ComputeNode, aggregates: list[HostAggregate]) -> dict[str, ResourceInventory]:
    """Return the inventories with anything in them. A node that is no longer reported has none."""
    if not compute_nodes.is_reported(row):
        return {}
    found = {}
    for resource, limit in compute_nodes.limits(row, aggregates).items():
        found[_COUNTED[resource]] = ResourceInventory(
            total=row.inventory[resource],
            used=getattr(row, f"{resource}_used"),
            capacity=getattr(row, resource),
            reserved=min(int(limit.reserved), row.inventory[resource]),
            allocation_ratio=limit.ratio,
        )
    dedicated = sum(len(cpu_sets.parse(cell.dedicated_cpus)) for cell in compute_nodes.numa_cells(row.inventory))
    used = sum(len(cell.cpus) for cell in compute_nodes.numa_used(row.numa_used).values())
    found[PCPU] = ResourceInventory(total=dedicated, used=used, capacity=dedicated)
    return {name: inventory for name, inventory in found.items() if inventory.total}


def _allocation(row: Any) -> ResourceAllocation:
    resources = {name: getattr(row, resource) for resource, name in _COUNTED.items()}
    if row.numa is not None:
        cells = msgspec.convert(row.numa, InstanceNUMATopology).cells
        resources[PCPU] = sum(len(cell.pins) + len(cell.held) for cell in cells)
    return ResourceAllocation(
        id=row.id,
        provider=row.uuid,
        provider_generation=row.provider_generation,
        consumer=row.instance_uuid,
        consumer_generation=row.generation,
        project_id=row.project_id,
        user_id=row.user_id,
        resources={name: amount for name, amount in resources.items() if amount},
        created_at=row.created_at,
        devices=_device_resources(row),
    )


def _device_resources(row: Any) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for device in msgspec.convert(row.pci or [], list[PCIDevice]):
        provider = _device_uuid(row.uuid, _device_name(row.node, device))
        found.setdefault(provider, Counter())[_device_class(device)] += 1
    return {provider: dict(amounts) for provider, amounts in found.items()}

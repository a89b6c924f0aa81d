"""Claims of CPUs, memory and pages of NUMA cells, and the choice of PCI devices, under the lock of the node's row.

Claims wait for each other at that lock, so each reads the current usage. Nothing is given out twice, on any database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import ComputeNode
from nova_lite.db.hosts import compute_nodes, pci_claims
from nova_lite.hardware import fitting
from nova_lite.hardware import pci as pci_requests
from nova_lite.hardware.numa import NUMARequest
from nova_lite.objects import InstanceNUMATopology, PCIDevice, PCIRequest
from nova_lite.objects.numa import usage_with, usage_without

_LOCKED = (
    sa.select(
        ComputeNode.inventory,
        ComputeNode.numa_used,
        ComputeNode.cpu_allocation_ratio,
        ComputeNode.ram_allocation_ratio,
    )
    .where(ComputeNode.id == sa.bindparam("node_id"))
    .with_for_update()
)


class Chosen(NamedTuple):
    """Chosen place and devices, and the values of the node's columns with them."""

    topology: InstanceNUMATopology | None
    devices: list[PCIDevice]
    columns: dict[str, Any]


#: A guest that may be anywhere in its host, and has none of its devices.
_NOTHING = Chosen(None, [], {})


def choose(uow: UnitOfWork, node_id: int, numa: NUMARequest | None, pci: Sequence[PCIRequest]) -> Chosen | None:
    """Lock the node, and choose a place in its NUMA cells and free devices. None: the requests do not fit."""
    if numa is None and not pci:
        return _NOTHING
    inventory, numa_used, cpu_ratio, ram_ratio = uow.session.connection().execute(_LOCKED, {"node_id": node_id}).one()
    usage, cells = compute_nodes.numa_used(numa_used), compute_nodes.numa_cells(inventory)
    offered, claimed = compute_nodes.pci_devices(inventory), pci_claims.used(uow, node_id) if pci else []
    ratios = fitting.Ratios(cpu_ratio, ram_ratio)
    try:
        topology, devices = pci_requests.place(pci, offered, claimed, numa, cells, usage, ratios)
    except fitting.FitError:
        return None
    columns: dict[str, Any] = {}
    if devices:
        columns["pci_used"] = sorted([*claimed, *(device.address for device in devices)])
    if topology is not None:
        columns["numa_used"] = msgspec.to_builtins(usage_with(usage, topology))
    return Chosen(topology, devices, columns)


def choose_device(uow: UnitOfWork, node_id: int, request: PCIRequest, near: Collection[int] | None) -> Chosen | None:
    """Lock the node, and choose a free device for a guest there. ``near``: its NUMA cells. None: none is left."""
    inventory, *_ = uow.session.connection().execute(_LOCKED, {"node_id": node_id}).one()
    claimed = pci_claims.used(uow, node_id)
    free = pci_requests.unused(compute_nodes.pci_devices(inventory), claimed)
    try:
        devices = pci_requests.choose([request], free, near)
    except fitting.FitError:
        return None
    return Chosen(None, devices, {"pci_used": sorted([*claimed, *(device.address for device in devices)])})


def without(uow: UnitOfWork, node_id: int, released: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the node's ``numa_used`` without the ``numa`` of released allocations."""
    _, used, *_ = uow.session.connection().execute(_LOCKED, {"node_id": node_id}).one()
    left = compute_nodes.numa_used(used)
    for numa in released:
        left = usage_without(left, msgspec.convert(numa, InstanceNUMATopology))
    return msgspec.to_builtins(left) or None

"""Claims of CPUs, memory and pages of NUMA cells, under the lock of the node's row.

Claims wait for each other at that lock, so each reads the current usage. No CPU is given out twice, on any database.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import sqlalchemy as sa

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import ComputeNode
from nova_lite.db.hosts import compute_nodes
from nova_lite.hardware import fitting
from nova_lite.hardware.numa import NUMARequest
from nova_lite.objects import InstanceNUMATopology
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


def place(uow: UnitOfWork, node_id: int, wanted: NUMARequest) -> tuple[InstanceNUMATopology, dict[str, Any]] | None:
    """Return the placement and the new ``numa_used``; None if the request does not fit."""
    inventory, used, cpu_ratio, ram_ratio = uow.session.connection().execute(_LOCKED, {"node_id": node_id}).one()
    usage = compute_nodes.numa_used(used)
    try:
        topology = fitting.fit(wanted, compute_nodes.numa_cells(inventory), usage, fitting.Ratios(cpu_ratio, ram_ratio))
    except fitting.FitError:
        return None
    return topology, msgspec.to_builtins(usage_with(usage, topology))


def without(uow: UnitOfWork, node_id: int, released: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the node's ``numa_used`` without the ``numa`` of released allocations."""
    _, used, *_ = uow.session.connection().execute(_LOCKED, {"node_id": node_id}).one()
    left = compute_nodes.numa_used(used)
    for numa in released:
        left = usage_without(left, msgspec.convert(numa, InstanceNUMATopology))
    return msgspec.to_builtins(left) or None

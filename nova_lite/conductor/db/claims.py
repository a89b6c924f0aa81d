"""Claims decide what fits where. Each is a conditional update of a compute node's counters and an allocation.

Two schedulers may choose the same host; whoever's update finds room gets it, exactly (`docs/adr/0007`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import sqlalchemy as sa

from nova_lite.conductor.db import hosts
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Allocation, ComputeNode, Instance, Service
from nova_lite.objects import Selection


def claim(uow: UnitOfWork, instance: Instance, selection: Selection) -> bool:
    """Place ``instance`` on the selected node if its host is alive and all of its resources still fit.

    The instance gets host, node and the next generation. Its row has to be locked by the caller.
    """
    alive = sa.select(Service.id).where(Service.up.is_(True), Service.forced_down.is_(False))
    changed = uow.change(
        sa.update(ComputeNode)
        .where(
            ComputeNode.host == selection.host,
            ComputeNode.node == selection.node,
            ComputeNode.service_id.in_(alive),
            ComputeNode.vcpus_used + instance.vcpus <= ComputeNode.vcpus,
            ComputeNode.memory_mb_used + instance.memory_mb <= ComputeNode.memory_mb,
            ComputeNode.disk_gb_used + instance.disk_gb <= ComputeNode.disk_gb,
        )
        .values(
            vcpus_used=ComputeNode.vcpus_used + instance.vcpus,
            memory_mb_used=ComputeNode.memory_mb_used + instance.memory_mb,
            disk_gb_used=ComputeNode.disk_gb_used + instance.disk_gb,
            generation=ComputeNode.generation + 1,
        )
    )
    if changed != 1:
        return False
    node_id, zone = uow.session.execute(
        sa.select(ComputeNode.id, Service.availability_zone)
        .join(Service, Service.id == ComputeNode.service_id)
        .where(ComputeNode.host == selection.host, ComputeNode.node == selection.node)
    ).one()
    instance.host, instance.node = selection.host, selection.node
    instance.generation += 1
    instance.availability_zone = zone
    uow.session.add(
        Allocation(
            instance_uuid=instance.uuid,
            compute_node_id=node_id,
            generation=instance.generation,
            vcpus=instance.vcpus,
            memory_mb=instance.memory_mb,
            disk_gb=instance.disk_gb,
            created_at=uow.now,
        )
    )
    uow.session.flush()
    uow.touched_nodes.add(node_id)
    return True


class End(NamedTuple):
    """Where an instance holds something: a host, and the generation of what is there."""

    host: str
    generation: int


def ends(uow: UnitOfWork, instance: Instance) -> list[End]:
    """Every host that the instance has an allocation of: those that are up first, its own before others. One without
    any (it is over, or an old row) may still be where its row says."""
    query = (
        sa.select(ComputeNode.host, Allocation.generation)
        .join(ComputeNode, ComputeNode.id == Allocation.compute_node_id)
        .where(Allocation.instance_uuid == instance.uuid)
        .order_by(Allocation.id)
    )
    found = [End(*row) for row in uow.session.execute(query)]
    if not found and instance.host is not None:
        return [End(instance.host, instance.generation)]
    if len(found) < 2:
        return found
    return sorted(found, key=lambda end: (not hosts.is_up(uow, end.host), end.host != instance.host))


def of_instances(uow: UnitOfWork, instance_uuids: Iterable[str], host: str) -> dict[str, set[int]]:
    """By instance, the generations at which it has an allocation of this host."""
    query = (
        sa.select(Allocation.instance_uuid, Allocation.generation)
        .join(ComputeNode, ComputeNode.id == Allocation.compute_node_id)
        .where(Allocation.instance_uuid.in_(list(instance_uuids)), ComputeNode.host == host)
    )
    found: dict[str, set[int]] = {}
    for instance_uuid, generation in uow.session.execute(query):
        found.setdefault(instance_uuid, set()).add(generation)
    return found


def release(uow: UnitOfWork, instance_uuid: str, end: End | None = None) -> None:
    """Give back what an instance holds at ``end``, or (None) all of it; nothing if it holds nothing."""
    query = sa.select(Allocation).where(Allocation.instance_uuid == instance_uuid).with_for_update()
    if end is not None:
        nodes = sa.select(ComputeNode.id).where(ComputeNode.host == end.host)
        query = query.where(Allocation.compute_node_id.in_(nodes), Allocation.generation == end.generation)
    for allocation in uow.session.scalars(query).all():
        uow.change(
            sa.update(ComputeNode)
            .where(ComputeNode.id == allocation.compute_node_id)
            .values(
                vcpus_used=ComputeNode.vcpus_used - allocation.vcpus,
                memory_mb_used=ComputeNode.memory_mb_used - allocation.memory_mb,
                disk_gb_used=ComputeNode.disk_gb_used - allocation.disk_gb,
                generation=ComputeNode.generation + 1,
            )
        )
        uow.touched_nodes.add(allocation.compute_node_id)
        uow.session.delete(allocation)
    uow.session.flush()

"""Claims: the judge of what fits. A conditional update of a compute node's counters, and an allocation beside it.

Two schedulers may choose the same host; whoever's update finds room gets it, exactly (`docs/adr/0007`).
"""

from __future__ import annotations

import sqlalchemy as sa

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


def release(uow: UnitOfWork, instance_uuid: str) -> None:
    """Give back all that an instance holds; nothing if it holds nothing."""
    held = uow.session.scalars(
        sa.select(Allocation).where(Allocation.instance_uuid == instance_uuid).with_for_update()
    ).all()
    for allocation in held:
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

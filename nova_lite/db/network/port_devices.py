"""Devices of hosts that ports have: virtual functions, and whole network cards."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.db.core.engine import UnitOfWork, utcnow
from nova_lite.db.core.events import HostChanged, HostFreed
from nova_lite.db.core.models import Allocation, ComputeNode, Instance
from nova_lite.db.hosts import numa_claims, pci_claims
from nova_lite.db.network import builtin_networks
from nova_lite.hardware import pci
from nova_lite.objects import VIF, InstanceNUMATopology, PCIDevice, PCIRequest
from nova_lite.objects.pci import NORMAL, OF_PORT, PORT_DEVICES


def requests(uow: UnitOfWork, instance: Instance) -> list[PCIRequest]:
    """Return the requests for the devices of an instance's ports. A new instance may have none of its ports yet."""
    if "networks" in instance.request:
        requested = instance.request["networks"]
        found = [(item["port_id"], item.get("vnic_type", NORMAL), item.get("physical_network")) for item in requested]
    else:
        store = builtin_networks.Store(uow)
        vifs = store.recorded(instance.uuid) or store.vifs(instance.uuid)
        found = [(vif.id, vif.vnic_type, vif.network.physical_network) for vif in vifs]
    return [pci.of_port(*item) for item in found if item[1] in PORT_DEVICES]


def claim(uow: UnitOfWork, instance: Instance, vif: VIF) -> None:
    """Claim a device for a port that is attached, if it has one. The caller holds the instance's lock.

    Raises `InterfaceAttachPciClaimFailed` if the host has none left.
    """
    if vif.vnic_type not in PORT_DEVICES:
        return
    held = _allocation(uow, instance)
    numa = msgspec.convert(instance.numa, InstanceNUMATopology | None)
    near = None if numa is None else {cell.cell for cell in numa.cells}
    request = pci.of_port(vif.id, vif.vnic_type, vif.network.physical_network)
    chosen = numa_claims.choose_device(uow, held.compute_node_id, request, near)
    if chosen is None:
        raise exceptions.InterfaceAttachPciClaimFailed(port_id=vif.id, uuid=instance.uuid)
    pci_claims.insert(uow, held.compute_node_id, instance.uuid, chosen.devices)
    held.pci = instance.pci = [*(instance.pci or ()), *msgspec.to_builtins(chosen.devices)]
    _update(uow, held.compute_node_id, chosen.columns)
    uow.publish(HostChanged(held.compute_node_id))


def release(uow: UnitOfWork, instance: Instance, port_id: str) -> None:
    """Release the device of a port that is detached, if it has one. The caller holds the instance's lock."""
    removed = [device for device in instance.pci or () if device.get("alias") == f"{OF_PORT}{port_id}"]
    if not removed:
        return
    held = _allocation(uow, instance)
    held.pci = instance.pci = [device for device in instance.pci or () if device not in removed] or None
    used = pci_claims.delete(uow, held.compute_node_id, removed)
    _update(uow, held.compute_node_id, {"pci_used": used, "freed_at": utcnow()})
    uow.publish(HostFreed(held.compute_node_id))


def _allocation(uow: UnitOfWork, instance: Instance) -> Allocation:
    """Return the allocation of the instance's present place."""
    mine = (Allocation.instance_uuid == instance.uuid, Allocation.generation == instance.generation)
    return uow.session.scalars(sa.select(Allocation).where(*mine)).one()


def _update(uow: UnitOfWork, node_id: int, columns: dict[str, Any]) -> None:
    node = sa.update(ComputeNode).where(ComputeNode.id == node_id)
    uow.change(node.values(generation=ComputeNode.generation + 1, **columns))


def devices_at(uow: UnitOfWork, instance_uuid: str, host: str) -> list[PCIDevice]:
    """Return the devices that an instance has claimed last on a host."""
    query = sa.select(Allocation.pci).join(ComputeNode, ComputeNode.id == Allocation.compute_node_id)
    query = query.where(Allocation.instance_uuid == instance_uuid, ComputeNode.host == host)
    found = uow.session.scalars(query.order_by(Allocation.generation.desc()).limit(1)).first()
    return msgspec.convert(found or [], list[PCIDevice])

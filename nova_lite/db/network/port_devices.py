"""Devices of hosts that ports have: virtual functions, and whole network cards."""

from __future__ import annotations

from nova_lite.base import exceptions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.network import builtin_networks
from nova_lite.db.servers import claims
from nova_lite.hardware import pci
from nova_lite.objects import VIF, PCIRequest
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
    """Claim a device for a port that is attached. Raises `InterfaceAttachPciClaimFailed` if its host has none left."""
    if vif.vnic_type in PORT_DEVICES:
        request = pci.of_port(vif.id, vif.vnic_type, vif.network.physical_network)
        if not claims.add_device(uow, instance, request):
            raise exceptions.InterfaceAttachPciClaimFailed(port_id=vif.id, uuid=instance.uuid)


def release(uow: UnitOfWork, instance: Instance, port_id: str) -> None:
    """Release the device of a port that is detached, if it has one."""
    claims.remove_device(uow, instance, f"{OF_PORT}{port_id}")

"""Ports with devices of this host: its claims follow an attach and a detach."""

from __future__ import annotations

import json
from pathlib import Path

from nova_lite.compute.operations import interfaces
from nova_lite.objects import VIF, ActionCommand, PCIDevice
from nova_lite.objects.pci import HW_VEB, TYPE_VF
from nova_lite.virt import fake_hypervisor
from tests.support.compute_host import HOST, NETWORK, UUID, VIFS, Host, command, make_instance

GPU = PCIDevice(address="0000:41:00.0", vendor_id="10de", product_id="1eb8", alias="gpu")
FUNCTION = PCIDevice(
    address="0000:c1:01.0", vendor_id="8086", product_id="1889", dev_type=TYPE_VF, alias="port:vf", managed=False
)
PORT = VIF(id="vf", mac_address="52:54:00:00:00:02", address="10.0.0.6", network=NETWORK, vnic_type="direct")
PORT.vif_type = HW_VEB


def change(action: str) -> ActionCommand:
    instance = make_instance(UUID, vifs=[*VIFS, PORT], pci=[GPU, FUNCTION])
    return command(action, instance=instance, payload={"port_id": PORT.id})


def recorded(host: Host) -> list[tuple[str, ...]]:
    """Return the devices of the guest, and the devices on record for the next start of the daemon."""
    domain = Path(fake_hypervisor.state_path(host.conf, HOST), "domains", f"{UUID}.json")
    return [tuple(json.loads(domain.read_text())["pci"]), host.manager.host.fencing.resources()[UUID].pci]


def test_claims_of_the_host_follow_the_device_of_a_port(host: Host) -> None:
    host.build()
    host.settle()
    local = host.manager.host
    interfaces.attach_interface(local, change("attach_interface"))
    assert recorded(host) == [(FUNCTION.address,), (GPU.address, FUNCTION.address)]
    interfaces.detach_interface(local, change("detach_interface"))
    assert recorded(host) == [(), (GPU.address,)]
    interfaces.rollback_detach_interface(local, change("detach_interface"))
    assert recorded(host) == [(FUNCTION.address,), (GPU.address, FUNCTION.address)]
    interfaces.rollback_attach_interface(local, change("attach_interface"))
    assert recorded(host) == [(), (GPU.address,)]


def test_device_of_a_built_in_port_needs_no_network_service(host: Host) -> None:
    instance = make_instance(UUID, vifs=[*VIFS, PORT], pci=[FUNCTION])
    assert interfaces.bind(host.manager.host, instance) == instance.vifs
    assert interfaces.plugging_wait(host.manager.host, UUID, instance.vifs, 1) is None
    assert host.conductor.of("interfaces_bind") == []

"""PCI devices of the host in a guest's domain."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import libvirt
import pytest

from nova_lite.hardware import mem_encryption
from nova_lite.objects import LiveDestination, PCIDevice
from nova_lite.virt import vgpus
from nova_lite.virt.libvirt.disks.disks import Disk, DiskSet
from nova_lite.virt.libvirt.domain import guest_xml, live_migration, pci_xml
from tests.support.guests import make_instance, make_spec

GPU = PCIDevice(address="0000:81:00.0", vendor_id="10de", product_id="1eb8", alias="gpu")
FUNCTION = PCIDevice(address="0001:04:0a.7", vendor_id="8086", product_id="154c", managed=False, alias="nic")
VGPU = PCIDevice(address="0000:84:00.0#2", vendor_id="", product_id="", alias="resources:VGPU", resource_class="VGPU")
ROOT = DiskSet(disks=[Disk(path="/instances/u/disk", device="vda", format="qcow2")], direct_boot=None)


def build(devices: list[PCIDevice] | None, machine: str = "pc", spare_ports: int = 0) -> str:
    spec = make_spec(instance=make_instance(pci=devices))
    given = guest_xml.Host(machine=machine, spare_ports=spare_ports)
    return guest_xml.guest_xml(spec, "host", "/instances/u", ROOT, "qemu", 32, given=given)


def assigned(xml: str) -> list[tuple[str | None, dict[str, str]]]:
    found = []
    for element in ET.fromstring(xml).iterfind("devices/hostdev[@type='pci']"):
        address = element.find("source/address")
        assert element.get("mode") == "subsystem"
        assert address is not None
        found.append((element.get("managed"), address.attrib))
    return found


def address(domain: str, bus: str, slot: str, function: str) -> dict[str, str]:
    return {"domain": f"0x{domain}", "bus": f"0x{bus}", "slot": f"0x{slot}", "function": f"0x{function}"}


def test_guest_has_its_devices() -> None:
    assert assigned(build([GPU, FUNCTION])) == [
        ("yes", address("0000", "81", "00", "0")),
        ("no", address("0001", "04", "0a", "7")),
    ]
    assert assigned(build(None)) == []


@pytest.mark.parametrize("machine", ["pc", "q35"])
def test_libvirt_accepts_a_guest_with_devices(machine: str) -> None:
    libvirt.registerErrorHandler(lambda *_: None, None)
    xml = build([GPU, VGPU, FUNCTION], machine, spare_ports=4).replace('type="qemu"', 'type="test"', 1)
    domain = libvirt.open("test:///default").defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
    assert assigned(domain.XMLDesc()) == assigned(xml)
    assert pci_xml.vgpus_in(domain.XMLDesc()) == pci_xml.vgpus_in(xml) == [vgpus.uuid_of(VGPU.address)]
    domain.undefine()


def test_context_of_encrypted_memory_is_no_device_of_its_guest() -> None:
    assert "hostdev" not in build(mem_encryption.contexts([("sev", 1)]))


def test_guest_has_its_vgpu_as_a_mediated_device() -> None:
    xml = build([VGPU])
    (element,) = ET.fromstring(xml).iterfind("devices/hostdev")
    assert element.attrib == {"mode": "subsystem", "type": "mdev", "model": "vfio-pci"}
    assert [child.attrib for child in element.iterfind("source/address")] == [{"uuid": vgpus.uuid_of(VGPU.address)}]
    assert pci_xml.vgpus_in(build([GPU])) == []


def test_device_has_a_root_port_besides_the_spare_ones() -> None:
    def ports(devices: list[PCIDevice]) -> int:
        root = ET.fromstring(build(devices, "q35", spare_ports=2))
        return len(root.findall("devices/controller[@model='pcie-root-port']"))

    assert ports([GPU, VGPU]) == ports([]) + 2


def test_migrated_guest_has_the_devices_of_its_destination() -> None:
    there = [PCIDevice(address="0000:c1:00.1", vendor_id="8086", product_id="154c", managed=False)]
    ready = LiveDestination(
        driver="libvirt", host="b", generation=2, address="b", paths={"disk": "/d", "console.log": "/c"}, pci=there
    )
    moved = live_migration.destination_xml(build([FUNCTION]), ready)
    assert assigned(moved) == [("no", address("0000", "c1", "00", "1"))]

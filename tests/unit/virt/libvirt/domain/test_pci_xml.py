"""PCI devices of the host in a guest's domain."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import libvirt
import pytest

from nova_lite.base import exceptions
from nova_lite.hardware import mem_encryption
from nova_lite.objects import VIF, LiveDestination, PCIDevice
from nova_lite.objects.pci import PORT_DEVICES, VIF_TYPES
from nova_lite.virt import vgpus
from nova_lite.virt.libvirt.connection import Connection
from nova_lite.virt.libvirt.disks.disks import Disk, DiskSet
from nova_lite.virt.libvirt.domain import guest_xml, live_migration, pci_xml
from nova_lite.virt.libvirt.net import interfaces
from tests.support.guests import make_instance, make_network, make_spec, make_vif

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


# --- devices of ports


def port_of(kind: str, vlan: int | None = 42, **device: Any) -> tuple[VIF, PCIDevice]:
    network = make_network()
    network.physical_network, network.vlan = "physnet1", vlan
    vif = make_vif(network=network, vnic_type=kind, vif_type=VIF_TYPES[kind])
    values = {"address": "0000:04:0a.7", "vendor_id": "8086", "product_id": "154c", "dev_type": PORT_DEVICES[kind]}
    return vif, PCIDevice(**{**values, "alias": f"port:{vif.id}", **device})


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a virtual function with a network device."""
    (tmp_path / "0000:04:0a.7" / "net" / "ens1f0v7").mkdir(parents=True)
    monkeypatch.setattr(pci_xml, "SYSFS", str(tmp_path))
    return tmp_path


def with_ports(*ports: tuple[VIF, PCIDevice], **given: Any) -> str:
    spec = make_spec(
        instance=make_instance(pci=[GPU, *(device for _, device in ports)]), vifs=[vif for vif, _ in ports]
    )
    return guest_xml.guest_xml(spec, "host", "/instances/u", ROOT, "qemu", 32, given=guest_xml.Host(**given))


def text_of(element: ET.Element) -> str:
    return ET.tostring(element, encoding="unicode")


def test_direct_port_is_a_virtual_function_with_its_address_and_vlan() -> None:
    vif, device = port_of("direct")
    (element,) = ET.fromstring(with_ports((vif, device))).iterfind("devices/interface")
    assert text_of(element) == (
        '<interface type="hostdev" managed="yes"><source>'
        '<address domain="0x0000" bus="0x04" slot="0x0a" function="0x7" type="pci" /></source>'
        f'<mac address="{vif.mac_address}" /><vlan><tag id="42" /></vlan></interface>'
    )


def test_direct_port_without_vlan_on_an_unmanaged_function_says_so() -> None:
    (element,) = ET.fromstring(with_ports(port_of("direct", None, managed=False))).iterfind("devices/interface")
    assert (element.get("managed"), element.find("vlan")) == ("no", None)


def test_macvtap_port_is_on_the_network_device_of_its_function(sysfs: Path) -> None:
    vif, device = port_of("macvtap")
    (element,) = ET.fromstring(with_ports((vif, device))).iterfind("devices/interface")
    assert text_of(element) == (
        '<interface type="direct"><source dev="ens1f0v7" mode="passthrough" /><model type="virtio" />'
        f'<mac address="{vif.mac_address}" /><vlan><tag id="42" /></vlan></interface>'
    )


def test_macvtap_port_without_network_device_is_refused(sysfs: Path) -> None:
    with pytest.raises(exceptions.VirtDriverError, match=r"0000:04:0b.0 has no network device on this host"):
        with_ports(port_of("macvtap", address="0000:04:0b.0"))


def test_physical_port_is_the_card_itself() -> None:
    root = ET.fromstring(with_ports(port_of("direct-physical")))
    assert root.find("devices/interface") is None
    addresses = [found for _, found in assigned(ET.tostring(root, encoding="unicode"))]
    assert sorted(found["bus"] for found in addresses) == ["0x04", "0x81"]
    assert pci_xml.has_whole(root, port_of("direct-physical")[1])
    assert not pci_xml.has_whole(root, port_of("direct-physical", address="0000:04:0a.6")[1])


def test_port_without_its_device_is_refused() -> None:
    vif, _ = port_of("direct")
    with pytest.raises(exceptions.VirtDriverError, match=f"port {vif.id} has no device of this host"):
        guest_xml.interface_xml(vif)


@pytest.mark.parametrize("machine", ["pc", "q35"])
def test_libvirt_accepts_a_guest_with_devices_of_ports(machine: str, sysfs: Path) -> None:
    libvirt.registerErrorHandler(lambda *_: None, None)
    ports = [
        port_of("direct", address="0000:04:0a.6"),
        port_of("macvtap"),
        port_of("direct-physical", address="0000:05:00.0"),
    ]
    xml = with_ports(*ports, machine=machine, spare_ports=4).replace('type="qemu"', 'type="test"', 1)
    domain = libvirt.open("test:///default").defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
    defined = ET.fromstring(domain.XMLDesc())
    assert [element.get("type") for element in defined.iterfind("devices/interface")] == ["hostdev", "direct"]
    assert [element.get("id") for element in defined.iterfind("devices/interface/vlan/tag")] == ["42", "42"]
    assert pci_xml.has_whole(defined, ports[-1][1])
    domain.undefine()


class _Domain:
    """Domain without a guest. It records devices that are attached and detached."""

    def __init__(self, xml: str) -> None:
        self.root = ET.fromstring(xml)
        self.calls: list[tuple[str, str]] = []

    def isActive(self) -> bool:
        return False

    def XMLDesc(self, flags: int = 0) -> str:
        return ET.tostring(self.root, encoding="unicode")

    def attachDeviceFlags(self, xml: str, flags: int) -> None:
        self.calls.append(("attach", xml))
        devices = self.root.find("devices")
        assert devices is not None
        devices.append(ET.fromstring(xml))

    def detachDeviceFlags(self, xml: str, flags: int) -> None:
        self.calls.append(("detach", xml))
        devices = self.root.find("devices")
        assert devices is not None
        devices.remove(next(item for item in devices if item.tag == ET.fromstring(xml).tag))


@pytest.mark.parametrize(("kind", "tag"), [("direct", "interface"), ("direct-physical", "hostdev")])
def test_device_of_a_port_is_attached_once_and_detached(kind: str, tag: str) -> None:
    vif, device = port_of(kind)
    vif, domain = vif.with_device([device]), _Domain("<domain><devices/></domain>")
    devices = interfaces.InterfaceDevices(Connection("test:///default", "sriov-test"), 1.0)
    for _ in range(2):
        devices.attach(domain, vif)
    for _ in range(2):
        devices.detach(domain, vif)
    assert [(call, ET.fromstring(xml).tag) for call, xml in domain.calls] == [("attach", tag), ("detach", tag)]

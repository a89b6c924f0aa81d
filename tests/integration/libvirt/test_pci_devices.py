"""PCI devices and vGPUs of this machine by the real libvirtd, compared with the kernel's list."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import libvirt
import msgspec
import pytest

from nova_lite.objects import PCIDevice
from nova_lite.objects.pci import PORT_DEVICES, VIF_TYPES
from nova_lite.virt import vgpus
from nova_lite.virt.libvirt.connection import Connection, LibvirtFailure
from nova_lite.virt.libvirt.disks.disks import Disk, DiskSet
from nova_lite.virt.libvirt.domain import guest_xml, pci_xml
from nova_lite.virt.libvirt.host import mediated_devices, pci_devices
from tests.support import make
from tests.support.guests import make_instance, make_network, make_spec, make_vif

PCI_DEVICES = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
DEVICES = Path("/sys/bus/pci/devices")


@pytest.fixture
def connection() -> Connection:
    return Connection("qemu:///system", "pci-test", queries_only=True)


def in_the_kernel() -> dict[str, tuple[str, str]]:
    """Return vendor and product by address, without bridges."""
    found = {}
    for path in DEVICES.iterdir():
        if not (path / "class").read_text().startswith("0x06"):
            vendor, product = ((path / name).read_text().strip().removeprefix("0x") for name in ("vendor", "device"))
            found[path.name] = (vendor, product)
    return found


def test_node_devices_are_those_of_the_kernel(connection: Connection, tmp_path: Path) -> None:
    offer = pci_devices.Offer(make.conf("sqlite://", tmp_path), connection)
    machine = pci_devices.parse(offer._descriptions())
    found = {item.device.address: (item.device.vendor_id, item.device.product_id) for item in machine.devices}
    assert found == in_the_kernel()
    assert machine.isolated == {address for address in found if (DEVICES / address / "iommu_group").exists()}


def test_devices_are_offered_if_they_are_in_an_iommu_group(connection: Connection, tmp_path: Path) -> None:
    conf = make.conf("sqlite://", tmp_path)
    conf.set_override("device_spec", ["{}"], "pci")
    offered = {device.address for device in pci_devices.Offer(conf, connection).devices()}
    assert offered == {address for address in in_the_kernel() if (DEVICES / address / "iommu_group").exists()}


@pytest.mark.parametrize("machine", ["pc", "q35"])
def test_guest_with_devices_of_this_machine_is_defined_by_qemus_driver(machine: str, connection: Connection) -> None:
    """libvirt gives each of them a place on the guest's bus."""
    devices = [
        PCIDevice(address=address, vendor_id=vendor, product_id=product)
        for address, (vendor, product) in sorted(in_the_kernel().items())[:2]
    ]
    spec = make_spec(instance=make_instance(pci=devices))
    disks = DiskSet(disks=[Disk(path="/nonexistent/disk", device="vda", format="qcow2")], direct_boot=None)
    given = guest_xml.Host(machine=machine, spare_ports=2)
    xml = guest_xml.guest_xml(spec, "host", "/nonexistent", disks, "qemu", 32, given=given)
    domain = connection.get().defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
    try:
        places = ET.fromstring(domain.XMLDesc()).findall("devices/hostdev[@type='pci']/address[@type='pci']")
    finally:
        domain.undefine()
    assert len(places) == len(devices) > 0


@pytest.mark.parametrize("machine", ["pc", "q35"])
def test_guest_with_devices_of_ports_is_defined_by_qemus_driver(
    machine: str, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libvirt checks the kinds of interfaces, and their VLAN."""
    monkeypatch.setattr(pci_xml, "SYSFS", str(tmp_path))
    network = make_network()
    network.vlan = 42
    vifs, devices = [], []
    for number, kind in enumerate(PORT_DEVICES):
        vif = make_vif(number, network=network, vnic_type=kind, vif_type=VIF_TYPES[kind])
        function = PCIDevice(
            address=f"0000:c1:0{number}.0", vendor_id="8086", product_id="1889", dev_type=PORT_DEVICES[kind]
        )
        (tmp_path / function.address / "net" / "ens1f0v0").mkdir(parents=True)
        vifs.append(vif)
        devices.append(msgspec.structs.replace(function, alias=f"port:{vif.id}"))
    spec = make_spec(instance=make_instance(pci=devices), vifs=vifs)
    disks = DiskSet(disks=[Disk(path="/nonexistent/disk", device="vda", format="qcow2")], direct_boot=None)
    given = guest_xml.Host(machine=machine, spare_ports=2)
    xml = guest_xml.guest_xml(spec, "host", "/nonexistent", disks, "qemu", 32, given=given)
    domain = connection.get().defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
    try:
        root = ET.fromstring(domain.XMLDesc())
    finally:
        domain.undefine()
    assert [item.get("type") for item in root.iterfind("devices/interface")] == ["hostdev", "direct"]
    assert [item.get("id") for item in root.iterfind("devices/interface/vlan/tag")] == ["42", "42"]
    assert root.find("devices/hostdev[@type='pci']") is not None


def test_libvirtd_takes_the_description_of_a_mediated_device(connection: Connection) -> None:
    """The call fails at mdevctl, because no device of this machine can have mediated devices."""
    (name, *_) = (device.name() for device in connection.connect_call("listAllDevices", PCI_DEVICES))
    xml = mediated_devices.description(name, "nvidia-35", vgpus.uuid_of("0000:84:00.0#0"))
    with pytest.raises(LibvirtFailure, match=r"mdevctl|Unable to start mediated device"):
        connection.connect_call("nodeDeviceCreateXML", xml, 0)


def test_machine_without_mediated_devices_has_no_places_for_vgpus(connection: Connection) -> None:
    conf = make.conf("sqlite://")
    conf.set_override("enabled_mdev_types", ["nvidia-35"], "devices")
    assert mediated_devices.MediatedDevices(conf, connection, connection).places() == []

"""Domains of rescued guests."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from nova_lite.hardware import RescueDisk
from nova_lite.objects import NetworkDisk
from nova_lite.virt.libvirt.disks.disks import DirectBoot, Disk, DiskSet
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.domain.rescue import rescue_xml

DOMAIN = """
<domain type='qemu'><os><type machine='{machine}'>hvm</type><boot dev='hd'/></os>
  <devices>
    <disk type='file' device='disk'>
      <source file='/i/disk'/><target dev='{prefix}a' bus='{bus}'/><address type='x'/>
    </disk>
    <disk type='file' device='disk'><source file='/i/disk.config'/><target dev='{prefix}b' bus='{bus}'/></disk>
    <controller type='usb' model='none'/>
  </devices>
</domain>
"""
RESCUE = Disk(path="/i/disk.rescue", device="vda", format="qcow2")
CONFIG = Disk(path="/i/disk.config.rescue", device="", format="raw", read_only=True)


def rescued(
    how: RescueDisk, *drives: Disk, bus: str = "virtio", prefix: str = "vd", machine: str = "pc", kernel: str = ""
) -> tuple[ET.Element, list[tuple[str, str, str]]]:
    direct = DirectBoot(kernel=kernel, ramdisk=None, command_line="") if kernel else None
    xml = DOMAIN.format(bus=bus, prefix=prefix, machine=machine)
    domain = ET.fromstring(rescue_xml(xml, DiskSet(disks=[RESCUE, *drives], direct_boot=direct), how))
    disks = []
    for disk in domain.iterfind("devices/disk"):
        source, target = disk.find("source"), disk.find("target")
        assert source is not None and target is not None
        disks.append((source.get("file", ""), target.get("dev", ""), target.get("bus", "")))
    return domain, disks


def test_rescue_disk_is_the_first_disk() -> None:
    domain, disks = rescued(RescueDisk(False, "virtio", False), CONFIG)
    assert disks == [
        ("/i/disk.rescue", "vda", "virtio"),
        ("/i/disk", "vdb", "virtio"),
        ("/i/disk.config.rescue", "vdc", "virtio"),
    ]
    assert domain.find("os/boot[@dev='hd']") is not None
    assert domain.find("devices/disk/address") is None


def test_rescue_disks_in_a_pool_replace_the_config_drive_there() -> None:
    def pooled(name: str, read_only: bool = False) -> Disk:
        where = NetworkDisk(protocol="rbd", name=f"a-pool/server-x-1-{name}")
        return Disk(path=name, device="vda", format="raw", network=where, read_only=read_only)

    own = [guest_xml.disk_element(pooled(name)) for name in ("disk", "disk.config")]
    xml = ET.fromstring(DOMAIN.format(bus="virtio", prefix="vd", machine="pc"))
    devices = xml.find("devices")
    assert devices is not None
    devices[:] = own
    rescue = DiskSet(disks=[pooled("disk.rescue"), pooled("disk.config.rescue", True)], direct_boot=None)
    domain = ET.fromstring(rescue_xml(ET.tostring(xml, "unicode"), rescue, RescueDisk(False, "virtio", False)))
    names = [source.get("name", "").rpartition("-")[2] for source in domain.iterfind("devices/disk/source")]
    assert names == ["disk.rescue", "disk", "disk.config.rescue"]


def test_rescue_names_disks_by_bus() -> None:
    domain, disks = rescued(RescueDisk(False, "virtio", False), bus="scsi", prefix="sd")
    assert [disk[1:] for disk in disks] == [("vda", "virtio"), ("sda", "scsi"), ("sdb", "scsi")]
    assert domain.find("devices/controller[@type='scsi'][@model='virtio-scsi']") is not None


@pytest.mark.parametrize(("machine", "bus"), [("virt-7.2", "scsi"), ("pc-q35-7.2", "sata"), ("pc", "ide")])
def test_rescue_drive_is_on_the_bus_of_drives_of_the_machine(machine: str, bus: str) -> None:
    _, disks = rescued(RescueDisk(True, None, True), machine=machine)
    assert disks[-1][2] == bus


def test_stable_rescue_disk_is_last_and_boots_first() -> None:
    domain, disks = rescued(RescueDisk(True, "usb", False))
    assert disks == [
        ("/i/disk", "vda", "virtio"),
        ("/i/disk.config", "vdb", "virtio"),
        ("/i/disk.rescue", "sda", "usb"),
    ]
    last = domain.findall("devices/disk")[-1]
    assert last.find("boot[@order='1']") is not None
    assert domain.find("os/boot") is None
    assert domain.find("devices/disk/address") is not None, "the place of its own disk"
    assert domain.find("devices/controller[@type='usb'][@model='qemu-xhci']") is not None


def test_rescue_drive_uses_a_bus_of_the_machine() -> None:
    for machine, bus in (("pc-i440fx-7.2", "ide"), ("pc-q35-7.2", "sata")):
        domain, disks = rescued(RescueDisk(True, None, True), machine=machine)
        assert disks[-1][2] == bus
        assert domain.findall("devices/disk")[-1].get("device") == "cdrom"


def test_rescue_image_boots_its_own_kernel() -> None:
    domain, _ = rescued(RescueDisk(True, "virtio", False), kernel="/b/k")
    assert domain.findtext("os/kernel") == "/b/k"
    assert domain.find("devices/disk/boot") is None


@pytest.mark.parametrize(("bus", "prefix"), [("sata", "sd"), ("ide", "hd")])
def test_config_drive_of_the_rescue_system_is_a_drive_where_disks_cannot_be_read_only(bus: str, prefix: str) -> None:
    domain, _ = rescued(RescueDisk(False, "virtio", False), CONFIG, bus=bus, prefix=prefix)
    kinds = {disk.find("source").get("file"): disk.get("device") for disk in domain.iterfind("devices/disk")}  # type: ignore[union-attr]
    assert kinds == {"/i/disk.rescue": "disk", "/i/disk": "disk", "/i/disk.config.rescue": "cdrom"}


def test_rescue_system_uses_sata_where_the_ide_bus_is_full_or_missing() -> None:
    how = RescueDisk(False, "ide", False)
    _, disks = rescued(how, CONFIG, bus="ide", prefix="hd", machine="pc-q35-7.2")
    assert [disk[2] for disk in disks] == ["sata", "ide", "sata"], "its own disks are as they were defined"
    more = "".join(f"<disk device='disk'><target dev='hd{letter}' bus='ide'/></disk>" for letter in "cd")
    full = DOMAIN.format(bus="ide", prefix="hd", machine="pc").replace("<controller", f"{more}<controller")
    root = ET.fromstring(rescue_xml(full, DiskSet(disks=[RESCUE, CONFIG], direct_boot=None), how))
    targets = [disk.find("target") for disk in root.iterfind("devices/disk")]
    assert [(target.get("dev"), target.get("bus")) for target in targets if target is not None] == [
        ("hda", "ide"),
        ("hdb", "ide"),
        ("hdc", "ide"),
        ("hdd", "ide"),
        ("sda", "sata"),
    ]

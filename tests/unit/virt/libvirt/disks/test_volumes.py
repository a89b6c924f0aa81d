"""Volumes in a domain's XML, and the device names of a guest's disks."""

from __future__ import annotations

import string
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.objects import BlockDevice, Qcow2Disk, VolumeKey
from nova_lite.objects.block_device import DeviceSource, ephemeral_gb, next_name, swap_mb
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import DomainInfo
from nova_lite.virt.libvirt.disks import disks, volumes
from nova_lite.virt.libvirt.disks.secrets import VolumeSecrets
from nova_lite.virt.libvirt.domain import guest_xml
from tests.support.guests import make_flavor
from tests.unit.virt.libvirt.scripted import Calls

VOLUME_ID = "aaaaaaaa-0000-4000-8000-000000000001"


def volume(name: str, **more: object) -> BlockDevice:
    values = {"uuid": name, "source_type": DeviceSource.VOLUME, "destination_type": "volume", "volume_id": VOLUME_ID}
    return BlockDevice(device_name=name, **{**values, **more})  # type: ignore[arg-type]


def local(**more: object) -> BlockDevice:
    return BlockDevice(uuid="x", source_type=DeviceSource.BLANK, destination_type="local", **more)  # type: ignore[arg-type]


def names(devices: list[BlockDevice], count: int) -> list[str]:
    found = disks.local_names(devices)
    return [next(found) for _ in range(count)]


def test_disk_names_are_unique() -> None:
    """Root, ephemeral, swap and config drive, present or not; then volumes that are attached and detached."""
    flavor = make_flavor(ephemeral_gb=1, swap=64)
    attached: list[BlockDevice] = []
    for _ in range(3):
        attached.append(volume(next_name(flavor, attached, None)))
    assert [device.device_name for device in attached] == ["/dev/vde", "/dev/vdf", "/dev/vdg"]
    assert names(attached, 4) == ["vda", "vdb", "vdc", "vdd"]
    del attached[1]
    assert next_name(flavor, attached, None) == "/dev/vdf"
    root = volume("/dev/vda", boot_index=0)
    assert next_name(make_flavor(), [root], None) == "/dev/vdc"
    assert next_name(make_flavor(), [root], "scsi") == "/dev/sdc"
    assert names([root], 1) == ["vdb"]


def test_local_disks_follow_the_request() -> None:
    flavor = make_flavor(ephemeral_gb=10, swap=64)
    assert (ephemeral_gb(flavor, []), swap_mb(flavor, [])) == ([10], 64)
    requested = [
        local(volume_size=2),
        local(volume_size=3, guest_format="ext2"),
        local(guest_format="swap", volume_size=8),
    ]
    assert (ephemeral_gb(flavor, requested), swap_mb(flavor, requested)) == ([2, 3], 8)
    made = disks.ephemerals(flavor, requested)
    assert [(name, size // 1024**3, kind[0]) for name, size, kind in made] == [
        ("disk.eph0", 2, "mkfs.ext4"),
        ("disk.eph1", 3, "mkfs.ext2"),
    ]


def domain(*parts: disks.Disk) -> str:
    root = ET.Element("domain")
    devices = ET.SubElement(root, "devices")
    devices.extend(guest_xml.disk_element(part) for part in parts)
    return ET.tostring(root, encoding="unicode")


def test_volume_is_identified_by_its_serial_number(tmp_path: Path) -> None:
    made = disks.volume_disk(volume("/dev/vdc"), str(tmp_path / VOLUME_ID))
    element = guest_xml.disk_element(made)
    target, source = element.find("target"), element.find("source")
    assert element.findtext("serial") == VOLUME_ID
    assert target is not None and (target.get("dev"), target.get("bus")) == ("vdc", "virtio")
    assert source is not None and source.get("file") == str(tmp_path / VOLUME_ID)
    assert made.direct == disks.supports_direct_io(str(tmp_path))
    assert not disks.supports_direct_io(str(tmp_path / "nowhere"))


def test_live_migration_copies_local_disks() -> None:
    """Writable local disks are copied. Volumes are there already, if both hosts bypass their page caches."""
    root = disks.Disk(path="/i/disk", device="vda", format="qcow2")
    config = disks.Disk(path="/i/disk.config", device="vdb", format="raw", read_only=True)
    direct = disks.Disk(path="/v/1", device="vdc", format="raw", serial=VOLUME_ID, direct=True)
    cached = disks.Disk(path="/v/2", device="vdd", format="raw", serial=VOLUME_ID)
    assert volumes.local_targets(domain(root, config)) == (["vda"], False)
    assert volumes.local_targets(domain(root, config, direct)) == (["vda"], True)
    assert volumes.local_targets(domain(config, direct)) == ([], True)
    assert volumes.all_direct(domain(root, direct))
    assert not volumes.all_direct(domain(root, direct, cached))


def test_used_disk_name_is_not_assigned() -> None:
    """Local disks have the names that were free when the guest was created, on the bus that its image requests."""
    taken = {"sda", "sdb", "sdd", "vda"}
    assert [volumes.free_name(name, taken) for name in ("sdc", "sdd", "sdb", "vdb", "vda")] == [
        "sdc",
        "sde",
        "sdc",
        "vdb",
        "vdb",
    ]
    assert volumes.free_name("sdz", {"sdz"}) == "sda"
    every = {f"sd{letter}" for letter in string.ascii_lowercase}
    with pytest.raises(exceptions.VirtDriverError, match="maximum number of disks"):
        volumes.free_name("sda", every)


class Domain:
    """libvirt's domain, as far as disks are concerned. It rejects a name that is in use."""

    def __init__(self, *parts: disks.Disk) -> None:
        self.running, self.definition = ET.fromstring(domain(*parts)), ET.fromstring(domain(*parts))
        self.sizes: dict[str, int] = {}

    def UUIDString(self) -> str:
        return "u"

    def XMLDesc(self, flags: int) -> str:
        return ET.tostring(self.definition if flags else self.running, encoding="unicode")

    def attachDeviceFlags(self, xml: str, where: int) -> None:
        found = (self.definition if where == volumes.CONFIG else self.running).find("devices")
        assert found is not None
        disk = ET.fromstring(xml)
        assert volumes.target_of(disk) not in {volumes.target_of(other) for other in found}, "libvirt rejects it"
        found.append(disk)

    def blockInfo(self, name: str, flags: int) -> list[int]:
        return [self.sizes[name], 0, 0]

    def blockResize(self, name: str, size: int, flags: int) -> None:
        self.sizes[name] = size


def no_key(owner: str) -> VolumeKey:
    return VolumeKey(passphrase="")


class Hypervisor(Calls):
    """Connection and domains in one object, with a running guest."""

    def __init__(self, guest: Domain) -> None:
        self.guest = guest

    def get(self, instance_uuid: str) -> tuple[Domain, DomainInfo]:
        return self.guest, DomainInfo(uuid=instance_uuid, generation=1, power_state=PowerState.RUNNING)


def attaching_to(guest: Any) -> Any:
    made: Any = Hypervisor(guest)
    return volumes.VolumeDevices(made, made, VolumeSecrets(made, "here", no_key, no_key, no_key))


def test_scsi_volume_gets_a_free_name_besides_local_scsi_disks(tmp_path: Path) -> None:
    local_disks = [disks.Disk(path=f"/i/{name}", device=name, format="raw", bus="scsi") for name in ("sda", "sdb")]
    guest = Domain(*local_disks)
    attaching = attaching_to(guest)
    path = str(tmp_path / VOLUME_ID)
    for _ in range(2):
        attaching.attach("u", volume("/dev/sdb", disk_bus="scsi"), path)
    for tree in (guest.running, guest.definition):
        assert [volumes.target_of(disk) for disk in tree.iter("disk")] == ["sda", "sdb", "sdc"]


def test_attachment_after_a_kill_uses_the_same_name(tmp_path: Path) -> None:
    guest = Domain(disks.Disk(path="/i/disk", device="vdc", format="raw"))
    attaching = attaching_to(guest)
    attaching.attach("u", volume("/dev/vdc"), str(tmp_path / VOLUME_ID))
    devices = guest.running.find("devices")
    assert devices is not None
    devices.remove(devices.findall("disk")[-1])
    attaching.attach("u", volume("/dev/vdc"), str(tmp_path / VOLUME_ID))
    assert [volumes.target_of(disk) for disk in guest.running.iter("disk")] == ["vdc", "vdd"]


@pytest.mark.parametrize(("requested", "expected"), [(1, 2), (2, 2), (3, 3)])
def test_extension_never_takes_data_from_a_running_guest(tmp_path: Path, requested: int, expected: int) -> None:
    """An earlier extension was reported as failed, and yet the guest has its size."""
    guest = Domain(disks.volume_disk(volume("/dev/vdc"), str(tmp_path / VOLUME_ID)))
    guest.sizes["vdc"] = 2
    attaching_to(guest).extend("u", VOLUME_ID, requested)
    assert guest.sizes == {"vdc": expected}


def test_replacing_volume_is_identified_by_its_file() -> None:
    other = "bbbbbbbb-0000-4000-8000-000000000002"
    swapped = ET.fromstring(domain(disks.Disk(path=f"/v/{other}", device="vdc", format="raw", serial=VOLUME_ID)))
    (disk,) = swapped.iter("disk")
    assert volumes.volume_of(disk) == other
    source = disk.find("source")
    assert source is not None
    for name, value, known in (
        ("dev", f"/dev/mapper/volume-{other}", other),
        ("name", f"pool/volume-{other}", other),
        ("dev", "/dev/sdx", VOLUME_ID),
    ):
        source.attrib.clear()
        source.set(name, value)
        assert volumes.volume_of(disk) == known
    (local_disk,) = ET.fromstring(domain(disks.Disk(path=f"/i/{other}", device="vda", format="raw"))).iter("disk")
    assert volumes.volume_of(local_disk) is None


def test_shared_volume_is_shareable_and_bypasses_the_cache(tmp_path: Path) -> None:
    made = disks.volume_disk(volume("/dev/vdc", multiattach=True, read_only=True), "/dev/disk/by-path/one")
    element = guest_xml.disk_element(made)
    driver = element.find("driver")
    assert element.find("shareable") is not None and element.find("readonly") is not None
    assert driver is not None and driver.get("cache") == "none"
    plain = guest_xml.disk_element(disks.volume_disk(volume("/dev/vdc"), "/dev/disk/by-path/one"))
    assert plain.find("shareable") is None and plain.find("readonly") is None


def test_volume_that_hosts_cannot_share_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """qemu locks qcow2 files for one guest, and each host caches files that it does not open directly."""
    shared = volume("/dev/vdc", multiattach=True)
    with pytest.raises(exceptions.VirtDriverError, match="its files lie on top of each other"):
        disks.volume_disk(shared, Qcow2Disk(path="/dev/x"))
    monkeypatch.setattr(disks, "supports_direct_io", lambda directory: False)
    disks.volume_disk(volume("/dev/vdc"), str(tmp_path / VOLUME_ID))
    with pytest.raises(exceptions.VirtDriverError, match="its file system has no direct access to files"):
        disks.volume_disk(shared, str(tmp_path / VOLUME_ID))

"""Backups of real guests' disks: whole ones, increments, and the disks that come back."""

from __future__ import annotations

import io
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.backups import disk_data, disk_parts, qcow2_file
from nova_lite.backups.disk_data import DiskHeader, Extent
from nova_lite.objects import VolumeVerb, VolumeWork
from nova_lite.virt.abilities import BackupRequest, SpawnSpec
from nova_lite.virt.driver import snapshots_path
from nova_lite.virt.images import QemuImg
from nova_lite.virt.libvirt.disks.disks import root_file
from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.volume.local import LocalVolumes
from tests.integration.libvirt.conftest import PATIENCE, Images, boot, guest_spec
from tests.integration.libvirt.guests import console_line, user_data
from tests.integration.libvirt.volumes import device, local_volumes
from tests.support.waiting import wait_for

IDS = [f"{number}1111111-1111-4111-8111-111111111111" for number in range(6)]
VOLUME = "71111111-1111-4111-8111-111111111111"
#: The first boot writes A, and the next ones write B and zeros. The test guest's root disk has no file system.
WRITE = """
n=$(busybox dd if=/dev/vda bs=512 skip=20000 count=1 2>/dev/null | busybox head -c 1)
if [ "$n" = A ]; then
    busybox yes B | busybox dd of=/dev/vda bs=64k seek=200 count=4 iflag=fullblock conv=fsync 2>/dev/null
    busybox dd if=/dev/zero of=/dev/vda bs=64k seek=162 count=1 conv=fsync 2>/dev/null
    echo B is written
else
    busybox yes A | busybox dd of=/dev/vda bs=512 seek=20000 count=2000 iflag=fullblock conv=fsync 2>/dev/null
    echo A is written
fi
"""


class Guest:
    """A real guest with a volume, and its backups. ``volume``: the volume's file."""

    def __init__(self, driver: LibvirtDriver, spec: SpawnSpec, directory: Path, volumes: LocalVolumes) -> None:
        self.driver, self.uuid, self.directory, self.volumes = driver, spec.instance.uuid, directory, volumes
        path, self.kind = root_file(driver._records.directory(self.uuid))
        self.disk = Path(path)
        self.volume = Path(volumes.require(VOLUME))

    def back_up(self, number: int, base: int | None = None, disks: tuple[str, ...] = ("", VOLUME)) -> DiskHeader:
        """Make a backup, and check that it makes the disks together with ``base`` and what that is based on."""
        path = self.path(number)
        sizes = {"": self.size, VOLUME: self.volume.stat().st_size}
        request = BackupRequest(
            backup_id=IDS[number],
            disks=list(disks),
            base=None if base is None else IDS[base],
            base_size=self.size,
            base_disks=[(name, sizes[name]) for name in disks],
        )
        self.driver.backups.take(
            self.uuid, str(path), request, lambda: None, lambda volume_id: self.volumes.exported(volume_id, "raw")
        )
        with path.open("rb") as file:
            header = disk_data.read_header(file)
        assert header.base in (None, request.base)
        assert [part.volume_id for part in header.parts] == list(disks)
        assert are_same(self.restored(number), self.disk, self.kind)
        if disks:
            assert are_same(self.restored(number, VOLUME), self.volume, "raw")
        return header

    def path(self, number: int) -> Path:
        return self.directory / IDS[number]

    @property
    def size(self) -> int:
        return QemuImg(self.driver.conf).info(str(self.disk), self.kind).virtual_size

    def restored(self, number: int, volume_id: str = "") -> Path:
        """Return a disk that a backup makes with its bases, as a qcow2 file."""
        layers: list[tuple[DiskHeader, Any]] = []
        wanted: str | None = IDS[number]
        while wanted is not None:
            source = io.BytesIO((self.directory / wanted).read_bytes())
            header = disk_data.read_header(source)
            layers.insert(0, (header, source))
            wanted = header.base
        target = self.directory / f"restored-{number}{volume_id}.qcow2"
        for disk in disk_parts.split(*disk_data.fold(layers)):
            if disk.volume_id == volume_id:
                with target.open("wb") as file:
                    qcow2_file.write(disk.header, disk.chunks, file)
        assert subprocess.run(["qemu-img", "check", "-q", target], check=False).returncode == 0
        return target

    def wait(self, text: str) -> None:
        """Wait for a line of the console, and pause the guest, so that its disk does not change."""
        console_line(self.driver, self.uuid, text)
        self.driver.standby.pause(self.uuid)


def are_same(one: Path, other: Path, kind: str = "qcow2") -> bool:
    """Compare the contents of two disks. Their guest is paused or off. ``kind``: format of the other one."""
    compared = subprocess.run(["qemu-img", "compare", "-q", "-U", "-f", "qcow2", "-F", kind, one, other], check=False)
    assert compared.returncode in (0, 1)
    return compared.returncode == 0


def on_root(header: DiskHeader, extents: list[Extent]) -> int:
    """Return the number of bytes of extents on the root disk, which is the first one."""
    return sum(length for offset, length in extents if offset < header.parts[0].size)


@pytest.fixture
def writer(connection: Any, driver: LibvirtDriver, images: Images) -> Iterator[Guest]:
    directory = Path(snapshots_path(driver.conf, driver.host))
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o711)
    spec = guest_spec(images, [], hostname="first", config_drive=True, user_data=user_data(WRITE))
    volumes = local_volumes(directory)
    volumes.create(VolumeWork(id=1, verb=VolumeVerb.CREATE, volume_id=VOLUME, size=1))
    with open(volumes.require(VOLUME), "r+b") as file:
        file.seek(5_000_000)
        file.write(b"volume" * 300_000)
    boot(driver, spec)
    driver.volumes.attach(spec.instance.uuid, device(VOLUME, "/dev/vdc"), volumes.require(VOLUME))
    made = Guest(driver, spec, directory, volumes)
    made.wait("A is written")
    yield made
    driver.guests.destroy(made.uuid)
    assert not any(".copy" in path.name for path in directory.iterdir())


def test_backups_of_a_guest_make_its_disk_and_increments_are_small(connection: Any, writer: Guest) -> None:
    guest, driver = writer, writer.driver
    domain = connection.lookupByUUIDString(guest.uuid)
    whole = guest.back_up(0)
    assert whole.base is None
    after_a = guest.restored(0).rename(guest.directory / "after-a")
    nothing = guest.back_up(1, base=0)
    assert nothing.base == IDS[0]
    assert on_root(nothing, nothing.data) == 0
    assert on_root(whole, whole.data) < whole.length, "the volume is in it"

    driver.power.reboot(guest.uuid, "HARD", 0)
    guest.wait("B is written")
    increment = guest.back_up(2, base=1)
    assert increment.base == IDS[1]
    assert 4 * 65536 <= on_root(increment, increment.data) + on_root(increment, increment.zero) < 2 * 1024**2
    assert on_root(increment, increment.data) < on_root(whole, whole.data) / 2
    assert are_same(guest.restored(1), after_a), "the earlier backup is as it was"
    assert not are_same(guest.disk, after_a)
    assert sorted(found.getName() for found in domain.listAllCheckpoints()) == [
        f"nova-lite-{IDS[1]}",
        f"nova-lite-{IDS[2]}",
    ]

    assert guest.back_up(3, base=0).base is None, "its checkpoint is gone"
    os.kill(int(Path(f"/run/libvirt/qemu/{domain.name()}.pid").read_text()), signal.SIGKILL)
    wait_for("end of the guest", lambda: not domain.isActive(), PATIENCE)
    driver.power.on(guest.uuid)
    driver.standby.pause(guest.uuid)
    root_alone = guest.back_up(4, base=3, disks=())
    assert root_alone.base is None, "a guest that was killed has recorded nothing for sure"
    driver.power.off(guest.uuid, 0)
    assert guest.back_up(5, base=4).base is None, "a guest that is off is read as a whole"
    QemuImg(driver.conf).remove_bitmaps(str(guest.disk))
    subprocess.run(["qemu-img", "resize", "-q", "-f", "qcow2", str(guest.disk), "+1M"], check=True)


@pytest.mark.parametrize("form", ["raw"])
def test_backups_of_a_raw_disk_are_whole_ones(connection: Any, writer: Guest) -> None:
    guest, driver = writer, writer.driver
    whole = guest.back_up(0)
    assert on_root(whole, whole.data) < 1024**3 / 2, "holes take no room"
    assert guest.back_up(1, base=0).base is None, "a raw disk records no changes"
    assert guest.back_up(2, base=1, disks=()).base is None
    driver.power.off(guest.uuid, 0)
    assert guest.back_up(3, base=1).base is None
    assert connection.lookupByUUIDString(guest.uuid).listAllCheckpoints() == []

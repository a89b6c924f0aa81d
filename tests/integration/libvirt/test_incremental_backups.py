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

from nova_lite.backups import disk_data, qcow2_file
from nova_lite.backups.disk_data import DiskHeader
from nova_lite.virt.driver import BackupRequest, SpawnSpec, snapshots_path
from nova_lite.virt.images import QemuImg
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration.libvirt.conftest import Images, boot, guest_spec, wait_for
from tests.integration.libvirt.guests import console_line, user_data

IDS = [f"{number}1111111-1111-4111-8111-111111111111" for number in range(6)]
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
    """A real guest, its disk, and its backups."""

    def __init__(self, driver: LibvirtDriver, spec: SpawnSpec, directory: Path) -> None:
        self.driver, self.uuid, self.directory = driver, spec.instance.uuid, directory
        self.disk = Path(driver.conf.state_path, "instances", self.uuid, "disk")

    def back_up(self, number: int, base: int | None = None) -> DiskHeader:
        """Make a backup, and check that it makes the disk together with ``base`` and what that is based on."""
        path = self.path(number)
        request = BackupRequest(backup_id=IDS[number], base=None if base is None else IDS[base], base_size=self.size)
        self.driver.back_up_disk(self.uuid, str(path), request, lambda: None)
        with path.open("rb") as file:
            header = disk_data.read_header(file)
        assert header.base in (None, request.base)
        assert are_same(self.restored(number), self.disk)
        return header

    def path(self, number: int) -> Path:
        return self.directory / IDS[number]

    @property
    def size(self) -> int:
        return QemuImg(self.driver.conf).info(str(self.disk), "qcow2").virtual_size

    def restored(self, number: int) -> Path:
        """Return the disk that a backup makes with its bases, as a qcow2 file."""
        layers: list[tuple[DiskHeader, Any]] = []
        wanted: str | None = IDS[number]
        while wanted is not None:
            source = io.BytesIO((self.directory / wanted).read_bytes())
            header = disk_data.read_header(source)
            layers.insert(0, (header, source))
            wanted = header.base
        target = self.directory / f"restored-{number}.qcow2"
        with target.open("wb") as file:
            qcow2_file.write(*disk_data.fold(layers), file)
        assert subprocess.run(["qemu-img", "check", "-q", target], check=False).returncode == 0
        return target

    def wait(self, text: str) -> None:
        """Wait for a line of the console, and pause the guest, so that its disk does not change."""
        console_line(self.driver, self.uuid, text)
        self.driver.pause(self.uuid)


def are_same(one: Path, other: Path) -> bool:
    """Compare the contents of two disks. Their guest is paused or off."""
    compared = subprocess.run(["qemu-img", "compare", "-q", "-U", one, other], check=False)
    assert compared.returncode in (0, 1)
    return compared.returncode == 0


@pytest.fixture
def writer(connection: Any, driver: LibvirtDriver, images: Images) -> Iterator[Guest]:
    directory = Path(snapshots_path(driver.conf, driver.host))
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o711)
    spec = guest_spec(images, [], hostname="first", config_drive=True, user_data=user_data(WRITE))
    boot(driver, spec)
    made = Guest(driver, spec, directory)
    made.wait("A is written")
    yield made
    driver.destroy(made.uuid)
    assert not any(path.name.endswith(".copy") for path in directory.iterdir())


def test_backups_of_a_guest_make_its_disk_and_increments_are_small(connection: Any, writer: Guest) -> None:
    guest, driver = writer, writer.driver
    domain = connection.lookupByUUIDString(guest.uuid)
    whole = guest.back_up(0)
    assert whole.base is None
    after_a = guest.restored(0).rename(guest.directory / "after-a")
    nothing = guest.back_up(1, base=0)
    assert (nothing.base, nothing.length) == (IDS[0], 0)

    driver.reboot(guest.uuid, "HARD", 0)
    guest.wait("B is written")
    increment = guest.back_up(2, base=1)
    assert increment.base == IDS[1]
    assert 4 * 65536 <= increment.length + sum(length for _, length in increment.zero) < 2 * 1024**2
    assert increment.length < whole.length / 2
    assert are_same(guest.restored(1), after_a), "the earlier backup is as it was"
    assert not are_same(guest.disk, after_a)
    assert sorted(found.getName() for found in domain.listAllCheckpoints()) == [
        f"nova-lite-{IDS[1]}",
        f"nova-lite-{IDS[2]}",
    ]

    assert guest.back_up(3, base=0).base is None, "its checkpoint is gone"
    os.kill(int(Path(f"/run/libvirt/qemu/{domain.name()}.pid").read_text()), signal.SIGKILL)
    wait_for("end of the guest", lambda: not domain.isActive())
    driver.power_on(guest.uuid)
    driver.pause(guest.uuid)
    assert guest.back_up(4, base=3).base is None, "a guest that was killed has recorded nothing for sure"
    driver.power_off(guest.uuid, 0)
    assert guest.back_up(5, base=4).base is None, "a guest that is off is read as a whole"
    QemuImg(driver.conf).remove_bitmaps(str(guest.disk))
    subprocess.run(["qemu-img", "resize", "-q", "-f", "qcow2", str(guest.disk), "+1M"], check=True)

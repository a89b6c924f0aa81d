"""Backups of disks: the room that they take, and that they leave to the guests. The guest's hypervisor is scripted."""

from __future__ import annotations

import contextlib
import os
import subprocess
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import libvirt
import pytest

from nova_lite.backups import disk_data
from nova_lite.base import exceptions
from nova_lite.base.disk_room import MIB, DiskRoom
from nova_lite.operations.states import PowerState
from nova_lite.virt import images
from nova_lite.virt.abilities import BackupRequest, DomainInfo
from nova_lite.virt.libvirt.connection import LibvirtBusy
from nova_lite.virt.libvirt.disks.incremental import DiskBackups
from nova_lite.virt.libvirt.disks.snapshots import Snapshotter
from nova_lite.virt.libvirt.records import Records
from tests.support import make
from tests.support.libvirt_errors import libvirt_error
from tests.unit.virt.libvirt.scripted import Calls

GUEST, VOLUME, BACKUP = (f"{number}1111111-1111-4111-8111-111111111111" for number in range(1, 4))
SIZE = 64 * MIB


class Guest(Calls):
    """Connection, domains, mirrors and domain in one: a guest with a root disk and a volume. ``free``: bytes.

    ``grows``: bytes that other guests write while the hypervisor copies.
    """

    def __init__(self, directory: Path, free: int, power_state: PowerState = PowerState.RUNNING) -> None:
        self.directory, self.power_state, self.free, self.grows = directory, power_state, free, 0
        self.least = free
        self.root, self.volume = directory / "disk", directory / VOLUME
        run("create", "-f", "qcow2", str(self.root), str(SIZE))
        with self.volume.open("wb") as file:
            file.truncate(SIZE)
        self.calls: list[str] = []
        self.polls = 0

    def fill(self, megabytes: int) -> None:
        """Write random data to the volume."""
        with self.volume.open("r+b") as file:
            file.write(os.urandom(megabytes * MIB))

    def free_now(self, directory: str) -> int:
        """Return the room left beside the files that the backup has made so far."""
        used = sum(path.stat().st_blocks * 512 for path in self.directory.glob("stream*"))
        self.least = self.free - used
        return self.least

    def get(self, instance_uuid: str) -> tuple[Any, DomainInfo]:
        return self, DomainInfo(uuid=instance_uuid, generation=1, power_state=self.power_state)

    def wait_for_job(self, domain: Any) -> None:
        self.polls = 0

    def quiesced(self, domain: Any) -> Any:
        return contextlib.nullcontext()

    def UUIDString(self) -> str:
        return GUEST

    def XMLDesc(self, flags: int) -> str:
        return (
            f"<domain><devices><disk type='file'><driver type='qcow2'/><source file='{self.root}'/><target dev='vda'/>"
            f"</disk><disk type='file'><driver type='raw'/><source file='{self.volume}'/><target dev='vdb'/>"
            f"<serial>{VOLUME}</serial></disk></devices></domain>"
        )

    def blockInfo(self, device: str, flags: int) -> list[int]:
        return [SIZE, 0, 0]

    def listAllCheckpoints(self, flags: int) -> list[Any]:
        return []

    def jobStats(self, flags: int) -> dict[str, Any]:
        self.polls -= 1
        operation = libvirt.VIR_DOMAIN_JOB_OPERATION_BACKUP
        if flags or self.polls < 0:
            return {"type": libvirt.VIR_DOMAIN_JOB_NONE, "operation": operation, "success": True}
        self.free -= self.grows
        return {"type": libvirt.VIR_DOMAIN_JOB_UNBOUNDED, "operation": operation}

    def abortJob(self) -> None:
        self.calls.append("abort")

    def backupBegin(self, backup: str, checkpoint: str | None, flags: int) -> None:
        self.calls.append("begin")
        self.polls = 3
        for disk in ET.fromstring(backup).iterfind("disks/disk"):
            source, kind = (self.root, "qcow2") if disk.get("name") == "vda" else (self.volume, "raw")
            target = disk.find("target")
            assert target is not None
            run("convert", "-n", "-f", kind, "-O", "qcow2", str(source), target.get("file", ""))


def run(*arguments: str) -> None:
    subprocess.run(["qemu-img", *arguments], check=True, capture_output=True)


def back_up(guest: Guest, tmp_path: Path, floor: int, check: Callable[[], None] = lambda: None) -> Path:
    room, qemu_img = DiskRoom(floor, guest.free_now), images.QemuImg(make.conf("sqlite://", tmp_path))
    target = guest.directory / "stream"
    request = BackupRequest(backup_id=BACKUP, disks=["", VOLUME])

    @contextlib.contextmanager
    def exported(volume_id: str) -> Iterator[str]:
        yield str(guest.volume)

    backups = DiskBackups(guest, guest, qemu_img, guest, room, lambda uuid: str(guest.directory), None)  # type: ignore[arg-type]
    backups.take(GUEST, str(target), request, check, exported)
    return target


@pytest.mark.parametrize("power_state", [PowerState.RUNNING, PowerState.SHUTDOWN])
def test_backup_without_room_for_its_data_fails_before_the_floor(tmp_path: Path, power_state: PowerState) -> None:
    guest = Guest(tmp_path, 36 * MIB, power_state)
    guest.fill(20)
    with pytest.raises(exceptions.VirtDriverError, match=r"copies of its disks need \d+ MiB more, \d+ MiB are free"):
        back_up(guest, tmp_path, floor=4 * MIB)
    assert guest.least >= 4 * MIB
    assert guest.calls == []
    assert not list(tmp_path.glob("stream*"))


@pytest.mark.parametrize("power_state", [PowerState.RUNNING, PowerState.SHUTDOWN])
def test_sparse_volume_needs_room_for_its_data_only(tmp_path: Path, power_state: PowerState) -> None:
    guest = Guest(tmp_path, 36 * MIB, power_state)
    guest.fill(10)
    target = back_up(guest, tmp_path, floor=4 * MIB)
    with target.open("rb") as file:
        assert disk_data.read_header(file).length == 10 * MIB
    assert [path.name for path in tmp_path.glob("stream*")] == ["stream"]


def test_backup_ends_when_other_guests_take_the_room(tmp_path: Path) -> None:
    guest = Guest(tmp_path, 64 * MIB)
    guest.fill(10)
    guest.grows = 50 * MIB
    with pytest.raises(exceptions.VirtDriverError, match="4 MiB have to stay free"):
        back_up(guest, tmp_path, floor=4 * MIB)
    assert guest.calls == ["begin", "abort"]
    assert not list(tmp_path.glob("stream*"))


def test_copies_are_removed_as_soon_as_the_stream_has_their_data(tmp_path: Path) -> None:
    """A backup then takes the room of its disks and of the largest of them, not twice that of all."""
    guest = Guest(tmp_path, 1 << 40)
    guest.fill(10)
    run("convert", "-n", "-f", "raw", "-O", "qcow2", str(guest.volume), str(guest.root))
    removed: list[str] = []
    free_now = guest.free_now

    def watch(directory: str) -> int:
        removed.extend(path.name for path in tmp_path.glob("stream*") if path.name not in removed)
        return free_now(directory)

    guest.free_now = watch  # type: ignore[method-assign]
    back_up(guest, tmp_path, floor=0)
    assert sorted(removed) == ["stream", "stream.copy", "stream.copy1"]
    assert [path.name for path in tmp_path.glob("stream*")] == ["stream"]


def test_backup_of_a_running_guest_with_its_disk_in_a_pool_copies_that_disk(tmp_path: Path) -> None:
    records = Records(str(tmp_path), "h")
    records.prepare()
    guest = Guest(Path(records.create(GUEST, 1, pooled=True)), 500 * MIB)
    guest.fill(1)
    run("convert", "-f", "raw", "-O", "qcow2", str(guest.volume), str(guest.root))
    description = guest.XMLDesc(0).replace("type='qcow2'", "type='raw'", 1)
    description = description.replace(f"file='{guest.root}'", f"protocol='rbd' name='pool/server-{GUEST}-1-disk'")
    guest.XMLDesc = lambda flags: description  # type: ignore[method-assign]
    pool = types.SimpleNamespace(spec=lambda key, disk: f"pool/server-{key}-{disk}")
    room, qemu_img = DiskRoom(0, guest.free_now), images.QemuImg(make.conf("sqlite://", tmp_path))
    backups = DiskBackups(guest, guest, qemu_img, guest, room, lambda uuid: str(guest.directory), pool)  # type: ignore[arg-type]
    target = guest.directory / "stream"
    backups.take(GUEST, str(target), BackupRequest(backup_id=BACKUP), lambda: None, None)  # type: ignore[arg-type]
    with target.open("rb") as file:
        assert disk_data.read_header(file).size == SIZE
        assert guest.volume.read_bytes()[:MIB] in file.read()
    assert guest.calls[0] == "begin"


def test_snapshot_without_room_fails_before_the_floor(tmp_path: Path) -> None:
    guest = Guest(tmp_path, 16 * MIB, PowerState.SHUTDOWN)
    guest.fill(20)
    run("convert", "-f", "raw", "-O", "qcow2", str(guest.volume), str(guest.root))
    conf = make.conf("sqlite://", tmp_path)
    room = DiskRoom(4 * MIB, guest.free_now)
    snapshots = Snapshotter(guest, guest, images.QemuImg(conf), room, None, lambda uuid: str(tmp_path), None)  # type: ignore[arg-type]
    with pytest.raises(exceptions.VirtDriverError, match=r"copies of its disk need 2\d MiB more"):
        snapshots.take(GUEST, str(tmp_path / "stream"), lambda: None)
    assert not list(tmp_path.glob("stream*"))


def test_disk_with_an_image_below_counts_both(tmp_path: Path) -> None:
    guest = Guest(tmp_path, 36 * MIB, PowerState.SHUTDOWN)
    guest.fill(20)
    guest.root.unlink()
    run("create", "-f", "qcow2", "-b", str(guest.volume), "-F", "raw", str(guest.root))
    conf = make.conf("sqlite://", tmp_path)
    room = DiskRoom(18 * MIB, guest.free_now)
    snapshots = Snapshotter(guest, guest, images.QemuImg(conf), room, None, lambda uuid: str(tmp_path), None)  # type: ignore[arg-type]
    with pytest.raises(exceptions.VirtDriverError, match="18 MiB have to stay free"):
        snapshots.take(GUEST, str(tmp_path / "stream"), lambda: None)


def test_backup_continues_after_a_missed_poll_of_its_job(tmp_path: Path) -> None:
    guest = Guest(tmp_path, 500 * MIB, PowerState.RUNNING)
    poll, refused = guest.jobStats, [True]

    def refuse_once(flags: int) -> dict[str, Any]:
        if not flags and guest.polls > 0 and refused:
            refused.clear()
            raise LibvirtBusy(libvirt_error(libvirt.VIR_ERR_OPERATION_TIMEOUT))
        return poll(flags)

    guest.jobStats = refuse_once  # type: ignore[method-assign]
    assert back_up(guest, tmp_path, floor=4 * MIB).exists()
    assert (guest.calls, refused) == (["begin"], [])


@pytest.mark.parametrize("name", ["jobStats", "abortJob"])
def test_backup_that_fails_is_ended_although_libvirt_is_busy(tmp_path: Path, name: str) -> None:
    guest = Guest(tmp_path, 500 * MIB, PowerState.RUNNING)
    call, left = getattr(guest, name), [1, 1]

    def refuse(*arguments: int) -> Any:
        if guest.calls and not any(arguments) and left:
            left.pop()
            raise LibvirtBusy(libvirt_error(libvirt.VIR_ERR_OPERATION_TIMEOUT))
        return call(*arguments)

    def check() -> None:
        if guest.calls:
            guest.polls = 100
            setattr(guest, name, refuse)
            raise exceptions.Fenced("over")

    with pytest.raises(exceptions.Fenced):
        back_up(guest, tmp_path, floor=4 * MIB, check=check)
    assert guest.calls == ["begin", "abort"]

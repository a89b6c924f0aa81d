"""Disks that a lost host has left in a directory that other hosts share."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.base.timing import LibvirtTiming
from nova_lite.objects import DiskPlace, LeftDisks
from nova_lite.virt.libvirt.disks import disk_locks
from nova_lite.virt.libvirt.disks.left_disks import LeftDisksFinder
from nova_lite.virt.libvirt.disks.marks import LIFETIME, Marks
from nova_lite.virt.libvirt.records import Records
from tests.support.clock import Clock

UUID = str(uuid.uuid4())


class Host:
    """A host with its view of a directory."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self.clock = Clock()
        path.mkdir(exist_ok=True)
        self.records = Records(str(path), name)
        self.records.prepare()
        self.marks = Marks(self.records.instances_path, name, self.clock)
        self.marks.look()
        self.finder = LeftDisksFinder(self.records, self.marks)

    def make(self, generation: int) -> Path:
        directory = Path(self.records.create(UUID, generation, ["image"]))
        (directory / "disk").write_text("data")
        return directory

    def left(self, generation: int, required: bool = True) -> LeftDisks:
        return LeftDisks(
            places=[DiskPlace(host=self.name, generation=generation, marks=self.marks.look().marks)], required=required
        )

    def take(self, left: LeftDisks, generation: int = 2) -> str | None:
        return self.finder.take(UUID, generation, [], left)


def data_of(directory: str | None) -> str:
    assert directory is not None
    return Path(directory, "disk").read_text()


@pytest.fixture
def lost(tmp_path: Path) -> Host:
    host = Host(tmp_path / "shared", "lost")
    host.make(1)
    return host


@pytest.fixture
def target(tmp_path: Path, lost: Host) -> Host:
    return Host(tmp_path / "shared", "target")


def test_target_takes_the_disks(lost: Host, target: Host) -> None:
    directory = target.take(lost.left(1))
    assert data_of(directory) == "data"
    assert directory == target.records.directory(UUID)
    assert (target.records.generation(UUID), lost.records.owns(UUID)) == (2, False)
    assert target.records.images_in(str(directory)) == ["image"]
    assert target.records.has_taken() == {UUID}


def test_lost_host_that_returns_removes_nothing(lost: Host, target: Host) -> None:
    directory = target.take(lost.left(1))
    lost.records.remove(UUID)
    lost.records.discard_set_aside(UUID)
    lost.records.discard_kept(UUID)
    assert data_of(directory) == "data"
    assert (lost.records.uuids(), target.records.uuids()) == (set(), {UUID})


def test_failed_build_gives_the_disks_back(lost: Host, target: Host) -> None:
    target.take(lost.left(1))
    target.records.remove(UUID)
    assert (target.records.owns(UUID), lost.records.generation(UUID)) == (False, 1)
    assert data_of(lost.records.directory(UUID)) == "data"
    assert data_of(target.take(lost.left(1), 3)) == "data"


def test_disks_of_a_built_server_are_removed_with_it(lost: Host, target: Host) -> None:
    directory = target.take(lost.left(1))
    target.records.own(UUID)
    assert target.records.has_taken() == set()
    target.records.remove(UUID)
    assert not os.path.exists(str(directory))


def test_returning_host_keeps_disks_that_nobody_has_taken_yet(lost: Host, target: Host) -> None:
    lost.records.keep(UUID)
    lost.records.remove(UUID)
    assert lost.records.uuids() == {UUID}
    assert data_of(target.take(lost.left(1))) == "data"
    assert lost.records.uuids() == set()


def test_kept_disks_are_removed_when_the_server_has_others(lost: Host) -> None:
    lost.records.keep(UUID)
    lost.records.discard_kept(UUID)
    assert lost.records.uuids() == set()


def test_next_target_takes_disks_of_a_target_that_was_lost_too(tmp_path: Path, lost: Host, target: Host) -> None:
    target.take(lost.left(1), 2)
    third = Host(tmp_path / "shared", "third")
    places = [*target.left(2).places, *lost.left(1).places]
    directory = third.take(LeftDisks(places=places, required=True), 3)
    assert data_of(directory) == "data"
    target.records.remove(UUID)
    target.records.own(UUID)
    assert (data_of(directory), third.records.generation(UUID)) == ("data", 3)


def test_two_targets_cannot_take_the_same_disks(tmp_path: Path, lost: Host, target: Host) -> None:
    third = Host(tmp_path / "shared", "third")
    found = third.records.find_left(UUID, {("lost", 1)})
    assert found is not None
    directory = target.take(lost.left(1))
    with pytest.raises(FileNotFoundError):
        third.records.take(*found, 3, [])
    assert data_of(directory) == "data"


def test_crash_after_the_rename_is_repeated(lost: Host, target: Host) -> None:
    os.rename(lost.records.directory(UUID), target.records._beside(UUID))
    assert not target.records.owns(UUID)
    directory = target.take(lost.left(1))
    target.records.remove(UUID)
    assert directory is not None
    assert data_of(lost.records.directory(UUID)) == "data"


@pytest.mark.parametrize("why", ["generation", "mark", "stale copy", "other directory", "none reported"])
def test_disks_without_proof_are_not_taken(tmp_path: Path, lost: Host, target: Host, why: str) -> None:
    left = lost.left(1)
    if why == "generation":
        left = lost.left(2)
    elif why in ("mark", "none reported"):
        marks = ["0" * 32] if why == "mark" else []
        left = LeftDisks(places=[DiskPlace(host="lost", generation=1, marks=marks)], required=True)
    elif why == "stale copy":
        shutil.copytree(tmp_path / "shared", tmp_path / "copy")
        target = Host(tmp_path / "copy", "target2")
        for _ in range(2):
            lost.clock.time += LIFETIME
            left = lost.left(1)
    else:
        target = Host(tmp_path / "own", "target")
        shutil.copytree(lost.records.directory(UUID), target.records.directory(UUID))
    with pytest.raises(exceptions.DisksNotHere):
        target.take(left)
    assert target.take(LeftDisks(places=left.places)) is None
    assert data_of(lost.records.directory(UUID)) == "data"


def test_second_directory_with_the_same_record_is_an_error(lost: Host, target: Host) -> None:
    path = lost.records.directory(UUID)
    shutil.copytree(path, f"{path}@copy")
    with pytest.raises(OSError, match="Several"):
        target.take(lost.left(1))


@pytest.mark.parametrize("kind", ["link", "hard link", "directory"])
def test_link_among_the_disks_is_refused(tmp_path: Path, lost: Host, target: Host, kind: str) -> None:
    directory, secret = Path(lost.records.directory(UUID)), tmp_path / "secret"
    secret.write_text("x")
    if kind == "link":
        (directory / "disk.swap").symlink_to(secret)
    elif kind == "hard link":
        os.link(secret, directory / "disk.swap")
    else:
        (directory / "disk.swap").mkdir()
    with pytest.raises(exceptions.DisksNotHere, match="not a plain file"):
        target.take(lost.left(1))
    assert lost.records.owns(UUID)


# --- locks of qemu


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """Provide a directory with a disk that qemu has open for writing, and its process."""
    disk = tmp_path / "disk"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", disk, "1M"], check=True)
    with subprocess.Popen(["qemu-io", "-f", "qcow2", str(disk)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        run.stdin.write(b"write 0 512\n")
        run.stdin.flush()
        while b"wrote" not in run.stdout.readline():
            pass
        yield tmp_path, run
        run.kill()


def test_disk_that_qemu_writes_to_is_refused_until_qemu_ends(writer: tuple[Path, subprocess.Popen[bytes]]) -> None:
    directory, process = writer
    with pytest.raises(exceptions.DiskInUse, match="disk"):
        disk_locks.require_free(UUID, str(directory))
    with pytest.raises(exceptions.DiskInUse):
        disk_locks.wait_until_free(UUID, str(directory), lambda: None, LibvirtTiming(disk_lock_wait=0.0))
    calls = []

    def end() -> None:
        calls.append(1)
        process.kill()

    disk_locks.wait_until_free(UUID, str(directory), end, LibvirtTiming(disk_lock_wait=30.0, disk_lock_poll=0.1))
    assert calls


def test_wait_for_a_disk_ends_when_the_build_is_not_wanted(writer: tuple[Path, subprocess.Popen[bytes]]) -> None:
    def stop() -> None:
        raise exceptions.Fenced(instance_uuid=UUID, generation=1)

    with pytest.raises(exceptions.Fenced):
        disk_locks.wait_until_free(UUID, str(writer[0]), stop, LibvirtTiming())


def test_disk_that_does_not_exist_is_free(tmp_path: Path) -> None:
    disk_locks.require_free(UUID, str(tmp_path))

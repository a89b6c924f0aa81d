"""Backend ``local``: files are made once, and are complete or missing."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.base.disk_room import MIB, DiskRoom
from nova_lite.objects import BlockDevice, Image, VolumeVerb, VolumeWork
from nova_lite.objects.block_device import DeviceSource
from nova_lite.virt import images as disk_images
from nova_lite.volume import builtin
from nova_lite.volume.local import GIB, LocalVolumes
from tests.support import exports, make

DATA = b"what an image says" * 1000


@pytest.fixture
def volumes(tmp_path: Path) -> LocalVolumes:
    conf = make.conf("sqlite://", tmp_path)
    conf.set_override("store_path", str(tmp_path / "volumes"), "volume")
    source = tmp_path / "image"
    source.write_bytes(DATA)

    def fetch(image: Image, target: str) -> None:
        Path(target).write_bytes((tmp_path / image.name).read_bytes())

    return LocalVolumes(conf, fetch)


def new_id() -> str:
    return str(uuid.uuid4())


def create(volumes: LocalVolumes, size: int = 1, **source: Any) -> str:
    volume_id = new_id()
    volumes.create(VolumeWork(id=1, verb=VolumeVerb.CREATE, volume_id=volume_id, size=size, **source))
    return volume_id


def image(name: str = "image", disk_format: str = "raw") -> Image:
    return Image(id=new_id(), name=name, disk_format=disk_format)


def names(volumes: LocalVolumes) -> list[str]:
    return sorted(name for _, _, found in os.walk(volumes.conf.volume.store_path) for name in found)


def test_new_volume_is_empty(volumes: LocalVolumes) -> None:
    path = volumes.require(create(volumes, 2))
    found = os.stat(path)
    assert (found.st_size, found.st_blocks, found.st_mode & 0o777) == (2 * GIB, 0, 0o600)


def test_existing_volume_is_unchanged(volumes: LocalVolumes) -> None:
    """A guest may have written to the volume, so a late repetition of the work changes nothing."""
    volume_id = create(volumes)
    Path(volumes.require(volume_id)).write_bytes(b"a guest's")
    volumes.create(VolumeWork(id=1, verb=VolumeVerb.CREATE, volume_id=volume_id, size=1))
    assert Path(volumes.require(volume_id)).read_bytes() == b"a guest's"


def test_concurrent_creation_by_two_hosts(volumes: LocalVolumes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another host finishes the same work first, and a guest already uses the volume."""
    volume_id = new_id()
    path = Path(volumes.path(volume_id))
    truncate = os.truncate

    def slow(part: str, size: int) -> None:
        truncate(part, size)
        path.write_bytes(b"a guest's")

    monkeypatch.setattr(os, "truncate", slow)
    volumes.create(VolumeWork(id=1, verb=VolumeVerb.CREATE, volume_id=volume_id, size=1))
    assert path.read_bytes() == b"a guest's"
    assert names(volumes) == [volume_id]


def test_volume_from_an_image(volumes: LocalVolumes, tmp_path: Path) -> None:
    path = Path(volumes.require(create(volumes, image=image())))
    assert path.stat().st_size == GIB
    assert path.read_bytes()[: len(DATA)] == DATA
    disk_images.run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(tmp_path / "image"), str(tmp_path / "qcow2"))
    converted = Path(volumes.require(create(volumes, image=image("qcow2", "qcow2"))))
    assert converted.read_bytes()[: len(DATA)] == DATA


@pytest.mark.parametrize("disk_format", ["qcow2", "vmdk"])
def test_image_of_another_format_is_refused(volumes: LocalVolumes, disk_format: str) -> None:
    with pytest.raises(exceptions.NovaLiteException):
        create(volumes, image=image("image", disk_format))
    assert names(volumes) == []


def test_image_with_another_file_is_refused(volumes: LocalVolumes, tmp_path: Path) -> None:
    base = ("-b", str(tmp_path / "image"), "-F", "raw")
    disk_images.run("qemu-img", "create", "-q", "-f", "qcow2", *base, str(tmp_path / "overlay"), "1M")
    with pytest.raises(exceptions.ImageUnacceptable, match="it has a backing file"):
        create(volumes, image=image("overlay", "qcow2"))
    assert names(volumes) == []


def test_vmdk_descriptor_that_names_a_file_of_the_host_is_refused(volumes: LocalVolumes, tmp_path: Path) -> None:
    text = exports.DESCRIPTOR.format(kind="monolithicSparse", extent='RW 2048 FLAT "image" 0').ljust(65536, "\n")
    (tmp_path / "text").write_text(text)
    with pytest.raises(exceptions.ImageUnacceptable, match="its data are in other files"):
        create(volumes, image=image("text", "vmdk"))
    assert names(volumes) == []


def test_volume_from_an_archive_has_its_first_disk(volumes: LocalVolumes, tmp_path: Path) -> None:
    disk = exports.stream_optimized(DATA.ljust(65536, b"\0"))
    (tmp_path / "vm.ova").write_bytes(exports.ova({"vm.ovf": exports.ovf(["d.vmdk"]), "d.vmdk": disk}))
    wanted = msgspec.structs.replace(image("vm.ova", "vmdk"), container_format="ova")
    path = Path(volumes.require(create(volumes, image=wanted)))
    assert path.stat().st_size == GIB
    assert path.read_bytes()[: len(DATA)] == DATA


def test_image_larger_than_the_volume_is_refused(volumes: LocalVolumes, tmp_path: Path) -> None:
    disk_images.run("qemu-img", "create", "-q", "-f", "qcow2", str(tmp_path / "large"), "2G")
    with pytest.raises(exceptions.ImageUnacceptable, match="it needs 2 GB, and the volume has 1"):
        create(volumes, image=image("large", "qcow2"))


def test_snapshots_and_copies_of_volumes(volumes: LocalVolumes) -> None:
    volume_id = create(volumes)
    path = Path(volumes.require(volume_id))
    path.write_bytes(b"before")
    snapshot_id = new_id()
    volumes.create_snapshot(volume_id, snapshot_id)
    path.write_bytes(b"after")
    volumes.create_snapshot(volume_id, snapshot_id)
    copy = Path(volumes.require(create(volumes, 2, source_snapshot=snapshot_id)))
    clone = Path(volumes.require(create(volumes, 1, source_volume=volume_id)))
    assert (copy.read_bytes()[:6], copy.stat().st_size) == (b"before", 2 * GIB)
    assert clone.read_bytes()[:5] == b"after"
    volumes.delete_snapshot(snapshot_id)
    volumes.delete_snapshot(snapshot_id)
    with pytest.raises(exceptions.VolumeFileMissing):
        create(volumes, source_snapshot=snapshot_id)


def test_extend_never_shrinks(volumes: LocalVolumes) -> None:
    volume_id = create(volumes, 2)
    volumes.extend(volume_id, 3)
    volumes.extend(volume_id, 1)
    assert os.path.getsize(volumes.require(volume_id)) == 3 * GIB


@pytest.mark.parametrize("other", [5, 2])
def test_extension_that_a_larger_one_overtakes_takes_no_data(
    volumes: LocalVolumes, monkeypatch: pytest.MonkeyPatch, other: int
) -> None:
    """A partitioned host continues with an older extension."""
    path, getsize = volumes.require(create(volumes, 2)), os.path.getsize

    def slow(asked: str) -> int:
        size = getsize(asked)
        os.truncate(path, other * GIB)
        return size

    monkeypatch.setattr(os.path, "getsize", slow)
    volumes.extend(os.path.basename(path), 3)
    assert os.stat(path).st_size == max(other, 3) * GIB


def test_deleted_volume_has_no_file(volumes: LocalVolumes) -> None:
    volume_id = create(volumes)
    volumes.delete(volume_id)
    volumes.delete(volume_id)
    with pytest.raises(exceptions.VolumeFileMissing):
        volumes.require(volume_id)


def test_volumes_of_a_new_guest_are_created(volumes: LocalVolumes) -> None:
    known = image()

    def device(source: DeviceSource, **more: Any) -> BlockDevice:
        values = {"uuid": new_id(), "volume_id": new_id(), "volume_size": 1, "destination_type": "volume"}
        return BlockDevice(source_type=source, **{**values, **more})

    made = [device(DeviceSource.IMAGE, image_id=known.id), device(DeviceSource.BLANK)]
    volumes.prepare(made, {known.id: known})
    assert names(volumes) == sorted(str(device.volume_id) for device in made)
    Path(volumes.require(str(made[0].volume_id))).write_bytes(b"a guest's")
    volumes.prepare(made, {})
    assert Path(volumes.require(str(made[0].volume_id))).read_bytes() == b"a guest's"
    with pytest.raises(exceptions.VolumeFileMissing):
        volumes.prepare([device(DeviceSource.VOLUME)], {})


@pytest.mark.parametrize("bad", ["../../etc/passwd", "x"])
def test_invalid_id_is_refused(volumes: LocalVolumes, bad: str) -> None:
    with pytest.raises(ValueError):
        volumes.path(bad)


def test_full_disk_is_a_driver_error(volumes: LocalVolumes, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "truncate", full)
    with pytest.raises(exceptions.VirtDriverError, match="No space left"):
        create(volumes)
    assert names(volumes) == []


def test_old_leftovers_are_removed(volumes: LocalVolumes) -> None:
    volume_id = create(volumes)
    store = Path(volumes.conf.volume.store_path)
    old, new, fetched = (store / f".part-{name}" for name in ("old", "new", "fetched"))
    for path in (old, new):
        path.write_bytes(b"half")
    fetched.mkdir()
    (fetched / "image").write_bytes(b"half")
    for path in (old, fetched):
        os.utime(path, (1.0, 1.0))
    volumes.sweep()
    assert names(volumes) == [new.name, volume_id]
    assert not fetched.exists()


def test_files_in_use_stay_when_the_clock_jumps(volumes: LocalVolumes, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = volumes.fetch_image

    def jump(source: Image, target: str) -> None:
        fetch(source, target)
        monkeypatch.setattr(time, "time", lambda: 1e11)
        before = names(volumes)
        volumes.sweep()
        assert names(volumes) == before

    monkeypatch.setattr(volumes, "fetch_image", jump)
    volume_id = create(volumes, image=image())
    assert names(volumes) == [volume_id]


# --- of volumes that guests have


def test_snapshots_of_volumes_in_use_are_complete_or_missing(volumes: LocalVolumes) -> None:
    one, two = create(volumes), create(volumes, 2)
    snapshots = {one: new_id(), two: new_id()}

    def fail(parts: Mapping[str, str]) -> None:
        assert [os.path.getsize(part) for part in parts.values()] == [GIB, 2 * GIB]
        raise exceptions.VirtDriverError(reason="the guest is gone")

    with pytest.raises(exceptions.VirtDriverError, match="the guest is gone"):
        volumes.create_snapshots_in_use(snapshots, fail, contextlib.nullcontext)
    assert names(volumes) == sorted([one, two])

    def copy(parts: Mapping[str, str]) -> None:
        for volume_id, part in parts.items():
            with open(part, "r+b") as file:
                file.write(volume_id.encode())

    volumes.create_snapshots_in_use(snapshots, copy, contextlib.nullcontext)
    volumes.create_snapshots_in_use(snapshots, fail, contextlib.nullcontext)  # they exist
    for volume_id, snapshot_id in snapshots.items():
        with open(volumes.require(create(volumes, 2, source_snapshot=snapshot_id)), "rb") as file:
            assert file.read(36).decode() == volume_id


def test_snapshots_of_which_some_exist_are_all_taken_again(volumes: LocalVolumes) -> None:
    """A daemon was killed before all snapshots had their names. The guest has continued since."""
    snapshots = {create(volumes): new_id() for _ in range(3)}
    copied: list[str] = []

    def copy(parts: Mapping[str, str]) -> None:
        copied.extend(parts)

    volumes.create_snapshots_in_use(snapshots, copy, contextlib.nullcontext)
    volumes.delete_snapshot(list(snapshots.values())[1])
    volumes.create_snapshots_in_use(snapshots, copy, contextlib.nullcontext)
    assert copied == [*snapshots, *snapshots]
    assert names(volumes) == sorted([*snapshots, *snapshots.values()])


def test_volume_is_replaced_by_an_image(volumes: LocalVolumes, tmp_path: Path) -> None:
    volume_id = create(volumes, 2, image=image())
    path = volumes.require(volume_id)
    (tmp_path / "other").write_bytes(b"another one")
    with open(path, "r+b") as file:
        file.seek(GIB)
        file.write(b"what the guest has written")
    with pytest.raises(FileNotFoundError):
        volumes.fetch_image(image("nosuch"), str(tmp_path / "x"))
    with pytest.raises((exceptions.NovaLiteException, OSError)):
        volumes.reimage(volume_id, image("nosuch"), 2)
    with open(path, "rb") as file:
        assert file.read(len(DATA)) == DATA, "a failure leaves it as it was"
    for _ in range(2):
        volumes.reimage(volume_id, image("other"), 2)
    with open(path, "rb") as file:
        assert file.read(20).rstrip(b"\0") == b"another one"
        file.seek(GIB)
        assert file.read(8) == b"\0" * 8
    assert (os.path.getsize(path), os.stat(path).st_mode & 0o777, names(volumes)) == (2 * GIB, 0o600, [volume_id])


# --- backups


def back_up(volumes: LocalVolumes, volume_id: str, **more: Any) -> str:
    backup_id = new_id()
    work = VolumeWork(id=2, verb=VolumeVerb.BACKUP, volume_id=volume_id, backup_id=backup_id, **more)
    volumes.create_backup(work)
    return backup_id


def restore(volumes: LocalVolumes, data_id: str, volume_id: str, size: int = 1, is_new: bool = True) -> None:
    fields = {"data_id": data_id, "size": size, "is_new": is_new}
    volumes.restore_backup(VolumeWork(id=3, verb=VolumeVerb.RESTORE, volume_id=volume_id, **fields))


@pytest.fixture
def backups(volumes: LocalVolumes, tmp_path: Path) -> LocalVolumes:
    volumes.conf.set_override("backup_path", str(tmp_path / "backups"), "volume")
    return volumes


def write(path: str, data: bytes, at: int = 0) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


def read(path: str, size: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(size)


def test_backup_keeps_the_content_of_its_time(backups: LocalVolumes) -> None:
    volume = create(backups)
    write(backups.require(volume), b"before")
    backup = back_up(backups, volume)
    write(backups.require(volume), b"after!")
    new = new_id()
    restore(backups, backup, new, size=2)
    path = backups.require(new)
    assert (read(path, 6), os.path.getsize(path)) == (b"before", 2 * GIB)
    assert os.stat(path).st_blocks < 1000, "its holes stay holes"
    restore(backups, backup, volume, is_new=False)
    assert (read(backups.require(volume), 6), os.path.getsize(backups.require(volume))) == (b"before", GIB)


def test_repeated_work_on_a_backup_changes_nothing(backups: LocalVolumes) -> None:
    volume, new = create(backups), new_id()
    backup = back_up(backups, volume)
    write(backups.require(volume), b"after!")
    work = VolumeWork(id=2, verb=VolumeVerb.BACKUP, volume_id=volume, backup_id=backup)
    backups.create_backup(work)
    restore(backups, backup, new)
    write(backups.require(new), b"of a guest")
    restore(backups, backup, new)
    assert read(backups.require(new), 10) == b"of a guest"
    for _ in range(2):
        backups.delete_backup(backup)
    assert os.listdir(backups.conf.volume.backup_path) == []


def test_backup_of_a_snapshot(backups: LocalVolumes) -> None:
    volume, snapshot, new = create(backups), new_id(), new_id()
    write(backups.require(volume), b"before")
    backups.create_snapshot(volume, snapshot)
    write(backups.require(volume), b"after!")
    restore(backups, back_up(backups, volume, source_snapshot=snapshot), new)
    assert read(backups.require(new), 6) == b"before"
    with pytest.raises(exceptions.VolumeFileMissing):
        back_up(backups, volume, source_snapshot=new_id())


def test_backup_of_a_volume_in_use_is_copied_by_the_driver(backups: LocalVolumes) -> None:
    volume, backup, new = create(backups), new_id(), new_id()

    def copy(parts: Mapping[str, str]) -> None:
        write(parts[volume], b"mirrored")

    work = VolumeWork(id=2, verb=VolumeVerb.BACKUP, volume_id=volume, backup_id=backup, instance_uuid=new_id())
    backups.create_backup_in_use(work, copy, contextlib.nullcontext)
    restore(backups, backup, new)
    assert read(backups.require(new), 8) == b"mirrored"


@pytest.mark.parametrize("damage", ["changed", "shortened", "missing"])
def test_damaged_backup_is_not_restored(backups: LocalVolumes, damage: str) -> None:
    volume = create(backups)
    backup = back_up(backups, volume)
    path = os.path.join(backups.conf.volume.backup_path, backup)
    backups.verify_backup(backup)
    if damage == "changed":
        write(path, b"x", at=GIB // 2)
    elif damage == "shortened":
        os.truncate(path, GIB - 1)
    else:
        os.unlink(path)
    write(backups.require(volume), b"of a guest")
    new = new_id()
    for call in (
        lambda: backups.verify_backup(backup),
        lambda: restore(backups, backup, new),
        lambda: restore(backups, backup, volume, is_new=False),
    ):
        with pytest.raises(exceptions.BackupDamaged):
            call()
    assert read(backups.require(volume), 10) == b"of a guest"
    assert not os.path.exists(backups.path(new))
    assert not [name for name in names(backups) if name.startswith(".part-")]


def test_failed_backup_leaves_nothing(backups: LocalVolumes) -> None:
    def fails(parts: Mapping[str, str]) -> None:
        raise exceptions.VirtDriverError(reason="the guest is gone")

    volume = create(backups)
    work = VolumeWork(id=2, verb=VolumeVerb.BACKUP, volume_id=volume, backup_id=new_id(), instance_uuid=new_id())
    with pytest.raises(exceptions.VirtDriverError):
        backups.create_backup_in_use(work, fails, contextlib.nullcontext)
    assert os.listdir(backups.conf.volume.backup_path) == []


# --- room on the shared disk


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the file system share no blocks."""
    monkeypatch.setattr(builtin, "_share_blocks", lambda source, target: False)


def filled(volumes: LocalVolumes, megabytes: int) -> str:
    volume_id = create(volumes)
    with Path(volumes.require(volume_id)).open("r+b") as file:
        file.write(os.urandom(megabytes * MIB))
    return volume_id


def room(free: int, floor: int = MIB) -> DiskRoom:
    return DiskRoom(floor, lambda directory: free)


@pytest.mark.usefixtures("copied")
def test_copies_of_a_volume_without_room_fail_and_leave_no_file(volumes: LocalVolumes) -> None:
    volume_id, new, backup = filled(volumes, 4), new_id(), new_id()
    volumes.room = room(5 * MIB - 1)
    before = names(volumes)
    works: list[Callable[[], Any]] = [
        lambda: create(volumes, 1, source_volume=volume_id),
        lambda: volumes.create_snapshot(volume_id, new),
        lambda: volumes.create_snapshots_in_use({volume_id: new}, lambda parts: None, contextlib.nullcontext),
        lambda: volumes.create_backup(_backup_work(volume_id, backup)),
        lambda: volumes.create_backup_in_use(
            _backup_work(volume_id, backup), lambda parts: None, contextlib.nullcontext
        ),
    ]
    for work in works:
        with pytest.raises(exceptions.VirtDriverError, match="need 4 MiB more, 4 MiB are free"):
            work()
    with pytest.raises(exceptions.VirtDriverError, match="need 4 MiB more"), volumes.exported(volume_id, "qcow2"):
        pass
    assert names(volumes) == before
    volumes.room = room(5 * MIB + 65536)
    for work in works[:1] + works[3:4]:
        work()


def test_image_of_a_new_volume_without_room_is_not_fetched(volumes: LocalVolumes) -> None:
    volumes.room = room(2 * MIB)
    big = Image(id=new_id(), name="image", disk_format="raw", size=4 * MIB)
    with pytest.raises(exceptions.VirtDriverError, match="need 4 MiB more"):
        create(volumes, image=big)
    assert names(volumes) == []


def test_copy_that_takes_too_long_is_ended(volumes: LocalVolumes) -> None:
    """The storage does not answer. Otherwise two such copies would stop all work on volumes of a host."""
    check = volumes.room_kept(volumes.path(new_id()))
    volumes.copy_seconds = -1.0
    late = volumes.room_kept(volumes.path(new_id()))
    volumes.prepare_directory(volumes.conf.volume.store_path)
    check()
    with pytest.raises(exceptions.VirtDriverError, match="data of volumes: no end within"):
        late()


def test_copy_that_shares_blocks_needs_no_room(volumes: LocalVolumes, monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[str] = []
    volume_id = filled(volumes, 4)

    def share(source: str, target: str) -> bool:
        shared.append(source)
        return True

    monkeypatch.setattr(builtin, "_share_blocks", share)
    volumes.room = room(MIB)
    volumes.create_snapshot(volume_id, new_id())
    assert shared == [volumes.require(volume_id)]


def _backup_work(volume_id: str, backup_id: str) -> VolumeWork:
    return VolumeWork(id=1, verb=VolumeVerb.BACKUP, volume_id=volume_id, size=1, backup_id=backup_id)

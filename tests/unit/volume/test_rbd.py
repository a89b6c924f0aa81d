"""Backend ``rbd``: images are made once, and are complete or missing."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.disk_room import DiskRoom
from nova_lite.base.timing import TIMING, ClientTiming
from nova_lite.objects import BlockDevice, Image, NetworkDisk, VolumeVerb, VolumeWork
from nova_lite.objects.block_device import DeviceSource
from nova_lite.virt import images as disk_images
from nova_lite.virt import rbd_pool
from nova_lite.virt.libvirt.disks import disks
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.rbd import Rbd, RbdFailure, moment_of
from nova_lite.volume.builtin import GIB
from nova_lite.volume.rbd import RbdVolumes
from tests.support.fake_rbd import FakeRbd
from tests.support.rbd_volumes import rbd_volumes

DATA = b"what an image says" * 1000
DAYS = 2 * 86400.0


@pytest.fixture
def ceph(tmp_path: Path) -> FakeRbd:
    return FakeRbd(tmp_path / "pool")


@pytest.fixture
def volumes(tmp_path: Path, ceph: FakeRbd) -> RbdVolumes:
    return rbd_volumes(tmp_path, ceph, DATA)


def new_id() -> str:
    return str(uuid.uuid4())


def create(volumes: RbdVolumes, size: int = 1, **source: Any) -> str:
    volume_id = new_id()
    volumes.create(VolumeWork(id=1, verb=VolumeVerb.CREATE, volume_id=volume_id, size=size, **source))
    return volume_id


def image(name: str = "image", disk_format: str = "raw") -> Image:
    return Image(id=new_id(), name=name, disk_format=disk_format)


def small(ceph: FakeRbd, data: bytes = DATA) -> str:
    """Return the id of a volume with these data, which is smaller than any that a user can make."""
    volume_id = new_id()
    ceph.add(f"volume-{volume_id}", data)
    return volume_id


def files_below(volumes: RbdVolumes) -> list[str]:
    return sorted(name for _, _, found in os.walk(volumes.conf.volume.store_path) for name in found)


def fails(copies: object) -> None:
    raise AssertionError("the hypervisor copies nothing")


class Hold:
    """Records which commands run while a guest is held."""

    def __init__(self, ceph: FakeRbd) -> None:
        self.ceph = ceph
        self.verbs: list[str] = []

    @contextlib.contextmanager
    def __call__(self, volume_ids: Sequence[str]) -> Iterator[None]:
        first = len(self.ceph.commands)
        yield
        self.verbs += self.ceph.verbs()[first:]


def test_new_volume_is_an_image_that_libvirt_opens(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volumes.conf.set_override("rbd_secret_uuid", "6d0a3b1e-0000-4000-8000-000000000000", "volume")
    volume_id = create(volumes, 2)
    assert (ceph.names(), ceph.size(f"volume-{volume_id}")) == ([f"volume-{volume_id}"], 2 * GIB)
    assert volumes.require(volume_id) == NetworkDisk(
        protocol="rbd",
        name=f"pool/volume-{volume_id}",
        user="nova-lite",
        secret="6d0a3b1e-0000-4000-8000-000000000000",
        config="/etc/ceph/ceph.conf",
    )
    device = BlockDevice(uuid="d", source_type=DeviceSource.VOLUME, destination_type="volume", volume_id=volume_id)
    source = guest_xml.disk_element(disks.volume_disk(device, volumes.path(volume_id))).find("source")
    assert source is not None
    assert [(found.tag, sorted(found.attrib.items())) for found in source] == [
        ("config", [("file", "/etc/ceph/ceph.conf")]),
        ("auth", [("username", "nova-lite")]),
    ]
    (made,) = (command for command in ceph.commands if command[0] == "create")
    assert made[made.index("exclusive-lock") - 1] == "--image-feature"


def test_existing_volume_is_unchanged(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id = create(volumes)
    ceph.write(f"volume-{volume_id}", b"a guest's")
    volumes.create(VolumeWork(id=1, verb=VolumeVerb.CREATE, volume_id=volume_id, size=1))
    assert ceph.read(f"volume-{volume_id}", 9) == b"a guest's"
    assert ceph.verbs().count("create") == 1


def test_concurrent_creation_by_two_hosts_keeps_the_first(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id = new_id()

    def other(verb: str, arguments: tuple[str, ...]) -> None:
        if verb == "create":
            ceph.add(f"volume-{volume_id}", b"a guest's")

    ceph.before = other
    volumes.create(VolumeWork(id=1, verb=VolumeVerb.CREATE, volume_id=volume_id, size=1))
    assert (ceph.names(), ceph.read(f"volume-{volume_id}", 9)) == ([f"volume-{volume_id}"], b"a guest's")


@pytest.mark.parametrize("disk_format", ["raw", "qcow2"])
def test_volumes_of_an_image_are_clones_of_one_image(
    volumes: RbdVolumes, ceph: FakeRbd, tmp_path: Path, disk_format: str
) -> None:
    if disk_format == "qcow2":
        names = (str(tmp_path / "image"), str(tmp_path / "qcow2"))
        disk_images.run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", *names)
    wanted = image("image" if disk_format == "raw" else "qcow2", disk_format)
    found = [create(volumes, size, image=wanted) for size in (1, 2)]
    assert [ceph.read(f"volume-{volume_id}", len(DATA)) for volume_id in found] == [DATA, DATA]
    assert [ceph.size(f"volume-{volume_id}") for volume_id in found] == [GIB, 2 * GIB]
    assert ceph.verbs().count("import") == 1
    assert ceph.names() == [f"image-{wanted.id}", *sorted(f"volume-{volume_id}" for volume_id in found)]
    assert files_below(volumes) == []


def test_unacceptable_images_are_refused_and_nothing_remains(
    volumes: RbdVolumes, ceph: FakeRbd, tmp_path: Path
) -> None:
    disk_images.run("qemu-img", "create", "-q", "-f", "qcow2", str(tmp_path / "large"), "2G")
    base = ("-b", str(tmp_path / "image"), "-F", "raw")
    disk_images.run("qemu-img", "create", "-q", "-f", "qcow2", *base, str(tmp_path / "overlay"), "1M")
    with pytest.raises(exceptions.ImageUnacceptable, match="it needs 2 GB, and the volume has 1"):
        create(volumes, image=image("large", "qcow2"))
    with pytest.raises(exceptions.ImageUnacceptable, match="it has a backing file"):
        create(volumes, image=image("overlay", "qcow2"))
    with pytest.raises(exceptions.NovaLiteException):
        create(volumes, image=image("image", "qcow2"))
    assert (ceph.names(), files_below(volumes)) == ([], [])


def test_image_in_the_pool_that_is_larger_than_the_volume_is_refused(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    wanted = image()
    ceph.add(f"image-{wanted.id}", size=2 * GIB)
    with pytest.raises(exceptions.ImageUnacceptable, match="it needs 2 GB, and the volume has 1"):
        create(volumes, image=wanted)


def test_snapshots_and_copies_of_volumes_are_clones(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id, snapshot_id = create(volumes), new_id()
    ceph.write(f"volume-{volume_id}", b"before")
    volumes.create_snapshot(volume_id, snapshot_id)
    ceph.write(f"volume-{volume_id}", b"after!")
    volumes.create_snapshot(volume_id, snapshot_id)
    copy, clone = create(volumes, 2, source_snapshot=snapshot_id), create(volumes, source_volume=volume_id)
    assert (ceph.read(f"volume-{copy}", 6), ceph.size(f"volume-{copy}")) == (b"before", 2 * GIB)
    assert ceph.read(f"volume-{clone}", 6) == b"after!"
    assert all(not found.snapshots for found in ceph.found.values()), "RBD's snapshots exist only for an instant"
    with pytest.raises(exceptions.VolumeFileMissing):
        create(volumes, source_snapshot=new_id())
    with pytest.raises(exceptions.VolumeFileMissing):
        volumes.create_snapshot(new_id(), new_id())


def test_deleted_images_with_clones_are_in_the_trash_until_the_clones_are_deleted(
    volumes: RbdVolumes, ceph: FakeRbd
) -> None:
    volume_id, snapshot_id = create(volumes), new_id()
    volumes.create_snapshot(volume_id, snapshot_id)
    clone = create(volumes, source_snapshot=snapshot_id)
    volumes.delete(volume_id)
    volumes.delete_snapshot(snapshot_id)
    assert ceph.names() == [f"volume-{clone}"]
    assert [image.path.stat().st_size for _, image in ceph.trashed.values()] == [1, 1], "only the clones need data"
    volumes.delete(clone)
    assert (ceph.names(), ceph.trashed) == ([], {})
    volumes.delete(clone)
    volumes.delete_snapshot(snapshot_id)


def test_clone_of_many_clones_gets_all_its_data(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id = create(volumes)
    for _ in range(rbd_pool.MAX_PARENTS):
        volume_id = create(volumes, source_volume=volume_id)
    assert "flatten" not in ceph.verbs()
    last = create(volumes, source_volume=volume_id)
    assert ceph.verbs().count("flatten") == 1
    assert ceph.found[f"volume-{last}"].parent is None


def test_image_in_use_is_not_deleted(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id = create(volumes)
    ceph.found[f"volume-{volume_id}"].watchers = ["192.0.2.1:0/1"]
    with pytest.raises(exceptions.VirtDriverError, match=r"is in use by 192\.0\.2\.1:0/1"):
        volumes.delete(volume_id)
    assert ceph.names() == [f"volume-{volume_id}"]


def test_snapshots_in_use_are_taken_while_the_guest_is_held(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    hold = Hold(ceph)
    snapshots = {create(volumes): new_id() for _ in range(2)}
    volumes.create_snapshots_in_use(snapshots, fails, hold)
    assert hold.verbs == ["snap create", "snap create"]
    assert {f"snapshot-{name}" for name in snapshots.values()} < set(ceph.names())
    volumes.create_snapshots_in_use(snapshots, fails, hold)
    assert hold.verbs == ["snap create", "snap create"]


def test_snapshots_in_use_of_which_some_exist_are_all_taken_again(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    """A daemon was killed before all snapshots had their names. The guest has continued since."""
    snapshots = {small(ceph, b"now"): new_id() for _ in range(3)}
    first, *others = snapshots.values()
    ceph.add(f"snapshot-{first}", b"earlier")
    volumes.create_snapshots_in_use(snapshots, fails, Hold(ceph))
    assert [ceph.read(f"snapshot-{name}", 9) for name in (first, *others)] == [b"now"] * 3


def test_rbd_snapshot_without_an_answer_is_removed(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    """Ceph takes it after the program was killed."""
    volume_id = small(ceph)
    found = ceph.found[f"volume-{volume_id}"]

    def late(verb: str, arguments: tuple[str, ...]) -> None:
        if verb == "snap create":
            found.snapshots[arguments[-1].partition("@")[2]] = found.path
            raise RbdFailure("rbd snap create: no end within 20 s", errno.ETIMEDOUT)

    ceph.before = late
    with pytest.raises(RbdFailure, match="no end within"):
        volumes.create_snapshots_in_use({volume_id: new_id()}, fails, Hold(ceph))
    assert (found.snapshots, ceph.names()) == ({}, [f"volume-{volume_id}"])


def test_snapshots_in_use_of_which_one_fails_are_all_missing(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    snapshots = {create(volumes): new_id() for _ in range(2)}

    def second(verb: str, arguments: tuple[str, ...]) -> None:
        if verb == "clone" and ceph.verbs().count("clone") == 2:
            raise RbdFailure("rbd clone: no space", errno.ENOSPC)

    ceph.before = second
    with pytest.raises(RbdFailure):
        volumes.create_snapshots_in_use(snapshots, fails, Hold(ceph))
    assert ceph.names() == sorted(f"volume-{volume_id}" for volume_id in snapshots)
    assert all(not found.snapshots for found in ceph.found.values())


def backup_of(volumes: RbdVolumes, volume_id: str, **more: Any) -> VolumeWork:
    work = VolumeWork(id=1, verb=VolumeVerb.BACKUP, volume_id=volume_id, backup_id=new_id(), **more)
    volumes.create_backup(work)
    return work


def restore(volumes: RbdVolumes, backup: VolumeWork, volume_id: str, **more: Any) -> None:
    work = VolumeWork(id=2, verb=VolumeVerb.RESTORE, volume_id=volume_id, data_id=backup.backup_id, **more)
    volumes.restore_backup(work)


def test_backup_is_restored_as_a_new_volume_and_in_place(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id, new = small(ceph), new_id()
    backup = backup_of(volumes, volume_id)
    volumes.verify_backup(str(backup.backup_id))
    assert os.stat(volumes.backup_path(str(backup.backup_id))).st_mode & 0o77 == 0
    restore(volumes, backup, new, is_new=True, size=1)
    restore(volumes, backup, new, is_new=True, size=1)
    assert (ceph.read(f"volume-{new}", len(DATA) + 64), ceph.size(f"volume-{new}")) == (DATA + bytes(64), GIB)

    ceph.write(f"volume-{volume_id}", b"later")
    restore(volumes, backup, volume_id)
    assert ceph.read(f"volume-{volume_id}", len(DATA)) == DATA
    assert ceph.names() == sorted([f"volume-{new}", f"volume-{volume_id}"])


def test_backup_in_use_has_the_moment_of_its_snapshot(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id, hold = small(ceph, b"before"), Hold(ceph)

    def guest(verb: str, arguments: tuple[str, ...]) -> None:
        if verb == "export":
            ceph.write(f"volume-{volume_id}", b"after!")

    ceph.before = guest
    work = VolumeWork(id=1, verb=VolumeVerb.BACKUP, volume_id=volume_id, backup_id=new_id())
    volumes.create_backup_in_use(work, fails, hold)
    assert Path(volumes.backup_path(str(work.backup_id))).read_bytes()[:6] == b"before"
    assert hold.verbs == ["snap create"]
    assert ceph.found[f"volume-{volume_id}"].snapshots == {}


def test_damaged_backup_changes_no_volume(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id = small(ceph)
    backup = backup_of(volumes, volume_id)
    path = Path(volumes.backup_path(str(backup.backup_id)))
    path.write_bytes(b"x" + path.read_bytes()[1:])
    ceph.write(f"volume-{volume_id}", b"later")
    with pytest.raises(exceptions.BackupDamaged, match="not those that were written"):
        restore(volumes, backup, volume_id)
    assert (ceph.read(f"volume-{volume_id}", 5), len(ceph.names())) == (b"later", 1)


def test_copy_of_a_backup_that_differs_changes_no_volume(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id = small(ceph)
    backup = backup_of(volumes, volume_id)

    def spoil(verb: str, arguments: tuple[str, ...]) -> None:
        if verb == "resize":
            ceph.write(arguments[-1].partition("/")[2], b"spoiled")

    ceph.before = spoil
    with pytest.raises(exceptions.BackupDamaged, match="the copy of its data differs"):
        restore(volumes, backup, volume_id)
    assert (ceph.read(f"volume-{volume_id}", len(DATA)), len(ceph.names())) == (DATA, 1)


def test_interrupted_replacement_is_undone_by_the_next_use(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    """A daemon was killed after it had set the old data aside."""
    volume_id = new_id()
    ceph.add(f"old-volume-{volume_id}", b"a guest's")
    volumes.require(volume_id)
    assert (ceph.names(), ceph.read(f"volume-{volume_id}", 9)) == ([f"volume-{volume_id}"], b"a guest's")


def test_replacement_whose_second_rename_fails_leaves_the_volume(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id = small(ceph, b"a guest's")

    def second(verb: str, arguments: tuple[str, ...]) -> None:
        if verb == "rename" and "part-volume" in arguments[0]:
            raise RbdFailure("rbd rename: no answer", errno.ETIMEDOUT)

    ceph.before = second
    with pytest.raises(RbdFailure):
        volumes.reimage(volume_id, image(), 1)
    assert ceph.read(f"volume-{volume_id}", 9) == b"a guest's"
    assert [name for name in ceph.names() if not name.startswith("image-")] == [f"volume-{volume_id}"]


def half_renamed(ceph: FakeRbd, age: float = 0.0) -> str:
    """Return the id of a volume that has two names since `rbd rename` was killed while it set the volume aside."""
    volume_id = new_id()
    ceph.found[f"old-volume-{volume_id}"] = ceph.add(f"volume-{volume_id}", b"a guest's", age=age)
    return volume_id


def test_replacement_after_an_interrupted_rename_fails_and_keeps_the_data(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id = half_renamed(ceph)
    with pytest.raises(exceptions.VirtDriverError, match=f"pool/volume-{volume_id} .* also has the name old-"):
        volumes.reimage(volume_id, image(), 1)
    assert ceph.read(f"volume-{volume_id}", 9) == b"a guest's"
    assert not [name for name in ceph.names() if name.startswith("part-")]


def test_replacement_whose_rename_leaves_two_names_keeps_the_data(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    """Ceph ignores that it cannot remove the first name."""
    volume_id = small(ceph, b"a guest's")

    def second(verb: str, arguments: tuple[str, ...]) -> None:
        if verb == "rename" and "part-volume" in arguments[0]:
            ceph.found[f"volume-{volume_id}"] = ceph.found[f"old-volume-{volume_id}"]

    ceph.before = second
    with pytest.raises(exceptions.VirtDriverError, match="another host works on"):
        volumes.reimage(volume_id, image(), 1)
    assert ceph.read(f"volume-{volume_id}", 9) == b"a guest's"


def test_sweep_after_an_interrupted_rename_keeps_the_data(
    volumes: RbdVolumes, ceph: FakeRbd, caplog: pytest.LogCaptureFixture
) -> None:
    volume_id = half_renamed(ceph, age=DAYS)
    swept(volumes)
    assert ceph.read(f"volume-{volume_id}", 9) == b"a guest's"
    assert [text for text in caplog.messages if f"volume-{volume_id}" in text and "interrupted rename" in text]


def test_volume_with_two_names_after_an_interrupted_rename_is_deleted(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volumes.delete(half_renamed(ceph))
    assert ceph.names() == []


def test_reimage_replaces_the_data_of_a_volume_nobody_uses(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id = small(ceph, b"a guest's")
    ceph.found[f"volume-{volume_id}"].watchers = ["192.0.2.1:0/1"]
    with pytest.raises(exceptions.VirtDriverError, match="in use"):
        volumes.reimage(volume_id, image(), 1)
    assert ceph.read(f"volume-{volume_id}", 9) == b"a guest's"
    ceph.found[f"volume-{volume_id}"].watchers = []
    volumes.reimage(volume_id, image(), 1)
    assert (ceph.read(f"volume-{volume_id}", len(DATA)), ceph.size(f"volume-{volume_id}")) == (DATA, GIB)


def test_extension_never_shrinks_a_volume(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id = create(volumes, 2)
    volumes.extend(volume_id, 1)
    assert ceph.size(f"volume-{volume_id}") == 2 * GIB
    volumes.extend(volume_id, 3)
    assert ceph.size(f"volume-{volume_id}") == 3 * GIB
    with pytest.raises(exceptions.VolumeFileMissing):
        volumes.extend(new_id(), 1)


def test_extension_that_a_larger_one_overtakes_takes_no_data(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    """A partitioned host continues with an older extension."""
    volume_id = create(volumes, 1)

    def other(verb: str, arguments: tuple[str, ...]) -> None:
        if verb == "resize":
            os.truncate(ceph.found[f"volume-{volume_id}"].path, 3 * GIB)

    ceph.before = other
    volumes.extend(volume_id, 2)
    assert ceph.size(f"volume-{volume_id}") == 3 * GIB


def test_extension_that_fails_is_a_failure(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id = create(volumes, 1)

    def fail(verb: str, arguments: tuple[str, ...]) -> None:
        if verb == "resize":
            raise RbdFailure("rbd resize: no end within 3600 s", errno.ETIMEDOUT)

    ceph.before = fail
    with pytest.raises(RbdFailure, match="no end within"):
        volumes.extend(volume_id, 2)


def test_export_without_room_fails_and_leaves_no_file(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id = small(ceph, DATA + bytes(-len(DATA) % 512))
    volumes.room = DiskRoom(2, lambda directory: 1)
    with pytest.raises(exceptions.VirtDriverError, match="have to stay free"), volumes.exported(volume_id, "raw"):
        pass
    assert not os.listdir(volumes.conf.volume.store_path)


def test_exported_volume_has_the_requested_format(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id = small(ceph, DATA + bytes(-len(DATA) % 512))
    with volumes.exported(volume_id, "raw") as path:
        assert Path(path).read_bytes()[: len(DATA)] == DATA
    with volumes.exported(volume_id, "qcow2") as path:
        assert Path(path).read_bytes()[:4] == b"QFI\xfb"
    assert files_below(volumes) == []


def test_volumes_of_a_new_server_are_made(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    wanted, volume_id = image(), new_id()
    device = BlockDevice(
        uuid=new_id(),
        source_type=DeviceSource.IMAGE,
        destination_type="volume",
        volume_id=volume_id,
        image_id=wanted.id,
        volume_size=1,
    )
    volumes.prepare([device], {wanted.id: wanted})
    assert ceph.read(f"volume-{volume_id}", len(DATA)) == DATA


def swept(volumes: RbdVolumes) -> None:
    """Sweep, and wait for the end."""
    volumes.sweep()
    for thread in [thread for thread in threading.enumerate() if thread.name == "rbd-sweep"]:
        thread.join()


def test_sweep_does_not_delay_its_caller(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    """A daemon starts although Ceph does not answer, or removes a large image."""
    is_started = threading.Event()
    ceph.before = lambda verb, arguments: None if is_started.wait(60.0) else pytest.fail("the caller waits")
    ceph.add(f"part-volume-{new_id()}-00000001", age=DAYS)
    volumes.sweep()
    is_started.set()
    swept(volumes)
    assert ceph.names() == []


def test_sweep_removes_old_rbd_snapshots_of_killed_daemons(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    """An image of the image service would stay forever with them, and a volume would keep old blocks."""
    base, volume_id, foreign = f"image-{new_id()}", small(ceph), ceph.add("foreign")
    for found in (ceph.add(base, age=DAYS), ceph.found[f"volume-{volume_id}"], foreign):
        for name, at in (("part-old", 0.0), ("mine", 0.0), ("part-new", 1e12)):
            found.snapshots[name], found.snapshot_times[name] = found.path, at
    for name in ("mine", "part-new"):
        del ceph.found[base].snapshots[name]
    swept(volumes)
    assert ceph.names() == sorted([f"volume-{volume_id}", "foreign"])
    assert sorted(ceph.found[f"volume-{volume_id}"].snapshots) == ["mine", "part-new"]
    assert len(foreign.snapshots) == 3


def test_sweep_removes_what_killed_daemons_left_a_day_ago(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    one, two, three = new_id(), new_id(), new_id()
    for volume_id in (one, two):
        ceph.add(f"volume-{volume_id}", b"x", age=DAYS)
    ceph.add(f"part-volume-{one}-00000001", age=DAYS)
    ceph.add(f"part-volume-{one}-00000002")
    ceph.add(f"old-volume-{one}", age=DAYS)
    ceph.add(f"old-volume-{three}", age=DAYS)
    unused, used = new_id(), new_id()
    ceph.add(f"image-{unused}", age=DAYS)
    ceph.add(f"image-{used}", age=DAYS)
    ceph.found[f"volume-{two}"].parent = (ceph.found[f"image-{used}"].id, "")
    both = ceph.found[f"part-volume-{two}-00000003"] = ceph.found[f"volume-{two}"]
    trash(ceph, f"volume-{new_id()}")
    swept(volumes)
    assert ceph.names() == sorted(
        [
            f"volume-{one}",
            f"volume-{two}",
            f"volume-{three}",
            f"image-{used}",
            f"part-volume-{one}-00000002",
            f"part-volume-{two}-00000003",
        ]
    )
    assert ceph.found[f"volume-{two}"] is both, "an interrupted rename leaves two names of one image"
    assert ceph.trashed == {}


def trash(ceph: FakeRbd, name: str, **more: Any) -> str:
    """Add an image to the trash, and return its name."""
    image = ceph.add("x")
    del ceph.found["x"]
    for field, value in more.items():
        setattr(image, field, value)
    ceph.trashed[image.id] = (name, image)
    return name


def test_deletion_resumes_an_interrupted_one(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id, snapshot_id = new_id(), new_id()
    for name in (f"volume-{volume_id}", f"old-volume-{volume_id}", f"snapshot-{snapshot_id}"):
        trash(ceph, name, source="REMOVING")
    volumes.delete(volume_id)
    assert [name for name, _ in ceph.trashed.values()] == [f"snapshot-{snapshot_id}"]
    volumes.delete_snapshot(snapshot_id)
    assert ceph.trashed == {}


def test_deletion_waits_for_the_program_of_the_interrupted_one(
    volumes: RbdVolumes, ceph: FakeRbd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volumes.pool, "timing", ClientTiming(rbd_watch_wait=60.0, rbd_watch_poll=0.0))
    volume_id = new_id()
    trash(ceph, f"volume-{volume_id}", source="REMOVING")

    def busy(verb: str, arguments: tuple[str, ...]) -> None:
        if verb == "rm" and ceph.verbs().count("rm") < 3:
            raise RbdFailure("rbd rm: image still has watchers", errno.EBUSY)

    ceph.before = busy
    volumes.delete(volume_id)
    assert ceph.trashed == {}


def test_deletion_fails_while_another_program_removes_the_image(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    def busy(verb: str, arguments: tuple[str, ...]) -> None:
        if verb == "rm":
            raise RbdFailure("rbd rm: image still has watchers", errno.EBUSY)

    ceph.before = busy
    with pytest.raises(RbdFailure, match="still has watchers"):
        volumes.delete(new_id())


def test_replacement_resumes_no_removal(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    """Another host may have set the volume's data aside under this name just now."""
    volume_id = small(ceph)

    def check(verb: str, arguments: tuple[str, ...]) -> None:
        assert verb != "rm" or arguments[-1].partition("/")[2] in ceph.found

    ceph.before = check
    volumes.reimage(volume_id, image(), 1)


def test_sweep_completes_interrupted_removals_and_leaves_the_trash_of_others(
    volumes: RbdVolumes, ceph: FakeRbd
) -> None:
    ours = f"volume-{new_id()}"
    for source in ("USER", "USER_PARENT", "REMOVING"):
        trash(ceph, ours, source=source)
    trash(ceph, ours, source="REMOVING", is_opened=False)
    kept = [trash(ceph, ours, source=source) for source in ("MIRRORING", "MIGRATION")]
    kept += [trash(ceph, "backup", source=source) for source in ("USER", "REMOVING")]
    swept(volumes)
    assert [name for name, _ in ceph.trashed.values()] == kept


def test_old_rbd_snapshots_of_killed_daemons_are_removed_at_the_next_one(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id = small(ceph)
    found = ceph.found[f"volume-{volume_id}"]
    for name, at in (("part-old", 0.0), ("mine", 0.0), ("part-new", 1e12)):
        found.snapshots[name], found.snapshot_times[name] = found.path, at
    volumes.create_snapshot(volume_id, new_id())
    assert sorted(found.snapshots) == ["mine", "part-new"]


def test_host_that_does_not_reach_ceph_says_so_once(
    volumes: RbdVolumes, ceph: FakeRbd, caplog: pytest.LogCaptureFixture
) -> None:
    def lost(verb: str, arguments: tuple[str, ...]) -> None:
        raise RbdFailure("rbd ls: couldn't connect to the cluster!", errno.ETIMEDOUT)

    ceph.before = lost
    with caplog.at_level(logging.ERROR):
        swept(volumes)
    assert caplog.messages == [
        "Pool pool of Ceph cannot be used by this host: rbd ls: couldn't connect to the cluster!"
    ]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("rbd_pool", "-p"),
        ("rbd_pool", "a/b"),
        ("rbd_user", "a b"),
        ("rbd_ceph_conf", "ceph.conf"),
        ("rbd_secret_uuid", "x"),
    ],
)
def test_option_that_is_no_plain_name_is_refused(volumes: RbdVolumes, option: str, value: str) -> None:
    with pytest.raises((ValueError, cfg.Error)):
        volumes.conf.set_override(option, value, "volume")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "rbd"


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_program_gets_the_configuration_and_the_user(program: Path) -> None:
    script(program, 'echo "[\\"$*\\"]"')
    found = Rbd("/etc/ceph/ceph.conf", "me").images("pool")
    assert found == ["--conf /etc/ceph/ceph.conf --client-mount-timeout 20 --id me ls --format json pool"]


def test_files_of_the_program_are_its_users_alone(program: Path) -> None:
    script(program, "umask")
    assert Rbd("/c", None).run("export").strip() == b"0077"


def test_failure_of_the_program_is_one_line(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(program, "echo noise >&2; echo 'rbd: create error: (17) File exists' >&2; exit 17")
    with pytest.raises(RbdFailure, match=r"rbd create: create error: \(17\) File exists$") as caught:
        Rbd("/c", None).run("create", "x")
    assert caught.value.status == errno.EEXIST
    script(program, "exec sleep 60")
    with pytest.raises(RbdFailure, match=r"rbd ls: no end within 0\.01 s"):
        Rbd("/c", None).run("ls", timeout=0.01)
    script(program, "echo some; exit 5")
    with (
        pytest.raises(RbdFailure, match="ended with status 5"),
        Rbd("/c", None).output("export", "x", timeout=60.0) as stream,
    ):
        assert stream.read() == b"some\n"
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(RbdFailure, match=r"rbd cannot be run: .*ceph-common"):
        Rbd("/c", None).run("ls")


@pytest.mark.timeout(50)
@pytest.mark.parametrize("stops_at", ["its output", "its end"])
def test_program_whose_output_is_read_is_ended_in_time(program: Path, stops_at: str) -> None:
    """A placement group is inactive. What the reader makes of the short output does not matter."""
    script(program, "exec sleep 60" if stops_at == "its output" else "echo all; exec sleep 60 >&-")
    with (
        pytest.raises(RbdFailure, match=r"rbd export: no end within 0\.01 s$") as caught,
        Rbd("/c", None).output("export", "x", timeout=0.01) as stream,
    ):
        read = stream.read()
        if not read:
            raise exceptions.BackupDamaged(backup_id="x", reason="the copy differs")
    assert caught.value.status == errno.ETIMEDOUT


def test_restoration_that_ceph_does_not_answer_is_ended(
    volumes: RbdVolumes, ceph: FakeRbd, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume_id, limits = small(ceph), list[float]()
    backup, output = backup_of(volumes, volume_id), ceph.output

    def limited(verb: str, *arguments: str, timeout: float) -> Any:
        limits.append(timeout)
        return output(verb, *arguments, timeout=timeout)

    monkeypatch.setattr(ceph, "output", limited)
    restore(volumes, backup, volume_id)
    assert limits == [TIMING.volumes.task]


def test_times_of_ceph_are_read() -> None:
    assert moment_of("Thu Jan  1 00:01:00 1970") == 60.0
    assert moment_of("soon") > 60.0


def test_program_ends_when_its_check_raises(program: Path) -> None:
    script(program, "exec sleep 60")

    def refuse() -> None:
        raise exceptions.VirtDriverError(reason="the disk is full")

    with pytest.raises(exceptions.VirtDriverError, match="the disk is full"):
        Rbd("/c", None).run("export", timeout=60.0, check=refuse)

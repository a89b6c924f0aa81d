"""Encrypted volumes of backend ``rbd``: their images, snapshots, copies and backups have no plain data."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.image import luks
from nova_lite.objects import BlockDevice, Image, NetworkDisk, VolumeKey, VolumeVerb, VolumeWork, is_encrypted
from nova_lite.objects.block_device import DeviceSource
from nova_lite.virt import images as disk_images
from nova_lite.virt.libvirt.disks import disks
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.volume.builtin import GIB
from nova_lite.volume.rbd import RbdVolumes
from tests.support.fake_rbd import FakeRbd
from tests.support.rbd_volumes import rbd_volumes

PATTERN = b"what a user wants to hide. "
DATA = PATTERN * 4096
PASSPHRASE = "8d3f" * 16


@pytest.fixture
def ceph(tmp_path: Path) -> FakeRbd:
    return FakeRbd(tmp_path / "pool")


@pytest.fixture
def volumes(tmp_path: Path, ceph: FakeRbd) -> RbdVolumes:
    made = rbd_volumes(tmp_path, ceph, DATA)
    made.volume_key = lambda volume_id: VolumeKey(passphrase=PASSPHRASE)
    return made


def new_id() -> str:
    return str(uuid.uuid4())


def image() -> Image:
    return Image(id=new_id(), name="image", disk_format="raw")


def create(volumes: RbdVolumes, size: int = 1, encrypted: bool = True, **source: Any) -> str:
    volume_id = new_id()
    work = {"id": 1, "verb": VolumeVerb.CREATE, "volume_id": volume_id, "size": size, "encrypted": encrypted}
    volumes.create(VolumeWork(**work, **source))
    return volume_id


def size_of(ceph: FakeRbd, name: str) -> float:
    """Return the size that a guest sees, in GB."""
    return (ceph.size(name) - luks.data_offset(str(ceph.found[name].path))) / GIB


def plain(ceph: FakeRbd, name: str, tmp_path: Path) -> bytes:
    """Return the beginning of the data that a guest reads."""
    secret, target = tmp_path / "passphrase", tmp_path / "out"
    secret.write_text(PASSPHRASE)
    opened = f"driver=luks,key-secret=k,file.filename={ceph.found[name].path}"
    read = ("bs=4096", f"count={-(-len(DATA) // 4096)}", f"if={opened}", f"of={target}")
    disk_images.run("qemu-img", "dd", "--object", f"secret,id=k,file={secret}", "--image-opts", *read)
    return target.read_bytes()


def backed_up(volumes: RbdVolumes, volume_id: str) -> str:
    backup_id = new_id()
    work = VolumeWork(id=2, verb=VolumeVerb.BACKUP, volume_id=volume_id, backup_id=backup_id, encrypted=True)
    volumes.create_backup(work)
    return backup_id


def restore(volumes: RbdVolumes, volume_id: str, backup_id: str, size: int, is_new: bool) -> None:
    work = {"id": 3, "verb": VolumeVerb.RESTORE, "volume_id": volume_id, "size": size, "data_id": backup_id}
    volumes.restore_backup(VolumeWork(**work, is_new=is_new, encrypted=True))


def test_blank_volume_is_an_image_of_luks_that_libvirt_decrypts(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id = create(volumes, 2)
    assert ceph.names() == [f"luks-volume-{volume_id}"]
    assert size_of(ceph, f"luks-volume-{volume_id}") == 2
    where = volumes.require(volume_id)
    assert isinstance(where, NetworkDisk) and where.name == f"pool/luks-volume-{volume_id}"
    assert is_encrypted(where) and not is_encrypted(volumes.path(create(volumes, encrypted=False)))
    device = BlockDevice(uuid="d", source_type=DeviceSource.VOLUME, destination_type="volume", volume_id=volume_id)
    source = guest_xml.disk_element(disks.volume_disk(device, where)).find("source")
    assert source is not None
    secret = source.find("encryption[@format='luks']/secret")
    assert secret is not None and secret.get("uuid") == volume_id


def test_volume_of_an_image_has_its_data_encrypted(volumes: RbdVolumes, ceph: FakeRbd, tmp_path: Path) -> None:
    name = f"luks-volume-{create(volumes, 2, image=image())}"
    assert PATTERN not in ceph.read(name, 8 * 1024**2)
    assert plain(ceph, name, tmp_path).startswith(DATA)
    assert size_of(ceph, name) == 2
    assert ceph.names() == [name], "the image is in the pool for plain volumes only"
    assert list((tmp_path / "scratch").iterdir()) == []


def test_copies_of_a_volume_have_its_passphrase_and_no_plain_data(
    volumes: RbdVolumes, ceph: FakeRbd, tmp_path: Path
) -> None:
    source, snapshot, restored = create(volumes, image=image()), new_id(), new_id()
    volumes.create_snapshot(source, snapshot)
    assert f"luks-snapshot-{snapshot}" in ceph.names()
    copies = [create(volumes, 2, source_snapshot=snapshot), create(volumes, 2, source_volume=source)]
    backup = backed_up(volumes, source)
    assert PATTERN not in Path(volumes.backup_path(backup)).read_bytes()[: 8 * 1024**2]
    restore(volumes, restored, backup, 2, is_new=True)
    for copy in (*copies, restored):
        name = f"luks-volume-{copy}"
        assert plain(ceph, name, tmp_path).startswith(DATA)
        assert size_of(ceph, name) == 2


def test_backup_and_new_image_replace_the_data_of_an_encrypted_volume(
    volumes: RbdVolumes, ceph: FakeRbd, tmp_path: Path
) -> None:
    target = create(volumes, 2)
    restore(volumes, target, backed_up(volumes, create(volumes, image=image())), 2, is_new=False)
    assert plain(ceph, f"luks-volume-{target}", tmp_path).startswith(DATA)
    other = create(volumes, 2)
    volumes.reimage(other, image(), 2)
    assert plain(ceph, f"luks-volume-{other}", tmp_path).startswith(DATA)
    assert [size_of(ceph, f"luks-volume-{volume_id}") for volume_id in (target, other)] == [2, 2]


def test_extended_volume_has_exactly_the_new_size(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id = create(volumes)
    for size in (3, 2):
        volumes.extend(volume_id, size)
        assert size_of(ceph, f"luks-volume-{volume_id}") == 3


def test_volumes_in_use_have_encrypted_snapshots_of_one_moment(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    held: list[list[str]] = []

    @contextlib.contextmanager
    def hold(volume_ids: Sequence[str]) -> Iterator[None]:
        held.append(list(volume_ids))
        yield

    def copy(copies: object) -> None:
        raise AssertionError("the hypervisor copies nothing")

    snapshots = {create(volumes): new_id(), create(volumes, encrypted=False): new_id()}
    for _ in range(2):
        volumes.create_snapshots_in_use(snapshots, copy, hold)
    sealed, open_ = snapshots.values()
    assert [name for name in ceph.names() if "snapshot" in name] == [f"luks-snapshot-{sealed}", f"snapshot-{open_}"]
    assert held == [list(snapshots)]


def test_deleted_volume_and_snapshot_leave_no_image(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id, snapshot = create(volumes), new_id()
    volumes.create_snapshot(volume_id, snapshot)
    volumes.delete_snapshot(snapshot)
    volumes.delete(volume_id)
    assert ceph.names() == []


def test_replacement_that_was_interrupted_is_completed(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    volume_id = create(volumes)
    ceph.found[f"old-luks-volume-{volume_id}"] = ceph.found.pop(f"luks-volume-{volume_id}")
    assert volumes.has(volume_id)
    assert ceph.names() == [f"luks-volume-{volume_id}"]


def test_data_of_an_encrypted_volume_become_no_image(volumes: RbdVolumes) -> None:
    with pytest.raises(exceptions.NotImplementedByDriver), volumes.exported(create(volumes), "raw"):
        pass


@pytest.mark.parametrize("encrypted", [True, False])
def test_source_of_the_other_kind_is_not_copied(volumes: RbdVolumes, ceph: FakeRbd, encrypted: bool) -> None:
    source = create(volumes, encrypted=not encrypted)
    before = ceph.names()
    with pytest.raises(exceptions.VolumeFileMissing):
        create(volumes, encrypted=encrypted, source_volume=source)
    assert ceph.names() == before


def test_volume_without_its_key_is_not_made(volumes: RbdVolumes, ceph: FakeRbd) -> None:
    def refuse(volume_id: str) -> VolumeKey:
        raise exceptions.VolumeKeyUnavailable(volume_id=volume_id, reason="no master key")

    volumes.volume_key = refuse
    with pytest.raises(exceptions.VolumeKeyUnavailable):
        create(volumes)
    assert ceph.names() == []

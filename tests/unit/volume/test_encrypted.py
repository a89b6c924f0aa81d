"""Encrypted volumes of backend ``local``: their files, snapshots, copies and backups have no plain data."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.image import luks
from nova_lite.objects import BlockDevice, Image, VolumeKey, VolumeVerb, VolumeWork
from nova_lite.objects.block_device import DeviceSource
from nova_lite.virt import images as disk_images
from nova_lite.volume.local import GIB, LocalVolumes
from tests.support import make

PATTERN = b"what a user wants to hide. "
DATA = PATTERN * 4096
PASSPHRASE = "8d3f" * 16


class Store(LocalVolumes):
    """A backend, and the ids of volumes whose keys it has requested."""

    requested: list[str]


@pytest.fixture
def volumes(tmp_path: Path) -> Store:
    conf = make.conf("sqlite://", tmp_path)
    conf.set_override("store_path", str(tmp_path / "volumes"), "volume")
    conf.set_override("backup_path", str(tmp_path / "backups"), "volume")
    (tmp_path / "image").write_bytes(DATA)

    def fetch(image: Image, target: str) -> None:
        Path(target).write_bytes((tmp_path / image.name).read_bytes())

    made = Store(conf, fetch)
    made.requested = []

    def key_of(volume_id: str) -> VolumeKey:
        made.requested.append(volume_id)
        return VolumeKey(passphrase=PASSPHRASE)

    made.volume_key = key_of
    return made


def new_id() -> str:
    return str(uuid.uuid4())


def image(disk_format: str = "raw", name: str = "image") -> Image:
    return Image(id=new_id(), name=name, disk_format=disk_format)


def create(volumes: Store, size: int = 1, **source: Any) -> str:
    volume_id = new_id()
    work = {"id": 1, "verb": VolumeVerb.CREATE, "volume_id": volume_id, "size": size, "encrypted": True}
    volumes.create(VolumeWork(**work, **source))
    return volume_id


def size_of(path: str) -> float:
    """Return the size that a guest sees, in GB."""
    return (os.path.getsize(path) - luks.data_offset(path)) / GIB


def plain(path: str, tmp_path: Path) -> bytes:
    """Return the beginning of the data that a guest reads."""
    secret, target = tmp_path / "passphrase", tmp_path / "out"
    secret.write_text(PASSPHRASE)
    opened = f"driver=luks,key-secret=k,file.filename={path}"
    read = ("bs=4096", f"count={-(-len(DATA) // 4096)}", f"if={opened}", f"of={target}")
    disk_images.run("qemu-img", "dd", "--object", f"secret,id=k,file={secret}", "--image-opts", *read)
    return target.read_bytes()


def files_of(volumes: Store) -> list[str]:
    return [
        os.path.join(directory, name)
        for root in (volumes.conf.volume.store_path, volumes.conf.volume.backup_path)
        for directory, _, names in os.walk(root)
        for name in names
    ]


def test_blank_volume_is_a_sparse_luks_file_of_its_size(volumes: Store) -> None:
    volume_id = create(volumes, 2)
    path = volumes.require(volume_id)
    assert volumes.is_encrypted(path)
    assert path.endswith(f"/luks/{volume_id}")
    assert size_of(path) == 2
    assert os.stat(path).st_blocks * 512 < 4 * 1024**2
    assert volumes.requested == [volume_id]


@pytest.mark.parametrize("disk_format", ["raw", "qcow2"])
def test_volume_of_an_image_has_its_data_encrypted(volumes: Store, tmp_path: Path, disk_format: str) -> None:
    if disk_format == "qcow2":
        disk_images.run("qemu-img", "convert", "-O", "qcow2", str(tmp_path / "image"), str(tmp_path / "qcow2"))
    path = volumes.require(create(volumes, image=image(disk_format, "image" if disk_format == "raw" else "qcow2")))
    with open(path, "rb") as file:
        assert PATTERN not in file.read(4 * 1024**2)
    assert plain(path, tmp_path).startswith(DATA)
    assert size_of(path) == 1


def test_copies_of_a_volume_have_its_passphrase_and_no_plain_data(volumes: Store, tmp_path: Path) -> None:
    source = create(volumes, image=image())
    snapshot, backup = new_id(), new_id()
    volumes.create_snapshot(source, snapshot)
    volumes.create_backup(VolumeWork(id=2, verb=VolumeVerb.BACKUP, volume_id=source, backup_id=backup, encrypted=True))
    copies = [create(volumes, 2, source_snapshot=snapshot), create(volumes, 2, source_volume=source)]
    restored = new_id()
    volumes.restore_backup(
        VolumeWork(
            id=3, verb=VolumeVerb.RESTORE, volume_id=restored, size=1, data_id=backup, is_new=True, encrypted=True
        )
    )
    assert volumes.requested == [source], "copies need no key"
    for copy in (*copies, restored):
        path = volumes.require(copy)
        assert volumes.is_encrypted(path)
        assert plain(path, tmp_path).startswith(DATA)
    assert [size_of(volumes.require(copy)) for copy in copies] == [2, 2]
    for path in files_of(volumes):
        with open(path, "rb") as file:
            assert PATTERN not in file.read(8 * 1024**2), path


def test_backup_replaces_the_data_of_an_encrypted_volume(volumes: Store, tmp_path: Path) -> None:
    source, target, backup = create(volumes, image=image()), create(volumes, 2), new_id()
    volumes.create_backup(VolumeWork(id=2, verb=VolumeVerb.BACKUP, volume_id=source, backup_id=backup, encrypted=True))
    work = {"id": 3, "verb": VolumeVerb.RESTORE, "volume_id": target, "size": 2, "data_id": backup, "encrypted": True}
    volumes.restore_backup(VolumeWork(**work))
    path = volumes.require(target)
    assert (size_of(path), volumes.is_encrypted(path)) == (2, True)
    assert plain(path, tmp_path).startswith(DATA)


def test_extended_volume_has_exactly_the_new_size(volumes: Store) -> None:
    volume_id = create(volumes)
    for size in (3, 2):
        volumes.extend(volume_id, size)
        assert size_of(volumes.require(volume_id)) == 3


def test_deleted_volume_and_snapshot_leave_no_file(volumes: Store) -> None:
    volume_id, snapshot = create(volumes), new_id()
    volumes.create_snapshot(volume_id, snapshot)
    volumes.delete_snapshot(snapshot)
    volumes.delete(volume_id)
    assert files_of(volumes) == []


def test_volume_in_use_is_copied_into_a_luks_file_of_its_size(volumes: Store, tmp_path: Path) -> None:
    """The hypervisor writes plain data into the file, which it opens as LUKS."""
    source, snapshot, backup = create(volumes, 2), new_id(), new_id()
    seen = []

    def copy(parts: Mapping[str, str]) -> None:
        (part,) = parts.values()
        assert volumes.is_encrypted(part) or part.startswith(volumes.conf.volume.backup_path)
        seen.append(size_of(part))

    volumes.create_snapshots_in_use({source: snapshot}, copy, contextlib.nullcontext)
    volumes.create_snapshots_in_use({source: snapshot}, copy, contextlib.nullcontext)
    work = VolumeWork(id=2, verb=VolumeVerb.BACKUP, volume_id=source, backup_id=backup, encrypted=True)
    volumes.create_backup_in_use(work, copy, contextlib.nullcontext)
    assert seen == [2, 2]
    copied = create(volumes, source_snapshot=snapshot)
    assert size_of(volumes.require(copied)) == 2


def test_new_guest_gets_its_encrypted_volumes_and_an_older_host_makes_none(volumes: Store, tmp_path: Path) -> None:
    source = image()
    wanted = BlockDevice(
        uuid="x",
        source_type=DeviceSource.VOLUME,
        made_from=DeviceSource.IMAGE,
        destination_type="volume",
        volume_id=new_id(),
        volume_size=1,
        image_id=source.id,
        encrypted=True,
    )
    volumes.prepare([wanted], {source.id: source})
    assert plain(volumes.require(str(wanted.volume_id)), tmp_path).startswith(DATA)
    as_older_hosts_read_it = BlockDevice(
        uuid="x", source_type=DeviceSource.VOLUME, destination_type="volume", volume_id=new_id(), image_id=source.id
    )
    with pytest.raises(exceptions.VolumeFileMissing):
        volumes.prepare([as_older_hosts_read_it], {source.id: source})


def test_reimaged_volume_stays_encrypted(volumes: Store, tmp_path: Path) -> None:
    volume_id = create(volumes)
    volumes.reimage(volume_id, image(), 1)
    path = volumes.require(volume_id)
    assert volumes.is_encrypted(path)
    assert plain(path, tmp_path).startswith(DATA)
    assert not os.path.exists(os.path.join(volumes.conf.volume.store_path, volume_id))


def test_data_of_an_encrypted_volume_become_no_image(volumes: Store) -> None:
    volume_id = create(volumes)
    with pytest.raises(exceptions.NotImplementedByDriver), volumes.exported(volume_id, "raw"):
        pytest.fail("its data were exported")


def test_volume_without_its_key_is_not_made(volumes: Store) -> None:
    def refuse(volume_id: str) -> VolumeKey:
        raise exceptions.VolumeKeyUnavailable(volume_id=volume_id, reason="no")

    volumes.volume_key = refuse
    with pytest.raises(exceptions.VolumeKeyUnavailable):
        create(volumes)
    assert files_of(volumes) == []


def test_plain_source_is_not_copied_into_an_encrypted_volume(volumes: Store) -> None:
    source = new_id()
    volumes.create(VolumeWork(id=1, verb=VolumeVerb.CREATE, volume_id=source, size=1))
    with pytest.raises(exceptions.VolumeFileMissing):
        create(volumes, source_volume=source)

"""Backups that contain a server's volumes: which ones, and what comes back of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.db.backups import backup_policies, server_backups
from nova_lite.db.core import models
from nova_lite.db.image import images
from nova_lite.image import qcow2, store
from nova_lite.objects import BackupDisk, BackupStatus, ServerBackup
from tests.support.backup_world import HOUR
from tests.support.repository_world import SIZE, InRepository

DATA, BOOT, SECRET = (f"{number}2222222-2222-4222-8222-222222222222" for number in range(3))


@pytest.fixture
def world(tmp_path: Path) -> InRepository:
    return InRepository(tmp_path)


def requested(world: InRepository) -> list[str]:
    world.begin()
    return list(world.request.get("disks", []))


def images_of(world: InRepository, backup: ServerBackup) -> list[BackupDisk]:
    """Request the images of a backup, and return its disks with them."""
    world.db.write(server_backups.want_image, world.context(), backup.id)
    world.stored.run()
    shown = world.db.read(server_backups.get, world.context(), backup.id)
    assert (shown.restore_status, shown.restore_reason) == ("ready", None)
    return shown.disks


def test_attached_volume_is_in_the_backup(world: InRepository) -> None:
    world.attach(DATA, b"d" * 100_000)
    made = world.make()
    assert [(disk.volume_id, disk.device, disk.is_root, disk.size) for disk in made.disks] == [
        ("", "", True, SIZE),
        (DATA, "/dev/vdb", False, 100_000),
    ]


def test_each_disk_gets_an_image_of_its_own(world: InRepository) -> None:
    world.attach(DATA, b"d" * 100_000)
    root, data = images_of(world, world.make())
    for disk, content in ((root, b"a" * SIZE), (data, b"d" * 100_000)):
        path = Path(store.file_path(str(world.store), str(disk.image_id)))
        header = qcow2.read(str(path))
        assert header is not None
        assert header.size == disk.size
        assert content in path.read_bytes()
        image = world.db.read(images.by_id, str(disk.image_id))
        assert image is not None
        assert (image.status, image.owner) == ("active", world.row.project_id)
    assert root.image_id == world.row.restored_image_id
    assert images_of(world, world.row) == [root, data], "the same images are used again"
    assert world.repository.broken == 0


def test_image_that_was_deleted_is_made_again_with_the_others(world: InRepository) -> None:
    world.attach(DATA, b"d" * 512)
    before = images_of(world, world.make())
    world.db.write(images.drop, [str(before[1].image_id)])
    after = images_of(world, world.row)
    assert {disk.image_id for disk in before}.isdisjoint(disk.image_id for disk in after)


def test_server_that_boots_from_a_volume_is_backed_up(world: InRepository) -> None:
    world.attach(BOOT, b"b" * 4096, boot_index=0)
    world.attach(DATA, b"d" * 512)
    made = world.make()
    assert [(disk.volume_id, disk.is_root) for disk in made.disks] == [(BOOT, True), (DATA, False)]
    root, _ = images_of(world, made)
    assert root.image_id == world.row.restored_image_id


def test_images_of_a_server_that_boots_from_a_volume_ask_for_no_disk(world: InRepository) -> None:
    """Backups of older versions say that the root disk needs the size of the flavor's."""
    world.attach(BOOT, b"b" * 4096, boot_index=0)
    made = world.make()
    assert made.server["image"]["min_disk"] == 0

    def age(uow: Any) -> None:
        (row,) = uow.session.scalars(sa.select(models.ServerBackup).where(models.ServerBackup.uuid == made.id))
        row.server = {**row.server, "image": {**row.server["image"], "min_disk": 20}}

    world.db.write(age)
    (root,) = images_of(world, made)
    image = world.db.read(images.by_id, str(root.image_id))
    assert image is not None
    assert (image.min_disk, image.virtual_size) == (0, 4096)


def test_volume_that_the_server_boots_from_is_in_a_backup_without_volumes(world: InRepository) -> None:
    world.attach(BOOT, b"b" * 4096, boot_index=0)
    world.attach(DATA, b"d" * 512)
    world.db.write(backup_policies.update, world.context(), world.policy.id, {"volumes": False})
    assert requested(world) == [BOOT]


def test_policy_without_volumes_backs_up_the_root_disk_alone(world: InRepository) -> None:
    world.attach(DATA, b"d" * 512)
    world.db.write(backup_policies.update, world.context(), world.policy.id, {"volumes": False})
    assert requested(world) == []
    world.finish()
    world.store_once()
    assert [disk.volume_id for disk in world.row.disks] == [""]


def test_encrypted_volume_is_left_out(world: InRepository) -> None:
    world.attach(SECRET, b"s" * 512, encrypted=True)
    world.attach(DATA, b"d" * 512)
    assert requested(world) == ["", DATA]


def test_server_that_boots_from_an_encrypted_volume_has_a_failed_backup(world: InRepository) -> None:
    world.attach(SECRET, b"s" * 512, boot_index=0, encrypted=True)
    world.begin()
    assert (world.row.status, world.row.reason) == (BackupStatus.FAILED, exceptions.BackupOfVolumes().message)


def test_increment_with_a_volume_comes_back_as_it_was(world: InRepository) -> None:
    world.attach(DATA, b"d" * 512)
    first = world.make()
    world.volumes[DATA][:] = b"e" * 512
    second = world.make()
    assert (second.base_id, world.request["base_disks"]) == (first.id, [("", SIZE), (DATA, 512)])
    _, data = images_of(world, second)
    content = Path(store.file_path(str(world.store), str(data.image_id))).read_bytes()
    assert b"e" * 512 in content
    assert b"d" * 512 not in content


@pytest.mark.parametrize("names", [[""], ["", DATA, BOOT], [DATA, ""]], ids=["missing", "another", "other order"])
def test_stream_of_other_disks_is_a_failed_backup(world: InRepository, names: list[str]) -> None:
    world.attach(DATA, b"d" * 512)
    world.begin()
    world.uploaded = world.stream_of_disks(names, None)
    world.finish()
    world.store_once()
    assert world.row.status is BackupStatus.FAILED
    assert "other disks" in str(world.row.reason)


def test_increment_of_a_backup_with_other_disks_is_a_failed_backup(world: InRepository) -> None:
    first = world.make()
    world.attach(DATA, b"d" * 512)
    world.begin()
    assert world.request["base"] == first.id
    world.uploaded = world.stream_of_disks(["", DATA], first.id)
    world.finish()
    world.store_once()
    assert (world.row.status, "one of another disk" in str(world.row.reason)) == (BackupStatus.FAILED, True)


def test_full_repository_leaves_no_half_of_the_images(world: InRepository) -> None:
    world.attach(DATA, b"d" * 512)
    made = world.make()
    world.db.write(server_backups.want_image, world.context(), made.id)
    world.repository.broken = 1
    world.stored.run()
    shown = world.db.read(server_backups.get, world.context(), made.id)
    assert (shown.restore_status, "no space" in str(shown.restore_reason)) == ("wanted", True)
    world.stored.run()
    assert world.db.read(server_backups.get, world.context(), made.id).restore_status == "ready"


def test_policy_of_engine_images_cannot_have_volumes(world: InRepository) -> None:
    world.conf.set_override("engine", "images", "server_backups")
    assert world.make_policy(name="other").volumes is False
    with pytest.raises(exceptions.InvalidInput, match="without attached volumes"):
        world.db.write(backup_policies.update, world.context(), world.policy.id, {"volumes": True})
    world.age(scheduled_for=HOUR)

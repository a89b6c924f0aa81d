"""Backups in repositories, from the upload of a stream to the image that is made of it, and to its removal."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nova_lite.backups import chain, disk_data, disk_parts
from nova_lite.backups.disk_data import DiskHeader, DiskPart
from nova_lite.base import exceptions
from nova_lite.base.timing import ConductorTiming
from nova_lite.conductor.backups.scheduled_backups import ScheduledBackups
from nova_lite.db.backups import backup_policies, server_backups
from nova_lite.db.image import images
from nova_lite.objects import BackupStatus
from tests.support.backup_world import HOUR, Killed
from tests.support.backups import set_backup
from tests.support.repository_world import SIZE, InRepository


@pytest.fixture
def world(tmp_path: Path) -> InRepository:
    return InRepository(tmp_path)


def test_backup_is_complete_only_when_its_data_are_in_the_repository(world: InRepository) -> None:
    world.begin()
    command = world.compute.commands[-1]
    assert (command.method, world.request) == ("backup_disk", {"backup_id": world.row.id})
    image = command.payload["image"]
    assert (image["disk_format"], image["hidden"]) == ("raw", True)
    world.finish()
    world.backups.run()
    assert (world.row.status, world.repository.snapshots) == (BackupStatus.STORING, {})
    world.stored.run()
    assert (world.row.status, world.row.base_id, world.row.disk_size) == (BackupStatus.COMPLETE, None, SIZE)
    assert [tag for tag, _ in world.repository.snapshots.values()] == [world.row.id]
    world.stored.run()
    assert (world.files(), world.row.has_image) == ([], False), "the upload is removed"


def test_increments_follow_a_whole_backup_until_the_next_whole_one(world: InRepository) -> None:
    made = [world.make() for _ in range(6)]
    assert [backup.base_id for backup in made] == [None, made[0].id, made[1].id, made[2].id, None, made[4].id]
    assert [backup.increments for backup in made] == [0, 1, 2, 3, 0, 1]


def test_each_backup_comes_back_as_it_was(world: InRepository) -> None:
    made = [(world.make(), bytes(world.disk))]
    for letter in (b"b", b"c"):
        world.disk[-70000:] = letter * 70000
        made.append((world.make(), bytes(world.disk)))
    assert [backup.base_id for backup, _ in made] == [None, made[0][0].id, made[1][0].id]
    assert [world.restored(backup) for backup, _ in made] == [disk for _, disk in made]


@pytest.mark.parametrize("change", ["host", "generation", "failed"])
def test_backup_of_another_host_or_build_is_no_base(world: InRepository, change: str) -> None:
    first = world.make()
    if change == "failed":
        world.db.write(server_backups.lose_backup, first.id, "gone")
    else:
        value = {"host": "another", "generation": 99}[change]
        set_backup(world.db, first.id, **{change: value})
    world.begin()
    assert "base" not in world.request


def test_host_may_answer_with_a_whole_backup(world: InRepository) -> None:
    world.make()
    world.uploaded = world.stream(None)
    assert (world.make().base_id, world.row.increments) == (None, 0)


def other_base(world: InRepository) -> bytes:
    return world.stream("00000000-0000-4000-8000-000000000000")


def other_size(world: InRepository) -> bytes:
    target = io.BytesIO()
    disk_data.write_header(target, DiskHeader(size=SIZE + 512, data=[], base=world.rows(status="complete")[0].id))
    return target.getvalue()


def cut_off(world: InRepository) -> bytes:
    return world.stream(None)[:-1]


def no_stream(world: InRepository) -> bytes:
    return b"x" * 5000


@pytest.mark.parametrize("upload", [other_base, other_size, cut_off, no_stream])
def test_upload_that_does_not_fit_is_a_failed_backup(
    world: InRepository, upload: Callable[[InRepository], bytes]
) -> None:
    first = world.make()
    world.disk[-100:] = b"b" * 100
    world.uploaded = upload(world)
    world.begin()
    world.finish()
    world.store_once()
    assert world.row.status is BackupStatus.FAILED
    assert str(world.row.reason).startswith("The data of a backup cannot be used")
    world.stored.run()
    assert world.files() == []
    world.uploaded = None
    world.age(scheduled_for=HOUR, started_at=HOUR)
    assert world.make().base_id == first.id, "the failed one is no base"
    assert world.restored(world.row) == bytes(world.disk)


def test_data_of_a_backup_that_is_refused_after_they_were_stored_are_forgotten(world: InRepository) -> None:
    first = world.make()
    set_backup(world.db, first.id, generation=99)
    world.begin()
    world.uploaded = stream_of_a_disk_too_many()
    world.finish()
    world.backups.run()
    world.repository.broken_forgets = 1
    world.stored.run()
    assert (world.row.status, len(world.repository.snapshots)) == (BackupStatus.FAILED, 2)
    assert world.files() == []
    world.begin_anew()
    world.stored.run()
    assert [tag for tag, _ in world.repository.snapshots.values()] == [first.id]
    assert world.repository.pruned == 1


def stream_of_a_disk_too_many() -> bytes:
    """Return a stream that is whole, and is refused only when its row is to name it."""
    made = [(DiskPart(volume_id=name, size=SIZE), DiskHeader(size=SIZE, data=[])) for name in ("", "another")]
    target = io.BytesIO()
    disk_data.write_header(target, disk_parts.joined(made, None))
    return target.getvalue()


def test_data_of_a_failed_record_that_expires_are_forgotten(world: InRepository) -> None:
    first, second = world.make(), world.make()
    world.db.write(server_backups.lose_backup, first.id, "gone")
    assert {row.id for row in world.rows(status="failed")} == {first.id, second.id}
    world.age(finished_at=31 * 24 * HOUR)
    for _ in range(3):
        world.store_once()
    assert ({row.id for row in world.rows()} & {first.id, second.id}, world.repository.snapshots) == (set(), {})


@pytest.mark.parametrize("is_pruned", [False, True])
def test_room_of_removed_backups_is_freed_after_a_restart(world: InRepository, is_pruned: bool) -> None:
    made = world.make()
    world.db.write(server_backups.delete, world.context(), made.id)
    world.repository.broken_prunes = 0 if is_pruned else 1
    world.stored.run()
    assert (world.rows(), world.repository.pruned) == ([], int(is_pruned))
    world.begin_anew()
    world.stored.run()
    world.stored.run()
    assert world.repository.pruned == 1


def test_repository_is_not_made_anew_after_its_last_backup_was_removed(world: InRepository) -> None:
    made = world.make()
    world.db.write(server_backups.delete, world.context(), made.id)
    world.stored.run()
    assert world.rows() == []
    assert world.db.read(server_backups.has_repository, made.project_id)
    assert not world.db.read(server_backups.has_repository, "another")


def test_full_repository_is_tried_again(world: InRepository) -> None:
    world.begin()
    world.finish()
    world.repository.broken = 2
    world.store_once()
    assert (world.row.status, "no space left" in str(world.row.reason)) == (BackupStatus.STORING, True)
    world.stored.run()
    world.stored.run()
    assert (world.row.status, world.row.reason) == (BackupStatus.COMPLETE, None)


def test_repository_that_stays_full_is_a_failed_backup_after_a_day(world: InRepository) -> None:
    world.begin()
    world.finish()
    world.repository.broken = 2
    world.store_once()
    world.age(finished_at=25 * HOUR)
    world.stored.run()
    assert (world.row.status, "no space left" in str(world.row.reason)) == (BackupStatus.FAILED, True)


def test_deleted_upload_is_a_failed_backup(world: InRepository) -> None:
    world.begin()
    world.finish()
    world.backups.run()
    world.db.write(images.drop, [world.row.image_id])
    world.stored.run()
    assert world.row.status is BackupStatus.FAILED


def test_base_is_kept_while_increments_of_it_exist(world: InRepository) -> None:
    made = [world.make() for _ in range(4)]
    world.backups.run()
    world.stored.run()
    statuses = {backup.id: backup.status for backup in world.rows()}
    assert [statuses[backup.id] for backup in made] == ["deleting", "deleting", "complete", "complete"]
    assert len(world.repository.snapshots) == 4
    assert world.restored(made[3]) == bytes(world.disk)
    set_backup(world.db, made[3].id, held_until=None)
    for _ in range(2):
        made.append(world.make())
    for _ in range(6):
        world.backups.run()
        world.stored.run()
    assert {backup.id for backup in world.rows()} == {backup.id for backup in made[4:]}
    assert len(world.repository.snapshots) == 2
    assert world.repository.pruned >= 1


def test_newest_backup_without_data_is_lost_and_removes_no_other(world: InRepository) -> None:
    for _ in range(3):
        last = world.make()
    world.repository.snapshots.pop(str(last.snapshot))
    world.backups.run()
    assert world.row.status is BackupStatus.FAILED
    assert len(world.rows(status="complete")) == 2


def test_retention_of_a_broken_chain_removes_no_older_backup(world: InRepository) -> None:
    keep(world, 10)
    world.conf.set_override("full_every", 2, "server_backups")
    made = [world.make() for _ in range(4)]
    assert [backup.base_id for backup in made] == [None, made[0].id, None, made[2].id]
    world.repository.snapshots.pop(str(made[2].snapshot))
    keep(world, 1)
    world.backups.run()
    statuses = {backup.id: backup.status for backup in world.rows()}
    assert [statuses[backup.id] for backup in made] == ["complete", "complete", "failed", "failed"]


def keep(world: InRepository, number: int) -> None:
    for policy in world.db.read(backup_policies.list_, world.context(), False, None):
        world.db.write(backup_policies.update, world.context(), policy.id, {"keep_hourly": number})


def test_retention_waits_for_its_next_interval_if_the_repository_does_not_answer(
    world: InRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(world, 10)
    made = [world.make() for _ in range(4)]
    another = world.make_policy()
    for backup in made[:2]:
        set_backup(world.db, backup.id, policy_id=another.id)
    keep(world, 1)
    looks = []

    def stall(tags: list[str]) -> set[str]:
        looks.append(tags)
        raise exceptions.BackupRepositoryStalled(reason="it moved no data for 600 seconds")

    monkeypatch.setattr(world.repository, "present", stall)
    world.backups = ScheduledBackups(world.engine, ConductorTiming(backup_retention_interval=3600.0), world.stored)
    world.backups.run()
    assert (len(looks), len(world.rows(status="complete"))) == (1, 4)
    world.begin()
    world.finish()
    world.backups.run()
    assert (world.row.status, len(looks)) == (BackupStatus.STORING, 1)


def test_increment_whose_base_lacks_its_own_base_fails_and_the_next_backup_is_whole(world: InRepository) -> None:
    first, second = world.make(), world.make()
    world.repository.snapshots.pop(str(first.snapshot))
    world.begin()
    world.finish()
    world.store_once()
    assert (world.row.status, first.id in str(world.row.reason)) == (BackupStatus.FAILED, True)
    assert {row.id for row in world.rows(status="failed")} == {first.id, second.id, world.row.id}
    world.age(scheduled_for=HOUR, started_at=HOUR)
    assert world.make().base_id is None
    assert world.restored(world.row) == bytes(world.disk)


def test_increment_whose_base_was_lost_meanwhile_is_not_complete(world: InRepository) -> None:
    first = world.make()
    world.begin()
    world.finish()
    world.backups.run()
    world.db.write(server_backups.lose_backup, first.id, "gone")
    world.stored.run()
    assert world.row.status is BackupStatus.FAILED


def test_backup_whose_base_is_not_in_the_repository_makes_no_image(world: InRepository) -> None:
    first, second = world.make(), world.make()
    world.repository.snapshots.pop(str(first.snapshot))
    world.db.write(server_backups.want_image, world.context(), second.id)
    world.stored.run()
    assert (world.row.restore_status, first.id in str(world.row.restore_reason)) == ("failed", True)


def test_damaged_backup_makes_no_image(world: InRepository) -> None:
    made = world.make()
    tag, data = world.repository.snapshots[str(made.snapshot)]
    world.repository.snapshots[str(made.snapshot)] = (tag, data[:-1] + b"!")
    world.db.write(server_backups.want_image, world.context(), made.id)
    world.stored.run()
    assert (world.row.restore_status, "digest" in str(world.row.restore_reason)) == ("failed", True)
    assert world.files() == []
    with pytest.raises(exceptions.BackupDataInvalid):
        chain.verify(world.repository, world.row)  # type: ignore[arg-type]


def test_image_is_made_when_the_repository_is_back(world: InRepository) -> None:
    made = world.make()
    world.repository.broken = 1
    world.db.write(server_backups.want_image, world.context(), made.id)
    world.stored.run()
    assert (world.row.restore_status, "no space left" in str(world.row.restore_reason)) == ("wanted", True)
    assert world.restored(made) == bytes(world.disk)


def test_restore_needs_an_image(world: InRepository) -> None:
    made = world.make()
    with pytest.raises(exceptions.ServerBackupInRepository):
        world.db.write(server_backups.hold, world.context(), made.id)
    world.restored(made)
    held = world.db.write(server_backups.hold, world.context(), made.id)
    assert held.image_id == world.row.restored_image_id
    again = world.db.write(server_backups.want_image, world.context(), made.id)
    assert again.restored_image_id == held.image_id, "one image is enough"
    world.db.write(images.drop, [held.image_id])
    assert world.db.write(server_backups.want_image, world.context(), made.id).restored_image_id != held.image_id


class Killer:
    """Kills the conductor right before, or right after, a commit or an operation of the repository."""

    def __init__(self, world: InRepository, number: int, is_after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left, self.is_after, self.where = number, is_after, ""
        write = world.db.write

        def named_write(function: Any, *arguments: Any, **named: Any) -> Any:
            if function.__module__ != server_backups.__name__:
                return write(function, *arguments, **named)
            return self.passing(function.__name__, lambda: write(function, *arguments, **named))

        monkeypatch.setattr(world.db, "write", named_write)
        for owner, names in (
            (world.repository, ("store", "forget")),
            (world.engine.images, ("upload", "publish", "discard")),
        ):
            for name in names:
                monkeypatch.setattr(owner, name, self.wrapped(name, getattr(owner, name)))

    def wrapped(self, name: str, function: Any) -> Any:
        return lambda *arguments: self.passing(name, lambda: function(*arguments))

    def passing(self, name: str, act: Callable[[], Any]) -> Any:
        self.left -= 1
        if self.left or self.where:
            return act()
        self.where = name
        if self.is_after:
            act()
        raise Killed


@pytest.mark.parametrize("is_after", [False, True])
def test_conductor_that_dies_at_any_step_never_takes_an_incomplete_backup_for_a_complete_one(
    world: InRepository, is_after: bool
) -> None:
    """Each life makes a backup and an image of it, and retention removes an old backup."""
    world.conf.set_override("full_every", 1, "server_backups")
    live(world)
    live(world)
    passed = set()
    for number in range(1, 100):
        world.disk[-2:] = number.to_bytes(2)
        with pytest.MonkeyPatch.context() as patched:
            killer = Killer(world, number, is_after, patched)
            with contextlib.suppress(Killed):
                live(world)
        passed.add(killer.where)
        world.begin_anew()
        world.let_time_pass(60)
        world.reconciler.sweep()
        live(world)
        rows = world.rows()
        assert [row.status for row in rows] == ["complete", "complete"], killer.where
        assert {str(row.snapshot) for row in rows} <= world.repository.snapshots.keys(), killer.where
        assert {tag for tag, _ in world.repository.snapshots.values()} == {row.id for row in rows}, killer.where
        for row in rows:
            chain.verify(world.repository, row)  # type: ignore[arg-type]
        assert world.restored(rows[0]) == bytes(world.disk)
        world.delete_images()
        assert world.files() == [], killer.where
        if not killer.where:
            break
    wanted = {"begin_storing", "store", "store_backup", "drop_backup_image", "discard", "image_dropped", "want_image"}
    wanted |= {"register_image", "upload", "publish", "restored_image", "end_restore", "forget", "forget_backup"}
    assert passed >= wanted


def live(world: InRepository) -> None:
    """Make a backup, or continue an interrupted backup, make an image of it, and remove old backups."""
    for row in world.rows():
        set_backup(world.db, row.id, held_until=None)
    if not any(row.status in ("running", "storing") for row in world.rows()):
        world.begin()
    world.finish_if_begun()
    world.store_once()
    world.store_once()
    newest = world.rows(status="complete")[0]
    world.db.write(server_backups.want_image, world.context(), newest.id)
    world.store_once()
    world.store_once()
    world.age(scheduled_for=HOUR, started_at=HOUR)

"""Locks of backups: no user removes a locked backup or shortens its lock, and its bases stay."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.db.backups import backup_policies, server_backups
from nova_lite.objects import BackupStatus
from tests.support import make
from tests.support.backups import set_backup
from tests.support.repository_world import InRepository

DAY = datetime.timedelta(days=1)


@pytest.fixture
def world(tmp_path: Path) -> InRepository:
    """Return a world whose policy keeps two backups, and locks each for 30 days."""
    made = InRepository(tmp_path)
    made.db.write(backup_policies.update, made.context(), made.policy.id, {"locked_days": 30})
    return made


def run(world: InRepository) -> None:
    for _ in range(3):
        world.backups.run()
        world.stored.run()


def test_locked_backup_survives_users_admins_and_retention_until_its_lock_ends(world: InRepository) -> None:
    made = [world.make() for _ in range(4)]
    assert made[0].locked_until is not None
    assert made[0].started_at is not None
    assert made[0].locked_until - made[0].started_at == 30 * DAY
    for context in (world.context(), make.ADMIN):
        with pytest.raises(exceptions.ServerBackupLocked, match=f"{made[0].locked_until:%Y-%m-%dT%H:%M:%SZ}"):
            world.db.write(server_backups.delete, context, made[0].id)
    run(world)
    assert [backup.status for backup in world.rows()] == ["complete"] * 4, "the policy keeps two"
    world.age(locked_until=31 * DAY)
    run(world)
    assert len(world.rows(status="complete")) == 2
    world.db.write(server_backups.delete, world.context(), made[3].id)


def test_lock_outlives_its_policy_and_a_change_of_its_days(world: InRepository) -> None:
    first = world.make()
    world.db.write(backup_policies.update, world.context(), world.policy.id, {"locked_days": 0, "keep_hourly": 1})
    unlocked = [world.make() for _ in range(3)]
    run(world)
    statuses = {backup.id: backup.status for backup in world.rows()}
    assert statuses[first.id] == "complete"
    assert (statuses[unlocked[0].id], unlocked[0].locked_until) == ("deleting", None)
    world.db.write(backup_policies.delete, world.context(), world.policy.id)
    run(world)
    with pytest.raises(exceptions.ServerBackupLocked):
        world.db.write(server_backups.delete, make.ADMIN, first.id)


def test_base_of_a_locked_increment_keeps_its_data(world: InRepository) -> None:
    base, increment = world.make(), world.make()
    assert increment.base_id == base.id
    set_backup(world.db, base.id, locked_until=None)
    world.db.write(server_backups.delete, world.context(), base.id)
    run(world)
    assert base.snapshot in world.repository.snapshots
    assert world.restored(increment) == bytes(world.disk)


def test_locked_backup_that_counts_as_lost_keeps_its_record_and_its_data(world: InRepository) -> None:
    backup = world.make()
    set_backup(world.db, backup.id, has_image=True)
    world.db.write(server_backups.lose_backup, backup.id, "gone")
    world.age(finished_at=60 * DAY)
    run(world)
    assert (world.row.status, list(world.repository.snapshots)) == (BackupStatus.FAILED, [backup.snapshot])
    world.age(locked_until=31 * DAY)
    run(world)
    assert (world.rows(), world.repository.snapshots) == ([], {})


def test_backup_that_fails_has_no_lock(world: InRepository) -> None:
    world.begin()
    assert world.row.locked_until is not None
    world.finish(error="the guest is gone")
    world.backups.run()
    assert (world.row.status, world.row.locked_until) == (BackupStatus.FAILED, None)
    world.db.write(server_backups.delete, world.context(), world.row.id)


def test_lock_is_lengthened_and_never_shortened(world: InRepository) -> None:
    backup = world.make()
    assert backup.locked_until is not None
    later = backup.locked_until + DAY
    changed = world.db.write(server_backups.lock_until, world.context(), backup.id, later)
    assert changed.locked_until == later
    for context in (world.context(), make.ADMIN):
        with pytest.raises(exceptions.ServerBackupLocked, match="shorten"):
            world.db.write(server_backups.lock_until, context, backup.id, backup.locked_until)
    for wrong in (later + 400 * DAY, later - 60 * DAY):
        with pytest.raises(exceptions.InvalidInput, match="at most 400 days"):
            world.db.write(server_backups.lock_until, world.context(), backup.id, wrong)
    with pytest.raises(exceptions.ServerBackupNotFound):
        world.db.write(server_backups.lock_until, make.context("p2"), backup.id, later)
    assert world.row.locked_until == later


@pytest.mark.parametrize(
    ("values", "words"), [({"status": "failed"}, "it is failed"), ({"engine": "images"}, "it is an image")]
)
def test_backup_without_data_of_its_own_cannot_be_locked(
    world: InRepository, values: dict[str, str], words: str
) -> None:
    backup = world.make()
    set_backup(world.db, backup.id, **values)
    with pytest.raises(exceptions.ServerBackupNotLockable, match=words):
        world.db.write(server_backups.lock_until, world.context(), backup.id, backup.scheduled_for + 90 * DAY)


def test_policy_locks_no_longer_than_the_operator_allows_and_no_images(world: InRepository) -> None:
    world.conf.set_override("max_locked_days", 10, "server_backups")
    with pytest.raises(exceptions.InvalidInput, match="at most 10"):
        world.db.write(backup_policies.update, world.context(), world.policy.id, {"locked_days": 11})
    with pytest.raises(exceptions.InvalidInput, match="at most 10"):
        world.make_policy(locked_days=11)
    world.conf.set_override("engine", "images", "server_backups")
    with pytest.raises(exceptions.InvalidInput, match="engine = restic"):
        world.make_policy(locked_days=1)

"""Backups whose repository is on a file system that is not mounted for a while, with the real restic."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.backups import chain, repository
from nova_lite.backups.repository import Repositories
from nova_lite.db.backups import server_backups
from nova_lite.db.core import models
from nova_lite.objects import BackupStatus, ServerBackup
from tests.support import make
from tests.support.backup_world import HOUR
from tests.support.backups import set_backup
from tests.support.quick_restic import quick_restic  # noqa: F401
from tests.support.repository_world import InRepository

pytestmark = [
    pytest.mark.skipif(shutil.which(repository.PROGRAM) is None, reason="no restic"),
    pytest.mark.usefixtures("quick_restic"),
]


class OnShare(InRepository):
    """A server whose backups are on a share, whose mount point the conductor can write."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        password = path / "password"
        password.write_text("secret")
        self.place, self.share = path / "repository", path / "share"
        self.place.mkdir()
        self.repository: Any = Repositories(str(self.place), str(password), str(path / "cache"))
        self.begin_anew()

    def unmount(self) -> None:
        self.place.rename(self.share)
        self.place.mkdir()

    def mount(self) -> None:
        assert list(self.place.iterdir()) == [], "something was written below the mount point"
        self.place.rmdir()
        self.share.rename(self.place)

    def upload(self) -> ServerBackup:
        """Upload a backup, and look whether it can be stored."""
        self.begin()
        self.finish()
        self.store_once()
        return self.row

    def restore(self, backup: ServerBackup) -> ServerBackup:
        self.db.write(server_backups.want_image, self.context(), backup.id)
        self.stored.run()
        return self.db.read(server_backups.get, self.context(), backup.id)


@pytest.fixture
def world(tmp_path: Path) -> OnShare:
    return OnShare(tmp_path)


def test_increment_waits_until_the_share_is_mounted_and_its_chain_comes_back(world: OnShare) -> None:
    first = world.make()
    world.unmount()
    world.disk[-70000:] = b"b" * 70000
    waiting = world.upload()
    assert (waiting.status, waiting.base_id) == (BackupStatus.STORING, first.id)
    assert "mounted?" in str(waiting.reason)
    world.mount()
    world.stored.run()
    world.age(scheduled_for=HOUR, started_at=HOUR)
    second, third = world.row, world.make()
    assert [backup.base_id for backup in (second, third)] == [first.id, second.id]
    for backup in (first, second, third):
        assert world.restore(backup).restore_status == "ready"
        chain.verify(world.repository.of_project(backup.project_id), backup)


def test_backups_on_a_share_that_is_not_mounted_are_neither_lost_nor_forgotten(world: OnShare) -> None:
    made = [world.make() for _ in range(3)]
    world.db.write(server_backups.delete, make.ADMIN, made[0].id)
    world.unmount()
    world.backups.run()
    assert world.restore(made[2]).restore_status == "wanted"
    statuses = {backup.id: backup.status for backup in world.rows()}
    assert [statuses[backup.id] for backup in made] == ["deleting", "complete", "complete"]
    world.mount()
    assert world.restore(made[2]).restore_status == "ready"


def test_project_without_backups_gets_no_repository_while_those_of_others_are_not_reached(world: OnShare) -> None:
    first = world.make()
    set_backup(world.db, first.id, project_id="another")
    world.db.write(lambda uow: uow.change(sa.update(models.BackupRepository).values(project_id="another")))
    world.place.joinpath(first.project_id).rename(world.place / "another")
    world.unmount()
    assert world.upload().status is BackupStatus.STORING
    world.mount()
    world.stored.run()
    assert world.row.status is BackupStatus.COMPLETE
    assert sorted(path.name for path in world.place.iterdir()) == sorted(["another", first.project_id])

"""Backup policies whose time has come, and backups in any status."""

from __future__ import annotations

import datetime
from typing import Any

import sqlalchemy as sa

from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.objects import BackupPolicy

LONG_AGO = datetime.timedelta(days=3)


def make_due(db: Database, policy: BackupPolicy) -> None:
    """Make a policy due since ten hours, and as old as its servers."""

    def write(uow: UnitOfWork) -> None:
        changed = sa.update(models.BackupPolicy).where(models.BackupPolicy.uuid == policy.id)
        past = {"next_run_at": uow.now - datetime.timedelta(hours=10), "created_at": uow.now - LONG_AGO}
        uow.change(changed.values(updated_at=None, **past))

    db.write(write)


def set_backup(db: Database, backup_id: str, **values: Any) -> None:
    changed = sa.update(models.ServerBackup).where(models.ServerBackup.uuid == backup_id).values(**values)
    db.write(lambda uow: uow.change(changed))

"""World of a conductor with a server and an hourly backup policy that is due."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from nova_lite import operations
from nova_lite.base.timing import ConductorTiming
from nova_lite.conductor.backups.scheduled_backups import ScheduledBackups
from nova_lite.db.backups import backup_policies, server_backups
from nova_lite.db.core import models
from nova_lite.db.image import images
from nova_lite.image import store
from nova_lite.objects import ActionReport, BackupPolicy, BackupQuery, BackupStatus, ServerBackup
from nova_lite.objects.backup import Every
from nova_lite.virt.fake_disks import QCOW2_HEADER
from tests.support import make
from tests.support.conductor_world import World

DATA = QCOW2_HEADER + b"data"
HOUR = datetime.timedelta(hours=1)


class Backups(World):
    """A world with an ACTIVE server ``uuid``, and an hourly policy that is due."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.conf.set_override("spread", 0, "server_backups")
        self.uuid, self.host, _ = self.built()
        self.store = store.prepare_below(self.conf.image.store_path)
        at_once = ConductorTiming(backup_retention_interval=0.0, backup_status_interval=0.0)
        self.backups = ScheduledBackups(self.engine, at_once)
        self.policy = self.make_policy()
        self.make_due()

    def make_policy(self, **values: Any) -> BackupPolicy:
        wanted = {"name": "p", "every": Every.HOUR, "keep_hourly": 2, "all_servers": True} | values
        return self.db.write(backup_policies.create, self.conf, self.context(), BackupPolicy(**wanted))

    def make_due(self, policy: BackupPolicy | None = None) -> None:
        """Make the policy due, and as if it existed since days, as its servers."""
        policy_id = (policy or self.policy).id

        def write(uow: Any) -> None:
            past = uow.now - 72 * HOUR
            changed = sa.update(models.BackupPolicy).where(models.BackupPolicy.uuid == policy_id)
            uow.change(changed.values(next_run_at=uow.now, created_at=past, updated_at=None))
            uow.change(sa.update(models.Instance).values(launched_at=past))

        self.db.write(write)

    def age(self, **values: datetime.timedelta) -> None:
        """Move times of all backups into the past."""

        def write(uow: Any) -> None:
            for row in uow.session.scalars(sa.select(models.ServerBackup)):
                for name, step in values.items():
                    setattr(row, name, getattr(row, name) - step)

        self.db.write(write)

    def rows(self, **query: Any) -> list[ServerBackup]:
        """Return the backups, the newest first."""
        return self.db.read(server_backups.list_, make.ADMIN, BackupQuery(all_projects=True, **query))

    @property
    def row(self) -> ServerBackup:
        return self.rows()[0]

    def finish(self, error: str | None = None) -> None:
        """Carry out the last command, as its host does."""
        command = self.compute.commands[-1]
        image = command.payload["image"]["id"]
        if error is None:
            Path(store.prepare_below(self.store, store.UPLOADS, str(command.host)), image).write_bytes(DATA)
            changes = {"status": "saving", "size": len(DATA), "checksum": "c"}
            self.db.write(images.update, self.context(admin=True), image, changes)
        self.reports.finish_action(
            self.context(),
            ActionReport(host=str(command.host), action_id=command.action_id, power_state=1, error=error),
        )

    def finish_if_begun(self) -> None:
        """Carry out the last command, if its action waits for the host."""
        command = self.compute.commands[-1]
        action = self.db.read(lambda uow: uow.session.get(models.InstanceAction, command.action_id))
        if action is not None and action.step == operations.PERFORM and action.finish_time is None:
            self.finish()

    def check(self) -> None:
        """Check that each complete backup has its image and file, and that there are complete ones."""
        complete = self.rows(status="complete")
        assert complete
        for row in complete:
            image = self.db.read(images.by_id, row.image_id)
            assert image is not None
            assert image.status == "active"
            assert row.image_id in self.files()

    def back_up(self) -> str:
        """Make one complete backup, an hour later than the others, and return its image's id."""
        self.make_due()
        self.backups.run()
        self.finish()
        self.backups.run()
        assert self.row.status is BackupStatus.COMPLETE
        image_id = self.row.image_id
        self.age(scheduled_for=HOUR)
        return image_id

    def files(self) -> list[str]:
        return sorted(path.name for path in Path(self.store).rglob("*") if path.is_file())

    def recorded(self) -> list[tuple[str, str | None, list[tuple[str, str | None]]]]:
        """Return kind, message, and the events' names and details of the backups' actions."""
        query = sa.select(models.InstanceAction).where(models.InstanceAction.action == "createBackup")
        return self.db.read(
            lambda uow: [
                (row.action, row.message, [(event["event"], event["details"]) for event in row.events or []])
                for row in uow.session.scalars(query.order_by(models.InstanceAction.id))
            ]
        )


class Killed(BaseException):
    """The conductor died."""

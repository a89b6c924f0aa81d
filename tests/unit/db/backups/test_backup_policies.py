"""Backup policies in the database: who sees them, what they plan, and whether they are met."""

from __future__ import annotations

import datetime
from concurrent import futures
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.backups import backup_policies, server_backups
from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.objects import BackupPolicy, BackupQuery, BackupStatus, ServerBackup
from nova_lite.objects.backup import Every
from tests.support import make
from tests.support.backups import LONG_AGO, make_due, set_backup


def made(db: Database, conf: cfg.ConfigOpts, **values: Any) -> BackupPolicy:
    wanted = {"name": "p", "every": Every.HOUR, "keep_hourly": 2, "all_servers": True} | values
    return db.write(backup_policies.create, conf, make.context(), BackupPolicy(**wanted))


def server(db: Database, **values: Any) -> str:
    def write(uow: UnitOfWork) -> str:
        return make.instance(uow, **{"launched_at": uow.now - LONG_AGO, **values})

    return db.write(write)


def backups(db: Database, **query: Any) -> list[ServerBackup]:
    return db.read(server_backups.list_, make.ADMIN, BackupQuery(all_projects=True, **query))


def test_policy_is_created_listed_changed_and_deleted(db: Database, conf: cfg.ConfigOpts) -> None:
    policy = made(db, conf, name="one", tags=["a"], all_servers=False, minute=7)
    assert (policy.project_id, policy.user_id, policy.minute, policy.tags) == ("p1", "u1", 7, ["a"])
    assert policy.next_run_at is not None
    assert policy.next_run_at.minute == 7
    found = db.read(backup_policies.get, make.context(), policy.id)
    assert found == policy
    changes = {"name": "two", "every": "day", "hour": 3, "enabled": False}
    changed = db.write(backup_policies.update, make.context(), policy.id, changes)
    assert (changed.name, changed.every, changed.hour, changed.enabled, changed.next_run_at) == (
        "two",
        Every.DAY,
        3,
        False,
        None,
    )
    with pytest.raises(exceptions.InvalidInput, match="keeps no backup"):
        db.write(backup_policies.update, make.context(), policy.id, {"keep_hourly": 0})
    db.write(backup_policies.delete, make.context(), policy.id)
    with pytest.raises(exceptions.BackupPolicyNotFound):
        db.read(backup_policies.get, make.context(), policy.id)


def test_other_projects_do_not_see_policies_and_backups(db: Database, conf: cfg.ConfigOpts) -> None:
    policy, uuid = made(db, conf), server(db)
    (planned,) = db.write(backup_policies.run, make.context(), policy.id)
    stranger = make.context("p2")
    for function in (backup_policies.get, backup_policies.delete, backup_policies.run, backup_policies.status):
        with pytest.raises(exceptions.BackupPolicyNotFound):
            db.write(function, stranger, policy.id)
    with pytest.raises(exceptions.BackupPolicyNotFound):
        db.write(backup_policies.update, stranger, policy.id, {"name": "x"})
    for function in (server_backups.get, server_backups.delete):
        with pytest.raises(exceptions.ServerBackupNotFound):
            db.write(function, stranger, planned.id)
    assert db.read(backup_policies.list_, stranger, all_projects=True, limit=None) == []
    assert db.read(server_backups.list_, stranger, BackupQuery(all_projects=True)) == []
    with pytest.raises(exceptions.MarkerNotFound):
        db.read(backup_policies.list_, stranger, all_projects=False, limit=1, marker=policy.id)
    with pytest.raises(exceptions.MarkerNotFound):
        db.read(server_backups.list_, stranger, BackupQuery(marker=planned.id))
    assert [item.id for item in db.read(backup_policies.list_, make.ADMIN, all_projects=True, limit=None)] == [
        policy.id
    ]
    with pytest.raises(exceptions.InvalidInput, match="the project has no server"):
        db.write(
            backup_policies.create,
            conf,
            stranger,
            BackupPolicy(name="p", every=Every.DAY, keep_daily=1, servers=[uuid]),
        )


def test_lists_have_pages(db: Database, conf: cfg.ConfigOpts) -> None:
    ids = [made(db, conf).id for _ in range(3)]
    page = db.read(backup_policies.list_, make.context(), all_projects=False, limit=2)
    assert [item.id for item in page] == ids[:2]
    rest = db.read(backup_policies.list_, make.context(), all_projects=False, limit=2, marker=ids[1])
    assert [item.id for item in rest] == ids[2:]
    uuids = [server(db) for _ in range(3)]
    db.write(backup_policies.run, make.context(), ids[0])
    page_of_backups = db.read(server_backups.list_, make.context(), BackupQuery(limit=2))
    assert [item.instance_uuid for item in page_of_backups] == [uuids[2], uuids[1]]
    more = db.read(server_backups.list_, make.context(), BackupQuery(limit=2, marker=page_of_backups[-1].id))
    assert [item.instance_uuid for item in more] == [uuids[0]]
    assert len(backups(db, instance_uuid=uuids[0], policy_id=ids[0], status="pending")) == 1
    assert backups(db, status="complete") == []


def test_project_has_a_limited_number_of_policies(db: Database, conf: cfg.ConfigOpts) -> None:
    conf.set_override("policies_per_project", 1, "server_backups")
    made(db, conf)
    with pytest.raises(exceptions.QuotaExceeded):
        made(db, conf)


def test_targets_are_servers_by_id_by_tag_or_all(db: Database, conf: cfg.ConfigOpts) -> None:
    named, tagged, other = server(db), server(db, tag_names=["web", "db"]), server(db, tag_names=["cache"])
    server(db, project_id="p2", tag_names=["web"])
    server(db, deleted=True)
    for vm_state in ("soft-delete", "shelved", "shelved_offloaded"):
        server(db, vm_state=vm_state)
    server(db, launched_at=None, vm_state="building")
    some = made(db, conf, all_servers=False, servers=[named], tags=["web", "db"])
    everything = made(db, conf)

    def uuids(policy: BackupPolicy) -> list[str]:
        return db.read(lambda uow: [row.uuid for row in backup_policies.targets(uow, policy, uow.now)])

    assert uuids(some) == [named, tagged]
    assert uuids(everything) == [named, tagged, other]


def test_missed_times_are_made_up_once(db: Database, conf: cfg.ConfigOpts) -> None:
    policy, uuid = made(db, conf, minute=0), server(db)
    make_due(db, policy)
    assert db.read(backup_policies.due) == [policy.id]
    assert db.write(backup_policies.plan_backups, policy.id) == 1
    assert db.read(backup_policies.due) == []
    assert db.write(backup_policies.plan_backups, policy.id) == 0
    (backup,) = backups(db)
    assert (backup.instance_uuid, backup.status, backup.scheduled_for.minute) == (uuid, BackupStatus.PENDING, 0)
    assert backup.scheduled_for <= backup.due_at < backup.deadline
    assert backup.deadline - backup.scheduled_for == datetime.timedelta(hours=1)


def test_conductors_that_plan_at_once_plan_each_backup_once(db: Database, conf: cfg.ConfigOpts) -> None:
    policy = made(db, conf)
    for _ in range(3):
        server(db)
    make_due(db, policy)
    with futures.ThreadPoolExecutor(4) as pool:
        planned = list(pool.map(lambda _: db.write(backup_policies.plan_backups, policy.id), range(4)))
    assert sorted(planned) == [0, 0, 0, 3]
    assert len(backups(db)) == 3


def test_change_of_a_policy_drops_what_waits_and_delete_keeps_what_is_complete(
    db: Database, conf: cfg.ConfigOpts
) -> None:
    policy = made(db, conf)
    server(db)
    (first,) = db.write(backup_policies.run, make.context(), policy.id)
    set_backup(db, first.id, status="complete", scheduled_for=first.scheduled_for - LONG_AGO)
    db.write(backup_policies.run, make.context(), policy.id)
    assert len(backups(db)) == 2
    db.write(backup_policies.update, make.context(), policy.id, {"name": "renamed"})
    assert len(backups(db)) == 2
    db.write(backup_policies.update, make.context(), policy.id, {"keep_hourly": 9})
    assert [item.status for item in backups(db)] == [BackupStatus.COMPLETE]
    db.write(backup_policies.delete, make.context(), policy.id)
    assert [item.id for item in backups(db)] == [first.id]


@pytest.mark.parametrize("status", ["pending", "running", "storing"])
def test_backup_that_waits_or_is_made_is_returned_instead_of_a_second_one(
    db: Database, conf: cfg.ConfigOpts, status: str
) -> None:
    policy, other = made(db, conf), made(db, conf)
    uuids = [server(db) for _ in range(2)]
    first = db.write(backup_policies.run, make.context(), policy.id)
    for backup in first:
        set_backup(db, backup.id, status=status, scheduled_for=backup.scheduled_for - datetime.timedelta(minutes=5))
    again = db.write(backup_policies.run, make.context(), policy.id)
    assert [(item.id, item.instance_uuid) for item in again] == [
        (item.id, uuid) for item, uuid in zip(first, uuids, strict=True)
    ]
    assert len(backups(db)) == 2
    of_other = db.write(backup_policies.run, make.context(), other.id)
    assert not {item.id for item in first} & {item.id for item in of_other}


@pytest.mark.parametrize(
    "values", [{"status": "complete"}, {"status": "failed"}, {"deadline": datetime.datetime(2020, 1, 1)}]
)
def test_ended_or_late_backup_is_followed_by_a_new_one(
    db: Database, conf: cfg.ConfigOpts, values: dict[str, Any]
) -> None:
    policy = made(db, conf)
    server(db)
    (first,) = db.write(backup_policies.run, make.context(), policy.id)
    set_backup(db, first.id, scheduled_for=first.scheduled_for - LONG_AGO, **values)
    (second,) = db.write(backup_policies.run, make.context(), policy.id)
    assert second.id != first.id


@pytest.mark.parametrize("attempts", [0, 1])
def test_backup_that_waits_for_its_moment_may_begin_at_once_unless_it_was_put_off(
    db: Database, conf: cfg.ConfigOpts, attempts: int
) -> None:
    policy = made(db, conf)
    server(db)
    (first,) = db.write(backup_policies.run, make.context(), policy.id)
    later = first.due_at + datetime.timedelta(minutes=9)
    set_backup(db, first.id, due_at=later, attempts=attempts)
    (second,) = db.write(backup_policies.run, make.context(), policy.id)
    assert second.id == first.id
    assert (second.due_at == later) == bool(attempts)
    assert bool(db.read(server_backups.startable)) != bool(attempts)


def test_status_names_servers_without_their_last_backup(db: Database, conf: cfg.ConfigOpts) -> None:
    policy, uuid = made(db, conf), server(db)
    fresh = server(db, launched_at=db.read(lambda uow: uow.now))
    status = db.read(backup_policies.status, make.context(), policy.id)
    assert (status.required_since, status.unmet) == (None, 0), "nothing is due for a new policy"
    make_due(db, policy)
    status = db.read(backup_policies.status, make.context(), policy.id)
    assert [(item.instance_uuid, item.is_met) for item in status.servers] == [(uuid, False), (fresh, True)]
    db.write(backup_policies.plan_backups, policy.id)
    backup = next(item for item in backups(db) if item.instance_uuid == uuid)
    assert status.required_since is not None
    set_backup(db, backup.id, status="running")
    assert db.read(backup_policies.status, make.context(), policy.id).unmet == 0, "it is being made"
    set_backup(db, backup.id, status="failed", reason="disk")
    status = db.read(backup_policies.status, make.context(), policy.id)
    assert status.unmet == 1
    assert status.servers[0].failed is not None
    assert status.servers[0].failed.reason == "disk"
    set_backup(db, backup.id, status="complete", scheduled_for=status.required_since)
    status = db.read(backup_policies.status, make.context(), policy.id)
    assert (status.unmet, status.newest_at) == (0, None), "the fresh server has none"
    assert status.servers[0].complete is not None


def unmet_with(db: Database, policy: BackupPolicy, uuid: str, *rows: dict[str, Any]) -> int:
    """Return how many servers lack their last backup if a server has these. ``hours`` is the age of the deadline, and
    ``uploaded`` that of the upload."""

    def write(uow: UnitOfWork) -> None:
        uow.change(sa.delete(models.ServerBackup))
        instance = uow.session.scalars(sa.select(models.Instance).where(models.Instance.uuid == uuid)).unique().one()
        for row in rows:
            deadline = uow.now - datetime.timedelta(hours=row["hours"])
            time = deadline - datetime.timedelta(days=1)
            planned = server_backups.plan(uow, policy, instance, time, time, deadline)
            found = server_backups.lock(uow, planned.id, BackupStatus.PENDING)
            assert found is not None
            found.status = row["status"]
            if "uploaded" in row:
                found.finished_at = uow.now - datetime.timedelta(hours=row["uploaded"])

    db.write(write)
    return db.read(backup_policies.status, make.context(), policy.id).unmet


@pytest.fixture
def daily(db: Database, conf: cfg.ConfigOpts) -> BackupPolicy:
    """Policy without a window, whose last time was six hours ago."""
    six_hours_ago = db.read(lambda uow: uow.now) - datetime.timedelta(hours=6)
    values = {"hour": six_hours_ago.hour, "minute": six_hours_ago.minute}
    policy = made(db, conf, every=Every.DAY, keep_daily=1, **values)
    make_due(db, policy)
    return policy


YESTERDAY, TODAY = {"hours": 5.9}, {"hours": -18.1}


@pytest.mark.parametrize(
    ("unmet", "rows"),
    [
        pytest.param(0, [YESTERDAY | {"status": "storing", "uploaded": 0.9}], id="stored soon"),
        pytest.param(1, [YESTERDAY | {"status": "storing", "uploaded": 1.1}], id="not stored for long"),
        pytest.param(0, [{"hours": 0.9, "status": "running"}], id="copied a little longer than its window"),
        pytest.param(1, [YESTERDAY | {"status": "running"}], id="copied for long after its window"),
        pytest.param(0, [TODAY | {"status": "running"}], id="made up"),
        pytest.param(
            1, [YESTERDAY | {"status": "storing", "uploaded": 23}, TODAY | {"status": "running"}], id="one stuck"
        ),
        pytest.param(
            1,
            [YESTERDAY | {"status": "storing", "uploaded": 23}, TODAY | {"status": "storing", "uploaded": 0.1}],
            id="two stuck",
        ),
        *(
            pytest.param(
                1,
                [YESTERDAY | {"status": "failed"}, TODAY | {"status": "storing", "uploaded": age}],
                id=f"failed and not stored for {age} hours",
            )
            for age in (0.1, 1.1)
        ),
        pytest.param(1, [YESTERDAY | {"status": "failed"}, TODAY | {"status": "running"}], id="failed and begun again"),
        pytest.param(0, [YESTERDAY | {"status": "failed"}, TODAY | {"status": "complete"}], id="failed and made"),
        pytest.param(
            0,
            [YESTERDAY | {"status": "complete"}, TODAY | {"status": "storing", "uploaded": 5}],
            id="the next one is stuck",
        ),
    ],
)
def test_backup_that_is_not_complete_fulfils_its_policy_only_for_a_while(
    db: Database, daily: BackupPolicy, unmet: int, rows: list[dict[str, Any]]
) -> None:
    assert unmet_with(db, daily, server(db), *rows) == unmet


def test_backup_that_is_being_made_cannot_be_deleted(db: Database, conf: cfg.ConfigOpts) -> None:
    policy = made(db, conf)
    server(db)
    (backup,) = db.write(backup_policies.run, make.context(), policy.id)
    set_backup(db, backup.id, status="running")
    with pytest.raises(exceptions.ServerBackupRunning):
        db.write(server_backups.delete, make.context(), backup.id)
    set_backup(db, backup.id, status="complete")
    db.write(server_backups.delete, make.context(), backup.id)
    assert db.read(server_backups.get, make.context(), backup.id).status is BackupStatus.DELETING

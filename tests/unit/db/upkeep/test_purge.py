"""Purge: closed rows are deleted, open or unconfirmed ones stay, and no purged server comes back."""

from __future__ import annotations

import contextlib
import datetime
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.conductor.manager import ConductorManager
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.hosts import hosts, services
from nova_lite.db.servers import claims, server_migrations
from nova_lite.db.upkeep import purge
from nova_lite.objects import ActionReport, BuildOutcome, BuildResult, CreateRequest, Verdict
from nova_lite.operations import states
from tests.support import make
from tests.support.conductor_world import heartbeat
from tests.support.purging_world import LATER, PurgingWorld
from tests.support.server_moves import force_down


@pytest.fixture
def world(tmp_path: Path) -> PurgingWorld:
    return PurgingWorld(tmp_path)


# --- purged


def test_deleted_server_is_purged_with_its_rows(world: PurgingWorld) -> None:
    (other,) = world.create(name="other", tags=["a"])
    world.act("stop")
    world.answer()
    before = world.counts()
    assert before["instance_actions"] == 3
    world.delete()
    rows = world.purge(dry_run=True)
    assert (rows["instances"], rows["instance_actions"]) == (1, 3)
    counted = world.counts()
    assert world.purge() == rows
    left = world.counts()
    assert {table: counted[table] - left[table] for table in left if counted[table] != left[table]} == rows
    assert (left["instances"], left["instance_actions"], left["instance_tags"]) == (1, 1, 1)
    assert world.problems() == []
    assert world.instance(other).display_name == "other"
    assert world.purge() == {}, "again, there is nothing more"


def test_old_actions_of_a_living_server_are_purged(world: PurgingWorld) -> None:
    for action in ("stop", "start", "stop"):
        world.act(action)
        world.answer()
    world.act("start")
    assert world.purge()["instance_actions"] == 4
    assert world.open_actions() == [("start", "perform")]
    world.answer()
    assert world.row.vm_state == states.ACTIVE
    assert world.problems() == []


def test_younger_rows_stay(world: PurgingWorld) -> None:
    world.delete()
    moment = world.db.read(lambda uow: uow.session.scalar(sa.select(models.Instance.terminated_at)))
    assert +purge.run(world.db, moment, 10) == {}
    assert +purge.run(world.db, moment + datetime.timedelta(microseconds=1), 10, dry_run=True) != {}


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_purge_runs_in_batches_up_to_its_limit(world: PurgingWorld, batch_size: int) -> None:
    for _ in range(4):
        uuid, _, _ = world.built()
        command = world.lifecycle.accept_action(world.context(), uuid, "delete", {})
        world.reports.finish_action(
            world.context(), ActionReport(host=command.host, action_id=command.action_id, sequence=command.sequence)
        )
    assert world.count(models.Instance) == 5
    told: list[int] = []
    world.purge(batch_size, max_rows=1, tell=lambda rows: told.append(rows.total()))
    assert world.count(models.Instance) == max(1, 5 - batch_size)
    assert len(told) == 1
    world.purge(batch_size, wanted=lambda: False)
    assert world.count(models.Instance) == max(1, 5 - batch_size)
    world.purge(batch_size)
    assert (world.count(models.Instance), world.count(models.PurgedInstance)) == (1, 4)


# --- kept


def test_delete_that_a_silent_host_has_not_confirmed_stays(world: PurgingWorld) -> None:
    world.silence("host1")
    world.act("delete")
    assert (world.row.deleted, world.open_actions()) == (True, [("delete", "cleanup")])
    assert "instances" not in world.purge()
    assert world.listed("host1") == [(world.uuid, Verdict.DESTROY)]
    world.is_heard("host1")
    command = world.compute.commands[-1]
    world.reports.finish_action(
        world.context(), ActionReport(host="host1", action_id=command.action_id, sequence=command.sequence)
    )
    assert world.purge()["instances"] == 1


@pytest.mark.parametrize("holds", [models.Allocation, models.Port])
def test_server_with_an_allocation_stays(world: PurgingWorld, holds: type[models.Base]) -> None:
    """Inconsistent rows are not purged, because `invariants` repairs them."""
    rows = world.db.read(
        lambda uow: [
            {name.key: getattr(row, name.key) for name in sa.inspect(holds).column_attrs}
            for row in uow.session.scalars(sa.select(holds))
        ]
    )
    world.delete()
    world.db.write(lambda uow: uow.session.execute(sa.insert(holds), rows))
    assert "instances" not in world.purge()


@pytest.mark.parametrize("which", ["action", "migration", "call", "nothing"])
def test_server_with_an_open_action_stays(world: PurgingWorld, which: str) -> None:
    """Its delete waits for an unavailable image or network service."""

    def write(uow: UnitOfWork) -> None:
        then = uow.now - LATER
        until = uow.now + 3 * LATER if which == "call" else None
        uuid = make.instance(uow, deleted=True, terminated_at=then, network_call_until=until)
        make.action(uow, uuid, step="deallocate", finish_time=None if which == "action" else then)
        row = uow.session.scalars(sa.select(models.Instance).where(models.Instance.uuid == uuid)).one()
        place = claims.Place("host1", "host1", 1, None)
        migration = server_migrations.begin(uow, make.ADMIN, row, "resize", place, make.flavor())
        migration.status, migration.updated_at = ("finished" if which == "migration" else "confirmed"), then

    world.db.write(write)
    assert ("instances" in world.purge()) == (which == "nothing")


# --- late messages


def test_a_domain_of_a_purged_server_is_destroyed(world: PurgingWorld) -> None:
    """A host that was forced down when its server was evacuated may be back after any time."""
    force_down(world, "host1")
    world.act("evacuate")
    host, request = world.compute.builds[-1]
    world.reports.start_build(world.context(), world.uuid, host, request.generation)
    world.report(world.uuid, host, request.generation, BuildOutcome.BUILT)
    world.delete()
    assert world.purge()["instances"] == 1
    assert world.listed("host1") == [(world.uuid, Verdict.DESTROY)]
    assert world.listed("host1", leftovers=(world.uuid,)) == [(world.uuid, Verdict.DESTROY)]
    assert purge.forget(world.db, world.db.read(purge.days_ago, 0) + LATER, 1, dry_run=True) == 1
    assert purge.forget(world.db, world.db.read(purge.days_ago, 0) + LATER, 1) == 1
    assert world.listed("host1") == [], "unknown, and so left alone"


def test_late_reports_change_nothing(world: PurgingWorld) -> None:
    world.delete()
    command = world.compute.commands[-1]
    world.purge()
    world.reports.finish_action(
        world.context(), ActionReport(host=command.host, action_id=command.action_id, sequence=command.sequence)
    )
    result = BuildResult(instance_uuid=world.uuid, host="host1", generation=1, outcome=BuildOutcome.BUILT)
    with pytest.raises(exceptions.InstanceGone):
        world.reports.finish_build(world.context(), result)
    with pytest.raises(exceptions.InstanceNotFound):
        world.act("delete")


def test_an_idempotency_key_makes_no_purged_server_again(world: PurgingWorld) -> None:
    """Its uuid would be the same, at the first generation."""
    wish = CreateRequest(name="vm", flavor_id="1", idempotency_key="k", fingerprint="f")
    (made,) = world.lifecycle.create_instances(world.context(), wish).instances
    world.lifecycle.accept_action(world.context(), made.uuid, "delete", {})
    assert world.purge()["instances"] == 1
    with pytest.raises(exceptions.IdempotencyKeyReused, match="was deleted"):
        world.lifecycle.create_instances(world.context(), wish)


# --- automatic


def shift(uow: UnitOfWork) -> None:
    """Move the end of every server two days into the past."""
    for row in uow.session.scalars(sa.select(models.Instance)):
        row.terminated_at = row.terminated_at and row.terminated_at - 2 * LATER


def test_purge_runs_on_one_conductor(world: PurgingWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.delete()
    world.db.write(shift)
    none: Any = None
    manager = ConductorManager(world.conf, none, none, none)
    with contextlib.closing(manager):
        world.conf.set_override("host", "c2")
        world.conf.set_override("purge_after", 1, "conductor")
        for host in ("c1", "c2"):
            world.db.write(services.report, host, "nova-lite-conductor", "conductor", "1")
        manager.purge()
        assert world.count(models.Instance) == 1, "c1 is the one that does it"
        world.silence("c1")
        world.conf.set_override("purge_after", 0, "conductor")
        manager.purge()
        assert world.count(models.Instance) == 1, "it is turned off"
        world.conf.set_override("purge_after", 3, "conductor")
        manager.purge()
        assert world.count(models.Instance) == 1, "it is not old enough"
        world.conf.set_override("purge_after", 1, "conductor")
        manager.purge()
        assert (world.count(models.Instance), world.count(models.PurgedInstance)) == (0, 1)


def test_heartbeats_are_accepted_during_a_purge(world: PurgingWorld) -> None:
    """Other writers proceed between two batches."""
    world.delete()
    heard: list[int] = []

    def hear(rows: Counter[str]) -> None:
        world.db.write(hosts.report_state, world.conf, heartbeat("host1"))
        heard.append(rows.total())

    world.purge(1, tell=hear)
    assert heard

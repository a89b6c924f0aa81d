"""Backups by policies in the conductor, from the time of the schedule to the removal of old ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite import objects
from nova_lite.base import exceptions, metrics
from nova_lite.conductor.backups import scheduled_backups
from nova_lite.conductor.backups.scheduled_backups import ScheduledBackups
from nova_lite.db.backups import backup_policies, server_backups
from nova_lite.db.backups.server_backups import Waiting
from nova_lite.db.core import models
from nova_lite.db.hosts import services
from nova_lite.db.image import images
from nova_lite.image.driver import ImageCall
from nova_lite.objects import ActionReport, BackupPolicy, BackupStatus, Image, ServerBackup
from nova_lite.objects.backup import Every
from nova_lite.operations import states
from tests.support.backup_world import DATA, HOUR, Backups, Killed
from tests.support.statements import counting


@pytest.fixture
def world(tmp_path: Path) -> Backups:
    return Backups(tmp_path)


def test_backup_is_complete_only_when_its_image_is(world: Backups) -> None:
    world.backups.run()
    assert world.row.status is BackupStatus.RUNNING
    (command,) = world.compute.commands
    assert (command.method, command.host) == ("backup_instance", world.host)
    image = command.payload["image"]
    assert (image["owner"], image["visibility"], image["id"]) == ("p1", "private", world.row.image_id)
    assert image["properties"]["image_type"] == "backup"
    assert world.instance(world.uuid).task_state == states.IMAGE_BACKUP
    world.backups.run()
    assert world.row.status is BackupStatus.RUNNING
    assert len(world.compute.commands) == 1
    world.finish()
    assert world.row.status is BackupStatus.RUNNING
    world.backups.run()
    assert (world.row.status, world.row.size, world.row.reason) == ("complete", len(DATA), None)
    assert world.row.server["networks"] == ["11111111-1111-4111-8111-111111111111"]
    assert (world.row.server["flavor_id"], world.row.server["name"]) == ("1", "vm")
    assert world.instance(world.uuid).task_state is None
    assert world.files() == [world.row.image_id]


def test_failed_action_is_a_failed_backup_with_its_reason(world: Backups) -> None:
    before = metrics.SERVER_BACKUPS.labels("failed")._value.get()
    world.backups.run()
    world.finish("The disk is full.")
    world.backups.run()
    assert (world.row.status, world.row.reason) == ("failed", "The disk is full.")
    assert world.files() == []
    assert metrics.SERVER_BACKUPS.labels("failed")._value.get() == before + 1
    assert world.recorded() == [("createBackup", "Error", [("compute_backup_instance", "The disk is full.")])]


def test_ended_action_without_an_active_image_is_a_failed_backup(world: Backups) -> None:
    world.backups.run()
    world.finish()
    world.db.write(images.drop, [world.row.image_id])
    world.backups.run()
    assert (world.row.status, world.row.reason) == ("failed", "its image is not active")


def test_busy_server_is_tried_again_until_its_window_has_passed(world: Backups) -> None:
    stop = world.lifecycle.accept_action(world.context(), world.uuid, "stop", {})
    world.backups.run()
    assert (world.row.status, world.row.attempts) == ("pending", 1)
    assert "task_state powering-off" in str(world.row.reason)
    assert world.row.due_at > world.db.read(lambda uow: uow.now)
    world.reports.finish_action(world.context(), ActionReport(host=world.host, action_id=stop.action_id, power_state=4))
    world.age(due_at=HOUR)
    world.backups.run()
    assert (world.row.status, world.row.attempts, world.row.reason) == ("running", 2, None)


def test_backup_whose_window_has_passed_fails_in_the_servers_actions(world: Backups) -> None:
    world.lifecycle.accept_action(world.context(), world.uuid, "stop", {})
    world.backups.run()
    world.age(due_at=2 * HOUR, deadline=2 * HOUR)
    world.backups.run()
    assert world.row.status is BackupStatus.FAILED
    assert str(world.row.reason).startswith("its window has passed: Cannot 'createBackup'")
    ((_, message, ((event, details),)),) = world.recorded()
    assert (message, event, details) == ("Error", "conductor_backup_policy", world.row.reason)
    assert world.instance(world.uuid).task_state == "powering-off", "its operation is not disturbed"


def test_server_that_boots_from_a_volume_fails_with_the_reason(world: Backups, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise exceptions.BackupOfVolumes

    monkeypatch.setattr(world.engine, "accept_in", refuse)
    world.backups.run()
    assert (world.row.status, world.row.reason) == (
        BackupStatus.FAILED,
        "Backup is not supported for volume-backed instances.",
    )


def test_backup_of_a_deleted_server_is_dropped(world: Backups) -> None:
    world.db.write(backup_policies.plan_backups, world.policy.id)
    world.db.write(lambda uow: uow.change(sa.update(models.Instance).values(deleted=True)))
    world.backups.run()
    assert world.rows() == []


def test_backup_waits_for_a_host_that_is_down(world: Backups) -> None:
    world.silence(world.host)
    world.backups.run()
    assert (world.row.status, world.row.attempts, world.compute.commands) == ("pending", 1, [])
    assert world.instance(world.uuid).task_state is None
    world.is_heard(world.host)
    world.age(due_at=HOUR)
    world.backups.run()
    assert world.row.status is BackupStatus.RUNNING


def test_idle_run_looks_at_old_backups_only_now_and_then(world: Backups) -> None:
    backups = ScheduledBackups(world.engine)
    world.db.write(lambda uow: uow.change(sa.delete(models.BackupPolicy)))
    numbers = []
    for _ in range(2):
        with counting() as counted:
            backups.run()
        numbers.append(
            len([text for text in counted.statements if "server_backups" in text or "backup_policies" in text])
        )
    assert numbers == [8, 6]


def test_locked_server_is_backed_up(world: Backups) -> None:
    world.db.write(lambda uow: uow.change(sa.update(models.Instance).values(locked=True)))
    world.backups.run()
    assert world.row.status is BackupStatus.RUNNING


def test_conductors_that_begin_at_once_begin_a_backup_once(world: Backups) -> None:
    other = ScheduledBackups(world.engine)
    world.db.write(backup_policies.plan_backups, world.policy.id)
    found = world.db.read(server_backups.candidate, world.row.id)
    assert found is not None
    image = Image(id=world.row.image_id, name="b", owner="p1", visibility="private", status="queued")
    first = world.db.write(world.backups._begin_backup, world.row.id, image, False)
    assert first is not None
    assert world.db.write(other._begin_backup, world.row.id, image, False) is None
    assert world.count(models.Image) == 1


@pytest.mark.parametrize("killed", ["register_for_owner", "send"])
def test_conductor_that_dies_while_a_backup_begins_is_made_good(
    world: Backups, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    owner = world.engine if killed == "send" else world.engine.images
    with monkeypatch.context() as patched:
        patched.setattr(owner, killed, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            world.backups.run()
    world.backups.run()
    world.let_time_pass(60)
    world.reconciler.sweep()
    assert {command.action_id for command in world.compute.commands} == {world.row.action_id}
    world.finish()
    world.backups.run()
    assert world.row.status is BackupStatus.COMPLETE
    assert len(world.rows()) == 1


def test_limits_of_running_backups_hold(world: Backups) -> None:
    for _ in range(3):
        world.built()
    world.make_due()
    hosts = {world.instance(uuid).host for uuid in [world.uuid]}
    world.backups.run()
    assert len(world.rows(status="running")) == 1, f"one at a time on {hosts}"
    world.conf.set_override("max_running_per_host", 3, "server_backups")
    world.conf.set_override("max_running", 2, "server_backups")
    world.backups.run()
    assert len(world.rows(status="running")) == 2
    world.finish()
    world.backups.run()
    assert (len(world.rows(status="running")), len(world.rows(status="complete"))) == (2, 1)
    world.age(deadline=2 * HOUR)
    world.backups.run()
    assert world.row.reason == "its window has passed: other backups took all of its slots"


def test_project_with_many_backups_leaves_slots_to_others(world: Backups) -> None:
    world.conf.set_override("max_running_per_host", 9, "server_backups")
    world.conf.set_override("max_running", 2, "server_backups")
    for _ in range(4):
        world.built()
    world.make_due()
    world.backups.run()
    assert len(world.rows(status="running")) == 2, "all slots are of a project that is alone"
    (other,) = world.create(world.context(project="p2"))
    built = sa.update(models.Instance).where(models.Instance.uuid == other)
    built = built.values(host=world.host, vm_state="active", task_state=None)
    world.db.write(lambda uow: uow.change(built))
    wanted = BackupPolicy(name="p", every=Every.HOUR, keep_hourly=2, all_servers=True)
    policy = world.db.write(backup_policies.create, world.conf, world.context(project="p2"), wanted)
    world.make_due(policy)
    world.finish()
    world.backups.run()
    assert sorted(row.project_id for row in world.rows(status="running")) == ["p1", "p2"]


def test_backups_of_projects_begin_in_turn() -> None:
    running = Counter({"a": 2})
    waiting = [Waiting(f"{name}{number}", name, "h", False, None) for name in "ab" for number in range(4)]
    late = Waiting("late", "a", "h", True, None)
    begun = []
    for backup in scheduled_backups._in_turn([*waiting, late], running):
        begun.append(backup.backup_id)
        running[backup.project_id] += not backup.is_late
    assert begun == ["late", "b0", "b1", "a0", "b2", "a1", "b3", "a2", "a3"]


class Killer:
    """Kills the conductor right before, or right after, the commit of its transaction ``number`` of backups."""

    MODULES = tuple(module.__name__ for module in (backup_policies, server_backups, scheduled_backups))

    def __init__(self, world: Backups, number: int, is_after: bool) -> None:
        self.left, self.is_after, self.where = number, is_after, ""
        self._write = world.db.write
        world.db.write = self.write  # type: ignore[method-assign]

    def write(self, function: Any, *arguments: Any, **named: Any) -> Any:
        if function.__module__ in self.MODULES:
            self.left -= 1
        if self.left == 0 and not self.where:
            self.where = function.__name__
            if self.is_after:
                self._write(function, *arguments, **named)
            raise Killed
        return self._write(function, *arguments, **named)


def lives(world: Backups, number: int, is_after: bool) -> str:
    """Make a third backup, kill the conductor at a transaction, continue, and return the transaction's name."""
    killer = Killer(world, number, is_after)
    for step in (world.make_due, world.backups.run, world.finish_if_begun, world.backups.run, world.backups.run):
        try:
            step()
        except Killed:
            world.check()
    world.db.write = killer._write  # type: ignore[method-assign]
    for _ in range(3):
        world.let_time_pass(60)
        world.reconciler.sweep()
        world.finish_if_begun()
        world.backups.run()
        world.check()
    return killer.where


@pytest.mark.parametrize("is_after", [False, True])
def test_conductor_killed_at_any_transaction_leaves_complete_backups(tmp_path: Path, is_after: bool) -> None:
    passed = []
    while not passed or passed[-1]:
        number = len(passed) + 1
        directory = tmp_path / str(number)
        directory.mkdir()
        world = Backups(directory)
        made = [world.back_up() for _ in range(2)]
        passed.append(lives(world, number, is_after))
        rows = world.rows()
        assert [row.status for row in rows] == ["complete", "complete"], (passed[-1], rows)
        assert (rows[1].image_id, rows[0].image_id not in made) == (made[1], True), passed[-1]
        assert world.files() == sorted(row.image_id for row in rows), passed[-1]
        assert world.count(models.Image) == 2, passed[-1]
        assert world.open_actions() == [], passed[-1]
    assert {
        "plan_backups",
        "_begin_backup",
        "complete_backup",
        "retire_backups",
        "drop_backup_image",
        "forget_backup",
    } < set(passed)


# --- retention


def test_retention_removes_old_backups_after_a_newer_one_is_complete(world: Backups) -> None:
    made = [world.back_up() for _ in range(4)]
    world.backups.run()
    assert world.files() == sorted(made[-2:])
    assert [row.image_id for row in world.rows()] == made[:1:-1]
    assert world.count(models.Image) == 2


def test_failed_backup_removes_no_older_one(world: Backups) -> None:
    made = [world.back_up() for _ in range(2)]
    world.make_due()
    world.backups.run()
    world.finish("It broke.")
    world.age(scheduled_for=100 * HOUR)
    world.backups.run()
    assert world.files() == sorted(made)


def test_last_good_backup_stays_when_the_newest_image_was_deleted(world: Backups) -> None:
    first, second = world.back_up(), world.back_up()
    world.db.write(images.drop, [second])
    world.db.write(lambda uow: uow.change(sa.update(models.BackupPolicy).values(keep_hourly=0, keep_daily=1)))
    world.backups.run()
    world.backups.run()
    assert [(row.image_id, row.status) for row in world.rows()] == [(second, "failed"), (first, "complete")]
    assert world.row.reason == "its image was deleted"
    assert first in world.files()


def test_retention_spares_images_of_users_and_of_restored_servers(world: Backups) -> None:
    first = world.back_up()
    image = Image(id="9" * 8 + first[8:], name="own", owner="p1", properties={"image_type": "backup"})
    world.db.write(images.create, image)
    world.db.write(lambda uow: uow.change(sa.update(models.Instance).values(image_ref=first)))
    made = [world.back_up() for _ in range(3)]
    world.backups.run()
    assert world.files() == sorted([first, *made[1:]])
    assert world.count(models.Image) == 4
    world.db.write(lambda uow: uow.change(sa.update(models.Instance).values(image_ref="")))
    world.backups.run()
    assert world.files() == sorted(made[1:])


def test_removal_is_repeated_until_the_image_is_gone(world: Backups, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [world.back_up() for _ in range(2)]

    def away(call: ImageCall) -> None:
        raise exceptions.ImageServiceUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(world.engine.images, "discard", away)
        made.append(world.back_up())
        world.backups.run()
    assert [row.status for row in world.rows()] == ["complete", "complete", "deleting"]
    world.backups.run()
    assert world.files() == sorted(made[1:])
    assert len(world.rows()) == 2


def test_records_of_old_failures_are_deleted(world: Backups) -> None:
    world.backups.run()
    world.finish("It broke.")
    world.backups.run()
    world.age(finished_at=31 * 24 * HOUR)
    world.backups.run()
    assert world.rows() == []


def test_deleted_policy_leaves_its_backups(world: Backups) -> None:
    made = [world.back_up() for _ in range(2)]
    world.db.write(backup_policies.delete, world.context(), world.policy.id)
    world.backups.run()
    assert world.files() == sorted(made)


# --- restore


def restore(world: Backups, backup: ServerBackup) -> Any:
    """Restore the server in place, as the API does."""
    held = world.db.write(server_backups.hold, world.context(), backup.id)
    payload = {"image_ref": held.image_id, "images": {}, "changes": {}, "injected_files": {}, "admin_password": "x"}
    return world.lifecycle.accept_action(world.context(), world.uuid, "rebuild", payload)


def test_server_is_restored_in_place_with_its_addresses(world: Backups) -> None:
    image_id = world.back_up()
    before = world.instance(world.uuid)
    restore(world, world.row)
    world.lifecycle.build_instances(world.context(), [world.uuid])
    world.let_time_pass(60)
    world.reconciler.sweep()
    host, request = world.compute.builds[-1]
    assert (host, request.instance.uuid, request.image and request.image.id) == (world.host, world.uuid, image_id)
    world.report(world.uuid, host, request.generation, objects.BuildOutcome.BUILT)
    after = world.instance(world.uuid)
    assert (after.vm_state, after.vifs[0].address, after.flavor) == ("active", before.vifs[0].address, before.flavor)


def test_retention_leaves_a_backup_alone_that_is_being_restored(world: Backups) -> None:
    first = world.back_up()
    world.db.write(server_backups.hold, world.context(), world.row.id)
    made = [first, *(world.back_up() for _ in range(3))]
    world.backups.run()
    assert world.files() == sorted([first, *made[2:]])
    world.db.write(lambda uow: uow.change(sa.update(models.ServerBackup).values(held_until=uow.now)))
    world.backups.run()
    assert world.files() == sorted(made[2:])


def test_new_server_of_a_backup_takes_quota(world: Backups) -> None:
    world.back_up()
    used = world.instances_used()
    spec = world.row.server
    networks = [objects.NetworkRequest(network_id=network_id) for network_id in spec["networks"]]
    values = {"flavor_id": spec["flavor_id"], "image_ref": world.row.image_id, "networks": networks}
    (uuid,) = world.create(**values)
    assert world.instance(uuid).image_ref == world.row.image_id
    assert world.instances_used() == used + 1
    world.conf.set_override("instances", used + 1, "quota")
    with pytest.raises(exceptions.QuotaExceeded):
        world.create(**values)


# --- who does it, and what operators see


def test_conductor_that_is_not_the_oldest_does_nothing(world: Backups) -> None:
    for host in ("c1", "c2"):
        world.db.write(services.report, host, services.CONDUCTOR, "conductor", "1")
    world.conf.set_override("host", "c2")
    world.backups.run_if_first()
    assert world.rows() == []
    world.conf.set_override("host", "c1")
    world.backups.run_if_first()
    assert world.row.status is BackupStatus.RUNNING


def test_metrics_have_the_age_of_backups_and_the_servers_without(world: Backups) -> None:
    world.make_policy(enabled=False)
    world.backups.run()
    sample = {name: value for name, (_, value) in world.backups.samples()}
    assert sample == {metrics.BACKUPS_MISSING: 0}, "the backup is running"
    world.finish()
    world.backups.run()
    ((_, (labels, age)), _) = world.backups.samples()
    assert labels == (world.policy.id,)
    assert 0 <= age <= 3600 + 60
    world.db.write(lambda uow: uow.change(sa.delete(models.ServerBackup)))
    world.backups.run()
    assert [value for name, (_, value) in world.backups.samples()] == [1]


# --- images of another service


class Registry:
    """An image service that has the images itself, by id, with their status."""

    def __init__(self, world: Backups) -> None:
        self.images: dict[str, str] = {}
        self.away = False
        world.backups.images = self  # type: ignore[assignment]

    has_local_rows = False

    def register_for_owner(self, image: Image) -> Image:
        if self.away:
            raise exceptions.ImageServiceUnavailable
        self.images[image.id] = "queued"
        return image

    def publish(self, call: ImageCall) -> objects.Image:
        if self.away:
            raise exceptions.ImageServiceUnavailable
        if self.images.get(call.image_id) != "active":
            raise exceptions.ImageNotFound(image_id=call.image_id)
        return Image(id=call.image_id, name="b", size=7)

    def discard(self, call: ImageCall) -> None:
        self.images.pop(call.image_id, None)


def test_image_is_registered_with_the_image_service(world: Backups) -> None:
    registry = Registry(world)
    registry.away = True
    world.backups.run()
    assert (world.row.status, world.row.attempts) == ("pending", 1)
    registry.away = False
    world.age(due_at=HOUR)
    world.backups.run()
    assert registry.images == {world.row.image_id: "queued"}
    assert world.compute.commands[-1].payload["registered"]
    world.db.write(images.create, Image(id=world.row.image_id, name="b", owner="p1", status="queued"))
    world.finish()
    registry.away = True
    world.backups.run()
    assert world.row.status is BackupStatus.RUNNING, "nobody knows whether the image is complete"
    registry.away = False
    registry.images[world.row.image_id] = "active"
    world.backups.run()
    assert (world.row.status, world.row.size) == ("complete", 7)


@pytest.mark.parametrize("end", ["policy is changed", "policy is deleted", "server is deleted"])
def test_image_of_a_backup_that_never_begins_is_withdrawn(
    world: Backups, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    registry = Registry(world)

    def refuse(*_: Any) -> Any:
        raise exceptions.ServerBackupRunning(backup_id="another")

    monkeypatch.setattr(world.engine, "accept_in", refuse)
    world.backups.run()
    assert (world.row.status, registry.images) == ("pending", {world.row.image_id: "queued"})
    if end == "policy is changed":
        world.db.write(backup_policies.update, world.context(), world.policy.id, {"minute": 5})
    elif end == "policy is deleted":
        world.db.write(backup_policies.delete, world.context(), world.policy.id)
    else:
        world.age(due_at=HOUR)
        world.db.write(lambda uow: uow.change(sa.update(models.Instance).values(deleted=True)))
    for _ in range(2):
        world.backups.run()
    assert (world.rows(), registry.images) == ([], {})


def test_image_that_was_registered_in_vain_is_withdrawn(world: Backups, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(world)

    def refuse(*_: Any) -> Any:
        raise exceptions.BackupOfVolumes

    monkeypatch.setattr(world.engine, "accept_in", refuse)
    world.backups.run()
    assert (world.row.status, registry.images) == (BackupStatus.FAILED, {})

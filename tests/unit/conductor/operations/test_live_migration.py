"""Live migration in the conductor: both hosts, the undo of each step, and abort requests. The hosts are fakes."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, InstanceAction
from nova_lite.db.servers import server_migrations
from nova_lite.objects import BuildOutcome, GuestCpu, MigrationControl, MigrationProgress
from nova_lite.operations import states
from tests.support.server_moves import PROGRESS, READY, RUNNING, SHUTDOWN, SOURCE, Live, force_down


@pytest.fixture
def world(tmp_path: Path) -> Live:
    return Live(tmp_path)


def test_live_migration_moves_the_guest(world: Live) -> None:
    world.prepared()
    assert world.state == (states.ACTIVE, states.MIGRATING, "host1", 1)
    assert (world.used(), world.statuses()) == ({"host1": 1, "host2": 1}, ["running"])
    assert world.problems() == []
    assert world.command.payload["answers"]["prepare"] == READY
    world.answer()
    world.at_destination()


CPU = {"virt_type": "kvm", "vendor": "Intel", "features": "aes avx"}


def test_scheduler_gets_the_processor_of_a_guest_that_moves_while_it_runs(world: Live) -> None:
    def know(uow: UnitOfWork) -> None:
        report = {"devices": [], "free_ports": 3, "cpu": CPU}
        uow.change(sa.update(Instance).values(guest_devices=report))

    world.act("live-migration", host=None)
    assert world.scheduler.specs[-1].guest_cpu is None, "no host has reported it"
    world.answer(RUNNING, error="no")
    world.at_source()
    world.db.write(know)
    world.act("live-migration", host=None)
    assert world.scheduler.specs[-1].guest_cpu == GuestCpu(**CPU)
    world.answer(RUNNING, error="no")
    world.at_source()
    world.act("migrate", host=None)
    assert world.scheduler.specs[-1].guest_cpu is None, "the guest starts again at its destination"


def test_check_at_the_source_records_the_processor_of_the_guest(world: Live) -> None:
    world.act("live-migration", host=None)
    world.answer(RUNNING, answer={**SOURCE, "devices": {"devices": [], "free_ports": 3, "cpu": CPU}})
    found = world.db.read(lambda uow: uow.session.scalars(sa.select(Instance.guest_devices)).one())
    assert found["cpu"]["features"] == "aes avx"
    assert world.command.payload["answers"]["check"] == SOURCE


def fail(world: Live, step: str) -> None:
    """Let the host of this step refuse it, and both hosts undo the move."""
    if step == "hand_over":
        world.prepared()
    else:
        world.act("live-migration", host=None)
        if step == "prepare":
            world.answer(RUNNING, answer=SOURCE)
    world.answer(RUNNING, error="no")
    if step == "hand_over":
        world.asked()
    if step != "check":
        world.dropped()


@pytest.mark.parametrize("step", ["check", "prepare", "hand_over"])
def test_failed_step_is_undone(world: Live, step: str) -> None:
    fail(world, step)
    world.at_source()
    assert world.statuses() == ["error"]


@pytest.mark.parametrize("step", ["check", "prepare", "hand_over"])
def test_guest_that_stops_after_a_failed_migration_is_stopped(world: Live, step: str) -> None:
    fail(world, step)
    last = [command for command in world.compute.commands if command.host == "host1"][-1]
    world.look(SHUTDOWN, last.action_id, last.sequence)
    assert world.state == (states.STOPPED, None, "host1", 1)


def test_guest_that_stops_after_a_migration_from_a_silent_host_is_stopped(world: Live) -> None:
    world.silence("host1")
    world.act("live-migration", host=None)
    assert (world.open_actions(), world.statuses()) == ([], ["error"])
    world.look(SHUTDOWN, 0, 0)
    assert world.state == (states.STOPPED, None, "host1", 1)


def test_silent_source_is_called_to_find_the_guest(world: Live) -> None:
    world.prepared()
    late = world.command
    world.expire()
    world.expect("rollback_live_migration", "host1", 1)
    assert world.command.sequence > late.sequence
    world.answer(answer={"done": False})
    world.dropped()
    world.at_source()


def test_undo_of_a_completed_move_completes_it(world: Live) -> None:
    world.prepared()
    world.expire()
    asked = world.command.sequence
    world.answer(answer={"done": True})
    assert world.command.sequence > asked, "its source would take the next command for an earlier one"
    world.at_destination()


def test_abort_is_returned_to_the_source_with_its_progress(world: Live) -> None:
    world.prepared()
    assert world.tell() is MigrationControl.CONTINUE
    (migration,) = world.db.read(lambda uow: server_migrations.in_progress(uow, world.uuid))
    assert migration.progress["memory_remaining_bytes"] == 60
    assert world.row.progress == 40
    world.live.live_migration_abort(world.context(admin=True), world.uuid, migration.id)
    assert world.tell() is MigrationControl.ABORT
    world.answer(RUNNING, error="aborted")
    world.asked()
    world.dropped()
    world.at_source()
    assert world.statuses() == ["cancelled"]


def test_migration_with_progress_is_not_ended_by_its_deadline(world: Live) -> None:
    """The deadline counts from the last report."""
    world.prepared()

    def deadline() -> datetime.timedelta:
        return world.db.read(lambda uow: uow.session.scalars(sa.select(InstanceAction)).all()[-1].deadline - uow.now)  # type: ignore[no-any-return]

    def pass_time(uow: UnitOfWork) -> None:
        uow.session.scalars(sa.select(InstanceAction)).all()[-1].deadline = uow.now + datetime.timedelta(seconds=5)

    world.db.write(pass_time)
    assert world.tell() is MigrationControl.CONTINUE
    assert deadline().total_seconds() > world.conf.conductor.live_migration_deadline - 60


def test_migration_that_waits_for_its_turn_is_queued(world: Live) -> None:
    """Nova aborts a waiting migration from microversion 2.65 on."""
    world.prepared()
    command = world.command

    def tell(progress: MigrationProgress) -> MigrationControl:
        arguments = (str(command.host), command.action_id, command.sequence, progress)
        return world.live.live_migration_progress(world.context(), *arguments)

    assert tell(MigrationProgress(queued=True)) is MigrationControl.CONTINUE
    assert world.statuses() == ["queued"]
    (migration,) = world.db.read(lambda uow: server_migrations.in_progress(uow, world.uuid))
    with pytest.raises(exceptions.InvalidMigrationState):
        world.live.live_migration_abort(world.context(admin=True), world.uuid, migration.id)
    assert tell(PROGRESS) is MigrationControl.CONTINUE
    assert world.statuses() == ["running"]
    assert tell(MigrationProgress(queued=True)) is MigrationControl.CONTINUE
    world.live.live_migration_abort(world.context(admin=True), world.uuid, migration.id, early=True)
    assert tell(MigrationProgress(queued=True)) is MigrationControl.ABORT


def test_force_complete_is_returned_to_the_source(world: Live) -> None:
    world.prepared()
    world.live.live_migration_force_complete(world.context(admin=True), world.uuid, 1)
    assert world.tell() is MigrationControl.FORCE_COMPLETE


def test_progress_of_a_closed_migration_is_answered_with_abort(world: Live) -> None:
    world.prepared()
    command = world.command
    world.act("delete")
    told = world.live.live_migration_progress(
        world.context(), str(command.host), command.action_id, command.sequence, PROGRESS
    )
    assert told is MigrationControl.ABORT


def test_abort_and_force_complete_are_refused_in_other_states(world: Live) -> None:
    admin: Any = world.context(admin=True)
    with pytest.raises(exceptions.InstanceInvalidState):
        world.live.live_migration_abort(admin, world.uuid, 1)
    world.act("live-migration", host=None)
    with pytest.raises(exceptions.InvalidMigrationState):
        world.live.live_migration_abort(admin, world.uuid, 1)
    with pytest.raises(exceptions.InvalidMigrationState):
        world.live.live_migration_force_complete(admin, world.uuid, 1)
    with pytest.raises(exceptions.MigrationNotFoundForInstance):
        world.live.live_migration_abort(admin, world.uuid, 77)
    with pytest.raises(exceptions.MigrationNotThere):
        world.live.live_migration_force_complete(admin, world.uuid, 77)
    world.live.live_migration_abort(admin, world.uuid, 1, early=True)


@pytest.mark.parametrize(
    ("host", "error"), [("host1", exceptions.UnableToMigrateToSelf), ("nowhere", exceptions.ComputeHostUnknown)]
)
def test_unusable_target_host_is_refused(world: Live, host: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        world.act("live-migration", host=host)


# --- a host is lost: it is forced down


def source_is_lost(world: Live) -> None:
    force_down(world, "host1")
    world.swept()
    world.expect("find_live_migrated_instance", "host2", 2)


def evacuated(world: Live, after: tuple[str, str | None, str | None] = (states.ACTIVE, None, "host2")) -> None:
    world.act("evacuate")
    host, request = world.compute.builds[-1]
    world.reports.start_build(world.context(), world.uuid, host, request.generation)
    world.report(world.uuid, host, request.generation, BuildOutcome.BUILT)
    assert world.state[:3] == after
    assert (world.open_actions(), world.problems()) == ([], [])


@pytest.mark.parametrize("asked", [False, True])
def test_a_guest_that_had_arrived_when_its_source_was_lost_goes_on(world: Live, asked: bool) -> None:
    world.prepared()
    if asked:
        world.expire()
        world.expect("rollback_live_migration", "host1", 1)
    source_is_lost(world)
    with pytest.raises(exceptions.InstanceInvalidState):
        world.act("evacuate")
    world.answer(RUNNING, answer={"done": True})
    assert world.state == (states.ACTIVE, states.MIGRATING, "host2", 2)
    world.expect("post_live_migration_at_destination", "host2", 2)
    world.answer(RUNNING)
    world.swept()
    assert world.state == (states.ACTIVE, None, "host2", 2)
    assert world.used() == {"host1": 0, "host2": 1}
    assert (world.open_actions(), world.problems(), world.statuses()) == ([], [], ["completed"])


def test_a_guest_that_was_lost_with_its_source_can_be_evacuated(world: Live) -> None:
    world.prepared()
    source_is_lost(world)
    world.answer(error="it still counts as coming")
    assert world.open_actions() == [("live-migration", "find")]
    world.let_time_pass(60)
    world.swept()
    world.answer(answer={"done": False})
    world.dropped()
    world.at_source()
    evacuated(world)


@pytest.mark.parametrize("step", ["check", "prepare"])
def test_source_lost_before_the_migration_began(world: Live, step: str) -> None:
    world.act("live-migration", host=None)
    if step == "prepare":
        world.answer(RUNNING, answer=SOURCE)
    force_down(world, "host1")
    if step == "prepare":
        world.answer(answer=READY)
        world.dropped()
    else:
        world.swept()
    world.at_source()
    evacuated(world)


@pytest.mark.parametrize("step", ["prepare", "hand_over"])
def test_destination_lost_before_it_has_the_guest(world: Live, step: str) -> None:
    if step == "prepare":
        world.act("live-migration", host=None)
        world.answer(RUNNING, answer=SOURCE)
    else:
        world.prepared()
    force_down(world, "host2")
    if step == "hand_over":
        world.answer(RUNNING, error="the destination does not answer")
        world.asked()
    world.swept()
    world.at_source()


def test_destination_lost_with_the_guest(world: Live) -> None:
    world.prepared()
    world.answer()
    world.expect("post_live_migration_at_destination", "host2", 2)
    force_down(world, "host2")
    world.swept()
    world.expect("post_live_migration", "host1", 1)
    world.answer()
    assert world.state == (states.ACTIVE, None, "host2", 2)
    assert world.used() == {"host1": 0, "host2": 1}
    assert (world.open_actions(), world.problems()) == ([], [])
    world.scheduler.hosts = ["host1"]
    evacuated(world, (states.ACTIVE, None, "host1"))


@pytest.mark.parametrize("gone", ["host1", "host2"])
@pytest.mark.parametrize("step", ["check", "prepare", "hand_over", "settle", "clear"])
def test_delete_at_any_step_with_a_lost_host(world: Live, gone: str, step: str) -> None:
    if step in ("check", "prepare"):
        world.act("live-migration", host=None)
        if step == "prepare":
            world.answer(RUNNING, answer=SOURCE)
    else:
        world.prepared()
    if step in ("settle", "clear"):
        world.answer()
    if step == "clear":
        world.answer(RUNNING)
    force_down(world, gone)
    world.act("delete")
    while world.open_actions() == [("delete", "perform")]:
        assert (world.command.method, world.command.host != gone) == ("terminate_instance", True)
        world.answer()
    assert world.row.deleted
    assert (world.used()[gone], world.open_actions()) == (1, [("delete", "cleanup")])
    assert sum(world.used().values()) == 1
    assert world.problems() == []


@pytest.mark.parametrize("kind", ["live-migration", "resize", "migrate"])
def test_host_without_a_command_of_a_failed_move_has_no_sequence_of_it(kind: str) -> None:
    """Otherwise its later reports would seem to be older than the move."""
    row, hosts = operations.get(kind, {}), {"source": {"host": "host1"}, "destination": {"host": "host2"}}
    first = next(step for step in row.steps if isinstance(step, operations.HostStep))
    refused = {**hosts, operations.UNDONE_FROM: row.undos(first.name, begun=False)[0].name}
    assert row.last_sequence(operations.RELEASE, refused, "host1", failed=True) is None
    assert row.last_sequence(operations.RELEASE, hosts, "host1", failed=True) is None, "of an older conductor"
    undos = row.undos(row.steps[-1].name) or row.undos(operations.HAND_OVER)
    undone = {**hosts, operations.UNDONE_FROM: undos[0].name}
    for host in ("host1", "host2"):
        sequence = row.last_sequence(operations.RELEASE, undone, host, failed=True)
        at_host = [step for step in undos if isinstance(step, operations.HostStep) and hosts[step.at]["host"] == host]
        assert sequence in [row.sequence(step.name) for step in at_host]

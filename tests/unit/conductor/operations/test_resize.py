"""Resize and cold migration in the conductor: both hosts, the undo of each step, and quota. The hosts are fakes."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite import objects
from nova_lite.base import exceptions
from nova_lite.db.core import actions, models
from nova_lite.db.servers import flavors, server_migrations
from nova_lite.db.upkeep import invariants
from nova_lite.objects import ActionReport, DomainReport, Verdict
from nova_lite.operations import states
from tests.support.server_moves import DISKS, RUNNING, SHUTDOWN, Moving, force_down


@pytest.fixture
def world(tmp_path: Path) -> Moving:
    return Moving(tmp_path)


def test_resize_and_confirm(world: Moving) -> None:
    world.act("resize", flavor_id="2")
    assert world.state == (states.ACTIVE, states.RESIZE_MIGRATING, "host1", 1)
    assert world.used() == {"host1": 1, "host2": 2}
    assert world.cores() == 2
    assert world.problems() == []
    world.left()
    assert world.state == (states.ACTIVE, states.RESIZE_FINISH, "host1", 1)
    assert world.command.generation == 2
    assert world.command.payload["answers"]["leave"] == DISKS
    world.answer(RUNNING)
    assert world.state == (states.RESIZED, None, "host2", 2)
    assert world.row.flavorid == "2"
    assert world.statuses() == ["finished"]
    assert world.problems() == []

    world.act("confirmResize")
    assert (world.command.method, world.command.host, world.command.generation) == ("confirm_resize", "host1", 1)
    assert world.state == (states.RESIZED, states.RESIZE_CONFIRMING, "host2", 2)
    world.answer()
    assert world.state == (states.ACTIVE, None, "host2", 2)
    assert world.used() == {"host1": 0, "host2": 2}
    assert (world.cores(), world.statuses(), world.open_actions()) == (2, ["confirmed"], [])
    assert world.problems() == []


def test_resize_and_revert(world: Moving) -> None:
    world.resized()
    world.act("revertResize")
    assert (world.command.method, world.command.host, world.command.generation) == ("revert_resize", "host2", 2)
    world.answer()
    assert (world.command.method, world.command.host, world.command.generation) == ("finish_revert_resize", "host1", 1)
    assert world.state == (states.RESIZED, states.RESIZE_REVERTING, "host1", 1)
    assert world.used() == {"host1": 1, "host2": 0}
    assert world.cores() == 2
    world.answer(RUNNING)
    assert world.state == (states.ACTIVE, None, "host1", 1)
    assert world.row.flavorid == "1"
    assert (world.cores(), world.statuses(), world.open_actions()) == (1, ["reverted"], [])
    assert world.problems() == []


def test_generations_are_never_reused(world: Moving) -> None:
    world.resized()
    world.act("revertResize")
    world.answer()
    world.answer(RUNNING)
    world.act("resize", flavor_id="2")
    world.left()
    assert world.command.generation == 3


def test_a_stopped_server_stays_stopped(world: Moving) -> None:
    world.act("stop")
    world.answer(SHUTDOWN)
    world.act("migrate")
    world.left()
    assert world.command.payload["running"] is False
    world.answer(SHUTDOWN)
    world.act("confirmResize")
    world.answer()
    assert world.state == (states.STOPPED, None, "host2", 2)


def test_resize_without_room_changes_nothing(world: Moving) -> None:
    world.scheduler.hosts = ["host1"]
    world.act("resize", flavor_id="2")
    assert world.state == (states.ACTIVE, None, "host1", 1)
    assert (world.cores(), world.statuses(), world.open_actions()) == (1, ["error"], [])
    assert world.used() == {"host1": 1, "host2": 0}
    assert world.problems() == []


def test_a_destination_that_fails_is_dropped_and_the_source_goes_on(world: Moving) -> None:
    world.act("resize", flavor_id="2")
    world.left()
    world.answer(error="disk full")
    assert (world.command.method, world.command.host) == ("drop_resize", "host2")
    assert world.state == (states.ACTIVE, states.RESIZE_REVERTING, "host1", 1)
    world.answer()
    assert (world.command.method, world.command.host) == ("finish_revert_resize", "host1")
    world.answer(RUNNING)
    assert world.state == (states.ACTIVE, None, "host1", 1)
    assert (world.cores(), world.statuses(), world.open_actions()) == (1, ["error"], [])
    assert world.used() == {"host1": 1, "host2": 0}


@pytest.mark.parametrize(("seen_at", "power_state"), [("leave", RUNNING), ("return", SHUTDOWN)])
def test_domain_report_from_before_the_undo_is_ignored(world: Moving, seen_at: str, power_state: int) -> None:
    """The source looked at its guest and then restarted it. Its report about the look arrives only after that."""
    world.act("resize", flavor_id="2")
    leaving = world.command
    world.left()
    world.answer(None, "no disk")
    world.answer()
    returning = world.command
    assert (returning.method, returning.action_id) == ("finish_revert_resize", leaving.action_id)
    world.answer(RUNNING)
    position = leaving.sequence if seen_at == "leave" else returning.sequence
    off = DomainReport(
        uuid=world.uuid,
        generation=world.generation,
        power_state=SHUTDOWN,
        last_action_id=leaving.action_id,
        last_position=position,
    )
    world.reports.reconcile_domains(world.context(), world.source, [off], [])
    assert world.row.power_state == power_state


def test_resize_that_completed_late_is_kept(world: Moving) -> None:
    """The guest had arrived, but the report came after the deadline."""
    world.act("resize", flavor_id="2")
    world.left()
    world.let_time_pass(world.conf.conductor.migration_deadline + 1)
    world.reconciler.sweep()
    assert (world.command.method, world.command.host) == ("drop_resize", "host2")
    world.answer(RUNNING, answer={"done": True})
    assert world.state == (states.RESIZED, None, "host2", 2)
    assert (world.row.flavorid, world.statuses(), world.open_actions()) == ("2", ["finished"], [])
    assert world.used() == {"host1": 1, "host2": 2}


def test_failed_source_ends_the_resize(world: Moving) -> None:
    world.act("resize", flavor_id="2")
    world.answer(error="the domain does not stop")
    assert (world.command.method, world.command.host) == ("finish_revert_resize", "host1")
    world.answer(RUNNING)
    assert world.state == (states.ACTIVE, None, "host1", 1)
    assert world.used() == {"host1": 1, "host2": 0}


def test_absent_destination_gets_no_command(world: Moving) -> None:
    world.act("resize", flavor_id="2")
    world.silence("host2")
    world.left()
    assert (world.command.method, world.command.host) == ("finish_revert_resize", "host1")
    world.answer(RUNNING)
    assert world.state == (states.ACTIVE, None, "host1", 1)
    assert world.used() == {"host1": 1, "host2": 0}


def test_source_waits_for_a_silent_destination(world: Moving) -> None:
    world.act("resize", flavor_id="2")
    world.left()
    world.silence("host2")
    world.let_time_pass(world.conf.conductor.migration_deadline + 1)
    world.reconciler.sweep()
    world.let_time_pass(10 * world.conf.conductor.action_deadline)
    world.reconciler.sweep()
    assert world.open_actions() == [("resize", "drop")]
    assert world.command.method == "finish_resize"
    assert world.state == (states.ACTIVE, states.RESIZE_REVERTING, "host1", 1)
    world.db.write(actions.make_due, "host2")
    world.speaks("host2")
    world.reconciler.sweep()
    assert (world.command.method, world.command.host) == ("drop_resize", "host2")


def test_forced_down_destination_needs_no_confirmation(world: Moving) -> None:
    world.act("resize", flavor_id="2")
    world.left()
    force_down(world, "host2")
    world.reconciler.sweep()
    world.reconciler.sweep()
    assert (world.command.method, world.command.host) == ("finish_revert_resize", "host1")
    world.answer(RUNNING)
    assert world.state == (states.ACTIVE, None, "host1", 1)
    assert world.used() == {"host1": 1, "host2": 0}


def test_late_reports_of_earlier_steps_change_nothing(world: Moving) -> None:
    """The two steps of the source belong to the same action."""
    world.act("resize", flavor_id="2")
    leave = world.command
    world.answer(error="the domain does not stop")
    assert world.command.sequence > leave.sequence
    world.reports.finish_action(
        world.context(),
        ActionReport(
            host="host1", action_id=leave.action_id, power_state=SHUTDOWN, sequence=leave.sequence, answer=DISKS
        ),
    )
    assert world.state == (states.ACTIVE, states.RESIZE_REVERTING, "host1", 1)


def test_earlier_commands_are_not_current(world: Moving) -> None:
    world.act("resize", flavor_id="2")
    world.left()
    command = world.command
    assert world.reports.is_command_current(world.context(), "host2", command.action_id, command.sequence)
    assert not world.reports.is_command_current(world.context(), "host1", command.action_id, command.sequence)
    world.answer(error="disk full")
    assert not world.reports.is_command_current(world.context(), "host2", command.action_id, command.sequence)


@pytest.mark.parametrize("moment", ["leave", "arrive", "resized", "confirm", "revert"])
def test_delete_at_any_step_goes_to_both_hosts(world: Moving, moment: str) -> None:
    world.act("resize", flavor_id="2")
    if moment != "leave":
        world.left()
    if moment in ("resized", "confirm", "revert"):
        world.answer(RUNNING)
    if moment in ("confirm", "revert"):
        world.act(f"{moment}Resize")
    world.act("delete")
    seen = set()
    for _ in range(2):
        assert world.command.method == "terminate_instance"
        seen.add((world.command.host, world.command.generation))
        world.answer()
    assert seen == {("host1", 1), ("host2", 2)}
    assert world.row.deleted
    assert world.used() == {"host1": 0, "host2": 0}
    assert (world.cores(), world.open_actions(), world.problems()) == (0, [], [])
    assert world.statuses() == ["confirmed" if moment in ("resized", "confirm", "revert") else "error"]


def test_domains_of_both_hosts_belong(world: Moving) -> None:
    world.resized()
    for host, generation, verdict in (
        ("host1", 1, Verdict.KEEP),
        ("host2", 2, Verdict.KEEP),
        ("host2", 1, Verdict.DESTROY),
    ):
        report = objects.DomainReport(uuid=world.uuid, generation=generation, power_state=RUNNING)
        (found,) = world.reports.reconcile_domains(world.context(), host, [report], [])
        assert (found.verdict, host, generation) == (verdict, host, generation)


@pytest.mark.parametrize(
    ("flavor", "error"),
    [
        ({"flavorid": "1"}, exceptions.CannotResizeToSameFlavor),
        ({"flavorid": "none"}, exceptions.FlavorUnavailable),
        ({"flavorid": "3", "root_gb": 0}, exceptions.CannotResizeDisk),
        ({"flavorid": "4", "disabled": True}, exceptions.FlavorUnavailable),
        ({"flavorid": "5", "vcpus": 100}, exceptions.QuotaExceeded),
    ],
)
def test_unsuitable_flavor_is_refused(world: Moving, flavor: dict[str, Any], error: type[Exception]) -> None:
    values = {"name": flavor["flavorid"], "vcpus": 1, "memory_mb": 64, "root_gb": 5, **flavor}
    if flavor["flavorid"] not in ("1", "none"):
        world.db.write(lambda uow: flavors.create(uow, objects.Flavor(**values)))
    with pytest.raises(error):
        world.act("resize", flavor_id=flavor["flavorid"])
    assert (world.cores(), world.statuses(), world.open_actions()) == (1, [], [])


def test_confirm_and_revert_need_a_resize(world: Moving) -> None:
    for kind in ("confirmResize", "revertResize"):
        with pytest.raises(exceptions.InstanceInvalidState, match=f"Cannot '{kind}' instance .* vm_state active"):
            world.act(kind)


def test_migrate_to_a_host(world: Moving) -> None:
    with pytest.raises(exceptions.CannotMigrateToSameHost):
        world.act("migrate", host="host1")
    with pytest.raises(exceptions.ComputeHostUnknown):
        world.act("migrate", host="nowhere")
    world.act("migrate", host="host2")
    (wanted,) = [spec.requested_destination for spec in world.scheduler.specs[-1:]]
    assert wanted is not None and wanted.host == "host2"
    assert world.scheduler.specs[-1].ignore_hosts == ["host1"]


def test_resize_is_confirmed_automatically_in_time(world: Moving) -> None:
    world.conf.set_override("resize_confirm_window", 60)
    world.resized()
    world.reconciler.sweep()
    assert world.open_actions() == []

    def wait(uow: Any) -> None:
        for row in uow.session.scalars(sa.select(models.Migration)):
            row.updated_at -= datetime.timedelta(seconds=61)

    world.db.write(wait)
    world.reconciler.sweep()
    assert (world.command.method, world.command.host) == ("confirm_resize", "host1")
    world.answer()
    assert world.state == (states.ACTIVE, None, "host2", 2)


def test_server_reset_during_a_move_is_not_confirmed_automatically(world: Moving) -> None:
    world.conf.set_override("resize_confirm_window", 1)
    world.resized()
    world.act("reset_state", vm_state=states.ACTIVE)
    world.db.write(lambda uow: uow.change(sa.update(models.Migration).values(updated_at=models.Migration.created_at)))
    world.reconciler.sweep()
    assert world.open_actions() == []
    with pytest.raises(exceptions.InstanceInvalidState):
        world.act("resize", flavor_id="1")
    assert [(problem.found, problem.expected) for problem in world.problems()] == [
        ("an allocation on host1", "none: it is not moving")
    ]
    invariants.fix(world.db)
    assert (world.problems(), world.used()) == ([], {"host1": 0, "host2": 2})


def test_list_of_migrations(world: Moving) -> None:
    def found(**filters: Any) -> list[tuple[str, str, str | None]]:
        rows = world.db.read(server_migrations.list_, objects.MigrationFilters(**filters))
        return [(row.migration_type, row.status, row.dest_compute) for row in rows]

    world.resized()
    world.act("revertResize")
    world.answer()
    world.answer(RUNNING)
    world.scheduler.hosts = ["host1"]
    world.act("migrate")
    resize, migration = ("resize", "reverted", "host2"), ("migration", "error", None)
    assert found() == [migration, resize]
    assert found(status=["error", "done"]) == [migration]
    assert found(host=["host2"]) == found(migration_type=["resize"]) == [resize]
    assert found(instance_uuid=["other"]) == found(project_id=["p2"]) == []
    newest, oldest = world.db.read(server_migrations.list_, objects.MigrationFilters())
    assert world.db.read(server_migrations.list_, objects.MigrationFilters(), 1, newest.uuid) == [oldest]
    with pytest.raises(exceptions.MarkerNotFound):
        world.db.read(server_migrations.list_, objects.MigrationFilters(), 1, "nosuch")
    assert world.db.read(server_migrations.get, world.uuid, oldest.id).new_flavor_id == oldest.new_flavor_id != 0
    with pytest.raises(exceptions.MigrationNotFound):
        world.db.read(server_migrations.get, "other", oldest.id)
    assert world.db.read(server_migrations.in_progress, world.uuid) == []


# --- the source is lost: it is forced down


def rebuilt(world: Moving) -> None:
    """Finish the evacuation on the other host."""
    host, request = world.compute.builds[-1]
    world.reports.start_build(world.context(), world.uuid, host, request.generation)
    world.report(world.uuid, host, request.generation, objects.BuildOutcome.BUILT)


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("step", ["schedule", "leave", "return", "return at once"])
def test_a_server_whose_source_is_lost_can_be_evacuated(world: Moving, step: str, stopped: bool) -> None:
    if stopped:
        world.act("stop")
        world.answer(SHUTDOWN)
    if step == "schedule":
        world.scheduler.error = exceptions.MessagingUnavailable(what="select_destinations")
    world.act("resize", flavor_id="2")
    world.scheduler.error = None
    if step == "return":
        world.left()
        world.answer(error="disk full")
        world.answer(answer={"done": False})
    elif step == "return at once":
        world.answer(error="the domain does not stop")
    force_down(world, "host1")
    world.act("evacuate")
    assert world.used() == {"host1": 0, "host2": 1}
    assert (world.cores(), world.statuses()) == (1, ["error", "pre-migrating"])
    rebuilt(world)
    if stopped:
        assert world.command.method == "stop_instance"
        world.answer(SHUTDOWN)
    assert world.state[:3] == (states.STOPPED if stopped else states.ACTIVE, None, "host2")
    assert (world.open_actions(), world.problems(), world.cores()) == ([], [], 1)
    late = objects.DomainReport(uuid=world.uuid, generation=1, power_state=RUNNING)
    (found,) = world.reports.reconcile_domains(world.context(), "host1", [late], [])
    assert found.verdict == Verdict.DESTROY


@pytest.mark.parametrize("step", ["arrive", "drop"])
def test_evacuation_is_refused_while_the_destination_may_have_the_server(world: Moving, step: str) -> None:
    world.act("resize", flavor_id="2")
    world.left()
    if step == "drop":
        world.answer(error="disk full")
    force_down(world, "host1")
    with pytest.raises(exceptions.InstanceInvalidState, match=r"Cannot 'evacuate' instance .* while it is in"):
        world.act("evacuate")
    task = states.RESIZE_FINISH if step == "arrive" else states.RESIZE_REVERTING
    assert world.state[:3] == (states.ACTIVE, task, "host1")
    if step == "arrive":
        world.answer(RUNNING)
        assert world.state == (states.RESIZED, None, "host2", 2)
    else:
        world.answer(answer={"done": False})
        world.act("evacuate")
        rebuilt(world)
        assert world.state[:3] == (states.ACTIVE, None, "host2")
    assert world.problems() == []


def test_a_resized_server_is_reverted_and_not_evacuated(world: Moving) -> None:
    world.resized()
    force_down(world, "host2")
    world.scheduler.hosts = ["host1"]
    with pytest.raises(exceptions.InstanceInvalidState, match="in vm_state resized"):
        world.act("evacuate")
    world.act("revertResize")
    world.swept()
    assert world.command.method == "finish_revert_resize"
    world.answer(RUNNING)
    assert world.state == (states.ACTIVE, None, "host1", 1)
    assert (world.open_actions(), world.problems()) == ([], [])


@pytest.mark.parametrize("how", ["silent", "forced down"])
def test_revert_to_a_host_that_is_down_is_refused(world: Moving, how: str) -> None:
    """A revert would begin by removing the guest that runs."""
    world.resized()
    if how == "silent":
        world.silence("host1")
    else:
        force_down(world, "host1")
    with pytest.raises(exceptions.SourceDown, match=r"host1.*confirm"):
        world.act("revertResize")
    assert world.state == (states.RESIZED, None, "host2", 2)
    if how == "forced down":
        world.act("confirmResize")
        world.swept()
        assert world.state == (states.ACTIVE, None, "host2", 2)
        assert world.used() == {"host1": 0, "host2": 2}


def test_a_revert_whose_source_is_lost_meanwhile_can_be_evacuated(world: Moving) -> None:
    world.resized()
    world.act("revertResize")
    world.answer()
    force_down(world, "host1")
    world.act("evacuate")
    rebuilt(world)
    assert world.state[:3] == (states.ACTIVE, None, "host2")
    assert (world.row.flavorid, world.cores(), world.statuses()) == ("1", 1, ["error", "done"])
    assert (world.open_actions(), world.problems()) == ([], [])


@pytest.mark.parametrize("gone", ["host1", "host2"])
@pytest.mark.parametrize("moment", ["leave", "arrive", "drop", "return", "resized", "confirm", "revert"])
def test_delete_at_any_step_with_a_lost_host(world: Moving, moment: str, gone: str) -> None:
    world.act("resize", flavor_id="2")
    if moment != "leave":
        world.left()
    if moment in ("drop", "return"):
        world.answer(error="disk full")
    if moment == "return":
        world.answer(answer={"done": False})
    if moment in ("resized", "confirm", "revert"):
        world.answer(RUNNING)
    if moment in ("confirm", "revert"):
        world.act(f"{moment}Resize")
    force_down(world, gone)
    world.act("delete")
    while world.open_actions() == [("delete", "perform")]:
        assert (world.command.method, world.command.host != gone) == ("terminate_instance", True)
        world.answer()
    assert world.row.deleted
    assert [host for host, number in world.used().items() if number] == [gone]
    assert world.open_actions() == [("delete", "cleanup")]
    force_down(world, gone, False)
    world.speaks(gone)
    world.let_time_pass(700)
    world.reconciler.sweep()
    assert (world.command.method, world.command.host) == ("terminate_instance", gone)
    world.answer()
    assert (world.open_actions(), world.used(), world.problems()) == ([], {"host1": 0, "host2": 0}, [])


# --- on one host


@pytest.fixture
def small(world: Moving) -> Moving:
    """Return a world with a single host."""
    world.conf.set_override("allow_resize_to_same_host", True)
    world.scheduler.hosts = ["host1"]
    return world


def arrived(world: Moving) -> None:
    world.act("resize", flavor_id="2")
    assert (world.command.method, world.command.host, world.command.generation) == (
        "resize_instance_same_host",
        "host1",
        1,
    )
    assert world.used() == {"host1": 3, "host2": 0}
    world.answer(answer=DISKS)
    assert (world.command.method, world.command.host, world.command.generation) == ("finish_resize", "host1", 2)


def test_resize_may_stay_on_its_host(small: Moving) -> None:
    arrived(small)
    small.answer(RUNNING)
    assert small.state == (states.RESIZED, None, "host1", 2)
    assert small.problems() == []
    for generation in (1, 2):
        report = objects.DomainReport(uuid=small.uuid, generation=generation, power_state=RUNNING)
        (found,) = small.reports.reconcile_domains(small.context(), "host1", [report], [])
        assert found.verdict == Verdict.KEEP
    small.act("confirmResize")
    assert (small.command.method, small.command.host, small.command.generation) == ("confirm_resize", "host1", 1)
    small.answer()
    assert small.state == (states.ACTIVE, None, "host1", 2)
    assert small.used() == {"host1": 2, "host2": 0}
    assert (small.open_actions(), small.problems(), small.statuses()) == ([], [], ["confirmed"])


def test_host_that_has_just_reported_is_not_away(small: Moving) -> None:
    """The host stood still so long that it counts as down, and its report arrives before its heartbeat."""
    small.act("resize", flavor_id="2")
    small.silence("host1")
    small.answer(answer=DISKS)
    assert (small.command.method, small.command.host, small.command.generation) == ("finish_resize", "host1", 2)
    small.answer(RUNNING)
    assert small.state == (states.RESIZED, None, "host1", 2)


def test_resize_on_the_same_host_is_reverted(small: Moving) -> None:
    arrived(small)
    small.answer(RUNNING)
    small.act("revertResize")
    assert (small.command.method, small.command.generation) == ("revert_resize", 2)
    small.answer()
    assert (small.command.method, small.command.generation) == ("finish_revert_resize", 1)
    assert small.used() == {"host1": 1, "host2": 0}
    small.answer(RUNNING)
    assert small.state == (states.ACTIVE, None, "host1", 1)
    assert (small.open_actions(), small.problems(), small.statuses()) == ([], [], ["reverted"])


def test_failed_resize_on_the_same_host_is_undone(small: Moving) -> None:
    arrived(small)
    small.answer(error="disk full")
    assert (small.command.method, small.command.generation) == ("drop_resize", 2)
    small.answer(answer={"done": False})
    assert (small.command.method, small.command.generation) == ("finish_revert_resize", 1)
    small.answer(RUNNING)
    assert small.state == (states.ACTIVE, None, "host1", 1)
    assert small.used() == {"host1": 1, "host2": 0}
    assert (small.open_actions(), small.problems()) == ([], [])


@pytest.mark.parametrize("moment", ["leave", "arrive", "resized"])
def test_delete_during_a_resize_on_one_host_releases_both_allocations(small: Moving, moment: str) -> None:
    if moment == "leave":
        small.act("resize", flavor_id="2")
    else:
        arrived(small)
    if moment == "resized":
        small.answer(RUNNING)
    small.act("delete")
    generations = []
    for _ in range(2):
        assert (small.command.method, small.command.host) == ("terminate_instance", "host1")
        generations.append(small.command.generation)
        small.answer()
    assert (sorted(generations), small.row.deleted, small.used()) == ([1, 2], True, {"host1": 0, "host2": 0})
    assert (small.open_actions(), small.problems(), small.cores()) == ([], [], 0)


def test_same_host_is_chosen_only_for_resizes_and_if_allowed(small: Moving) -> None:
    small.act("migrate")
    assert small.state == (states.ACTIVE, None, "host1", 1)
    small.conf.set_override("allow_resize_to_same_host", False)
    small.act("resize", flavor_id="2")
    assert small.scheduler.specs[-1].ignore_hosts == ["host1"]
    assert (small.state, small.open_actions()) == ((states.ACTIVE, None, "host1", 1), [])


def test_resize_on_one_host_needs_room_for_both(small: Moving) -> None:
    small.db.write(
        lambda uow: flavors.create(uow, objects.Flavor(flavorid="3", name="m3", vcpus=4, memory_mb=256, root_gb=2))
    )
    small.act("resize", flavor_id="3")
    assert small.open_actions() == [("resize", "schedule")]
    assert small.used() == {"host1": 1, "host2": 0}

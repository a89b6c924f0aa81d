"""Guests that crash: what the conductor records, and which servers it starts again."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.conductor.hosts.crashes import CRASHED, EVENT, WATCHDOG, CrashRestarter
from nova_lite.db.core import models
from nova_lite.db.hosts import crashes, evacuations
from nova_lite.objects import ActionReport, DomainReport, Incident, IncidentKind
from tests.support.fencing_world import ALWAYS, HOST, Fencing

SHUTDOWN, RUNNING, PAUSED = 4, 1, 3


class Crashes(Fencing):
    """A conductor whose host1 reports guests."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.restarter = CrashRestarter(self.engine)

    def server(self, **metadata: str) -> str:
        uuid, host, _ = self.built(metadata=metadata)
        assert host == HOST
        return uuid

    def see(self, uuid: str, *kinds: str, power_state: int = SHUTDOWN, host: str = HOST, **values: Any) -> None:
        """Report a domain twice, as a host does that got no reply to the first report."""
        row = self.instance(uuid)
        last = self.db.read(lambda uow: uow.session.scalar(sa.select(sa.func.max(models.InstanceAction.id))))
        report = DomainReport(
            uuid=uuid,
            generation=row.generation,
            power_state=power_state,
            last_action_id=last,
            incidents=[Incident(kind=kind) for kind in kinds],
            **values,
        )
        for _ in range(2):
            self.reports.reconcile_domains(self.context(admin=True), host, [report], [])

    def sweep(self, seconds: float = 0) -> None:
        """Let the conductor look at its plans, after some seconds."""

        def pass_time(uow: Any) -> None:
            for row in uow.session.scalars(sa.select(models.CrashRestart)):
                row.updated_at -= datetime.timedelta(seconds=seconds)
                if row.due_at is not None:
                    row.due_at -= datetime.timedelta(seconds=seconds)

        self.db.write(pass_time)
        self.restarter.sweep()

    def start(self, step: int = 1, error: str | None = None, kind: str = "start") -> None:
        """Let the host carry out the start that is open, or fail."""
        assert self.open_actions() == [(kind, "perform")]
        self.let_time_pass(3)
        self.reconciler.sweep()
        command = self.compute.commands[-1]
        self.reports.finish_action(
            self.context(), ActionReport(host=command.host, action_id=command.action_id, power_state=step, error=error)
        )

    def start_and_stop(self, uuid: str) -> None:
        """Let the owner start the server, and stop it."""
        for kind in ("start", "stop"):
            command = self.lifecycle.accept_action(self.context(), uuid, kind, {})
            self.reports.finish_action(
                self.context(), ActionReport(host=HOST, action_id=command.action_id, power_state=1)
            )
        assert self.instance(uuid).vm_state == "stopped"

    def history(self, uuid: str) -> list[tuple[str, str, str]]:
        """Return kind, event and details of the server's actions about crashes, the oldest first."""
        rows = self.db.read(
            lambda uow: list(
                uow.session.scalars(sa.select(models.InstanceAction).where(models.InstanceAction.instance_uuid == uuid))
            )
        )
        names = (CRASHED, EVENT, WATCHDOG)
        events = [(row.action, event) for row in sorted(rows, key=lambda row: row.id) for event in row.events or ()]
        return [(kind, event["event"], event["details"]) for kind, event in events if event["event"] in names]

    def plans(self) -> list[models.CrashRestart]:
        return self.db.read(lambda uow: list(uow.session.scalars(sa.select(models.CrashRestart))))


@pytest.fixture
def world(tmp_path: Path) -> Crashes:
    return Crashes(tmp_path)


def test_unprotected_guest_that_crashes_is_off_and_its_history_says_why(world: Crashes) -> None:
    uuid = world.server()
    world.see(uuid, IncidentKind.CRASH)
    world.sweep()
    assert (world.instance(uuid).vm_state, world.open_actions()) == ("stopped", [])
    (entry,) = world.history(uuid)
    assert entry == ("crash", CRASHED, "The guest's process on its host has ended unexpectedly. It is off.")


def test_protected_guest_that_panics_is_started_again_once(world: Crashes) -> None:
    uuid = world.server(**ALWAYS)
    world.see(uuid, IncidentKind.PANIC)
    world.sweep()
    world.sweep()
    world.start()
    assert world.instance(uuid).vm_state == "active"
    crash, start = world.history(uuid)
    assert crash[2] == (
        "The guest's kernel has panicked. It is started again now, because ha:restart=always of the server is set."
    )
    assert start == ("start", EVENT, "The guest's kernel has panicked. Start 1 of 3.")
    world.sweep(15)
    world.sweep(15)
    assert world.open_actions() == []


def test_guest_that_crashes_again_and_again_is_started_later_each_time_and_then_stays_off(world: Crashes) -> None:
    uuid = world.server(**ALWAYS, **{"ha:attempts": "2"})
    world.see(uuid, IncidentKind.CRASH)
    world.sweep()
    world.start()
    world.see(uuid, IncidentKind.CRASH)
    world.sweep(9)
    assert world.open_actions() == []
    world.sweep(2)
    world.start()
    world.see(uuid, IncidentKind.CRASH)
    world.sweep(1000)
    assert (world.instance(uuid).vm_state, world.open_actions()) == ("stopped", [])
    assert "started again 2 times, and has crashed again. So it stays off" in world.history(uuid)[-1][2]


def test_guest_that_has_run_for_long_is_counted_from_the_beginning(world: Crashes) -> None:
    uuid = world.server(**ALWAYS, **{"ha:attempts": "1"})
    world.see(uuid, IncidentKind.CRASH)
    world.sweep()
    world.start()
    world.sweep(crashes.STABLE.total_seconds() + 60)
    world.see(uuid, IncidentKind.CRASH)
    world.sweep()
    world.start()


def test_guest_waits_for_the_delay_of_its_policy(world: Crashes) -> None:
    uuid = world.server(**ALWAYS, **{"ha:delay": "60"})
    world.see(uuid, IncidentKind.CRASH)
    world.sweep(50)
    assert world.open_actions() == []
    world.sweep(11)
    assert world.open_actions() == [("start", "perform")]


def test_server_that_its_user_has_started_and_stopped_since_is_not_started(world: Crashes) -> None:
    uuid = world.server(**ALWAYS, **{"ha:delay": "60"})
    world.see(uuid, IncidentKind.CRASH)
    world.start_and_stop(uuid)
    world.sweep(100)
    assert (world.open_actions(), world.plans()) == ([], [])


def test_snapshot_meanwhile_does_not_end_a_plan(world: Crashes) -> None:
    uuid = world.server(**ALWAYS, **{"ha:delay": "60"})
    world.see(uuid, IncidentKind.CRASH)
    world.lifecycle.accept_action(world.context(), uuid, "lock", {})
    world.sweep(100)
    assert world.open_actions() == [("start", "perform")]


def test_server_whose_policy_has_changed_is_not_started(world: Crashes) -> None:
    uuid = world.server(**ALWAYS, **{"ha:delay": "60"})
    world.see(uuid, IncidentKind.CRASH)
    world.db.write(lambda uow: uow.session.execute(sa.update(models.Instance).values(metadata_={})))
    world.sweep(100)
    assert (world.open_actions(), world.plans()) == ([], [])


@pytest.mark.parametrize("vm_state", ["stopped", "paused", "suspended", "rescued", "error"])
def test_server_that_did_not_run_is_not_started_after_a_crash(world: Crashes, vm_state: str) -> None:
    uuid = world.server(**ALWAYS)
    world.db.write(lambda uow: uow.session.execute(sa.update(models.Instance).values(vm_state=vm_state)))
    world.see(uuid, IncidentKind.CRASH)
    world.sweep(100)
    assert (world.open_actions(), world.plans()) == ([], [])


def test_guest_that_shut_itself_down_is_not_started(world: Crashes) -> None:
    uuid = world.server(**ALWAYS)
    world.see(uuid)
    world.sweep(100)
    assert (world.instance(uuid).vm_state, world.open_actions(), world.history(uuid)) == ("stopped", [], [])


def test_guest_that_shut_itself_down_after_its_restart_is_not_started(world: Crashes) -> None:
    uuid = world.server(**ALWAYS)
    world.see(uuid, IncidentKind.CRASH)
    world.sweep()
    world.start()
    world.see(uuid)
    world.sweep(1000)
    assert (world.instance(uuid).vm_state, world.open_actions(), world.plans()) == ("stopped", [], [])


def test_start_that_fails_is_tried_again_until_the_last_attempt(world: Crashes) -> None:
    uuid = world.server(**ALWAYS, **{"ha:attempts": "2"})
    world.see(uuid, IncidentKind.CRASH)
    for _ in range(2):
        world.sweep(11)
        world.start(4, "no memory")
    world.sweep(1000)
    assert (world.instance(uuid).vm_state, world.open_actions(), world.plans()) == ("stopped", [], [])
    assert [entry[2].split(". ")[-1] for entry in world.history(uuid)[1:]] == ["Start 1 of 2.", "Start 2 of 2."]


def test_start_waits_while_the_host_is_down(world: Crashes) -> None:
    uuid = world.server(**ALWAYS)
    world.see(uuid, IncidentKind.CRASH)
    change = sa.update(models.Service).where(models.Service.host == HOST)
    world.db.write(lambda uow: uow.session.execute(change.values(up=False)))
    world.sweep()
    assert world.open_actions() == []
    world.db.write(lambda uow: uow.session.execute(change.values(up=True)))
    world.sweep(11)
    assert world.open_actions() == [("start", "perform")]


def test_crashed_guest_of_a_lost_host_runs_elsewhere_and_is_not_started_twice(world: Crashes) -> None:
    uuid = world.protected(**{"ha:delay": "0"})
    world.see(uuid, IncidentKind.CRASH)
    world.lapse()
    world.evacuator.sweep()
    world.sweep()
    assert [kind for kind, _ in world.open_actions()] == ["evacuate"]
    assert world.rebuilt(uuid) != HOST
    assert world.instance(uuid).vm_state == "active"
    world.sweep(1000)
    assert (world.open_actions(), world.plans()) == ([], [])


def test_crashed_guest_whose_start_has_failed_runs_elsewhere_after_the_loss_of_its_host(world: Crashes) -> None:
    uuid = world.protected()
    world.see(uuid, IncidentKind.CRASH)
    world.sweep()
    world.start(4, "no memory")
    world.lapse()
    world.evacuator.sweep()
    assert [kind for kind, _ in world.open_actions()] == ["evacuate"]


def test_server_that_its_user_has_stopped_after_a_crash_stays_at_its_lost_host(world: Crashes) -> None:
    uuid = world.protected(**{"ha:delay": "60"})
    world.see(uuid, IncidentKind.CRASH)
    world.start_and_stop(uuid)
    world.lapse()
    world.evacuator.sweep()
    assert (world.open_actions(), world.db.read(evacuations.of_host, HOST)) == ([], [])


def test_crash_is_no_command_to_the_host(world: Crashes) -> None:
    uuid = world.server(**ALWAYS)
    world.see(uuid, IncidentKind.CRASH, IncidentKind.WATCHDOG_RESET)
    kinds = (models.InstanceAction.action.in_(("crash", "watchdog")), models.InstanceAction.host.is_not(None))
    assert (
        world.db.read(lambda uow: uow.session.scalars(sa.select(models.InstanceAction.action).where(*kinds)).all())
        == []
    )


@pytest.mark.parametrize(
    ("kind", "power_state", "text"),
    [
        (IncidentKind.WATCHDOG_RESET, RUNNING, "The guest has not fed its watchdog, so it was reset."),
        (IncidentKind.WATCHDOG_PAUSE, PAUSED, "The guest has not fed its watchdog, so it was paused."),
        ("new", RUNNING, "Incident: new."),
    ],
)
def test_other_incident_is_recorded_once(world: Crashes, kind: str, power_state: int, text: str) -> None:
    uuid = world.server(**ALWAYS)
    world.see(uuid, kind, power_state=power_state)
    world.sweep(100)
    assert world.history(uuid) == [("watchdog", WATCHDOG, text)]
    assert world.open_actions() == []


def test_guest_that_its_watchdog_has_switched_off_is_started_again(world: Crashes) -> None:
    uuid = world.server(**ALWAYS)
    world.see(uuid, IncidentKind.WATCHDOG_POWEROFF)
    world.sweep()
    world.start()


def test_protected_guest_that_its_watchdog_has_paused_is_rebooted_later_each_time_until_its_attempts(
    world: Crashes,
) -> None:
    uuid = world.server(**ALWAYS, **{"ha:attempts": "1"})
    paused = {"power_state": PAUSED, "halted": True}
    world.see(uuid, IncidentKind.WATCHDOG_PAUSE, **paused)
    world.sweep()
    assert world.open_actions() == [("reboot", "perform")]
    world.start(kind="reboot")
    assert world.instance(uuid).power_state == RUNNING
    (_, event, text), start = world.history(uuid)
    assert (event, text.partition(". ")[2]) == (
        WATCHDOG,
        "It is started again now, because ha:restart=always of the server is set.",
    )
    assert start == ("reboot", EVENT, "The guest has not fed its watchdog, so it was paused. Start 1 of 1.")
    world.see(uuid, **paused)
    world.sweep(1000)
    assert (world.open_actions(), world.plans()) == ([], [])
    assert world.history(uuid)[-1][2].endswith("So it stays paused until you reboot it.")


def test_paused_guest_that_is_not_protected_or_was_let_run_on_is_not_rebooted(world: Crashes) -> None:
    uuid = world.server()
    world.see(uuid, IncidentKind.WATCHDOG_PAUSE, power_state=PAUSED, halted=True)
    assert world.history(uuid) == [("watchdog", WATCHDOG, "The guest has not fed its watchdog, so it was paused.")]
    other = world.server(**ALWAYS, **{"ha:delay": "60"})
    world.see(other, power_state=PAUSED, halted=True)
    world.see(other, power_state=RUNNING)
    world.sweep(100)
    assert (world.open_actions(), world.plans()) == ([], [])


def test_guest_that_has_run_for_two_hours_since_its_start_is_forgotten(world: Crashes) -> None:
    uuid = world.server(**ALWAYS)
    world.see(uuid, IncidentKind.CRASH)
    world.sweep()
    world.start()
    world.sweep(crashes.STABLE.total_seconds() + 60)
    world.restarter.forget_old()
    assert [row.instance_uuid for row in world.plans()] == [uuid]
    world.sweep(crashes.STABLE.total_seconds())
    world.restarter.forget_old()
    assert world.plans() == []


def test_guest_that_its_host_had_stopped_is_started_once_and_does_not_count_as_crashed(world: Crashes) -> None:
    uuid = world.server(**ALWAYS)
    world.see(uuid, IncidentKind.CRASH, lost_power=True)
    world.sweep()
    assert (world.open_actions(), world.plans()) == ([("start", "perform")], [])


def test_report_of_another_generation_changes_nothing(world: Crashes) -> None:
    uuid = world.server(**ALWAYS)
    row = world.instance(uuid)
    report = DomainReport(uuid=uuid, generation=row.generation + 1, power_state=4, incidents=[Incident(kind="panic")])
    world.reports.reconcile_domains(world.context(admin=True), HOST, [report], [])
    assert (world.instance(uuid).vm_state, world.history(uuid)) == ("active", [])

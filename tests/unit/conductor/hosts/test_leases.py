"""Leases of hosts in the conductor, and the evacuation of their protected servers."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.base import exceptions, metrics
from nova_lite.base.timing import ConductorTiming
from nova_lite.conductor.hosts.evacuation import EVENT
from nova_lite.conductor.hosts.fencing import LONGEST_GAP, HostFencer, LeaseWatch, wait_of
from nova_lite.db.core import models
from nova_lite.db.hosts import evacuations, hosts, leases
from nova_lite.db.servers import action_log, flavors
from nova_lite.objects import ActionReport, DomainReport, Flavor
from nova_lite.operations import states
from tests.support.conductor_world import AtOnce, heartbeat
from tests.support.fencing_world import ALWAYS, HOST, PAST, SECONDS, Fencing
from tests.support.server_moves import evacuate, force_down

ON, OFF = 1, 4


@pytest.fixture
def world(tmp_path: Path) -> Fencing:
    return Fencing(tmp_path)


# --- requests


def test_guest_is_confirmed_when_its_host_names_it(world: Fencing) -> None:
    uuid, _, _ = world.built(metadata=ALWAYS)
    other, _, _ = world.built()
    assert world.renew(other) == [uuid]
    assert world.lease().guests == []
    assert world.renew(uuid, other) == [uuid]
    assert world.lease().guests == [uuid]


def test_guest_whose_policy_has_changed_is_not_confirmed_by_the_reply_that_drops_it(world: Fencing) -> None:
    uuid = world.protected()

    def unprotect(uow: Any) -> None:
        uow.session.scalars(sa.select(models.Instance)).one().metadata_ = {}

    world.db.write(unprotect)
    assert world.renew(uuid) == []
    assert world.lease().guests == []


def test_request_of_an_ended_registration_or_of_another_start_is_refused(world: Fencing) -> None:
    with pytest.raises(exceptions.HostEpochOver):
        world.renew(epoch=7)
    with pytest.raises(exceptions.HostEpochOver):
        world.renew(boot_id="earlier")
    world.renew()
    with pytest.raises(exceptions.HeartbeatIsOld):
        world.renew(number=world.number)


# --- the end of a lease


def test_lease_ends_by_the_conductors_own_clock(world: Fencing) -> None:
    uuid = world.protected()
    world.silence(HOST)
    world.fencer.sweep()
    world.watch(wait_of(SECONDS) - 1)
    assert world.lease().fenced == ""
    world.watch(2)
    assert (world.lease().fenced, world.lease().guests) == (leases.LEASE, [uuid])


def test_wait_covers_two_clocks_that_are_wrong_by_two_percent() -> None:
    assert wait_of(SECONDS) * 0.98 > SECONDS * 1.02


def test_renewed_lease_begins_anew(world: Fencing) -> None:
    uuid = world.protected()
    world.fencer.sweep()
    world.watch(wait_of(SECONDS) - 1)
    world.renew(uuid)
    world.watch(2)
    assert world.lease().fenced == ""


def test_decision_about_a_lease_that_was_renewed_meanwhile_is_void(world: Fencing) -> None:
    uuid = world.protected()
    (seen,) = world.db.read(leases.watched)
    world.renew(uuid)
    assert not world.db.write(leases.expire_lease, seen)
    (seen,) = world.db.read(leases.watched)
    assert world.db.write(leases.expire_lease, seen)


def test_host_of_an_ended_lease_has_to_register_again_and_is_the_same_machine(world: Fencing) -> None:
    report = heartbeat(HOST)
    report.identity = "m1"
    world.db.write(hosts.register_host, world.conf, report)
    uuid = world.protected()
    world.lapse()
    with pytest.raises(exceptions.HostEpochOver):
        world.renew(uuid)
    report.identity = "m2"
    with pytest.raises(exceptions.HostIsAnother):
        world.db.write(hosts.register_host, world.conf, report)
    report.identity = "m1"
    assert world.db.write(hosts.register_host, world.conf, report) == 1


def test_no_lease_ends_while_no_host_is_heard(world: Fencing) -> None:
    world.protected()
    for host in (HOST, "host2"):
        world.silence(host)
    world.lapse()
    assert world.lease().fenced == ""
    world.is_heard("host2")
    world.watch(wait_of(SECONDS) - 1)
    assert world.lease().fenced == ""


def sweep_without_database(world: Fencing, seconds: float) -> None:
    """Let sweeps fail for so many seconds."""

    def refused(*_: object) -> None:
        raise sa.exc.DisconnectionError("refused")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.db, "read", refused)
        for _ in range(int(seconds)):
            world.clock.time += 1
            with pytest.raises(sa.exc.DisconnectionError):
                world.fencer.sweep()


def test_host_is_not_lost_because_the_database_was_away(world: Fencing) -> None:
    uuid = world.protected()
    world.fencer.sweep()
    sweep_without_database(world, 60)
    world.is_heard("host2")
    world.watch(SECONDS / 2)
    assert world.lease().fenced == ""
    world.renew(uuid)
    world.watch(wait_of(SECONDS))
    assert world.lease().fenced == ""


def test_conductor_that_stood_still_gives_hosts_time_for_a_renewal(world: Fencing) -> None:
    world.protected()
    world.fencer.sweep()
    world.clock.time += 3600
    world.watch(SECONDS / 2)
    assert world.lease().fenced == ""


@pytest.mark.parametrize("interval", [6.0, LONGEST_GAP])
def test_lease_ends_on_time_although_each_sweep_is_late(world: Fencing, interval: float) -> None:
    world.protected()
    world.fencer.sweep()
    world.watch(wait_of(SECONDS) - 1, interval)
    assert world.lease().fenced == ""
    world.watch(2)
    assert world.lease().fenced == leases.LEASE


def test_lease_ends_eventually_although_each_sweep_is_very_late(world: Fencing) -> None:
    world.protected()
    world.fencer.sweep()
    world.watch(6 * 120, 120)
    assert world.lease().fenced == leases.LEASE


@pytest.mark.parametrize("how", ["unarmed", "started again", "left"])
def test_host_that_promises_nothing_any_more_is_not_fenced(world: Fencing, how: str) -> None:
    uuid = world.protected()
    if how == "unarmed":
        world.renew(uuid, seconds=0.0)
    elif how == "left":
        world.renew(uuid, seconds=0.0, leaves=True)
    else:
        # An older conductor serves the registration, and knows nothing of leases.
        world.db.write(lambda uow: uow.change(sa.update(models.Service).values(boot_id="next")))
    world.lapse()
    assert world.lease().fenced in ("", leases.LEFT)
    with pytest.raises(exceptions.HostNotForcedDown):
        evacuate(world, uuid, automatic=True)


# --- an outage that an operator has planned


def test_host_that_is_suspended_drops_its_guests_and_is_not_fenced(world: Fencing) -> None:
    uuid = world.protected()
    assert world.db.write(leases.suspend, 60) == SECONDS
    assert world.db.read(leases.still_protecting) == [HOST]
    assert world.renew(uuid) == []  # The host protects the guest until it has this reply, which may be lost.
    assert world.db.read(leases.still_protecting) == [HOST]
    assert world.renew() == []
    assert world.db.read(leases.still_protecting) == []
    world.lapse()
    assert (world.lease().fenced, world.db.read(leases.watched)) == ("", [])
    with pytest.raises(exceptions.HostNotForcedDown):
        evacuate(world, uuid, automatic=True)


@pytest.mark.parametrize("how", ["ended", "passed", "forgotten"])
def test_host_protects_its_guests_again_when_the_suspension_has(how: str, world: Fencing) -> None:
    uuid = world.protected()
    world.db.write(leases.suspend, 60)
    assert (world.renew(uuid), world.renew()) == ([], [])
    if how == "passed":
        past = sa.update(models.HostLease).values(suspended_until=datetime.datetime(2020, 1, 1))
        world.db.write(lambda uow: uow.change(past))
    elif how == "ended":
        world.db.write(leases.suspend, 0)
    else:
        world.db.write(leases.forget, 0)
    assert (world.renew(), world.renew(uuid)) == ([uuid], [uuid])
    assert world.lease().guests == [uuid]


# --- a database that has lost its last commits


def put_back(world: Fencing, uuid: str, **values: Any) -> None:
    """Let the row of host1 be as in a backup that is older than what happened since."""
    row = {"seconds": SECONDS, "guests": [uuid], "fenced": "", "fenced_at": None, "fenced_by": None}
    world.db.write(lambda uow: uow.change(sa.update(models.HostLease).values(**row | values)))


def test_host_whose_release_is_lost_is_not_fenced_once_promises_are_forgotten(world: Fencing) -> None:
    """Its guard has left, and its guests run."""
    uuid = world.protected()
    world.renew(seconds=0.0, leaves=True)
    put_back(world, uuid)
    world.db.write(leases.forget, 0)
    assert world.db.read(leases.watched) == []
    world.lapse()
    world.evacuator.sweep()
    assert (world.lease().fenced, world.instance(uuid).host) == ("", HOST)


def test_host_makes_its_promise_again_after_promises_were_forgotten(world: Fencing) -> None:
    uuid = world.protected()
    world.db.write(leases.forget, 0)
    world.renew(uuid)
    world.lapse()
    world.evacuator.sweep()
    assert world.rebuilt(uuid) == "host2"


@pytest.mark.parametrize("fenced", [leases.LEASE, leases.OFF])
def test_decision_about_a_host_is_forgotten_with_the_promises(world: Fencing, fenced: str) -> None:
    """The host has registered in the lost time, and has started the guest again."""
    uuid = world.protected()
    if fenced == leases.OFF:
        force_down(world, HOST)
    put_back(world, uuid, fenced=fenced, fenced_by="test")
    world.db.write(evacuations.plan_restarts, world.conf)
    assert world.count(models.Restart) == 1
    world.db.write(leases.forget, 0)
    world.evacuator.sweep()
    assert (world.instance(uuid).host, world.count(models.Restart)) == (HOST, 0)
    assert world.db.read(leases.fenced_hosts) == []


def test_evacuation_that_was_to_be_repeated_is_forgotten_with_the_promises(world: Fencing) -> None:
    """The next attempt has succeeded in the lost time."""
    uuid = world.protected()
    world.lapse()
    world.evacuator.sweep()
    world.scheduler.error = exceptions.NoValidHost(reason="full", details="")
    world.lifecycle.build_instances(world.context(), [uuid])
    world.scheduler.error = None
    assert world.instance(uuid).host is None
    world.db.write(leases.forget, 0)
    sweep_when_due(world)
    assert (world.instance(uuid).vm_state, world.open_actions()) == (states.ERROR, [])


def test_start_that_was_to_be_repeated_is_not_forgotten_with_the_promises(world: Fencing) -> None:
    off_on_its_host(world)
    world.db.write(leases.forget, 0)
    sweep_when_due(world)
    assert world.open_actions() == [("start", "perform")]


# --- evacuation


def test_protected_server_of_a_lost_host_runs_again_and_its_action_says_why(world: Fencing) -> None:
    uuid = world.protected()
    world.lapse()
    world.evacuator.sweep()
    assert world.instance(uuid).task_state == states.REBUILDING
    assert world.rebuilt(uuid) == "host2"
    world.evacuator.sweep()
    assert world.count(models.Restart) == 0
    action = world.db.read(action_log.list_, world.context(), uuid)[0]
    details = world.db.read(action_log.get, world.context(), uuid, action.request_id).events
    assert [event.details for event in details if event.event == EVENT] == [
        "Host host1 is lost (self-fencing), and ha:restart=always of the server is set. Attempt 1."
    ]


def test_server_that_was_about_to_start_runs_elsewhere(world: Fencing) -> None:
    uuid = world.protected()
    report = DomainReport(uuid=uuid, generation=1, power_state=4, last_action_id=0, lost_power=True)
    world.reports.reconcile_domains(world.context(admin=True), HOST, [report], [])
    assert world.instance(uuid).task_state == states.POWERING_ON
    world.lapse()
    world.evacuator.sweep()
    assert world.rebuilt(uuid) == "host2"
    assert (world.instance(uuid).vm_state, world.open_actions()) == (states.ACTIVE, [])


def finish_command(world: Fencing, power_state: int, error: str | None = None) -> None:
    """Have host1 carry out the newest command, or fail."""
    world.let_time_pass(3)
    world.reconciler.sweep()
    action = world.compute.commands[-1].action_id
    world.reports.finish_action(
        world.context(), ActionReport(host=HOST, action_id=action, power_state=power_state, error=error)
    )
    assert world.open_actions() == []


def off_on_its_host(world: Fencing) -> str:
    """Return a protected server that its host has stopped, and whose start has failed."""
    uuid = world.protected()
    report = DomainReport(uuid=uuid, generation=1, power_state=OFF, last_action_id=0, lost_power=True)
    world.reports.reconcile_domains(world.context(admin=True), HOST, [report], [])
    finish_command(world, OFF, "it is broken")
    assert world.instance(uuid).vm_state == states.STOPPED
    return uuid


def sweep_when_due(world: Fencing) -> None:
    world.db.write(lambda uow: uow.change(sa.update(models.Restart).values(due_at=PAST)))
    world.evacuator.sweep()


def test_start_of_a_protected_server_that_has_failed_is_repeated_until_it_runs(world: Fencing) -> None:
    uuid = off_on_its_host(world)
    world.evacuator.sweep()
    assert world.open_actions() == []
    sweep_when_due(world)
    assert world.open_actions() == [("start", "perform")]
    finish_command(world, ON)
    world.evacuator.sweep()
    assert (world.instance(uuid).vm_state, world.count(models.Restart)) == (states.ACTIVE, 0)


def test_server_whose_start_has_failed_runs_elsewhere_if_its_host_is_lost(world: Fencing) -> None:
    uuid = off_on_its_host(world)
    world.lapse()
    world.evacuator.sweep()
    assert world.rebuilt(uuid) == "host2"
    assert (world.instance(uuid).vm_state, world.open_actions()) == (states.ACTIVE, [])


def test_server_that_its_owner_has_stopped_since_is_not_started(world: Fencing) -> None:
    uuid = off_on_its_host(world)
    for kind, power_state in (("start", ON), ("stop", OFF)):
        world.lifecycle.accept_action(world.context(), uuid, kind, {})
        finish_command(world, power_state)
    sweep_when_due(world)
    assert (world.open_actions(), world.count(models.Restart)) == ([], 0)


def test_unconfirmed_and_unprotected_servers_stay(world: Fencing) -> None:
    world.protected()
    late, _, _ = world.built(metadata=ALWAYS)
    plain, _, _ = world.built()
    world.lapse()
    world.evacuator.sweep()
    assert (world.instance(late).host, world.instance(plain).host) == (HOST, HOST)
    for uuid in (late, plain):
        with pytest.raises(exceptions.HostNotForcedDown):
            evacuate(world, uuid)
        with pytest.raises(exceptions.HostNotForcedDown):
            evacuate(world, uuid, automatic=True)


def test_server_with_a_local_disk_waits_for_its_host(world: Fencing) -> None:
    uuid = world.protected(**{"ha:local-disk": "keep"})
    world.lapse()
    world.evacuator.sweep()
    assert world.instance(uuid).host == HOST
    (row,) = world.db.read(evacuations.of_host, HOST)
    assert "ha:local-disk=rebuild" in row.cause
    world.come_back()
    world.evacuator.sweep()
    assert world.count(models.Restart) == 0


def test_server_with_a_tpm_waits_for_its_host(world: Fencing) -> None:
    """Its policy accepts a new disk, but nothing gives it the state of its TPM."""
    flavor = Flavor(flavorid="tpm", name="tpm", vcpus=1, memory_mb=64, root_gb=1, extra_specs={"hw:tpm_version": "2.0"})
    world.db.write(flavors.create, flavor)
    uuid, _, _ = world.built(flavor_id="tpm", metadata=ALWAYS)
    world.renew()
    world.renew(uuid)
    world.lapse()
    for _ in range(2):
        world.evacuator.sweep()
        assert (world.instance(uuid).host, world.open_actions()) == (HOST, [])
    (row,) = world.db.read(evacuations.of_host, HOST)
    assert "The server has a TPM, whose state no other host has" in row.cause


def test_servers_come_back_by_priority_and_after_their_delay(world: Fencing) -> None:
    uuids = [
        world.built(metadata=ALWAYS | extra)[0]
        for extra in ({"ha:priority": "1"}, {"ha:priority": "9"}, {"ha:delay": "60"})
    ]
    world.renew()
    world.renew(*uuids)
    world.lapse()
    world.db.write(evacuations.plan_restarts, world.conf)
    assert world.db.read(evacuations.due, 9) == [uuids[1], uuids[0]]


def test_attempts_are_bounded(world: Fencing) -> None:
    uuid = world.protected(**{"ha:attempts": "2"})
    world.lapse()
    for attempt in (1, 2):
        world.evacuator.sweep()
        world.scheduler.error = exceptions.NoValidHost(reason="full", details="")
        world.lifecycle.build_instances(world.context(), [uuid])
        assert (world.instance(uuid).vm_state, world.instance(uuid).host) == (states.ERROR, None), attempt
        world.db.write(lambda uow: uow.change(sa.update(models.Restart).values(due_at=PAST)))
    world.evacuator.sweep()
    assert world.count(models.Restart) == 0
    assert world.open_actions() == []


def test_host_that_is_back_before_its_servers_left_keeps_them(world: Fencing) -> None:
    uuid = world.protected()
    world.lapse()
    assert world.come_back() == 1
    world.evacuator.sweep()
    assert world.instance(uuid).host == HOST
    with pytest.raises(exceptions.HostNotForcedDown):
        evacuate(world, uuid, automatic=True)


def test_server_that_is_busy_is_put_off(world: Fencing) -> None:
    uuid = world.protected()
    world.lapse()
    world.lifecycle.accept_action(world.context(), uuid, "pause", {})
    world.evacuator.sweep()
    assert world.instance(uuid).host == HOST
    (row,) = world.db.read(evacuations.of_host, HOST)
    assert row.attempts == 0


def test_another_conductor_begins_no_evacuation(world: Fencing) -> None:
    uuid = world.protected()
    world.lapse()
    world.db.write(
        lambda uow: uow.change(
            sa.update(models.Service).where(models.Service.host == world.conf.host).values(host="c1")
        )
    )
    world.evacuator.sweep()
    assert world.instance(uuid).host == HOST


# --- power


def test_host_that_is_off_is_forced_down_and_its_protected_servers_leave(world: Fencing) -> None:
    uuid, _, _ = world.built(metadata=ALWAYS)
    world.silence(HOST)
    (lost,) = world.db.read(leases.lost, world.conf)
    assert world.db.write(leases.record_off, HOST, lost.boot_id, "1. ipmi")
    with pytest.raises(exceptions.HostForcedDown):
        world.come_back()
    world.evacuator.sweep()
    assert world.rebuilt(uuid) == "host2"


def test_host_that_registers_after_it_was_off_is_not_lost(world: Fencing) -> None:
    world.built(metadata=ALWAYS)
    world.silence(HOST)
    (lost,) = world.db.read(leases.lost, world.conf)
    report = heartbeat(HOST)
    report.boot_id = "next"
    world.db.write(hosts.register_host, world.conf, report)
    assert not world.db.write(leases.record_off, HOST, lost.boot_id, "1. ipmi")
    assert world.db.read(hosts.exists, HOST)


@pytest.mark.parametrize("how", ["unprotected", "disabled", "forced down", "left", "heard"])
def test_host_in_an_operators_hands_or_without_protected_servers_is_not_switched_off(world: Fencing, how: str) -> None:
    world.built(metadata={} if how == "unprotected" else ALWAYS)
    if how == "left":
        world.renew(seconds=0.0, leaves=True)
    if how != "heard":
        world.silence(HOST)
    if how == "disabled":
        world.db.write(lambda uow: uow.change(sa.update(models.Service).values(disabled=True)))
    if how == "forced down":
        force_down(world, HOST)
    assert world.db.read(leases.lost, world.conf) == []


class Kept(futures.Executor):
    """Keeps tasks until `run`."""

    def __init__(self) -> None:
        self.tasks: list[Callable[[], None]] = []

    def submit(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.tasks.append(functools.partial(func, *args, **kwargs))

    def run(self) -> None:
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task()


class Card:
    """A fence agent of host1. Its file is there when the host is off."""

    def __init__(self, world: Fencing, path: Path, pool: futures.Executor) -> None:
        script, file, self.off = path / "fence", path / "fencing.yaml", path / "off"
        script.write_text(f"#!/bin/sh\n[ $1 = off ] && touch {self.off}\ntest -e {self.off} && echo off || echo on\n")
        script.chmod(0o700)
        file.write_text(f"{HOST}: [{{agent: script, program: {script}, target: {HOST}}}]\n")
        file.chmod(0o600)
        world.conf.set_override("fencing_file", str(file), "conductor")
        timing = ConductorTiming(fence_poll=0.01, fence_test_interval=float("inf"))
        world.fencer = HostFencer(world.db, world.conf, timing, LeaseWatch(world.clock))
        world.fencer._executor.pool = AtOnce()
        world.watch(world.conf.service_down_time)
        assert not self.off.exists()
        world.fencer._executor.pool = pool


def test_silent_host_is_switched_off_by_its_method_and_its_servers_run_elsewhere(
    world: Fencing, tmp_path: Path
) -> None:
    Card(world, tmp_path, AtOnce())
    uuid, _, _ = world.built(metadata=ALWAYS)
    world.silence(HOST)
    world.fencer.sweep()
    assert world.lease().fenced_by == "1. script"
    world.evacuator.sweep()
    assert world.rebuilt(uuid) == "host2"


def silent_host(world: Fencing, path: Path) -> tuple[Card, Kept]:
    """Return the card of a silent host with a protected server, and the pool in which its switch-off waits."""
    pool = Kept()
    card = Card(world, path, pool)
    world.built(metadata=ALWAYS)
    world.silence(HOST)
    world.fencer.sweep()
    assert pool.tasks
    return card, pool


def test_host_that_has_reported_before_its_turn_is_not_switched_off(world: Fencing, tmp_path: Path) -> None:
    card, pool = silent_host(world, tmp_path)
    world.is_heard(HOST)
    pool.run()
    assert not card.off.exists()
    world.silence(HOST)
    world.fencer.sweep()
    pool.run()
    assert card.off.exists()


def test_host_is_not_switched_off_at_its_turn_if_no_host_reports(world: Fencing, tmp_path: Path) -> None:
    card, pool = silent_host(world, tmp_path)
    world.silence("host2")
    pool.run()
    assert not card.off.exists()


@pytest.mark.parametrize(
    ("interval", "down_time", "lost", "other"),
    [(10, 30, 30.1, 20.3), (10, 30, 30.1, 10.3), (10, 20, 20.1, 10.3), (1, 2, 2.1, 1.1), (60, 180, 180.1, 60.3)],
)
def test_host_whose_reports_a_broken_broker_keeps_back_is_not_switched_off(
    world: Fencing, tmp_path: Path, interval: int, down_time: int, lost: float, other: float
) -> None:
    world.conf.set_override("report_interval", interval)
    world.conf.set_override("service_down_time", down_time)
    pool = Kept()
    Card(world, tmp_path, pool)
    world.built(metadata=ALWAYS)
    world.silence(HOST, lost)
    world.silence("host2", other, up=True)
    world.fencer.sweep()
    assert pool.tasks == []
    world.is_heard("host2")
    world.fencer.sweep()
    assert pool.tasks


def test_host_is_not_switched_off_because_another_one_is_heard_first_after_an_outage(
    world: Fencing, tmp_path: Path
) -> None:
    pool = Kept()
    Card(world, tmp_path, pool)
    world.built(metadata=ALWAYS)
    for host in (HOST, "host2"):
        world.silence(host)
    world.watch(60)
    world.is_heard("host2")
    world.watch(world.conf.service_down_time - 1)
    assert pool.tasks == []
    world.watch(2)
    assert pool.tasks


def test_hosts_whose_protected_servers_would_not_come_back_are_counted(world: Fencing) -> None:
    world.built(metadata=ALWAYS)
    world.fencer._executor.pool = AtOnce()
    world.fencer.sweep()
    assert list(world.fencer.samples()) == [metrics.sample(metrics.HOST_UNFENCED, 1, HOST)]
    world.renew()
    world.fencer._next_test = 0.0
    world.fencer.sweep()
    assert list(world.fencer.samples()) == []


def test_fencing_while_the_database_is_away_has_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def refused() -> None:
        raise sa.exc.DisconnectionError("refused")

    HostFencer._guarded(refused)
    (record,) = [record for record in caplog.records if record.name.endswith("hosts.fencing")]
    assert record.getMessage().startswith("Fencing failed, and is tried again: ")
    assert record.exc_info is None

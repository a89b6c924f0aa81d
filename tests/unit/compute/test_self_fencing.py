"""A host that fences itself: its leases, its guard, and guests that start again. The guard is a real process."""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from nova_lite.base import exceptions, files
from nova_lite.compute import guard, self_fencing
from nova_lite.compute.lease_ways import LeaseWay
from nova_lite.compute.self_fencing import SelfFencing
from nova_lite.objects import DomainVerdict, Lease, LeaseRequest, Verdict
from tests.support.compute_host import DEADLINE, UUID, FakeConductor, Host, command
from tests.support.waiting import wait_for

LEASE = 50.0
RUNNING, SHUTDOWN = 1, 4


class Leasing(FakeConductor):
    """A conductor that grants leases. ``wanted``: the protected guests. ``lost``: its replies are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: list[str] = []
        self.lost = False

    def renew_lease(self, context: Any, request: LeaseRequest, timeout: float | None = None) -> Lease:
        self._called("renew_lease", request)
        if self.lost:
            raise exceptions.MessagingUnavailable(what="renew_lease")
        return Lease(seconds=request.seconds, guests=self.wanted)


class Clock:
    """The clock of leases, ahead by ``shift`` seconds in the daemon, while the guard's stays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shift, real = 0.0, guard.now
        monkeypatch.setattr(guard, "now", lambda: real() + self.shift)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def conductor() -> Leasing:
    return Leasing()


@pytest.fixture
def host(tmp_path: Path, conductor: Leasing, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[Host]:
    # The guard of a test may not kill the tests.
    monkeypatch.setattr(guard, "start_of", lambda pid: 0)
    monkeypatch.setattr(os, "getpid", lambda: 0)
    host = Host(tmp_path, conductor, self_fencing=True, self_fencing_lease=int(LEASE))
    yield host
    conductor.down = conductor.lost = False
    fencing(host).release()
    process = fencing(host)._guard._process
    if process is not None:
        process.wait(20)


def fencing(host: Host) -> SelfFencing:
    return host.manager.self_fencing


def requests(conductor: Leasing) -> list[tuple[float, list[str]]]:
    return [(request.seconds, request.guests) for request in conductor.of("renew_lease")]


def look(host: Host) -> dict[str, Any]:
    return fencing(host)._guard.call(verb="look")


def test_guest_is_confirmed_after_the_guard_knows_it(host: Host, conductor: Leasing) -> None:
    conductor.wanted = [UUID]
    fencing(host).renew()
    assert look(host)["guests"] == [UUID]
    fencing(host).renew()
    assert requests(conductor) == [(LEASE, []), (LEASE, [UUID])]


def test_lease_counts_from_its_request_and_not_from_its_reply(host: Host, conductor: Leasing, clock: Clock) -> None:
    """The first request waits until the guard has started, so the second one is measured."""

    def slow(_request: Any) -> None:
        clock.shift += 40

    fencing(host).renew()
    conductor.hooks["renew_lease"] = slow
    started = guard.now()
    fencing(host).renew()
    ends_at = fencing(host)._ends_at
    assert started + LEASE <= ends_at < started + LEASE + 20
    assert look(host)["ends_at"] == ends_at - self_fencing.GUARD_MARGIN


def protected(host: Host, conductor: Leasing) -> None:
    conductor.wanted = [UUID]
    host.built()
    fencing(host).renew()


def stopped(host: Host, conductor: Leasing, clock: Clock) -> None:
    """Let the lease of a host with a protected guest end."""
    protected(host, conductor)
    clock.shift = LEASE
    fencing(host).tick()


def test_guests_stop_before_the_lease_ends_and_start_again_after_it_is_renewed(
    host: Host, conductor: Leasing, clock: Clock
) -> None:
    protected(host, conductor)
    conductor.down = True
    clock.shift = LEASE - self_fencing.STOP_MARGIN - 2
    fencing(host).tick()
    assert host.power() == RUNNING
    clock.shift += 2
    fencing(host).tick()
    assert host.power() == SHUTDOWN
    host.crash()
    conductor.down = False
    host.manager.reconciler.run()
    assert conductor.of("reconcile_domains")[-1][0] == [], "the conductor does not take them for stopped"
    fencing(host).renew()
    host.manager.reconciler.tick()
    (reports, _) = conductor.of("reconcile_domains")[-1]
    assert [(report.uuid, report.lost_power, report.incidents) for report in reports] == [(UUID, True, [])]
    assert look(host)["stopped"] == [UUID], "the command to start it may be lost"
    host.driver.power.on(UUID)
    host.manager.reconciler.run()
    assert look(host)["stopped"] == []


def withdrawn(host: Host, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the guests whose floating addresses the host gives up, at each time."""
    found: list[list[str]] = []
    monkeypatch.setattr(host.driver.filters, "withdraw_addresses", lambda uuids: found.append(sorted(uuids)))
    return found


def test_host_gives_up_floating_addresses_of_guests_that_it_stops(
    host: Host, conductor: Leasing, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up = withdrawn(host, monkeypatch)
    protected(host, conductor)
    fencing(host).tick()
    assert given_up == []
    clock.shift = LEASE
    fencing(host).tick()
    assert given_up == [[UUID]]
    again = host.next_life()
    given_up = withdrawn(again, monkeypatch)
    fencing(again).renew()
    assert given_up == [[UUID]], "the guard may have stopped them, and the daemon with them"
    fencing(host)._guard, fencing(host)._is_promised = fencing(again)._guard, True


def test_floating_addresses_of_protected_guests_are_kept_as_long_as_the_guard_lets_them_run(
    host: Host, conductor: Leasing, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[tuple[list[str], int | None]] = []
    monkeypatch.setattr(
        host.driver.filters, "keep_addresses", lambda uuids, seconds: kept.append((sorted(uuids), seconds))
    )
    protected(host, conductor)
    ((uuids, seconds),) = kept
    assert uuids == [UUID] and seconds is not None and 0 <= seconds <= LEASE - self_fencing.GUARD_MARGIN
    conductor.wanted = []
    fencing(host).renew()
    assert kept[1:] == [([UUID], None)], "it is not protected any more"
    conductor.wanted = [UUID]
    fencing(host).renew()
    fencing(host).release()
    assert kept[-1] == ([UUID], None), "its guests continue without the daemon"


def test_floating_address_that_cannot_be_given_up_is_logged(
    host: Host,
    conductor: Leasing,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(_: object) -> None:
        raise exceptions.VirtDriverError(reason="no such device")

    monkeypatch.setattr(host.driver.filters, "withdraw_addresses", refuse)
    stopped(host, conductor, clock)
    assert host.power() == SHUTDOWN
    assert "floating addresses of stopped guests" in caplog.text and "no such device" in caplog.text


def test_command_for_a_protected_guest_is_dropped_when_the_lease_has_ended(
    host: Host, conductor: Leasing, clock: Clock
) -> None:
    stopped(host, conductor, clock)
    host.manager.registration._confirmed += LEASE
    host.act(command("start"))
    host.settle()
    assert host.power() == SHUTDOWN
    fencing(host).renew()
    host.manager.reconciler.run()
    host.act(command("start"))
    host.settle()
    assert host.power() == RUNNING


def test_late_command_for_a_stopped_guest_is_dropped_until_the_conductor_has_decided_on_the_guest(
    host: Host, conductor: Leasing, clock: Clock
) -> None:
    """The command waited in the broker while the host was cut off. The guest runs elsewhere since."""
    stopped(host, conductor, clock)
    again = host.next_life()
    conductor.wanted = []
    again.manager.clean_up()
    fencing(again).renew()
    again.act(command("reboot"))
    again.settle()
    assert again.power() == SHUTDOWN
    conductor.verdicts = [DomainVerdict(uuid=UUID, generation=1, verdict=Verdict.DESTROY)]
    again.manager.reconciler.tick()
    assert again.driver.guests.all() == []
    fencing(host)._guard, fencing(host)._is_promised = fencing(again)._guard, True


def test_host_that_registers_again_compares_its_stopped_guests_again(
    host: Host, conductor: Leasing, clock: Clock
) -> None:
    stopped(host, conductor, clock)
    fencing(host).renew()
    host.manager.reconciler.run()
    fencing(host).require_lease(UUID)
    fencing(host)._may_start = False
    host.manager.clean_up()
    with pytest.raises(exceptions.ServiceUnavailable, match="does not know who runs it"):
        fencing(host).require_lease(UUID)


def test_failed_command_for_a_guest_that_has_to_run_again_does_not_report_that_it_is_off(
    host: Host, conductor: Leasing, clock: Clock
) -> None:
    """The conductor would think that the guest has shut itself down, and not start it again."""
    stopped(host, conductor, clock)
    host.manager.registration._confirmed += LEASE
    fencing(host).renew()
    host.manager.reconciler.run()
    host.manager.commands["check_can_live_migrate_source"](host.context, command("live-migration"))
    host.settle()
    ((_, power_state, error),) = conductor.of("finish_action")
    assert "the guest does not run" in error
    assert power_state is None


def test_comparison_that_another_stop_has_overtaken_decides_nothing(
    host: Host, conductor: Leasing, clock: Clock
) -> None:
    stopped(host, conductor, clock)
    fencing(host).renew()

    def lose(_request: Any) -> None:
        clock.shift += LEASE
        fencing(host).tick()

    host.driver.power.on(UUID)
    conductor.hooks["reconcile_domains"] = lose
    host.manager.reconciler.run()
    conductor.hooks.clear()
    fencing(host).renew()
    with pytest.raises(exceptions.ServiceUnavailable, match="does not know who runs it"):
        fencing(host).require_lease(UUID)
    host.manager.reconciler.run()
    fencing(host).require_lease(UUID)


def test_host_starts_although_the_list_of_its_stopped_guests_is_damaged(tmp_path: Path, conductor: Leasing) -> None:
    """A power cut has damaged it."""
    host = Host(tmp_path, conductor, self_fencing=True)
    directory = Path(files.private_directory(fencing(host)._guard.directory))
    (directory / guard.STOPPED).write_bytes(b"")
    assert fencing(host).stopped() == frozenset()
    host.manager.clean_up()


def test_guests_are_left_to_the_guard_while_a_command_is_in_progress(
    host: Host, conductor: Leasing, clock: Clock
) -> None:
    protected(host, conductor)
    clock.shift = LEASE
    host.manager.jobs._busy[UUID] += 1
    fencing(host).tick()
    assert host.power() == RUNNING
    del host.manager.jobs._busy[UUID]
    fencing(host).tick()
    assert host.power() == SHUTDOWN


def test_guard_ends_guests_of_a_daemon_that_hangs(host: Host, conductor: Leasing) -> None:
    protected(host, conductor)
    fencing(host)._guard.hold(guard.now() - 1, [UUID])
    wait_for("the end of the guest", lambda: host.power() == SHUTDOWN, DEADLINE)


def test_unprotected_guests_go_on(host: Host, conductor: Leasing, clock: Clock) -> None:
    host.built()
    fencing(host).renew()
    clock.shift = LEASE
    fencing(host).tick()
    assert host.power() == RUNNING


def test_daemon_that_stops_takes_its_promise_back_and_guests_go_on(host: Host, conductor: Leasing) -> None:
    protected(host, conductor)
    host.manager.stop()
    assert requests(conductor)[-1] == (0.0, [])
    assert conductor.of("renew_lease")[-1].leaves
    wait_for(
        "the end of the guard", lambda: not os.path.exists(f"{fencing(host)._guard.directory}/{guard.SOCKET}"), DEADLINE
    )
    assert host.power() == RUNNING


def test_promise_holds_if_it_cannot_be_taken_back(
    host: Host, conductor: Leasing, caplog: pytest.LogCaptureFixture
) -> None:
    protected(host, conductor)
    conductor.lost = True
    with caplog.at_level(logging.WARNING):
        host.manager.stop()
    assert "Protected guests stop when the lease ends" in caplog.text
    assert look(host)["guests"] == [UUID]


def test_next_daemon_continues_the_promise_of_one_that_was_killed(host: Host, conductor: Leasing) -> None:
    protected(host, conductor)
    ends_at = look(host)["ends_at"]
    conductor.lost = True
    again = host.next_life()
    with pytest.raises(exceptions.ServiceUnavailable):
        fencing(again).renew()
    assert requests(conductor)[-1] == (LEASE, [UUID])
    assert look(host)["ends_at"] <= ends_at
    conductor.lost = False
    fencing(again).renew()
    assert look(host)["ends_at"] > ends_at
    fencing(host)._guard, fencing(host)._is_promised = fencing(again)._guard, True


def test_dead_guard_is_started_again_with_what_was_promised(host: Host, conductor: Leasing) -> None:
    protected(host, conductor)
    process = fencing(host)._guard._process
    assert process is not None
    process.send_signal(signal.SIGKILL)
    process.wait(20)
    fencing(host).renew()
    assert look(host)["guests"] == [UUID]
    assert requests(conductor)[-1] == (LEASE, [UUID])


def test_guests_stop_although_the_guard_is_dead_and_cannot_start(
    host: Host, conductor: Leasing, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    protected(host, conductor)
    process = fencing(host)._guard._process
    assert process is not None
    process.kill()
    process.wait(20)
    with monkeypatch.context() as patch:
        patch.setattr(fencing(host)._guard, "_start", lambda: None)
        clock.shift = LEASE
        fencing(host).tick()
    assert host.power() == SHUTDOWN
    assert fencing(host).stopped() == {UUID}


def test_guard_is_a_unit_of_its_own_under_systemd(
    host: Host, conductor: Leasing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, log = tmp_path / "systemd-run", tmp_path / "log"
    program.write_text(f'#!/bin/sh\necho "$@" > {log}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("INVOCATION_ID", "1")
    monkeypatch.setattr(os.path, "isdir", lambda path: path == "/run/systemd/system")
    fencing(host)._guard._start()
    words = log.read_text().split()
    assert words[words.index("-m") : words.index("-m") + 3] == [
        "-m",
        "nova_lite.compute.guard",
        fencing(host)._guard.directory,
    ]
    assert fencing(host)._guard._process is None


def test_host_promises_nothing_if_systemd_does_not_start_its_guard(
    host: Host, conductor: Leasing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "systemd-run"
    program.write_text("#!/bin/sh\necho Access denied >&2; exit 1\n")
    program.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        patch.setenv("INVOCATION_ID", "1")
        patch.setattr(os.path, "isdir", lambda path: path == "/run/systemd/system")
        fencing(host).renew()
    assert conductor.of("renew_lease") == []
    assert "This host does not fence itself: systemd does not start the guard: Access denied" in caplog.text


def test_host_without_the_option_sends_no_request_and_starts_no_guard(tmp_path: Path, conductor: Leasing) -> None:
    host = Host(tmp_path, conductor)
    fencing(host).renew()
    fencing(host).tick()
    host.manager.stop()
    assert conductor.of("renew_lease") == []
    assert not (tmp_path / "guard").exists()


# --- a host that does not fence itself any more


def switched_off(host: Host, **timing: float) -> Host:
    """Return the next run of the daemon, without the option. The guard of the last one may be there."""
    again = Host(host.path, host.conductor, host.name, dataclasses.replace(host.timing, **timing))
    fencing(host)._is_promised = False
    return again


def test_guard_of_an_earlier_daemon_is_let_go_when_the_option_is_switched_off(
    host: Host, conductor: Leasing, caplog: pytest.LogCaptureFixture
) -> None:
    """The daemon was killed, or the broker was away when it stopped."""
    protected(host, conductor)
    fencing(host)._guard.hold(guard.now() - 1, [UUID])
    wait_for("the end of the guest", lambda: host.power() == SHUTDOWN, DEADLINE)
    registered = len(conductor.of("register_host"))
    again = switched_off(host)
    assert len(conductor.of("register_host")) == registered + 1
    assert "the guard of an earlier daemon ends" in caplog.text
    process = fencing(host)._guard._process
    assert process is not None
    assert process.wait(20) == 0
    again.manager.clean_up()
    (reports, _) = conductor.of("reconcile_domains")[-1]
    assert [(report.uuid, report.lost_power) for report in reports] == [(UUID, True)]
    again.act(command("start"))
    again.settle()
    again.manager.reconciler.run()
    assert (again.power(), fencing(again).stopped()) == (RUNNING, frozenset())
    assert guard.read_stopped(fencing(again)._guard.directory) == []


def test_guard_is_not_let_go_before_the_host_is_registered(host: Host, conductor: Leasing) -> None:
    """The conductor counts on the promise before."""
    protected(host, conductor)
    conductor.errors["register_host"] = [exceptions.HostForcedDown(host="here")]
    with pytest.raises(exceptions.HostForcedDown):
        switched_off(host)
    fencing(host)._is_promised = True
    assert look(host)["guests"] == [UUID]


def test_guests_that_were_stopped_before_a_reboot_start_again_without_the_option(
    host: Host, conductor: Leasing
) -> None:
    """The guard has ended with the machine, and only its list is left."""
    protected(host, conductor)
    fencing(host)._guard.stop([UUID])
    fencing(host)._guard.leave()
    again = switched_off(host)
    again.manager.clean_up()
    (reports, _) = conductor.of("reconcile_domains")[-1]
    assert [(report.uuid, report.lost_power) for report in reports] == [(UUID, True)]
    with pytest.raises(exceptions.ServiceUnavailable, match="does not know who runs it"):
        fencing(again).forget_comparisons()
        fencing(again).require_lease(UUID)
    again.manager.reconciler.run()
    fencing(again).require_lease(UUID)


def test_host_whose_guard_does_not_reply_is_not_ready_without_the_option(host: Host, conductor: Leasing) -> None:
    protected(host, conductor)
    process = fencing(host)._guard._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(exceptions.ServiceUnavailable, match="does not reply"):
        switched_off(host, guard_reply_timeout=0.05)
    process.send_signal(signal.SIGCONT)
    switched_off(host)
    assert process.wait(20) == 0


# --- requests by several connections


def nested(host: Host, conductor: Leasing, then: Callable[[], None] = lambda: None) -> None:
    """Let the next request wait for its reply until a later one has got its own. ``then`` comes after that."""

    def overtaken(_request: Any) -> None:
        del conductor.hooks["renew_lease"]
        fencing(host).renew()
        then()

    conductor.hooks["renew_lease"] = overtaken


def test_reply_that_comes_after_a_later_one_changes_nothing(host: Host, conductor: Leasing, clock: Clock) -> None:
    protected(host, conductor)

    def unprotect() -> None:
        clock.shift += 5
        conductor.wanted = []

    nested(host, conductor, unprotect)
    fencing(host).renew()
    assert look(host)["guests"] == [UUID]
    assert fencing(host).remaining < LEASE - self_fencing.STOP_MARGIN - 4, "it counts from the later request"


def test_guest_that_a_later_request_names_stays_with_the_guard(host: Host, conductor: Leasing) -> None:
    """The conductor may count on that request, whose reply is lost."""
    protected(host, conductor)

    def lose_the_reply(_request: Any) -> None:
        del conductor.hooks["renew_lease"]
        conductor.errors["renew_lease"] = [exceptions.ServiceUnavailable("lost")]
        with pytest.raises(exceptions.ServiceUnavailable):
            fencing(host).renew()
        conductor.wanted = []

    conductor.hooks["renew_lease"] = lose_the_reply
    fencing(host).renew()
    assert look(host)["guests"] == [UUID]
    fencing(host).renew()
    assert look(host)["guests"] == [], "the next reply is one of a request that no later one follows"


def test_refusal_of_an_overtaken_request_is_no_error(host: Host, conductor: Leasing) -> None:
    old = exceptions.HeartbeatIsOld(host="here")
    nested(host, conductor, lambda: conductor.errors.update(renew_lease=[old]))
    fencing(host).renew()
    conductor.errors["renew_lease"] = [old]
    with pytest.raises(exceptions.HeartbeatIsOld):
        fencing(host).renew()


def test_daemon_that_leaves_requests_no_further_lease(host: Host, conductor: Leasing) -> None:
    protected(host, conductor)
    fencing(host).release()
    fencing(host).renew()
    assert requests(conductor)[-1] == (0.0, [])


def test_requests_without_replies_are_remembered_together(host: Host, conductor: Leasing) -> None:
    protected(host, conductor)
    count = self_fencing.MAX_OPEN + 5
    conductor.errors["renew_lease"] = [exceptions.ServiceUnavailable("lost") for _ in range(count)]
    for _ in range(count):
        with pytest.raises(exceptions.ServiceUnavailable):
            fencing(host).renew()
    named = fencing(host)._named
    assert len(named) == self_fencing.MAX_OPEN
    assert set().union(*named.values()) == {UUID}


def test_further_way_requests_a_lease_when_one_is_overdue_and_else_once_a_minute(
    host: Host, conductor: Leasing, clock: Clock
) -> None:
    now = [0.0]
    way = LeaseWay(fencing(host), cast(Any, conductor), clock=lambda: now[0])

    def sent(seconds: float) -> int:
        now[0] += seconds
        clock.shift += seconds
        before = len(requests(conductor))
        way.tick()
        return len(requests(conductor)) - before

    assert sent(0) == 1, "there is no lease yet"
    assert [sent(3), sent(3)] == [0, 0]
    assert sent(LEASE / 2) == 1, "it is overdue"
    assert [sent(4) for _ in range(3)] == [0, 0, 1]
    for _ in range(11):
        fencing(host).renew()
        assert sent(5) == 0
    fencing(host).renew()
    assert sent(5) == 1, "it was not used for a minute"

"""Comparison of the hypervisor's domains with the conductor's verdicts."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.base.timing import ComputeTiming
from nova_lite.objects import (
    DiskPlace,
    DomainReport,
    DomainVerdict,
    ExpectedDomain,
    IncidentKind,
    LeftDisks,
    StorageView,
    Verdict,
    digest_of_domains,
)
from nova_lite.operations.states import PowerState
from tests.support.compute_host import HOST, LATER, UUID, VIFS, Gate, HookedDriver, Host, command, make_instance

RECONCILE = "reconcile_domains"
OTHER = "22222222-2222-4222-8222-222222222222"


def verdict(kind: Verdict, generation: int = 1, uuid: str = UUID) -> DomainVerdict:
    return DomainVerdict(uuid=uuid, generation=generation, verdict=kind)


def test_domains_and_their_power_states_are_reported(host: Host) -> None:
    host.built()
    host.driver.power.off(UUID, 0)
    host.manager.reconciler.run()
    report = DomainReport(uuid=UUID, generation=1, power_state=PowerState.SHUTDOWN, last_action_id=0, last_position=0)
    assert host.conductor.of("reconcile_domains") == [([report], [])]
    assert host.domains() == {UUID: 1}, "without a verdict nothing is done"


def test_comparisons_and_heartbeats_share_one_sequence_of_numbers(host: Host) -> None:
    host.manager.registration.register()
    host.manager.reconciler.run()
    host.manager.registration.send_heartbeat()
    host.manager.reconciler.run()
    (first,), (beat,) = host.conductor.of("register_host")[-1:], host.conductor.of("report_state")[-1:]
    numbers = [item.number for item in host.conductor.comparisons[-2:] if item is not None]
    assert first.number < numbers[0] < beat.number < numbers[1]
    assert {item and item.boot_id for item in host.conductor.comparisons} == {beat.boot_id}


def test_verdict_keep_changes_nothing(host: Host) -> None:
    host.built()
    host.driver.power.off(UUID, 0)
    host.conductor.verdicts = [verdict(Verdict.KEEP)]
    host.manager.reconciler.run()
    assert host.power() == PowerState.SHUTDOWN


def test_verdict_destroy_revokes_and_leaves_nothing(host: Host) -> None:
    host.built()
    host.conductor.verdicts = [verdict(Verdict.DESTROY)]
    host.manager.reconciler.run()
    assert host.traces() == []
    assert host.record().revoked_generation == 1


def test_verdict_on_an_unreported_instance_is_ignored(host: Host) -> None:
    host.built()
    host.conductor.verdicts = [verdict(Verdict.DESTROY, generation=2), verdict(Verdict.DESTROY, uuid=OTHER)]
    host.manager.reconciler.run()
    assert host.domains() == {UUID: 1}


def during_the_call(host: Host, change: Callable[[], None]) -> None:
    """Call ``change`` between the listing of the domains and the conductor's reply."""

    def hook(_: Any) -> None:
        del host.conductor.hooks["reconcile_domains"]
        change()

    host.conductor.hooks["reconcile_domains"] = hook
    host.manager.reconciler.run()


def test_verdict_on_an_older_generation_is_ignored(host: Host) -> None:
    host.built()
    host.conductor.verdicts = [verdict(Verdict.DESTROY)]

    def rebuild_without_a_job() -> None:
        host.driver.guests.destroy(UUID)
        path = host.path / "instances" / "fake-host-a" / "domains" / f"{UUID}.json"
        (path.parent.parent / "disks" / UUID).mkdir()
        path.write_text(f'{{"uuid": "{UUID}", "generation": 2, "power_state": 1, "hostname": "one"}}')

    during_the_call(host, rebuild_without_a_job)
    assert host.domains() == {UUID: 2}


def test_verdict_is_ignored_after_a_job_on_the_instance(host: Host) -> None:
    """A user stopped it after the listing, so the reply may be outdated."""
    host.built()
    host.conductor.verdicts = [verdict(Verdict.DESTROY)]

    def stop() -> None:
        host.act(command("stop"))
        host.settle()

    during_the_call(host, stop)
    assert host.power() == PowerState.SHUTDOWN
    host.manager.reconciler.run()
    assert host.traces() == [], "the next reconciliation lists again"


def test_instances_with_a_job_are_not_reported_or_changed(host: Host) -> None:
    gate = host.driver.hooks["spawn_after_domain"] = Gate()
    host.build()
    gate.wait()
    host.conductor.verdicts = [verdict(Verdict.DESTROY)]
    host.manager.reconciler.run()
    assert host.conductor.of("reconcile_domains") == [([], [])]
    assert host.domains() == {UUID: 1}
    gate.open()
    host.settle()


def test_leftovers_of_a_build_in_progress_are_not_reported(host: Host) -> None:
    gate = host.driver.hooks["spawn_before_domain"] = Gate()
    host.build()
    gate.wait()
    host.manager.reconciler.run()
    assert host.conductor.of("reconcile_domains") == [([], [])]
    gate.open()
    host.settle()


def test_leftovers_are_removed_only_on_a_verdict(host: Host) -> None:
    host.driver.networks.plug(make_instance(), VIFS)
    host.driver.networks.plug(make_instance(OTHER), VIFS)
    host.manager.reconciler.run()
    assert host.conductor.of("reconcile_domains") == [([], [UUID, OTHER])]
    assert len(host.traces()) == 2
    host.conductor.verdicts = [verdict(Verdict.DESTROY, uuid=OTHER), verdict(Verdict.KEEP)]
    host.manager.reconciler.run()
    assert host.traces() == [f"vifs/{UUID}.json"]


def test_failing_verdict_does_not_stop_the_others(host: Host) -> None:
    host.built()
    host.build(uuid=OTHER, instance=make_instance(OTHER))
    host.settle()
    host.control(fail_at=["destroy"], fail_count=1)
    host.conductor.verdicts = [verdict(Verdict.DESTROY), verdict(Verdict.DESTROY, uuid=OTHER)]
    host.manager.reconciler.run()
    assert len(host.domains()) == 1
    host.manager.reconciler.run()
    assert host.traces() == []


def test_reconciliation_runs_when_due_or_after_a_power_change(host: Host) -> None:
    reconciler = host.manager.reconciler
    reconciler.tick()
    assert compared(host) == 0
    reconciler.power_event(UUID)
    reconciler.tick()
    reconciler.tick()
    assert compared(host) == 1
    assert look(host) == (1, 1)


# --- consistency checks


def checks(host: Host) -> list[str]:
    return [report.domains for report in host.conductor.of("report_state") if report.domains is not None]


def compared(host: Host) -> int:
    return len(host.conductor.of("reconcile_domains"))


def due(host: Host) -> None:
    """Let the interval pass."""
    host.manager.reconciler._next = 0.0
    host.manager.reconciler.tick()


def look(host: Host) -> tuple[int, int]:
    """Let the interval pass, and return the numbers of checks and comparisons."""
    before = len(checks(host)), compared(host)
    due(host)
    for _ in range(2):
        host.manager.registration.send_heartbeat()
        host.manager.reconciler.tick()
    return len(checks(host)) - before[0], compared(host) - before[1]


def test_matching_digest_avoids_a_comparison(host: Host) -> None:
    host.conductor.agreed = {digest_of_domains([]), digest_of_domains([(UUID, 1, PowerState.RUNNING)])}
    assert look(host) == (1, 0)
    host.built()
    assert look(host) == (1, 0)
    host.driver.power.off(UUID, 0)
    assert look(host) == (1, 1)
    host.manager.reconciler.power_event(UUID)
    host.manager.reconciler.tick()
    assert look(host) == (1, 1), "an event causes a comparison without a check"
    assert len(host.conductor.of("reconcile_domains")) == 3


def leave_something(host: Host) -> None:
    host.driver.networks.plug(make_instance(OTHER), VIFS)


def boot_anew(host: Host) -> None:
    (Path(host.conf.state_path) / "boots" / HOST).write_text("an earlier one")


@pytest.mark.parametrize("change", [leave_something, boot_anew])
def test_known_difference_is_compared_without_a_check(host: Host, change: Callable[[Host], None]) -> None:
    host.built()
    host.manager.reconciler.run()
    host.conductor.agreed = {digest_of_domains([(UUID, 1, PowerState.RUNNING)])}
    assert look(host) == (1, 0)
    change(host)
    assert look(host) == (0, 1)


def test_revoked_domain_is_compared_without_a_check(host: Host) -> None:
    """The daemon is killed during a build. Commands to its next run revoke the build."""
    host.conductor.agreed = {digest_of_domains([]), digest_of_domains([(UUID, 1, PowerState.RUNNING)])}
    gate = host.driver.hooks["spawn_after_domain"] = Gate()
    host.build()
    gate.wait()
    after = host.next_life()
    assert look(after) == (1, 0)
    after.manager.host.fencing.revoke(UUID, 1)
    assert look(after) == (0, 1)
    assert after.domains() == {}


def test_busy_instance_is_compared_without_a_check(host: Host) -> None:
    gate = host.driver.hooks["spawn_after_domain"] = Gate()
    host.build()
    gate.wait()
    host.conductor.agreed = {digest_of_domains([]), digest_of_domains([(UUID, 1, PowerState.RUNNING)])}
    assert look(host) == (0, 1)
    gate.open()
    host.settle()


def test_check_outdated_by_a_job_is_repeated(host: Host) -> None:
    """The digest is made again."""
    host.conductor.agreed = {digest_of_domains([(UUID, 1, PowerState.RUNNING)])}
    due(host)
    host.built()
    host.manager.registration.send_heartbeat()
    assert checks(host) == []
    host.manager.reconciler.tick()
    host.manager.registration.send_heartbeat()
    host.manager.reconciler.tick()
    assert checks(host) == list(host.conductor.agreed)
    assert compared(host) == 0


def test_check_without_a_reply_leads_to_a_comparison(host: Host) -> None:
    """No check is sent after the comparison."""
    due(host)
    host.manager.reconciler.tick()
    assert compared(host) == 0
    host.manager.reconciler._answer_deadline = 0.0
    host.manager.reconciler.tick()
    assert compared(host) == 1
    host.manager.registration.send_heartbeat()
    assert checks(host) == []


def test_check_is_repeated_after_a_failed_heartbeat(host: Host) -> None:
    host.conductor.agreed = {digest_of_domains([])}
    due(host)
    host.conductor.errors["report_state"] = [exceptions.MessagingUnavailable(what="report_state")]
    with pytest.raises(exceptions.MessagingUnavailable):
        host.manager.registration.send_heartbeat()
    host.manager.reconciler.tick()
    assert look(host) == (1, 0)


def test_power_change_by_the_host_causes_no_message(host: Host) -> None:
    host.driver.hooks["spawn_after_domain"] = lambda: host.manager.reconciler.power_event(UUID)
    host.built()
    host.manager.reconciler.tick()
    assert host.conductor.of("reconcile_domains") == []


def test_failed_comparison_is_repeated(host: Host) -> None:
    host.conductor.down = True
    with pytest.raises(exceptions.ServiceUnavailable):
        host.manager.reconciler.run()
    host.conductor.down = False
    host.manager.reconciler.run()


# --- missing disks


def lacking(host: Host) -> list[bool]:
    """Compare, and return whether the server was reported to lack its disks."""
    host.conductor.calls.clear()
    host.manager.reconciler.run()
    return [report.lacks_disks for reports, _ in host.conductor.of("reconcile_domains") for report in reports]


def test_server_whose_disks_are_missing_is_reported_again_and_again(host: Host) -> None:
    host.built()
    host.conductor.agreed = {digest_of_domains([(UUID, 1, int(PowerState.RUNNING))])}
    assert lacking(host) == [False]
    disks = host.path / "instances" / f"fake-{HOST}" / "disks" / UUID
    disks.rename(host.path / "elsewhere")
    assert lacking(host) == [True]
    assert look(host)[1] == 1, "no digest hides it"
    (host.path / "elsewhere").rename(disks)
    assert lacking(host) == [False]


# --- missing domains


EXPECTED = ExpectedDomain(uuid=UUID, generation=1, last_action_id=LATER)


def vanish(host: Host, disks: bool = False) -> None:
    """Remove the domain without the host's knowledge."""
    root = host.path / "instances" / f"fake-{HOST}"
    (root / "domains" / f"{UUID}.json").unlink()
    if disks:
        shutil.rmtree(root / "disks" / UUID)


def lost(host: Host) -> list[ExpectedDomain]:
    host.manager.reconciler.run()
    return host.conductor.of("domain_lost")


def test_vanished_domain_is_reported(host: Host) -> None:
    host.built()
    host.conductor.expected = [EXPECTED]
    assert lost(host) == []
    vanish(host)
    assert lost(host) == [EXPECTED]


def test_reinstalled_host_reports_all_domains_as_missing(host: Host) -> None:
    host.conductor.expected = [EXPECTED, ExpectedDomain(uuid=OTHER, generation=3)]
    assert lost(host) == host.conductor.expected


@pytest.mark.parametrize("step", ["list_domains", "get_info"])
def test_hung_hypervisor_reports_no_missing_domains(host: Host, step: str) -> None:
    host.built()
    host.conductor.expected = [EXPECTED]
    vanish(host)
    host.control(fail_at=[step], fail_count=-1, fail_error="hypervisor")
    with contextlib.suppress(exceptions.HypervisorUnavailable):
        host.manager.reconciler.run()
    assert host.conductor.of("domain_lost") == []


def test_busy_instance_is_not_reported_missing(host: Host) -> None:
    gate = host.driver.hooks["spawn_before_domain"] = Gate()
    host.build()
    gate.wait()
    host.conductor.expected = [EXPECTED]
    assert lost(host) == []
    gate.open()
    host.settle()


def test_returned_domain_is_not_reported_missing(host: Host) -> None:
    host.built()
    path = host.path / "instances" / f"fake-{HOST}" / "domains" / f"{UUID}.json"
    domain = path.read_bytes()
    vanish(host)
    host.conductor.expected = [EXPECTED]
    host.conductor.hooks["domains_expected"] = lambda _: path.write_bytes(domain)
    assert lost(host) == []


@pytest.mark.parametrize("method", ["domains_expected", "domain_lost"])
def test_unavailable_conductor_is_queried_again_later(host: Host, method: str) -> None:
    """The host serves nevertheless."""
    host.conductor.expected = [EXPECTED]
    host.conductor.errors[method] = [exceptions.MessagingUnavailable(what="x")]
    assert lost(host) == []
    assert lost(host) == [EXPECTED]


# --- disks that hosts share


class SharingDriver(HookedDriver):
    """A driver whose hosts share disks, and their directory. ``done``: calls about them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.done: list[str] = []
        self.taken_uuids: set[str] = set()
        self.seen = StorageView(marks=["a"])
        self.shared_disks = self
        destroy = self.guests.destroy

        def noted(instance_uuid: str) -> None:
            self.done.append("destroy")
            destroy(instance_uuid)

        self.guests.destroy = noted  # type: ignore[method-assign]

    def view(self) -> StorageView:
        return self.seen

    def own(self, instance_uuid: str) -> None:
        self.done.append("own")
        self.taken_uuids.discard(instance_uuid)

    def taken(self) -> set[str]:
        return set(self.taken_uuids)

    def keep(self, instance_uuid: str) -> None:
        self.done.append("keep")


@pytest.fixture
def sharing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr("tests.support.compute_host.HookedDriver", SharingDriver)
    return Host(tmp_path)


def done(host: Host) -> list[str]:
    assert isinstance(host.driver, SharingDriver)
    calls, host.driver.done = host.driver.done, []
    return calls


@pytest.mark.parametrize("keeps", [True, False])
def test_disks_that_another_host_may_need_are_kept_before_the_domain_is_destroyed(sharing: Host, keeps: bool) -> None:
    sharing.built()
    done(sharing)
    sharing.conductor.verdicts = [DomainVerdict(uuid=UUID, generation=1, verdict=Verdict.DESTROY, keeps_disks=keeps)]
    sharing.manager.reconciler.run()
    assert done(sharing) == (["keep", "destroy"] if keeps else ["destroy"])
    assert sharing.domains() == {}


def test_taken_disks_are_the_hosts_own_when_the_conductor_knows_of_the_build(sharing: Host) -> None:
    left = LeftDisks(places=[DiskPlace(host="host-b", generation=1)])
    sharing.conductor.hooks["finish_build"] = lambda _: sharing.driver.steps.append("finish_build")
    sharing.built(2, disks=left)
    assert done(sharing) == ["own"]


def test_taken_disks_of_a_refused_build_are_given_back(sharing: Host) -> None:
    sharing.conductor.errors["finish_build"] = [exceptions.StaleReport(instance_id=UUID, generation=2, host=HOST)]
    sharing.build(2, disks=LeftDisks(places=[DiskPlace(host="host-b", generation=1)]))
    sharing.settle()
    assert done(sharing) == ["destroy"]


def test_comparison_repeats_what_a_kill_after_the_report_has_left(sharing: Host) -> None:
    sharing.built()
    assert isinstance(sharing.driver, SharingDriver)
    sharing.driver.taken_uuids = {UUID}
    sharing.manager.reconciler.run()
    assert done(sharing) == [], "the conductor does not expect it yet"
    sharing.conductor.expected = [EXPECTED]
    sharing.manager.reconciler.run()
    assert done(sharing) == ["own"]


def test_deleted_server_takes_its_disks_along(sharing: Host) -> None:
    sharing.built()
    done(sharing)
    sharing.act(command("delete"))
    sharing.settle()
    assert done(sharing) == ["own", "destroy"]


def test_storage_is_reported_when_it_changes(sharing: Host) -> None:
    for view in (StorageView(marks=["a"]), StorageView(marks=["a"]), StorageView(marks=["b"])):
        assert isinstance(sharing.driver, SharingDriver)
        sharing.driver.seen = view
        sharing.manager.report_storage()
    assert [report.view.marks for report in sharing.conductor.of("report_storage")] == [["a"], ["b"]]
    sharing.driver.seen = StorageView(marks=["b"], live=["host-b"])
    for shares, reports in (([], 3), (["host-b"], 4), (["host-b"], 4)):
        sharing.conductor.shares = shares
        sharing.manager.report_storage()
        assert len(sharing.conductor.of("report_storage")) == reports
    sharing.conductor.epoch += 1
    sharing.manager.registration.register()
    sharing.manager.report_storage()
    assert len(sharing.conductor.of("report_storage")) == 5


# --- hard reboot without a domain


def hard_reboot(host: Host, generation: int = 1) -> str | None:
    host.act(command("reboot", action_id=LATER + 1, generation=generation, payload={"reboot_type": "HARD"}))
    host.settle()
    error: str | None = host.conductor.of("finish_action")[-1][2]
    return error


def test_hard_reboot_recreates_a_missing_domain(host: Host) -> None:
    host.built()
    before = host.traces()
    vanish(host)
    assert hard_reboot(host.next_life()) is None
    assert (host.power(), host.domains()) == (PowerState.RUNNING, {UUID: 1})
    life = host.next_life()
    assert life.traces() == before, "its claim, too"


def test_hard_reboot_without_disks_fails(host: Host) -> None:
    host.built()
    vanish(host, disks=True)
    assert "has no domain on this host" in str(hard_reboot(host))
    assert host.domains() == {}
    assert not [trace for trace in host.traces() if trace.startswith("claim")]


def test_hard_reboot_of_a_revoked_or_held_instance_fails(host: Host) -> None:
    host.built()
    vanish(host)
    host.manager.host.fencing.hold(UUID, 1)
    assert hard_reboot(host) is not None
    host.manager.host.fencing.release_hold(UUID)
    host.manager.host.fencing.revoke(UUID, 1)
    host.act(command("reboot", action_id=LATER + 2, payload={"reboot_type": "HARD"}))
    host.settle()
    assert host.conductor.of("finish_action")[-1][2] is not None
    assert host.domains() == {}


def test_soft_reboot_does_not_recreate_a_domain(host: Host) -> None:
    host.built()
    vanish(host)
    host.act(command("reboot", payload={"reboot_type": "SOFT"}))
    host.settle()
    assert host.conductor.of("finish_action")[-1][2] is not None
    assert host.domains() == {}


# --- incidents


def incidents(host: Host) -> list[list[str]]:
    """Return the incidents of the guest in each report."""
    return [
        [item.kind for report in reports for item in report.incidents] for reports, _ in host.conductor.of(RECONCILE)
    ]


def test_crashed_guest_is_off_and_each_comparison_says_why(host: Host) -> None:
    host.built()
    host.crash()
    for _ in range(2):
        host.manager.reconciler.run()
    assert incidents(host) == [[IncidentKind.CRASH]] * 2
    assert host.power() == PowerState.SHUTDOWN
    host.driver.power.on(UUID)
    host.manager.reconciler.run()
    assert incidents(host)[-1] == []


def test_guest_that_its_watchdog_has_paused_is_reported_so_until_it_runs(host: Host) -> None:
    host.built()
    domain = host.driver.hypervisor.read(UUID)
    domain.power_state, domain.halted = PowerState.PAUSED, True
    host.driver.hypervisor.write(domain)
    host.manager.reconciler.run()
    host.driver.standby.unpause(UUID)
    host.manager.reconciler.run()
    assert [report.halted for reports, _ in host.conductor.of(RECONCILE) for report in reports] == [True, False]


def test_guest_that_is_off_after_a_boot_of_its_host_has_not_crashed(host: Host) -> None:
    host.built()
    host.crash()
    boot_anew(host)
    host.manager.reconciler.run()
    assert incidents(host) == [[]]


def test_panic_is_reported_once_when_the_guest_is_off(host: Host) -> None:
    host.built()
    host.manager.reconciler.power_event(UUID, IncidentKind.PANIC)
    host.manager.reconciler.tick()
    host.crash()
    host.manager.reconciler.run()
    host.driver.power.on(UUID)
    host.manager.reconciler.run()
    assert incidents(host) == [[], [IncidentKind.PANIC], []]


def test_incident_is_reported_again_after_a_call_that_failed(host: Host) -> None:
    host.built()

    def fail(_: Any) -> None:
        raise exceptions.ServiceUnavailable("no conductor")

    host.conductor.hooks[RECONCILE] = fail
    host.manager.reconciler.power_event(UUID, IncidentKind.WATCHDOG_RESET)
    with pytest.raises(exceptions.ServiceUnavailable):
        host.manager.reconciler.tick()
    del host.conductor.hooks[RECONCILE]
    host.manager.reconciler.run()
    host.manager.reconciler.run()
    assert incidents(host)[-2:] == [[IncidentKind.WATCHDOG_RESET], []]


def test_incident_after_which_the_guest_goes_on_is_reported_in_the_end(tmp_path: Path) -> None:
    host = Host(tmp_path, timing=ComputeTiming(incident_wait=-1.0))
    host.built()
    host.manager.reconciler.power_event(UUID, IncidentKind.PANIC)
    host.manager.reconciler.run()
    assert incidents(host) == [[IncidentKind.PANIC]]

"""Comparing the hypervisor with the conductor's answer."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.objects import DomainReport, DomainVerdict, ExpectedDomain, Verdict, digest_of_domains
from nova_lite.operations.states import PowerState
from tests.unit.compute.fakes import HOST, LATER, UUID, VIFS, Gate, Host, make_instance, ticket

OTHER = "22222222-2222-4222-8222-222222222222"


def verdict(kind: Verdict, generation: int = 1, uuid: str = UUID) -> DomainVerdict:
    return DomainVerdict(uuid=uuid, generation=generation, verdict=kind)


def test_domains_and_their_power_are_reported(host: Host) -> None:
    host.built()
    host.driver.power_off(UUID, 0)
    host.manager.reconciler.run()
    report = DomainReport(uuid=UUID, generation=1, power_state=PowerState.SHUTDOWN, last_action_id=0, last_position=0)
    assert host.conductor.of("reconcile_domains") == [([report], [])]
    assert host.domains() == {UUID: 1}, "no verdict, nothing done"


def test_keep_leaves_it_as_it_is(host: Host) -> None:
    host.built()
    host.driver.power_off(UUID, 0)
    host.conductor.verdicts = [verdict(Verdict.KEEP)]
    host.manager.reconciler.run()
    assert host.power() == PowerState.SHUTDOWN


def test_destroy_is_fenced_and_leaves_nothing(host: Host) -> None:
    host.built()
    host.conductor.verdicts = [verdict(Verdict.DESTROY)]
    host.manager.reconciler.run()
    assert host.traces() == []
    assert host.record().revoked_generation == 1


def test_only_what_was_reported_is_acted_on(host: Host) -> None:
    host.built()
    host.conductor.verdicts = [verdict(Verdict.DESTROY, generation=2), verdict(Verdict.DESTROY, uuid=OTHER)]
    host.manager.reconciler.run()
    assert host.domains() == {UUID: 1}


def while_asked(host: Host, change: Callable[[], None]) -> None:
    """Have ``change`` happen between the look at the hypervisor and the answer."""

    def hook(_: Any) -> None:
        del host.conductor.hooks["reconcile_domains"]
        change()

    host.conductor.hooks["reconcile_domains"] = hook
    host.manager.reconciler.run()


def test_a_verdict_on_an_older_generation_is_not_applied(host: Host) -> None:
    host.built()
    host.conductor.verdicts = [verdict(Verdict.DESTROY)]

    def rebuild_without_a_job() -> None:
        host.driver.destroy(UUID)
        path = host.path / "instances" / "fake-host-a" / "domains" / f"{UUID}.json"
        (path.parent.parent / "disks" / UUID).mkdir()
        path.write_text(f'{{"uuid": "{UUID}", "generation": 2, "power_state": 1, "hostname": "one"}}')

    while_asked(host, rebuild_without_a_job)
    assert host.domains() == {UUID: 2}


def test_a_verdict_is_not_applied_to_what_a_job_worked_on_meanwhile(host: Host) -> None:
    """The user stopped it after we looked: the answer may be to what is not so any more."""
    host.built()
    host.conductor.verdicts = [verdict(Verdict.DESTROY)]

    def stop() -> None:
        host.act(ticket("stop"))
        host.settle()

    while_asked(host, stop)
    assert host.power() == PowerState.SHUTDOWN
    host.manager.reconciler.run()
    assert host.traces() == [], "the next look is a new one"


def test_instances_with_a_job_are_neither_reported_nor_touched(host: Host) -> None:
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


def test_leftovers_are_removed_on_an_explicit_answer_only(host: Host) -> None:
    host.driver.plug_vifs(make_instance(), VIFS)
    host.driver.plug_vifs(make_instance(OTHER), VIFS)
    host.manager.reconciler.run()
    assert host.conductor.of("reconcile_domains") == [([], [UUID, OTHER])]
    assert len(host.traces()) == 2
    host.conductor.verdicts = [verdict(Verdict.DESTROY, uuid=OTHER), verdict(Verdict.KEEP)]
    host.manager.reconciler.run()
    assert host.traces() == [f"vifs/{UUID}.json"]


def test_one_verdict_that_fails_does_not_stop_the_others(host: Host) -> None:
    host.built()
    host.build(uuid=OTHER, instance=make_instance(OTHER))
    host.settle()
    host.control(fail_at=["destroy"], fail_count=1)
    host.conductor.verdicts = [verdict(Verdict.DESTROY), verdict(Verdict.DESTROY, uuid=OTHER)]
    host.manager.reconciler.run()
    assert len(host.domains()) == 1
    host.manager.reconciler.run()
    assert host.traces() == []


def test_it_runs_when_due_and_sooner_when_a_power_state_changed(host: Host) -> None:
    reconciler = host.manager.reconciler
    reconciler.tick()
    assert compared(host) == 0
    reconciler.power_event(UUID)
    reconciler.tick()
    reconciler.tick()
    assert compared(host) == 1
    assert look(host) == (1, 1)


# --- what agrees


def asked(host: Host) -> list[str]:
    return [each.domains for each in host.conductor.of("report_state") if each.domains is not None]


def compared(host: Host) -> int:
    return len(host.conductor.of("reconcile_domains"))


def due(host: Host) -> None:
    """It is time to compare."""
    host.manager.reconciler._next = 0.0
    host.manager.reconciler.tick()


def look(host: Host) -> tuple[int, int]:
    """When it is time: how often was asked whether all agrees, and how often all was compared."""
    before = len(asked(host)), compared(host)
    due(host)
    for _ in range(2):
        host.manager.registration.send_heartbeat()
        host.manager.reconciler.tick()
    return len(asked(host)) - before[0], compared(host) - before[1]


def test_what_agrees_is_not_compared(host: Host) -> None:
    host.conductor.agreed = {digest_of_domains([]), digest_of_domains([(UUID, 1, PowerState.RUNNING)])}
    assert look(host) == (1, 0)
    host.built()
    assert look(host) == (1, 0)
    host.driver.power_off(UUID, 0)
    assert look(host) == (1, 1)
    host.manager.reconciler.power_event(UUID)
    host.manager.reconciler.tick()
    assert look(host) == (1, 1), "an event is compared without being asked about"
    assert len(host.conductor.of("reconcile_domains")) == 3


def leave_something(host: Host) -> None:
    host.driver.plug_vifs(make_instance(OTHER), VIFS)


def boot_anew(host: Host) -> None:
    (Path(host.conf.state_path) / "boots" / HOST).write_text("an earlier one")


@pytest.mark.parametrize("change", [leave_something, boot_anew])
def test_what_needs_a_comparison_is_not_asked_about(host: Host, change: Callable[[Host], None]) -> None:
    host.built()
    host.manager.reconciler.run()
    host.conductor.agreed = {digest_of_domains([(UUID, 1, PowerState.RUNNING)])}
    assert look(host) == (1, 0)
    change(host)
    assert look(host) == (0, 1)


def test_what_was_given_up_is_not_asked_about(host: Host) -> None:
    """The daemon is killed amid a build, and is told by its next life's orders that it is not wanted any more."""
    host.conductor.agreed = {digest_of_domains([]), digest_of_domains([(UUID, 1, PowerState.RUNNING)])}
    gate = host.driver.hooks["spawn_after_domain"] = Gate()
    host.build()
    gate.wait()
    after = host.next_life()
    assert look(after) == (1, 0)
    after.manager.host.fencing.revoke(UUID, 1)
    assert look(after) == (0, 1)
    assert after.domains() == {}


def test_what_a_job_works_on_is_not_asked_about(host: Host) -> None:
    gate = host.driver.hooks["spawn_after_domain"] = Gate()
    host.build()
    gate.wait()
    host.conductor.agreed = {digest_of_domains([]), digest_of_domains([(UUID, 1, PowerState.RUNNING)])}
    assert look(host) == (0, 1)
    gate.open()
    host.settle()


def test_what_was_seen_before_a_job_is_not_asked_about(host: Host) -> None:
    """It is looked at once more."""
    host.conductor.agreed = {digest_of_domains([(UUID, 1, PowerState.RUNNING)])}
    due(host)
    host.built()
    host.manager.registration.send_heartbeat()
    assert asked(host) == []
    host.manager.reconciler.tick()
    host.manager.registration.send_heartbeat()
    host.manager.reconciler.tick()
    assert asked(host) == list(host.conductor.agreed)
    assert compared(host) == 0


def test_an_answer_is_not_waited_for_for_ever(host: Host) -> None:
    """Nor does anybody ask once all was compared."""
    due(host)
    host.manager.reconciler.tick()
    assert compared(host) == 0
    host.manager.reconciler._answer_deadline = 0.0
    host.manager.reconciler.tick()
    assert compared(host) == 1
    host.manager.registration.send_heartbeat()
    assert asked(host) == []


def test_a_heartbeat_that_was_not_answered_asks_again(host: Host) -> None:
    host.conductor.agreed = {digest_of_domains([])}
    due(host)
    host.conductor.errors["report_state"] = [exceptions.MessagingUnavailable(what="report_state")]
    with pytest.raises(exceptions.MessagingUnavailable):
        host.manager.registration.send_heartbeat()
    host.manager.reconciler.tick()
    assert look(host) == (1, 0)


def test_a_conductor_that_does_not_know_the_question_is_asked_to_compare(host: Host) -> None:
    host.conductor.is_old = True
    host.conductor.agreed = {digest_of_domains([])}
    assert look(host) == (1, 1)


def test_our_own_power_changes_cost_no_message(host: Host) -> None:
    host.driver.hooks["spawn_after_domain"] = lambda: host.manager.reconciler.power_event(UUID)
    host.built()
    host.manager.reconciler.tick()
    assert host.conductor.of("reconcile_domains") == []


def test_an_answer_that_does_not_come_is_asked_for_again(host: Host) -> None:
    host.conductor.down = True
    with pytest.raises(exceptions.ServiceUnavailable):
        host.manager.reconciler.run()
    host.conductor.down = False
    host.manager.reconciler.run()


# --- what ought to be here


EXPECTED = ExpectedDomain(uuid=UUID, generation=1, last_action_id=LATER)


def vanish(host: Host, disks: bool = False) -> None:
    """Behind the host's back."""
    root = host.path / "instances" / f"fake-{HOST}"
    (root / "domains" / f"{UUID}.json").unlink()
    if disks:
        shutil.rmtree(root / "disks" / UUID)


def lost(host: Host) -> list[ExpectedDomain]:
    host.manager.reconciler.run()
    return host.conductor.of("domain_lost")


def test_a_domain_that_vanished_is_reported(host: Host) -> None:
    host.built()
    host.conductor.expected = [EXPECTED]
    assert lost(host) == []
    vanish(host)
    assert lost(host) == [EXPECTED]


def test_of_a_host_that_was_installed_anew_all_are_reported(host: Host) -> None:
    host.conductor.expected = [EXPECTED, ExpectedDomain(uuid=OTHER, generation=3)]
    assert lost(host) == host.conductor.expected


@pytest.mark.parametrize("step", ["list_domains", "get_info"])
def test_a_hypervisor_that_does_not_answer_has_lost_nothing(host: Host, step: str) -> None:
    host.built()
    host.conductor.expected = [EXPECTED]
    vanish(host)
    host.control(fail_at=[step], fail_count=-1, fail_error="hypervisor")
    with contextlib.suppress(exceptions.HypervisorUnavailable):
        host.manager.reconciler.run()
    assert host.conductor.of("domain_lost") == []


def test_what_a_job_works_on_is_not_lost(host: Host) -> None:
    gate = host.driver.hooks["spawn_before_domain"] = Gate()
    host.build()
    gate.wait()
    host.conductor.expected = [EXPECTED]
    assert lost(host) == []
    gate.open()
    host.settle()


def test_what_came_back_meanwhile_is_not_lost(host: Host) -> None:
    host.built()
    path = host.path / "instances" / f"fake-{HOST}" / "domains" / f"{UUID}.json"
    domain = path.read_bytes()
    vanish(host)
    host.conductor.expected = [EXPECTED]
    host.conductor.hooks["domains_expected"] = lambda _: path.write_bytes(domain)
    assert lost(host) == []


@pytest.mark.parametrize("method", ["domains_expected", "domain_lost"])
def test_a_conductor_that_is_too_old_or_away_is_asked_again_later(host: Host, method: str) -> None:
    """The host serves all the same."""
    host.conductor.expected = [EXPECTED]
    host.conductor.errors[method] = [exceptions.ServiceTooOld("The conductor service is too old.")]
    assert lost(host) == []
    assert lost(host) == [EXPECTED]


# --- a hard reboot makes it anew


def hard_reboot(host: Host, generation: int = 1) -> str | None:
    host.act(ticket("reboot", action_id=LATER + 1, generation=generation, payload={"reboot_type": "HARD"}))
    host.settle()
    error: str | None = host.conductor.of("finish_action")[-1][2]
    return error


def test_a_hard_reboot_makes_it_anew_of_its_disks(host: Host) -> None:
    host.built()
    before = host.traces()
    vanish(host)
    assert hard_reboot(host.next_life()) is None
    assert (host.power(), host.domains()) == (PowerState.RUNNING, {UUID: 1})
    life = host.next_life()
    assert life.traces() == before, "its claim, too"


def test_not_without_disks(host: Host) -> None:
    host.built()
    vanish(host, disks=True)
    assert "has no domain on this host" in str(hard_reboot(host))
    assert host.domains() == {}
    assert not [trace for trace in host.traces() if trace.startswith("claim")]


def test_not_what_was_given_up_here_or_is_held_back(host: Host) -> None:
    host.built()
    vanish(host)
    host.manager.host.fencing.hold(UUID, 1)
    assert hard_reboot(host) is not None
    host.manager.host.fencing.release_hold(UUID)
    host.manager.host.fencing.revoke(UUID, 1)
    host.act(ticket("reboot", action_id=LATER + 2, payload={"reboot_type": "HARD"}))
    host.settle()
    assert host.conductor.of("finish_action")[-1][2] is not None
    assert host.domains() == {}


def test_a_soft_reboot_does_not(host: Host) -> None:
    host.built()
    vanish(host)
    host.act(ticket("reboot", payload={"reboot_type": "SOFT"}))
    host.settle()
    assert host.conductor.of("finish_action")[-1][2] is not None
    assert host.domains() == {}

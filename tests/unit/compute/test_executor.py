"""Orders (delete, stop, start, reboot, ...): doubled, late, reordered, failing, and over a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.compute.operations import HANDLERS
from nova_lite.operations import HostStep, Operation
from nova_lite.operations.states import PowerState
from nova_lite.virt import driver
from tests.unit.compute.fakes import LATER, UUID, Gate, Host, eventually, ticket

RUNNING, SHUTDOWN = PowerState.RUNNING, PowerState.SHUTDOWN


def test_stop_start_reboot_delete(host: Host) -> None:
    host.built()
    for number, action in enumerate(["stop", "start", "reboot", "delete"]):
        host.act(ticket(action, LATER + number))
        host.settle()
    assert host.conductor.of("finish_action") == [
        (LATER, SHUTDOWN, None),
        (LATER + 1, RUNNING, None),
        (LATER + 2, RUNNING, None),
        (LATER + 3, None, None),
    ]
    assert host.traces() == []


@pytest.mark.parametrize(("reboot_type", "plugged"), [("SOFT", 1), ("HARD", 2)])
def test_a_hard_reboot_also_mends_the_network(host: Host, reboot_type: str, plugged: int) -> None:
    host.built()
    host.act(ticket("reboot", payload={"reboot_type": reboot_type}))
    host.settle()
    assert host.driver.steps.count("plug_vifs") == plugged


def test_a_hard_reboot_brings_the_domain_up_to_date(host: Host) -> None:
    """With what the conductor says that it is made of; an old one does not say it."""
    renewed: list[driver.SpawnSpec] = []
    host.driver.renew = renewed.append  # type: ignore[attr-defined]
    host.built()
    made_of = {"image": {"id": "i", "name": "i", "properties": {"hw_disk_bus": "scsi"}}, "boot_images": {}}
    for number, payload in enumerate(
        ({"reboot_type": "SOFT"}, {"reboot_type": "HARD"}, {"reboot_type": "HARD", **made_of})
    ):
        host.act(ticket("reboot", LATER + number, payload=payload))
        host.settle()
    (spec,) = renewed
    assert spec.image is not None
    assert (spec.instance.uuid, spec.image.properties) == (UUID, {"hw_disk_bus": "scsi"})


def test_a_doubled_ticket_is_carried_out_once_and_reported_again(host: Host) -> None:
    host.built()
    gate = host.driver.hooks["power_off"] = Gate()
    host.act(ticket("stop"))
    gate.wait()
    host.act(ticket("stop"))
    assert host.manager.jobs.acting() == [LATER]
    gate.open()
    host.settle()
    host.driver.power_on(UUID)
    host.act(ticket("stop"))
    host.settle()
    assert host.power() == RUNNING, "a finished stop must not stop again"
    assert host.conductor.of("finish_action") == [(LATER, SHUTDOWN, None)] * 2


def test_a_finished_ticket_is_remembered_over_a_kill(host: Host) -> None:
    host.built()
    host.act(ticket("stop"))
    host.settle()
    after = host.next_life()
    after.driver.power_on(UUID)
    after.act(ticket("stop"))
    after.settle()
    assert after.power() == RUNNING
    assert host.conductor.of("finish_action") == [(LATER, SHUTDOWN, None)] * 2


def test_a_ticket_interrupted_by_a_kill_is_carried_out_when_it_comes_again(host: Host) -> None:
    host.built()
    gate = host.driver.hooks["power_off"] = Gate()
    host.act(ticket("stop"))
    gate.wait()
    after = host.next_life()
    after.act(ticket("stop"))
    after.settle()
    assert after.power() == SHUTDOWN
    assert host.conductor.of("finish_action") == [(LATER, SHUTDOWN, None)]


def test_a_ticket_older_than_the_last_one_seen_is_dropped(host: Host) -> None:
    host.built()
    host.act(ticket("start", LATER + 1))
    host.settle()
    host.act(ticket("stop", LATER))
    host.settle()
    assert host.power() == RUNNING
    assert host.conductor.of("finish_action") == [(LATER + 1, RUNNING, None)]


def test_a_ticket_overtaken_while_it_waited_for_the_lock_is_dropped(host: Host) -> None:
    host.built()
    with host.manager.jobs.locks.hold(UUID):
        host.act(ticket("stop", LATER))
        eventually(lambda: host.record().last_action_id == LATER)
        host.act(ticket("delete", LATER + 1))
        eventually(lambda: host.record().last_action_id == LATER + 1)
    host.settle()
    assert host.traces() == []
    assert host.conductor.of("finish_action") == [(LATER + 1, None, None)]
    assert "power_off" not in host.driver.steps


def test_a_delete_of_what_is_not_here_succeeds(host: Host) -> None:
    host.act(ticket("delete"))
    host.settle()
    assert host.conductor.of("finish_action") == [(LATER, None, None)]


def test_a_failed_delete_is_tried_again_with_the_same_ticket(host: Host) -> None:
    host.built()
    host.control(fail_at=["destroy"], fail_count=1)
    host.act(ticket("delete"))
    host.settle()
    assert host.domains() == {UUID: 1}
    host.act(ticket("delete"))
    host.settle()
    assert host.traces() == []
    first, second = host.conductor.of("finish_action")
    assert "configured to fail at destroy" in first[2]
    assert second == (LATER, None, None)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("virt", "Failed to power on instance"),
        ("hypervisor", "Connection to the hypervisor is broken"),
        ("unexpected", "Unexpected RuntimeError on host host-a."),
    ],
)
def test_a_failure_is_reported_with_its_cause(host: Host, error: str, words: str) -> None:
    host.built()
    host.driver.power_off(UUID, 0)
    host.control(fail_at=["power_on"], fail_error=error)
    host.act(ticket("start"))
    host.settle()
    ((action_id, power_state, message),) = host.conductor.of("finish_action")
    assert (action_id, power_state) == (LATER, SHUTDOWN)
    assert words in message


@pytest.mark.parametrize("action", ["stop", "start", "reboot", "evacuate"])
@pytest.mark.parametrize("generation", [None, 2])
def test_an_action_on_a_domain_that_is_not_the_one_meant_fails(host: Host, action: str, generation: int | None) -> None:
    if generation is not None:
        host.built(generation)
    host.act(ticket(action, generation=1))
    host.settle()
    ((_, _, message),) = host.conductor.of("finish_action")
    assert message == f"Instance {UUID} has no domain on this host."
    assert not {"power_off", "power_on", "reboot"} & set(host.driver.steps)


def test_a_report_is_not_lost_while_the_conductor_is_away(host: Host) -> None:
    host.built()
    host.conductor.down = True
    tries: list[object] = []
    host.conductor.hooks["finish_action"] = tries.append
    host.act(ticket("stop"))
    eventually(lambda: len(tries) >= 3)
    assert host.manager.jobs.acting() == [LATER]
    host.conductor.down = False
    host.settle()
    assert host.conductor.of("finish_action") == [(LATER, SHUTDOWN, None)]


def test_a_report_nobody_wants_ends_the_job(host: Host) -> None:
    host.built()
    host.conductor.errors["finish_action"] = [exceptions.InstanceGone(instance_id=UUID)]
    host.act(ticket("stop"))
    host.settle()
    assert host.conductor.of("finish_action") == []


def test_a_deleted_instance_stays_deleted_over_a_kill_between_fence_and_removal(host: Host) -> None:
    host.built()
    gate = host.driver.hooks["destroy"] = Gate()
    host.act(ticket("delete"))
    gate.wait()
    after = host.next_life()
    after.build()
    after.settle()
    assert host.conductor.outcomes == [(1, "built")], "the late order must not report"
    after.act(ticket("delete"))
    after.settle()
    assert after.traces() == []
    assert host.conductor.of("finish_action") == [(LATER, None, None)]


def test_a_completed_instance_is_kept_when_its_delete_was_not_carried_out(host: Host) -> None:
    """Fenced by a delete that failed, it is the conductor's to decide what becomes of it, not the tombstone's."""
    host.built()
    host.control(fail_at=["destroy"])
    host.act(ticket("delete"))
    host.settle()
    after = host.next_life()
    after.control()
    after.manager.reconciler.run()
    assert after.domains() == {UUID: 1}
    after.act(ticket("reboot", LATER + 1, payload={"reboot_type": "HARD"}))
    after.settle()
    assert host.conductor.of("finish_action")[-1] == (LATER + 1, RUNNING, None)


def test_there_is_work_for_every_step() -> None:
    steps = operations.command_methods().values()
    assert set(HANDLERS) == {step.method for step in steps if step.driver is None}


@pytest.fixture
def sleepy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host in a world with one more operation, which is one method of the driver, and lasts."""
    row = Operation("doze", steps=(HostStep("perform", "doze_instance", driver="doze", retry_forever=True),))
    monkeypatch.setattr(operations, "OPERATIONS", operations.OPERATIONS.extended(row))
    return Host(tmp_path)


def test_an_operation_that_is_one_method_of_the_driver_needs_only_its_row(sleepy: Host) -> None:
    dozing: list[str] = []
    driver: Any = sleepy.driver
    driver.doze = dozing.append
    sleepy.built()
    for _ in range(2):
        sleepy.act(ticket("doze"))
        sleepy.settle()
    sleepy.act(ticket("doze", LATER + 1, generation=2))
    sleepy.settle()
    assert dozing == [UUID]
    reports = sleepy.conductor.of("finish_action")
    assert reports[:2] == [(LATER, RUNNING, None)] * 2
    assert "has no domain on this host" in reports[2][2]


def test_a_driver_that_cannot_is_told_of_and_what_lasts_is_tried_again(sleepy: Host) -> None:
    sleepy.built()
    sleepy.act(ticket("doze"))
    sleepy.settle()
    driver: Any = sleepy.driver
    driver.doze = lambda uuid: None
    sleepy.act(ticket("doze"))
    sleepy.settle()
    first, second = sleepy.conductor.of("finish_action")
    assert "doze" in first[2]
    assert second == (LATER, RUNNING, None)

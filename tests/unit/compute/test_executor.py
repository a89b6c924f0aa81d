"""Commands (delete, stop, start, reboot, ...): duplicate, late, reordered, failing, and after a kill."""

from __future__ import annotations

import typing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.compute.operations import HANDLERS
from nova_lite.objects import GuestDevice, GuestDevices
from nova_lite.operations import HostStep, Operation
from nova_lite.operations.states import PowerState
from nova_lite.virt import abilities
from nova_lite.virt.driver import ComputeDriver, Unsupported
from tests.support.compute_host import DEADLINE, LATER, UUID, VIFS, Gate, Host, command, make_instance
from tests.support.waiting import wait_for

RUNNING, SHUTDOWN = PowerState.RUNNING, PowerState.SHUTDOWN


def test_commands_stop_start_reboot_and_delete_a_guest(host: Host) -> None:
    host.built()
    for number, action in enumerate(["stop", "start", "reboot", "delete"]):
        host.act(command(action, LATER + number))
        host.settle()
    assert host.conductor.of("finish_action") == [
        (LATER, SHUTDOWN, None),
        (LATER + 1, RUNNING, None),
        (LATER + 2, RUNNING, None),
        (LATER + 3, None, None),
    ]
    assert host.traces() == []


@pytest.mark.parametrize(("reboot_type", "plugged"), [("SOFT", 1), ("HARD", 2)])
def test_hard_reboot_repairs_the_network(host: Host, reboot_type: str, plugged: int) -> None:
    host.built()
    host.act(command("reboot", payload={"reboot_type": reboot_type}))
    host.settle()
    assert host.driver.steps.count("plug_vifs") == plugged


def test_hard_reboot_redefines_the_domain(host: Host) -> None:
    """The command contains the image. An older conductor's command does not."""
    renewed: list[abilities.SpawnSpec] = []
    host.driver.definitions.renew = renewed.append  # type: ignore[attr-defined]
    host.built()
    made_of = {"image": {"id": "i", "name": "i", "properties": {"hw_disk_bus": "scsi"}}, "boot_images": {}}
    for number, payload in enumerate(
        ({"reboot_type": "SOFT"}, {"reboot_type": "HARD"}, {"reboot_type": "HARD", **made_of})
    ):
        host.act(command("reboot", LATER + number, payload=payload))
        host.settle()
    (spec,) = renewed
    assert spec.image is not None
    assert (spec.instance.uuid, spec.image.properties) == (UUID, {"hw_disk_bus": "scsi"})


def test_command_that_places_devices_reports_them(host: Host) -> None:
    """The places of untagged disks are left out. A hypervisor that fails leaves the command done."""
    found = GuestDevices(
        devices=[GuestDevice("fa:16:3e:00:00:01", "pci", "0000:00:03.0"), GuestDevice("root", "pci", "0000:00:04.0")],
        free_ports=7,
    )
    host.built()
    host.driver.guests.devices = lambda uuid: found  # type: ignore[method-assign]
    host.act(command("stop", LATER))
    host.settle()
    host.act(command("start", LATER + 1))
    host.settle()
    place = {"key": "fa:16:3e:00:00:01", "bus": "pci", "address": "0000:00:03.0"}
    assert host.conductor.answers[-2:] == [None, {"devices": {"devices": [place], "free_ports": 7}}]

    def fail(uuid: str) -> GuestDevices:
        raise exceptions.VirtDriverError(reason="busy")

    host.driver.guests.devices = fail  # type: ignore[method-assign]
    host.act(command("reboot", LATER + 2))
    host.settle()
    assert (host.conductor.answers[-1], host.conductor.of("finish_action")[-1][2]) == (None, None)


def test_duplicate_command_runs_once_and_is_reported_again(host: Host) -> None:
    host.built()
    gate = host.driver.hooks["power_off"] = Gate()
    host.act(command("stop"))
    gate.wait()
    host.act(command("stop"))
    assert host.manager.jobs.acting() == [LATER]
    gate.open()
    host.settle()
    host.driver.power.on(UUID)
    host.act(command("stop"))
    host.settle()
    assert host.power() == RUNNING, "a finished stop must not stop again"
    assert host.conductor.of("finish_action") == [(LATER, SHUTDOWN, None)] * 2


def test_finished_command_is_remembered_after_a_kill(host: Host) -> None:
    host.built()
    host.act(command("stop"))
    host.settle()
    after = host.next_life()
    after.driver.power.on(UUID)
    after.act(command("stop"))
    after.settle()
    assert after.power() == RUNNING
    assert host.conductor.of("finish_action") == [(LATER, SHUTDOWN, None)] * 2


def test_command_interrupted_by_a_kill_runs_when_it_is_repeated(host: Host) -> None:
    host.built()
    gate = host.driver.hooks["power_off"] = Gate()
    host.act(command("stop"))
    gate.wait()
    after = host.next_life()
    after.act(command("stop"))
    after.settle()
    assert after.power() == SHUTDOWN
    assert host.conductor.of("finish_action") == [(LATER, SHUTDOWN, None)]


def test_command_older_than_the_newest_one_is_dropped(host: Host) -> None:
    host.built()
    host.act(command("start", LATER + 1))
    host.settle()
    host.act(command("stop", LATER))
    host.settle()
    assert host.power() == RUNNING
    assert host.conductor.of("finish_action") == [(LATER + 1, RUNNING, None)]


def test_command_overtaken_while_it_waits_for_the_lock_is_dropped(host: Host) -> None:
    host.built()
    with host.manager.jobs.locks.hold(UUID):
        host.act(command("stop", LATER))
        wait_for("the later command is recorded", lambda: host.record().last_action_id == LATER, DEADLINE)
        host.act(command("delete", LATER + 1))
        wait_for("the delete is recorded", lambda: host.record().last_action_id == LATER + 1, DEADLINE)
    host.settle()
    assert host.traces() == []
    assert host.conductor.of("finish_action") == [(LATER + 1, None, None)]
    assert "power_off" not in host.driver.steps


def test_delete_of_a_missing_instance_succeeds(host: Host) -> None:
    host.act(command("delete"))
    host.settle()
    assert host.conductor.of("finish_action") == [(LATER, None, None)]


def test_failed_delete_is_repeated_with_the_same_command(host: Host) -> None:
    host.built()
    host.control(fail_at=["destroy"], fail_count=1)
    host.act(command("delete"))
    host.settle()
    assert host.domains() == {UUID: 1}
    host.act(command("delete"))
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
def test_command_failure_is_reported_with_its_cause(host: Host, error: str, words: str) -> None:
    host.built()
    host.driver.power.off(UUID, 0)
    host.control(fail_at=["power_on"], fail_error=error)
    host.act(command("start"))
    host.settle()
    ((action_id, power_state, message),) = host.conductor.of("finish_action")
    assert (action_id, power_state) == (LATER, SHUTDOWN)
    assert words in message


@pytest.mark.parametrize("action", ["stop", "start", "reboot", "evacuate"])
@pytest.mark.parametrize("generation", [None, 2])
def test_command_for_another_generation_fails(host: Host, action: str, generation: int | None) -> None:
    if generation is not None:
        host.built(generation)
    host.act(command(action, generation=1))
    host.settle()
    ((_, _, message),) = host.conductor.of("finish_action")
    assert message == f"Instance {UUID} has no domain on this host."
    assert not {"power_off", "power_on", "reboot"} & set(host.driver.steps)


def test_command_report_is_repeated_until_the_conductor_answers(host: Host) -> None:
    host.built()
    host.conductor.down = True
    tries: list[object] = []
    host.conductor.hooks["finish_action"] = tries.append
    host.act(command("stop"))
    wait_for("the report is tried three times", lambda: len(tries) >= 3, DEADLINE)
    assert host.manager.jobs.acting() == [LATER]
    host.conductor.down = False
    host.settle()
    assert host.conductor.of("finish_action") == [(LATER, SHUTDOWN, None)]


def test_rejected_report_ends_the_job(host: Host) -> None:
    host.built()
    host.conductor.errors["finish_action"] = [exceptions.InstanceGone(instance_id=UUID)]
    host.act(command("stop"))
    host.settle()
    assert host.conductor.of("finish_action") == []


def test_deleted_instance_stays_deleted_after_a_kill_before_its_removal(host: Host) -> None:
    host.built()
    gate = host.driver.hooks["destroy"] = Gate()
    host.act(command("delete"))
    gate.wait()
    after = host.next_life()
    after.build()
    after.settle()
    assert host.conductor.outcomes == [(1, "built")], "the late command must not report"
    after.act(command("delete"))
    after.settle()
    assert after.traces() == []
    assert host.conductor.of("finish_action") == [(LATER, None, None)]


def test_complete_instance_stays_after_a_failed_delete(host: Host) -> None:
    """A failed delete has revoked it. The conductor decides what becomes of it, not the fencing token store."""
    host.built()
    host.control(fail_at=["destroy"])
    host.act(command("delete"))
    host.settle()
    after = host.next_life()
    after.control()
    after.manager.reconciler.run()
    assert after.domains() == {UUID: 1}
    after.act(command("reboot", LATER + 1, payload={"reboot_type": "HARD"}))
    after.settle()
    assert host.conductor.of("finish_action")[-1] == (LATER + 1, RUNNING, None)


def test_every_step_has_a_handler() -> None:
    steps = operations.command_methods().values()
    assert set(HANDLERS) == {step.method for step in steps if step.driver is None}


def test_steps_of_the_driver_name_abilities_and_their_methods() -> None:
    named = {step.driver for step in operations.command_methods().values() if step.driver is not None}
    of_driver = typing.get_type_hints(ComputeDriver)
    assert named
    for ability, _, method in (name.partition(".") for name in named):
        assert hasattr(of_driver[ability], method)


@pytest.fixture
def sleepy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Provide a host with one more operation, which is one method of the driver and is retried forever."""
    row = Operation("doze", steps=(HostStep("perform", "doze_instance", driver="naps.doze", retry_forever=True),))
    monkeypatch.setattr(operations, "OPERATIONS", operations.OPERATIONS.extended(row))
    monkeypatch.setattr(ComputeDriver, "naps", Unsupported(), raising=False)
    return Host(tmp_path)


def test_operation_with_a_driver_method_needs_no_handler(sleepy: Host) -> None:
    dozing: list[str] = []
    driver: Any = sleepy.driver
    driver.naps = SimpleNamespace(doze=dozing.append)
    sleepy.built()
    for _ in range(2):
        sleepy.act(command("doze"))
        sleepy.settle()
    sleepy.act(command("doze", LATER + 1, generation=2))
    sleepy.settle()
    assert dozing == [UUID]
    reports = sleepy.conductor.of("finish_action")
    assert reports[:2] == [(LATER, RUNNING, None)] * 2
    assert "has no domain on this host" in reports[2][2]


def test_step_without_driver_support_fails_and_is_repeated_if_it_retries_forever(sleepy: Host) -> None:
    sleepy.built()
    sleepy.act(command("doze"))
    sleepy.settle()
    driver: Any = sleepy.driver
    driver.naps = SimpleNamespace(doze=lambda uuid: None)
    sleepy.act(command("doze"))
    sleepy.settle()
    first, second = sleepy.conductor.of("finish_action")
    assert "doze" in first[2]
    assert second == (LATER, RUNNING, None)


def test_replicated_server_starts_only_where_the_conductor_allows_it(host: Host) -> None:
    host.built()
    replicated = make_instance(vifs=VIFS, site_role="primary")
    for number, (action, may_run) in enumerate((("stop", False), ("start", False), ("start", True))):
        host.conductor.may_run = may_run
        host.act(command(action, LATER + number, instance=replicated))
        host.settle()
    error = f"Server {UUID} is replicated, and its role at this site is primary."
    (stopped, refused, started) = host.conductor.of("finish_action")
    assert (stopped, started) == ((LATER, SHUTDOWN, None), (LATER + 2, RUNNING, None))
    assert str(refused[2]).startswith(error)
    assert host.conductor.of("site_right_get") == [UUID, UUID], "a stop asks nobody"


def test_start_of_a_replicated_server_waits_for_the_journal(host: Host) -> None:
    host.built()
    host.act(command("stop", LATER))
    host.settle()
    host.conductor.errors["site_right_get"] = [exceptions.SiteJournalUnavailable(reason="not there")] * 2
    host.act(command("start", LATER + 1, instance=make_instance(vifs=VIFS, site_role="primary")))
    host.settle()
    assert host.conductor.of("finish_action")[-1] == (LATER + 1, RUNNING, None)
    assert host.conductor.errors["site_right_get"] == [], "it has asked again"

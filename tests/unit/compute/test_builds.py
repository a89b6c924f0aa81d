"""Builds: reports, remains, and the effects of late, duplicate and crossing messages."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.compute import manager
from nova_lite.compute.fencing import FencingTokenStore, Record
from nova_lite.compute.operations.create import is_request_error
from nova_lite.objects import GuestDevice, GuestDevices, Image, SettledRecords
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import SpawnSpec
from tests.support.compute_host import (
    CREATE,
    DEADLINE,
    HOST,
    LATER,
    UUID,
    VIFS,
    Gate,
    Host,
    build_request,
    command,
    make_instance,
)
from tests.support.waiting import wait_for

BUILD_STEPS = ["plug_vifs", "image", "spawn_before_domain", "spawn_after_domain"]


def test_build_is_started_spawned_and_reported(host: Host) -> None:
    host.build()
    host.settle()
    assert host.domains() == {UUID: 1}
    assert [name for name, _ in host.conductor.calls[1:]] == ["start_build", "finish_build"]
    assert host.conductor.of("start_build") == [(UUID, HOST, 1)]
    (result,) = host.conductor.of("finish_build")
    assert (result.outcome, result.power_state, result.root_device_name) == ("built", PowerState.RUNNING, "/dev/vda")
    assert host.manager.host.claims.used().memory_mb == 512
    line = f"nova-lite-guest: instance={UUID} hostname=one ip=10.0.0.5"
    assert line in host.manager.get_console_output(host.context, UUID, None)


def test_places_of_devices_are_reported_before_the_guest_starts(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The conductor is away for a while: the guest does not start before it has the report."""
    place, untagged = (
        GuestDevice("fa:16:3e:00:00:01", "pci", "0000:01:00.0"),
        GuestDevice("root", "pci", "0000:02:00.0"),
    )
    original = host.driver.guests.spawn
    host.conductor.errors["report_guest_devices"] = [exceptions.ServiceUnavailable(reason="away")]

    def spawn(spec: SpawnSpec) -> None:
        spec.placed(GuestDevices(devices=[place, untagged], free_ports=3))
        assert not host.conductor.errors["report_guest_devices"]
        original(spec)

    monkeypatch.setattr(host.driver.guests, "spawn", spawn)
    host.build()
    host.settle()
    expected = (UUID, HOST, 1, GuestDevices(devices=[place], free_ports=3))
    assert host.conductor.of("report_guest_devices") == [expected]
    assert host.domains() == {UUID: 1}


def test_build_whose_devices_are_unwanted_starts_no_guest(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    original = host.driver.guests.spawn
    host.conductor.errors["report_guest_devices"] = [exceptions.InstanceGone(instance_id=UUID)]
    monkeypatch.setattr(
        host.driver.guests, "spawn", lambda spec: (spec.placed(GuestDevices(devices=[])), original(spec))
    )
    host.build()
    host.settle()
    assert host.domains() == {}
    assert host.conductor.of("finish_build") == []


def test_build_with_interfaces_in_its_command_queries_none(host: Host) -> None:
    host.build(instance=make_instance(UUID, vifs=VIFS), connected=host.manager.registration.admission)
    host.settle()
    assert [name for name, _ in host.conductor.calls[1:]] == ["finish_build"]
    (result,) = host.conductor.of("finish_build")
    assert (result.outcome, result.action_id) == ("built", CREATE)
    line = f"nova-lite-guest: instance={UUID} hostname=one ip=10.0.0.5"
    assert line in host.manager.get_console_output(host.context, UUID, None)


def test_build_command_of_an_ended_registration_is_queried(host: Host) -> None:
    """Its instance may run elsewhere by now."""
    before = host.manager.registration.admission
    host.conductor.epoch += 1
    host.manager.registration.register()
    host.conductor.errors["start_build"] = [exceptions.StaleReport(instance_id=UUID, generation=1, host=HOST)]
    host.build(instance=make_instance(UUID, vifs=VIFS), connected=before)
    host.settle()
    assert (host.domains(), host.conductor.outcomes, host.record().revoked_generation) == ({}, [], 1)


def test_build_command_frees_the_rpc_thread_and_a_duplicate_is_dropped(host: Host) -> None:
    gate = host.driver.hooks["plug_vifs"] = Gate()
    host.build()
    gate.wait()
    host.build()
    host.build()
    assert host.manager.jobs.building() == {UUID: 1}
    gate.open()
    host.settle()
    assert host.conductor.outcomes == [(1, "built")]
    assert len(host.conductor.of("start_build")) == 1


def test_repeated_command_of_a_complete_build_only_reports_again(host: Host) -> None:
    host.built()
    host.built()
    assert host.conductor.outcomes == [(1, "built"), (1, "built")]
    assert host.driver.steps.count("spawn_after_domain") == 1


def test_build_command_older_than_an_action_is_dropped(host: Host) -> None:
    host.built()
    host.act(command("stop"))
    host.settle()
    host.built()
    assert host.conductor.outcomes == [(1, "built")]
    assert host.power() == PowerState.SHUTDOWN


def test_build_destroys_a_lower_generation_and_never_builds_it_again(host: Host) -> None:
    host.built(1)
    host.built(2)
    host.build(1)
    host.settle()
    assert host.domains() == {UUID: 2}
    assert host.conductor.outcomes == [(1, "built"), (2, "built")]


@pytest.mark.parametrize("step", BUILD_STEPS)
@pytest.mark.parametrize(
    ("error", "outcome"),
    [("virt", "rescheduled"), ("unexpected", "rescheduled"), ("hypervisor", "rescheduled"), ("abort", "aborted")],
)
def test_build_failure_leaves_nothing_and_is_revoked_before_its_report(
    host: Host, step: str, error: str, outcome: str
) -> None:
    seen: list[Any] = []

    def at_report(_: Any) -> None:
        on_disk = FencingTokenStore(host.manager.host.fencing._directory).get(UUID)
        seen.append((host.traces(), on_disk.revoked_generation))

    host.conductor.hooks["finish_build"] = at_report
    host.control(fail_at=[step], fail_error=error)
    host.build()
    host.settle()
    assert seen == [([], 1)]
    assert host.conductor.outcomes == [(1, outcome)]
    assert f"configured to fail at {step}" in host.conductor.of("finish_build")[0].details


@pytest.mark.parametrize("step", ["list_domains", *BUILD_STEPS[:3]])
def test_build_without_a_hypervisor_is_rescheduled_at_once(host: Host, step: str) -> None:
    """No domain was created, so none can run. The domain reconciliation removes remaining disks."""
    host.control(fail_at=[step, "destroy", "get_info", "plug_vifs"], fail_error="hypervisor")
    host.build()
    host.settle()
    assert host.conductor.outcomes == [(1, "rescheduled")]
    assert "Connection to the hypervisor is broken" in host.conductor.of("finish_build")[0].message


@pytest.mark.parametrize("step", BUILD_STEPS)
def test_build_is_repeated_once_at_its_host_after_a_broken_connection(host: Host, step: str) -> None:
    host.control(fail_at=[step], fail_error="hypervisor", fail_count=1)
    host.built()
    assert host.conductor.outcomes == [(1, "built")]
    assert host.manager.build_slots.limit == host.conf.compute.max_concurrent_builds // 2


def test_build_whose_connection_breaks_twice_does_not_blame_its_host(host: Host) -> None:
    host.control(fail_at=["spawn_before_domain"], fail_error="hypervisor", fail_count=2)
    host.build()
    host.settle()
    (result,) = host.conductor.of("finish_build")
    assert (result.outcome, result.blames_host) == ("rescheduled", False)
    assert host.traces() == []


@pytest.mark.parametrize("error", ["virt", "unexpected"])
def test_other_failures_of_a_build_blame_its_host_at_once(host: Host, error: str) -> None:
    host.control(fail_at=["spawn_before_domain"], fail_error=error, fail_count=1)
    host.build()
    host.settle()
    (result,) = host.conductor.of("finish_build")
    assert (result.outcome, result.blames_host) == ("rescheduled", True)


def test_build_that_is_revoked_meanwhile_is_not_repeated_after_a_broken_connection(host: Host) -> None:
    def revoke() -> None:
        host.manager.host.fencing.revoke(UUID, 1)

    host.driver.hooks["destroy"] = revoke
    host.control(fail_at=["spawn_before_domain"], fail_error="hypervisor", fail_count=1)
    host.build()
    host.settle()
    assert host.conductor.outcomes == []
    assert host.traces() == []


def test_build_failure_is_reported_only_when_its_domain_is_destroyed(host: Host) -> None:
    host.driver.hooks["spawn_after_domain"] = lambda: host.control(fail_at=["destroy"])
    host.driver.hypervisor.remove = lambda uuid: None  # type: ignore[method-assign]  # the hypervisor does not let go of it
    host.conductor.hooks["finish_build"] = lambda _: pytest.fail("reported while the domain is there")
    host.driver.hooks["spawn_before_domain"] = lambda: None

    def fail_late() -> None:
        host.control(fail_at=["spawn_after_domain", "destroy"])

    host.driver.hooks["spawn_after_domain"] = fail_late
    host.build()
    wait_for("destroy is tried three times", lambda: host.driver.steps.count("destroy") >= 3, DEADLINE)
    assert host.domains() == {UUID: 1}
    del host.driver.hypervisor.remove
    host.conductor.hooks.clear()
    host.control()
    host.settle()
    assert host.conductor.outcomes == [(1, "rescheduled")]
    assert host.traces() == []


def test_repeated_command_of_a_failed_build_repeats_its_report(host: Host) -> None:
    host.control(fail_at=["image"], fail_count=1, fail_error="abort")
    host.build()
    host.settle()
    after = host.next_life()
    after.build()
    after.settle()
    first, second = host.conductor.of("finish_build")
    assert first == second
    assert after.traces() == []


def test_next_generation_is_built_where_the_last_one_failed(host: Host) -> None:
    host.control(fail_at=["image"], fail_count=1)
    host.build(1)
    host.settle()
    host.built(2)
    assert host.conductor.outcomes == [(1, "rescheduled"), (2, "built")]


@pytest.mark.parametrize(
    ("values", "outcome", "words"),
    [
        ({"limits": {"memory_mb": 100}}, "rescheduled", "512 MB of memory requested, 100 of 100 left"),
        ({"limits": {"vcpus": 0}}, "rescheduled", "1 vCPUs requested"),
        ({"injected_files": {"/etc/motd": "not base64!"}}, "aborted", "/etc/motd"),
        ({"image": Image(id="absent", name="absent")}, "rescheduled", "Image absent cannot be read"),
        ({"images": {"kernel": Image(id="kernel", name="kernel")}}, "rescheduled", "Image kernel cannot be read"),
    ],
)
def test_build_request_that_does_not_fit_reports_the_reason(
    host: Host, values: dict[str, Any], outcome: str, words: str
) -> None:
    host.build(**values)
    host.settle()
    assert host.conductor.outcomes == [(1, outcome)]
    assert words in host.conductor.of("finish_build")[0].message
    assert host.traces() == []


def test_build_is_limited_by_the_hosts_capacity_below_the_limits(host: Host) -> None:
    host.control(memory_mb=700)
    host.manager.heartbeat.refresh()
    host.built(limits={"memory_mb": 99999})
    other = "22222222-2222-4222-8222-222222222222"
    host.build(uuid=other, instance=make_instance(other), limits={"memory_mb": 99999})
    host.settle()
    assert host.conductor.of("finish_build")[-1].outcome == "rescheduled"
    host.act(command("delete"))
    host.settle()
    host.build(2, uuid=other, instance=make_instance(other))
    host.settle()
    assert host.domains() == {other: 2}


@pytest.mark.parametrize(
    ("error", "abort"),
    [
        (exceptions.ComputeResourcesUnavailable(reason="x"), False),
        (exceptions.VirtDriverError(reason="x"), False),
        (exceptions.HypervisorUnavailable(host="h", reason="x"), False),
        (RuntimeError("x"), False),
        (exceptions.ImageFileMissing(image_id="i", reason="x"), False),
        (exceptions.ImageCorrupt(image_id="i", reason="x"), False),
        (exceptions.ImageGone(image_id="i", reason="x"), True),
        (exceptions.ConfigDriveInvalid(reason="x"), True),
        (exceptions.NoMoreFixedIps(network_id="n"), True),
        (exceptions.FlavorDiskTooSmall(flavor_size=1, image_min_disk=2), True),
    ],
)
def test_build_failure_aborts_or_reschedules_by_its_error(error: Exception, abort: bool) -> None:
    assert is_request_error(error) is abort


def test_build_without_free_addresses_aborts(host: Host) -> None:
    host.conductor.errors["start_build"] = [exceptions.NoMoreFixedIps(network_id="net")]
    host.build()
    host.settle()
    assert host.conductor.outcomes == [(1, "aborted")]
    assert host.traces() == []


@pytest.mark.parametrize(
    "error",
    [
        exceptions.StaleReport(instance_id=UUID, generation=1, host=HOST),
        exceptions.InstanceGone(instance_id=UUID),
    ],
)
@pytest.mark.parametrize("method", ["start_build", "finish_build"])
def test_rejected_build_is_removed_without_a_report(host: Host, method: str, error: Exception) -> None:
    host.conductor.errors[method] = [error]
    host.build()
    host.settle()
    assert host.traces() == []
    assert host.conductor.of("finish_build") == []
    assert host.record().revoked_generation == 1


@pytest.mark.parametrize("outcome", ["built", "rescheduled"])
def test_build_report_is_repeated_until_the_conductor_answers(host: Host, outcome: str) -> None:
    def go_down(_: Any) -> None:
        host.conductor.down = True
        host.conductor.hooks["finish_build"] = tries.append

    tries: list[Any] = []
    host.conductor.hooks["finish_build"] = go_down
    if outcome == "rescheduled":
        host.control(fail_at=["plug_vifs"])
    host.build()
    wait_for("the report is tried three times", lambda: len(tries) >= 3, DEADLINE)
    assert host.manager.jobs.building() == {UUID: 1}
    host.conductor.down = False
    host.settle()
    assert host.conductor.outcomes == [(1, outcome)]


def test_build_waits_for_an_unavailable_or_failing_conductor(host: Host) -> None:
    host.conductor.errors["start_build"] = [
        exceptions.DatabaseUnavailable(),
        RuntimeError("remote"),
        exceptions.MessagingUnavailable(what="x"),
    ]
    host.built()
    assert host.conductor.outcomes == [(1, "built")]


def test_builds_are_limited_and_a_delete_does_not_wait_for_a_slot(tmp_path: Path) -> None:
    host = Host(tmp_path, max_concurrent_builds=2)
    gate = host.driver.hooks["plug_vifs"] = Gate()
    uuids = [f"{number}2222222-2222-4222-8222-222222222222" for number in range(3)]
    for uuid in uuids:
        host.build(uuid=uuid, instance=make_instance(uuid))
    wait_for("interfaces are plugged twice", lambda: host.driver.steps.count("plug_vifs") == 2, DEADLINE)
    started = {uuid for uuid, _, _ in host.conductor.of("start_build")}
    (waiting,) = set(uuids) - started
    host.act(command("delete", uuid=waiting))
    wait_for("the action is finished", lambda: host.conductor.of("finish_action"), DEADLINE)
    assert host.driver.steps.count("plug_vifs") == 2
    gate.open()
    host.settle()
    assert set(host.domains()) == started


# --- a delete or a revocation during a build


@pytest.mark.parametrize("step", BUILD_STEPS)
def test_delete_stops_a_build_at_any_step(host: Host, step: str) -> None:
    gate = host.driver.hooks[step] = Gate()
    host.build()
    gate.wait()
    host.act(command("delete"))
    wait_for("the later command is recorded", lambda: host.record().last_action_id == LATER, DEADLINE)
    gate.open()
    host.settle()
    assert host.traces() == []
    assert ("spawn_after_domain" in host.driver.steps) == (step == "spawn_after_domain"), (
        "a revoked build may not continue"
    )
    assert host.conductor.of("finish_build") == []
    assert host.conductor.of("finish_action") == [(LATER, None, None)]


def test_delete_during_the_last_check_destroys_the_domain(host: Host) -> None:
    """The instance is revoked after the driver's check, and before the build is recorded as complete."""
    gate = host.driver.hooks["spawn_after_domain"] = Gate()
    host.build()
    gate.wait()
    assert host.domains() == {UUID: 1}
    host.act(command("delete"))
    gate.open()
    host.settle()
    assert host.traces() == []


def test_driver_checks_fencing_right_before_it_creates_the_domain(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prove that the tests above can fail: without that check a revoked generation is created."""
    existed: list[dict[str, int]] = []
    host.driver.hooks["spawn_before_domain"] = lambda: host.manager.host.fencing.revoke(UUID, 1)
    host.driver.hooks["spawn_after_domain"] = lambda: existed.append(host.domains())
    host.build()
    host.settle()
    assert existed == []

    def without_check(self: FencingTokenStore, instance_uuid: str, generation: int) -> None:
        return None

    monkeypatch.setattr(FencingTokenStore, "mark_creating", without_check)
    host.driver.hooks["spawn_before_domain"] = lambda: host.manager.host.fencing.revoke(UUID, 2)
    host.build(2)
    host.settle()
    assert existed == [{UUID: 2}]


def test_build_command_after_its_delete_is_dropped(host: Host) -> None:
    host.act(command("delete"))
    host.settle()
    host.build()
    host.settle()
    assert host.traces() == []
    assert [name for name, _ in host.conductor.calls[1:]] == ["finish_action", "is_command_open"]


def test_revocation_survives_a_jump_of_the_clock(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.fence() is True
    ahead = time.time() + 8 * 24 * 3600
    monkeypatch.setattr(time, "time", lambda: ahead)
    host.manager.prune_fencing_records()
    host.build()
    host.settle()
    assert host.domains() == {}


def test_late_build_of_a_settled_instance_is_dropped(host: Host) -> None:
    assert host.fence() is True
    host.conductor.settled = SettledRecords(instance_uuids=[UUID], last_action_id=CREATE)
    host.manager.prune_fencing_records()
    assert host.manager.host.fencing.without_domain() == []
    for life in (host, host.next_life()):
        life.build()
        life.settle()
        assert life.domains() == {}
    assert len(host.conductor.of("is_command_open")) == 2


def test_late_build_of_a_settled_instance_that_the_conductor_waits_for_is_done(host: Host) -> None:
    host.fence()
    host.conductor.settled = SettledRecords(instance_uuids=[UUID], last_action_id=CREATE)
    host.manager.prune_fencing_records()
    host.conductor.open_requests.add(build_request(2).request_id)
    host.built(2)


def test_build_of_a_new_action_after_pruning_queries_nothing(host: Host) -> None:
    host.conductor.settled = SettledRecords(last_action_id=CREATE - 1)
    host.fence()
    host.manager.prune_fencing_records()
    host.built(2)
    assert host.conductor.of("is_command_open") == []


def test_pruning_queries_in_pages_and_leaves_busy_instances_out(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "PRUNE_BATCH", 2)
    uuids = [f"{number}1111111-1111-4111-8111-111111111111" for number in range(5)]
    for uuid in uuids:
        host.manager.host.fencing.revoke(uuid, 1)
    host.conductor.settled = SettledRecords(instance_uuids=uuids, last_action_id=1)
    monkeypatch.setattr(host.manager.jobs, "is_busy", lambda uuid: uuid == uuids[0])
    host.manager.prune_fencing_records()
    assert [len(page) for page in host.conductor.of("fencing_records_settled")] == [2, 2, 1]
    assert [record.uuid for record in host.manager.host.fencing.without_domain()] == uuids[:1]


# --- a kill at any step


def killed_at(host: Host, step: str) -> Host:
    """Return the run after a kill at ``step`` of a build, whose thread never continues."""
    gate = Gate()
    (host.conductor.hooks if step in ("start_build", "finish_build") else host.driver.hooks)[step] = gate
    host.build()
    gate.wait()
    host.conductor.hooks.clear()
    return host.next_life()


ALL_STEPS = ["start_build", *BUILD_STEPS, "finish_build"]


@pytest.mark.parametrize("step", ALL_STEPS)
def test_repeated_build_command_after_a_kill_creates_one_instance(host: Host, step: str) -> None:
    after = killed_at(host, step)
    after.manager.reconciler.run()
    after.built()
    assert host.conductor.outcomes == [(1, "built")]


@pytest.mark.parametrize("step", ALL_STEPS)
def test_fencing_reply_after_a_kill_is_final(host: Host, step: str) -> None:
    """The instance runs (False), or nothing is left and a late command builds nothing (True)."""
    after = killed_at(host, step)
    fenced = after.fence()
    assert fenced is (step not in ("spawn_after_domain", "finish_build"))
    assert after.domains() == ({} if fenced else {UUID: 1})
    assert after.fence() is fenced
    after.build()
    after.settle()
    assert after.domains() == ({} if fenced else {UUID: 1})
    assert host.conductor.outcomes == [(1, "rescheduled" if fenced else "built")]


@pytest.mark.parametrize("step", ALL_STEPS)
def test_delete_after_a_kill_leaves_nothing(host: Host, step: str) -> None:
    after = killed_at(host, step)
    after.act(command("delete"))
    after.settle()
    after.build()
    after.settle()
    assert after.traces() == []
    assert host.conductor.of("finish_action") == [(LATER, None, None)]


def test_domain_of_a_revoked_build_is_destroyed_after_a_kill(host: Host) -> None:
    """The build is revoked. Its running domain must not count as a success."""
    gate = host.driver.hooks["destroy"] = Gate()
    host.driver.hypervisor.remove = lambda uuid: None  # type: ignore[method-assign]
    host.control(fail_at=["spawn_after_domain"])
    host.build()
    gate.wait()
    assert host.domains() == {UUID: 1}
    after = host.next_life()
    after.manager.reconciler.run()
    assert after.traces() == []
    assert host.conductor.of("reconcile_domains") == [([], [])]
    after.build()
    after.settle()
    assert host.conductor.outcomes == [(1, "rescheduled")]
    assert after.traces() == []


def test_claims_survive_a_kill(host: Host) -> None:
    host.built()
    assert host.next_life().manager.host.claims.used().memory_mb == 512


def test_fencing_record_is_one_private_file(host: Host) -> None:
    host.built()
    directory = host.path / "fences" / HOST
    assert sorted(path.name for path in directory.iterdir()) == [f"{UUID}.json", "identity"]
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


def test_driver_receives_the_build_request(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    specs: list[SpawnSpec] = []
    original = host.driver.guests.spawn
    monkeypatch.setattr(host.driver.guests, "spawn", lambda spec: (specs.append(spec), original(spec)))
    host.build(admin_password="secret", injected_files={"/etc/motd": "aGk="})
    host.settle()
    (spec,) = specs
    assert spec.instance == build_request().instance
    assert (spec.generation, spec.admin_password, spec.injected_files) == (1, "secret", {"/etc/motd": "aGk="})
    assert [vif.address for vif in spec.vifs] == ["10.0.0.5"]
    assert host.record() != Record(uuid=UUID) and CREATE < LATER

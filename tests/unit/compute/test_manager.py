"""The compute daemon: contracts, heartbeats, start and stop."""

from __future__ import annotations

import inspect
import threading
import time
import types
from pathlib import Path
from typing import Any

import pytest

from nova_lite import operations, rpc
from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.base.exceptions import ImageFileMissing
from nova_lite.base.timing import ComputeTiming
from nova_lite.compute.jobs import InstanceLocks, Jobs
from nova_lite.compute.manager import ComputeManager
from nova_lite.objects import HostReport, Image, PacketProbe, PacketSighting, Place
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.virt import fake_hypervisor
from nova_lite.virt.driver import ComputeDriver
from tests.support.compute_host import DEADLINE, LATER, UUID, FakeConductor, Gate, Host, command
from tests.support.fake_clients import assert_same_signature
from tests.support.waiting import wait_for


def test_manager_implements_every_rpc_method(host: Host) -> None:
    rpc.Endpoint(ComputeRPC, host.manager, commands=host.manager.commands)
    assert set(host.manager.commands) == set(operations.command_methods())


def test_fake_conductor_has_the_signatures_of_the_real_one() -> None:
    methods = [name for name, _ in inspect.getmembers(FakeConductor, inspect.isfunction) if name[0] != "_"]
    assert "finish_build" in methods
    for name in set(methods) - {"of"}:
        assert_same_signature(getattr(FakeConductor, name), getattr(ConductorRPC, name))


def test_manager_registers_before_it_serves(host: Host) -> None:
    ((name, report),) = host.conductor.calls
    assert name == "register_host"
    assert isinstance(report, HostReport)
    assert (report.host, report.inventories[0].hypervisor_type, report.building) == ("host-a", "fake", {})


def test_daemon_has_a_new_boot_id_at_each_start(host: Host) -> None:
    host.manager.registration.send_heartbeat()
    host.next_life()
    first, second = host.conductor.of("register_host")
    (beat,) = host.conductor.of("report_state")
    assert beat.boot_id == first.boot_id != second.boot_id


def test_heartbeats_list_jobs_until_they_are_reported(host: Host) -> None:
    gate = host.conductor.hooks["finish_build"] = Gate()
    host.build(7)
    gate.wait()
    host.manager.registration.send_heartbeat()
    gate.open()
    host.settle()
    power = host.driver.hooks["power_off"] = Gate()
    host.act(command("stop", generation=7))
    power.wait()
    host.manager.registration.send_heartbeat()
    power.open()
    host.settle()
    host.manager.registration.send_heartbeat()
    beats = [(beat.building, beat.acting) for beat in host.conductor.of("report_state")]
    assert beats == [({UUID: 7}, []), ({}, [LATER]), ({}, [])]


def test_heartbeats_continue_while_the_hypervisor_hangs(host: Host) -> None:
    gate = host.driver.hooks["inventory"] = Gate()
    threading.Thread(target=host.manager.heartbeat.refresh, daemon=True).start()
    gate.wait()
    host.manager.registration.send_heartbeat()
    assert host.conductor.of("report_state")[0].inventories[0].memory_mb == 65536
    gate.open()


def test_inventory_is_refreshed(host: Host) -> None:
    host.control(memory_mb=99)
    host.manager.heartbeat.refresh()
    assert host.manager.heartbeat.capacity().memory_mb == 99


def test_capacity_equals_the_conductors_calculation(host: Host) -> None:
    for name, value in {
        "cpu_allocation_ratio": 1.5,
        "reserved_host_memory_mb": 536,
        "reserved_host_disk_mb": 1,
    }.items():
        host.conf.set_override(name, value)
    capacity = host.manager.heartbeat.capacity()
    assert (capacity.vcpus, capacity.memory_mb, capacity.disk_gb) == (24, 65000, 1023)
    report = host.manager.heartbeat.report()
    assert (report.cpu_allocation_ratio, report.reserved_memory_mb, report.reserved_disk_gb) == (1.5, 536, 1)


def test_manager_without_a_hypervisor_does_not_start(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for step in ("init_host", "inventory"):
        host.control(fail_at=[step], fail_error="hypervisor")
        with pytest.raises(exceptions.HypervisorUnavailable):
            host.next_life()
    host.control()
    host.next_life()


def test_console_output_returns_the_last_lines(host: Host) -> None:
    with pytest.raises(exceptions.InstanceNotReady):
        host.manager.get_console_output(host.context, UUID, None)
    host.built()
    everything = host.manager.get_console_output(host.context, UUID, None)
    assert everything.count("\n") == 3
    assert host.manager.get_console_output(host.context, UUID, 1) == everything.splitlines()[-1]
    assert host.manager.get_console_output(host.context, UUID, 0) == ""


def test_diagnostics_need_a_running_guest(host: Host) -> None:
    with pytest.raises(exceptions.InstanceNotReady):
        host.manager.get_instance_diagnostics(host.context, UUID)
    host.built()
    found = host.manager.get_instance_diagnostics(host.context, UUID)
    assert (found.driver, len(found.cpus), len(found.disks)) == ("fake", 1, 1)
    host.driver.power.off(UUID, 0)
    with pytest.raises(exceptions.InstanceInvalidState, match="power state shutdown"):
        host.manager.get_instance_diagnostics(host.context, UUID)


def test_driver_without_console_output_is_an_error(host: Host) -> None:
    conf = host.conf
    bare = ComputeDriver(conf, "host-b", host.driver.fetch_image)
    mute = ComputeManager(conf, "host-b", bare, FakeConductor(), host.images)  # type: ignore[arg-type]
    with pytest.raises(exceptions.NotImplementedByDriver):
        mute.get_console_output(host.context, UUID, None)
    with pytest.raises(exceptions.NotImplementedByDriver):
        mute.get_instance_diagnostics(host.context, UUID)


def test_stop_waits_for_a_build(host: Host) -> None:
    gate = host.driver.hooks["image"] = Gate()
    host.build()
    gate.wait()
    stopping = threading.Thread(target=host.manager.stop)
    stopping.start()
    gate.open()
    stopping.join(10)
    assert not stopping.is_alive()
    assert host.conductor.outcomes == [(1, "built")]


def test_stop_times_out_and_the_next_start_finishes_the_build(tmp_path: Path) -> None:
    host = Host(tmp_path, timing=ComputeTiming(stop_wait=0.0))
    host.conductor.down = True
    host.build()
    wait_for("the host builds", lambda: host.manager.jobs.building(), DEADLINE)
    started = time.monotonic()
    host.manager.stop()
    host.settle()
    assert time.monotonic() - started < 5
    assert host.traces() == []
    host.conductor.down = False
    assert host.conductor.outcomes == []
    host.next_life().built()


def test_domain_survives_a_stop_with_an_undelivered_report(tmp_path: Path) -> None:
    host = Host(tmp_path, timing=ComputeTiming(stop_wait=0.0))

    def go_down(_: Any) -> None:
        host.conductor.down = True

    host.conductor.hooks["finish_build"] = go_down
    host.build()
    wait_for("a domain is made", lambda: host.domains(), DEADLINE)
    host.manager.stop()
    host.settle()
    host.conductor.hooks.clear()
    host.conductor.down = False
    host.next_life().built()
    assert host.conductor.outcomes == [(1, "built")]


def test_full_disk_prevents_revocation_and_report(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """No report may be sent without a revocation: the conductor would give the build to another host."""
    host.control(fail_at=["image"])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nova_lite.base.files.os.fsync", full)
    host.build()
    host.settle()
    assert host.conductor.of("finish_build") == []
    monkeypatch.undo()
    host.build()
    host.settle()
    assert host.conductor.outcomes == [(1, "rescheduled")]


def test_instance_lock_is_exclusive_and_removed_after_use() -> None:
    locks = InstanceLocks()
    with locks.hold("a"):
        with pytest.raises(exceptions.ServiceUnavailable), locks.hold("a", timeout=0.01):
            pytest.fail("held twice")
        with locks.hold("b"):
            pass
    with locks.hold("a", timeout=0.01):
        pass
    assert locks._locks == {}


def test_failed_job_is_not_in_progress_any_more() -> None:
    jobs = Jobs()

    def fail() -> None:
        raise RuntimeError("no")

    assert jobs.start_build(get_admin_context(), "a", 1, fail)
    assert jobs.wait_idle(10)
    assert not jobs.is_busy("a")
    assert jobs.start_build(get_admin_context(), "a", 1, lambda: None)
    assert jobs.wait_idle(10)


def test_job_runs_in_the_context_of_its_request() -> None:
    from oslo_context import context as oslo_context

    jobs, seen = Jobs(), []
    request_context = get_admin_context("req-11111111-1111-4111-8111-111111111111")
    jobs.start_build(request_context, "a", 1, lambda: seen.append(oslo_context.get_current()))
    assert jobs.wait_idle(10)
    assert seen[0].request_id == request_context.request_id


def test_image_fetches_in_advance_only_log_failures(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    missing, there = Image(id="missing", name="m"), Image(id="there", name="t")
    known = {"there"}

    def fetch_image(image: Image, target: str) -> None:
        if image.id not in known:
            raise ImageFileMissing(image_id=image.id, reason="no such file")
        Path(target).touch()

    host.manager.host.driver.fetch_image = fetch_image
    host.manager.cache_images(get_admin_context(), [missing, there])
    directory = Path(fake_hypervisor.state_path(host.manager.host.conf, host.manager.host.name)) / "images"
    wait_for(
        "only the named image is there", lambda: [path.name for path in directory.iterdir()] == ["there"], DEADLINE
    )
    assert "Image missing could not be fetched" in caplog.text


def test_image_removal_follows_the_options(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    ages: list[float] = []

    def age_images(minimum_age: float) -> list[str]:
        ages.append(minimum_age)
        return ["old-image"]

    host.manager.age_images()
    host.driver.images.remove_unused = age_images  # type: ignore[method-assign]
    host.manager.age_images()
    assert ages == [86400]
    assert "Image old-image is removed" in caplog.text
    host.conf.set_override("remove_unused_base_images", False, "image_cache")
    host.manager.age_images()
    assert ages == [86400]


def test_idle_networks_are_removed_where_the_driver_can(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    def age_networks(minimum_age: float) -> list[str]:
        if minimum_age != host.manager.host.timing.network_age:
            raise AssertionError(minimum_age)
        return ["net-1"]

    def fail(minimum_age: float) -> list[str]:
        raise exceptions.HypervisorUnavailable(host="h1", reason="libvirtd is away")

    host.manager.age_networks()
    host.driver.networks.remove_unused = age_networks  # type: ignore[attr-defined]
    host.manager.age_networks()
    assert "Network net-1 is removed from this host" in caplog.text
    host.driver.networks.remove_unused = fail  # type: ignore[attr-defined]
    host.manager.age_networks()
    assert "No idle network is removed" in caplog.text and "libvirtd is away" in caplog.text


def test_probe_of_a_packet_is_the_drivers(host: Host) -> None:
    probe = PacketProbe(
        instance_uuid=UUID,
        port_id="p",
        source="10.0.0.2",
        destination="10.0.0.3",
        protocol="icmp",
        port=None,
        neighbour=None,
        mark=7,
    )
    with pytest.raises(exceptions.NotImplementedByDriver, match="probes of packets"):
        host.manager.probe_packet(host.context, probe)
    seen = [PacketSighting(Place("port", "p", True), "10.0.0.2", "10.0.0.3")]
    host.manager.host.driver.probes = types.SimpleNamespace(run=lambda wanted: seen if wanted == probe else [])
    assert host.manager.probe_packet(host.context, probe) == seen

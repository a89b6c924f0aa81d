"""History of use: when counters are read, their rates, and that metrics say the same."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions, metrics
from nova_lite.compute.server_metrics import ServerMetrics
from nova_lite.compute.usage_history import UsageRecorder, _Reading, samples_of
from nova_lite.objects import UsageSample
from nova_lite.virt import fake
from nova_lite.virt.abilities import GuestStatistics, HostCounters
from nova_lite.virt.driver import ComputeDriver
from tests.support.compute_host import HOST, UUID, Host, make_conf

_MIB = 1024 * 1024
HOST_COUNTERS = HostCounters(cpus=4, cpu_seconds=10, memory_mb=100, memory_used_mb=50)


class World:
    """A recorder of a host with one guest, whose clocks and counters the test sets."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.elapsed, self.cpu, self.readings = 3000.0, 0.0, 0.0, 0
        self.error: Exception | None = None
        self.driver = fake.FakeDriver(make_conf(path), HOST, lambda image, target: None)
        self.driver.statistics.guests = self._guests  # type: ignore[method-assign]
        self.driver.statistics.host = lambda: HOST_COUNTERS  # type: ignore[method-assign]
        monkeypatch.setattr(time, "monotonic", lambda: self.elapsed)
        self.recorder = UsageRecorder(HOST, self.driver, str(path / "usage" / HOST), lambda: self.now)

    def _guests(self) -> list[GuestStatistics]:
        self.readings += 1
        if self.error is not None:
            raise self.error
        return [GuestStatistics(uuid=UUID, project_id="p", cpu_seconds=self.cpu, memory_bytes=64 * _MIB)]

    def at(self, now: float, cpu: float, later: float = 30.0) -> None:
        """Call the recorder at this time, ``later`` seconds after the last call."""
        self.now, self.cpu, self.elapsed = now, cpu, self.elapsed + later
        self.recorder.tick()

    def cpus(self) -> list[float | None]:
        return [sample and sample.cpu for sample in self.recorder.read(UUID, "hour").samples][-4:]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_counters_are_read_once_in_a_step(world: World) -> None:
    for now in range(3000, 3060):
        world.at(now, now / 2, later=1)
    assert world.readings == 2
    assert world.cpus() == [None, None, None, 0.5]


def test_steps_without_a_reading_have_the_mean_of_the_next_one(world: World) -> None:
    world.at(3000, 0)
    world.at(3090, 9, later=90)
    assert world.cpus() == [None, *[pytest.approx(0.1)] * 3]


def test_clock_that_was_set_leaves_a_gap(world: World) -> None:
    world.at(3000, 0)
    world.at(9_000_000, 9)
    assert world.cpus() == [None] * 4
    world.at(6000, 9)
    world.at(6030, 12)
    assert world.cpus() == [None, None, None, pytest.approx(0.1)]


def test_unreadable_counters_leave_a_gap_and_are_no_tight_loop(world: World) -> None:
    world.at(3000, 0)
    world.error = exceptions.VirtDriverError(reason="gone")
    with pytest.raises(exceptions.HypervisorUnavailable, match="its use is unknown"):
        world.at(3030, 0)
    world.at(3031, 0, later=1)
    assert world.readings == 2, "the next attempt is a step later"


def test_full_disk_is_an_error_in_one_line_and_the_next_step_is_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.at(3000, 0)
    with monkeypatch.context() as broken, pytest.raises(exceptions.ServiceUnavailable, match="No space left"):
        broken.setattr(os, "pwrite", lambda *arguments: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
        world.at(3030, 3)
    world.at(3060, 6)
    assert world.cpus() == [None, None, None, pytest.approx(0.1)]


def test_driver_without_statistics_has_an_empty_history(tmp_path: Path) -> None:
    bare = ComputeDriver(make_conf(tmp_path), HOST, lambda image, target: None)
    recorder = UsageRecorder(HOST, bare, str(tmp_path / "usage" / HOST))
    recorder.tick()
    assert recorder.read(None, "week").samples == [None] * 168


def counters(**changes: Any) -> GuestStatistics:
    return GuestStatistics(uuid=UUID, project_id="p", **changes)


def test_rates_are_those_of_the_counters() -> None:
    later = HostCounters(cpus=4, cpu_seconds=40, memory_mb=100, memory_used_mb=60, network_sent_bytes=300)
    old = counters(cpu_seconds=100.0, disk_read_bytes=50, network_received_bytes=7)
    new = counters(cpu_seconds=3.0, disk_read_bytes=350, memory_bytes=8 * _MIB, network_sent_bytes=1)
    found = samples_of(_Reading(1, 0.0, HOST_COUNTERS, {UUID: old}), _Reading(2, 30.0, later, {UUID: new, "new": new}))
    assert list(found.values()) == [
        UsageSample(cpu=1.0, memory_mb=60, disk_read_rate=0, disk_write_rate=0, rx_rate=0, tx_rate=10),
        UsageSample(cpu=0.1, memory_mb=8, disk_read_rate=10),
    ], "a guest that was started again counts from 0, and what is unknown at one end has no rate"


def test_metrics_and_history_agree(tmp_path: Path) -> None:
    """The rate of a server's counters between two scrapes is what its history describes the time between."""
    driver = fake.FakeDriver(make_conf(tmp_path), HOST, lambda image, target: None)
    pages = []
    for cpu, sent in ((5.0, 1000), (11.0, 4000)):
        found = counters(cpu_seconds=cpu, network_sent_bytes=sent, memory_bytes=_MIB)
        driver.statistics.guests = lambda found=found: [found]  # type: ignore[method-assign]
        pages.append((found, dict(ServerMetrics(driver, 10).samples())))
    (first, before), (last, after) = pages
    sample = samples_of(_Reading(1, 0.0, HOST_COUNTERS, {UUID: first}), _Reading(2, 30.0, HOST_COUNTERS, {UUID: last}))[
        UUID
    ]

    def rate(name: str) -> float:
        return (after[name][1] - before[name][1]) / 30

    assert sample.cpu == pytest.approx(rate(metrics.SERVER_CPU))
    assert sample.tx_rate == pytest.approx(rate(metrics.SERVER_SENT))
    assert sample.memory_mb == after[metrics.SERVER_MEMORY][1] / _MIB


def test_manager_returns_the_history_of_its_host(host: Host) -> None:
    found = host.manager.get_usage_history(host.context, None, "day")
    assert (found.step, found.samples) == (600, [None] * 144)
    assert (Path(host.conf.state_path) / "usage" / HOST).exists()

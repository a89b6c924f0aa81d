"""Reports of a host's load: means over readings, and when they are sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.base.timing import ComputeTiming
from nova_lite.compute.load_reports import LoadReports, Reading, load_of
from nova_lite.objects.balance import HostLoad, Load, LoadRequest
from nova_lite.virt.abilities import GuestStatistics, HostCounters

MIB = 1024 * 1024


def guest(uuid: str, cpu: float, **counters: int) -> GuestStatistics:
    return GuestStatistics(uuid=uuid, project_id="p", cpu_seconds=cpu, memory_bytes=100 * MIB, **counters)


def reading(at: float, cpu: float, *guests: GuestStatistics, **counters: Any) -> Reading:
    values = {"cpus": 4, "cpu_seconds": cpu, "memory_mb": 1000.0, "memory_used_mb": 500.0, **counters}
    return Reading(at, HostCounters(**values), {item.uuid: item for item in guests})


def test_load_is_the_mean_over_the_readings_and_the_rest_belongs_to_no_server() -> None:
    found = load_of(
        [reading(0, 10, guest("a", 5)), reading(50, 120, guest("a", 55)), reading(100, 210, guest("a", 105))]
    )
    assert found == HostLoad(
        seconds=100,
        capacity=Load(cpu=4, memory=1000),
        other=Load(cpu=1.0, memory=400),
        servers={"a": Load(cpu=1.0, memory=100)},
    )


def test_server_that_came_later_counts_from_its_first_reading_and_before_that_as_the_rest() -> None:
    found = load_of(
        [reading(0, 0, guest("old", 0)), reading(50, 50, guest("new", 0)), reading(100, 150, guest("new", 50))]
    )
    assert found.servers == {"new": Load(cpu=1.0, memory=100)}
    assert found.other.cpu == pytest.approx(1.0)
    assert load_of([reading(0, 0), reading(10, 1, guest("b", 3))]).servers == {}, "one reading is no rate"


def test_server_that_has_left_is_no_load_of_the_host_any_more() -> None:
    gone = [reading(at, at, guest("gone", at * 0.75)) for at in (0, 30, 60)]
    found = load_of([*gone, reading(90, 67.5), reading(120, 75, memory_used_mb=400.0)])
    assert found.servers == {}
    assert found.other.cpu == pytest.approx((75 - 45) / 120)
    assert found.other.memory == pytest.approx(480 - 60)


def test_memory_of_a_server_that_has_just_arrived_counts_in_full() -> None:
    """The host has used 400 MB, and uses 500 MB since the server with 100 MB is here, at the last two readings."""
    before = [reading(at, at, memory_used_mb=400.0) for at in (0, 50)]
    here = [reading(at, at, guest("new", at), memory_used_mb=500.0) for at in (100, 150)]
    found = load_of([*before, *here])
    assert found.servers["new"].memory == 100
    assert found.other.memory == pytest.approx(400)


def test_guest_that_was_started_anew_counts_from_zero() -> None:
    assert load_of([reading(0, 0, guest("a", 900)), reading(10, 9, guest("a", 5))]).servers["a"].cpu == 0.5


def test_disk_and_network_are_shared_by_bytes() -> None:
    disk = {"has_disk": True, "disk_read_bytes": 1000, "disk_busy_seconds": 8.0, "network_mbps": 1000.0}
    first = reading(0, 0, guest("a", 0, disk_read_bytes=0), has_disk=True)
    last = reading(
        10, 0, guest("a", 0, disk_read_bytes=250, network_sent_bytes=1_250_000), network_bytes=2_500_000, **disk
    )
    found = load_of([first, last])
    assert found.servers["a"].disk == pytest.approx(0.2)
    assert found.other.disk == pytest.approx(0.6)
    assert found.servers["a"].network == pytest.approx(1.0)
    assert found.other.network == pytest.approx(1.0)
    assert (found.capacity.disk, found.capacity.network) == (1.0, 1000.0)


class Machine:
    """A driver, a conductor and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reply: LoadRequest | Exception = LoadRequest(interval=10, window=25)
        self.reports: list[tuple[float, HostLoad | None]] = []
        self.readings = self.samplings = 0
        self.error: Exception | None = None
        timing = ComputeTiming(load_ask_interval=100.0, load_retry_interval=5.0)
        self.loads = LoadReports("host1", SimpleNamespace(statistics=self), self, timing, lambda: self.now)  # type: ignore[arg-type]

    def guests(self) -> list[GuestStatistics]:
        if self.error is not None:
            raise self.error
        self.readings += 1
        return [guest("a", self.now)]

    def host(self) -> HostCounters:
        return reading(0, 2 * self.now).host

    def dirty_rates(self, start: bool) -> dict[str, float]:
        self.samplings += start
        return {"a": 5.0}

    def report_load(self, context: Any, host: str, load: HostLoad | None) -> LoadRequest:
        self.reports.append((self.now, load))
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    def run(self, until: float) -> None:
        while self.now < until:
            self.loads.tick()
            self.now += 1.0


def test_unwanted_load_is_not_measured_and_the_conductor_is_asked_rarely() -> None:
    machine = Machine()
    machine.reply = LoadRequest()
    machine.run(250)
    assert [at for at, load in machine.reports] == [0, 100, 200]
    assert machine.readings == 0


def test_wanted_load_is_reported_in_the_interval_over_the_window() -> None:
    machine = Machine()
    machine.run(51)
    assert [(at, load and load.seconds) for at, load in machine.reports] == [
        (0, None),
        (10, None),
        (20, 10),
        (30, 20),
        (40, 30),
        (50, 30),
    ]
    assert machine.samplings == 2
    assert machine.reports[-1][1].dirty == {"a": 5.0}  # type: ignore[union-attr]


def test_unreadable_hypervisor_is_tried_again_later() -> None:
    machine = Machine()
    machine.loads.tick()
    machine.now, machine.error = 10.0, exceptions.VirtDriverError(reason="busy")
    with pytest.raises(exceptions.HypervisorUnavailable, match="busy"):
        machine.loads.tick()
    machine.now, machine.error = 14.0, None
    machine.loads.tick()
    assert machine.readings == 0
    machine.now = 15.0
    machine.loads.tick()
    assert machine.readings == 1

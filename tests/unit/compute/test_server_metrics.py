"""Metrics of servers: which servers have them, how often the hypervisor is called, and a hypervisor that hangs."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from nova_lite.base import exceptions, metrics
from nova_lite.base.timing import ComputeTiming
from nova_lite.compute.server_metrics import METRICS, ServerMetrics
from nova_lite.virt import fake
from nova_lite.virt.abilities import GuestStatistics
from nova_lite.virt.driver import ComputeDriver
from tests.support.compute_host import HOST, make_conf
from tests.support.waiting import wait_for, wait_for_none

ALWAYS = ComputeTiming(statistics_lifetime=0.0)


class Driver(fake.FakeDriver):
    """A driver with these running guests. ``hook``: called by each reading."""

    def __init__(self, path: Path, *uuids: str) -> None:
        super().__init__(make_conf(path), HOST, lambda image, target: None)
        self.uuids = list(uuids)
        self.calls = 0
        self.hook: Callable[[], None] = lambda: None
        self.statistics.guests = self._guests  # type: ignore[method-assign]

    def _guests(self) -> list[GuestStatistics]:
        self.calls += 1
        self.hook()
        return [GuestStatistics(uuid=uuid, project_id="p", cpu_seconds=1.5) for uuid in self.uuids]


def servers(source: ServerMetrics) -> set[str]:
    return {labels[0] for name, (labels, _) in source.samples() if name == metrics.SERVER_CPU}


def value(source: ServerMetrics, wanted: str) -> float:
    (found,) = (value for name, (_, value) in source.samples() if name == wanted)
    return found


def test_servers_have_no_metrics_by_default(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "u1")
    assert make_conf(tmp_path).metrics.servers == 0
    assert list(ServerMetrics(driver, 0).samples()) == []
    assert driver.calls == 0


def test_page_has_counters_with_ids_of_server_and_project(tmp_path: Path) -> None:
    source = ServerMetrics(Driver(tmp_path, "u1"), 10)
    metrics.add_gauges(source, source.samples)
    try:
        text = metrics.render()[0].decode()
    finally:
        metrics.remove_gauges(source)
    assert 'nova_lite_server_cpu_seconds_total{project="p",server="u1"} 1.5' in text
    assert "# TYPE nova_lite_server_cpu_seconds_total counter" in text
    assert "nova_lite_server_memory_bytes{" not in text, "an unknown value is left out"


def test_ids_are_escaped_in_labels(tmp_path: Path) -> None:
    source = ServerMetrics(Driver(tmp_path, 'u"} 1\nnova_lite_up 0'), 10)
    metrics.add_gauges(source, source.samples)
    try:
        lines = metrics.render()[0].decode().splitlines()
    finally:
        metrics.remove_gauges(source)
    assert r'nova_lite_server_cpu_seconds_total{project="p",server="u\"} 1\nnova_lite_up 0"} 1.5' in lines


def test_servers_beyond_the_limit_are_counted_and_others_keep_their_place(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "u3", "u4", "u5")
    source = ServerMetrics(driver, 2, ALWAYS)
    assert servers(source) == {"u3", "u4"}
    driver.uuids += ["u1", "u2"]
    wait_for(
        "all are counted", lambda: value(source, metrics.SERVERS_LEFT_OUT) == 3, 30
    )  # a slow reading is kept longer
    assert servers(source) == {"u3", "u4"}
    driver.uuids.remove("u3")
    wait_for("the next one is shown", lambda: servers(source) != {"u3", "u4"}, 30)
    assert servers(source) == {"u1", "u4"}


def test_scrapes_in_quick_succession_share_a_call(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "u1")
    source = ServerMetrics(driver, 10)
    for _ in range(5):
        assert servers(source) == {"u1"}
    assert driver.calls == 1


def test_hypervisor_that_hangs_has_one_call_and_the_page_has_the_last_values(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "u1")
    source = ServerMetrics(driver, 10, ComputeTiming(statistics_lifetime=0.0, statistics_wait=0.05))
    assert servers(source) == {"u1"}
    go_on = threading.Event()
    driver.hook = lambda: go_on.wait(60) and None  # type: ignore[assignment]
    driver.uuids = ["u2"]
    try:
        for _ in range(3):
            assert servers(source) == {"u1"}
        assert driver.calls == 2
    finally:
        go_on.set()
    wait_for("new values", lambda: servers(source) == {"u2"}, 30)


def test_slow_reading_is_repeated_less_often(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "u1")
    source = ServerMetrics(driver, 10, ALWAYS)
    driver.hook = lambda: time.sleep(0.5)
    for _ in range(20):
        assert servers(source) == {"u1"}
    assert driver.calls == 1


@pytest.mark.parametrize("error", [exceptions.HypervisorUnavailable(host="h", reason="away"), KeyError("net")])
def test_old_values_are_left_out_after_a_while(tmp_path: Path, error: Exception) -> None:
    driver = Driver(tmp_path, "u1")
    source = ServerMetrics(driver, 10, ComputeTiming(statistics_lifetime=0.0, statistics_max_age=0.2))
    assert servers(source) == {"u1"}

    def fail() -> None:
        raise error

    driver.hook = fail
    wait_for_none("old values", lambda: list(source.samples()), 30)


def test_driver_without_counters_has_no_metrics_of_servers() -> None:
    assert list(ServerMetrics(ComputeDriver(None, HOST, lambda image, target: None), 10).samples()) == []


def test_every_counter_of_the_driver_has_a_metric() -> None:
    assert set(METRICS) == set(GuestStatistics.__struct_fields__) - {"uuid", "project_id"}
    assert Counter(METRICS.values()).most_common(1)[0][1] == 1

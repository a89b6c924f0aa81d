from __future__ import annotations

import threading

import pytest

from nova_lite.base import metrics
from nova_lite.compute.build_slots import SLOW_SECONDS, BuildSlots
from nova_lite.compute.heartbeat import Heartbeat
from tests.support.compute_host import DEADLINE, Host
from tests.support.waiting import wait_for


def test_slow_hypervisor_halves_the_builds_down_to_one(caplog: pytest.LogCaptureFixture) -> None:
    slots = BuildSlots(10)
    limits = []
    for _ in range(5):
        slots.answered(SLOW_SECONDS + 1)
        limits.append(slots.limit)
    assert limits == [5, 2, 1, 1, 1]
    assert [record.getMessage() for record in caplog.records] == [
        f"The hypervisor is slow (it took 2.0 s to answer): at most {limit} builds at a time" for limit in (5, 2, 1)
    ]


def test_fast_hypervisor_gets_its_builds_back_one_by_one() -> None:
    slots = BuildSlots(4)
    slots.reduce("its connection broke")
    limits = []
    for _ in range(3):
        slots.answered(0.01)
        limits.append(slots.limit)
    assert limits == [3, 4, 4]


def test_builds_wait_for_a_slot_and_get_it_when_the_number_grows() -> None:
    slots = BuildSlots(2)
    slots.reduce("its connection broke")
    gate, running = threading.Event(), []

    def build() -> None:
        with slots.hold():
            running.append(1)
            gate.wait(30)

    threads = [threading.Thread(target=build) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_for("a build runs", lambda: running, DEADLINE)
    assert len(running) == 1
    slots.answered(0.0)
    wait_for("a second build runs", lambda: len(running) == 2, DEADLINE)
    gate.set()
    for thread in threads:
        thread.join(30)
    assert len(running) == 3


def test_number_of_builds_is_a_metric(host: Host) -> None:
    host.manager.build_slots.answered(SLOW_SECONDS + 1)
    found = dict(host.manager.states())
    assert found[metrics.BUILD_SLOTS] == ((), 5.0)


def test_each_inventory_adapts_the_number_of_builds(host: Host) -> None:
    answers: list[float] = []
    heartbeat = Heartbeat(host.conf, "host-a", host.driver, host.manager.jobs, answers.append)
    heartbeat.refresh()
    assert len(answers) == 1
    assert host.manager.heartbeat._on_answer == host.manager.build_slots.answered

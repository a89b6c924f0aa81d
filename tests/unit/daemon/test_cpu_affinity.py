"""A daemon's threads are on one CPU, and leave it where it is crowded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nova_lite.daemon import cpu_affinity
from nova_lite.daemon.cpu_affinity import CpuAffinity

TOP = Path(__file__).resolve().parents[3]


class Machine:
    """``allowed``: the CPUs that the process may use; ``moves``: of its threads, the CPUs that each was told."""

    def __init__(self, path: Path, cpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.allowed = set(range(cpus))
        self.moves: dict[int, set[int]] = {}
        self.ticks = {cpu: [0, 0] for cpu in range(cpus)}
        self.times, self.threads = path / "stat", path / "task"
        for thread in (101, 102):
            (self.threads / str(thread)).mkdir(parents=True)
        monkeypatch.setattr(cpu_affinity, "_TIMES", self.times)
        monkeypatch.setattr(cpu_affinity, "_THREADS", self.threads)
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(self.allowed))
        monkeypatch.setattr(os, "sched_setaffinity", self._set)
        self.goes_on()

    def _set(self, thread: int, cpus: set[int]) -> None:
        if not (self.threads / str(thread)).exists():
            raise ProcessLookupError
        self.moves[thread] = self.allowed = set(cpus)

    def goes_on(self, *idle: float) -> None:
        """For 100 ticks, of which each CPU was idle for this part."""
        for cpu, part in enumerate(idle):
            self.ticks[cpu][0] += round(100 * (1 - part))
            self.ticks[cpu][1] += round(100 * part)
        lines = [f"cpu{cpu} {busy} 0 0 {idle} 0 0 0 0 0 0" for cpu, (busy, idle) in self.ticks.items()]
        self.times.write_text("\n".join(["cpu  1 2 3 4 5 6 7 8 9 10", *lines, "intr 1 2 3", "ctxt 4"]) + "\n")


def begun(machine: Machine) -> CpuAffinity:
    """On the first CPU, which was the least busy one."""
    keeper = CpuAffinity()
    keeper()
    assert not machine.moves, "a daemon that begins competes with others that do"
    machine.goes_on(*([1.0] + [0.9] * (len(machine.ticks) - 1)))
    keeper()
    return keeper


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, 4, monkeypatch)


def test_all_threads_go_to_one_and_stay(machine: Machine) -> None:
    keeper = begun(machine)
    assert machine.moves == {101: {0}, 102: {0}}
    machine.moves.clear()
    machine.goes_on(0.4, 1.0, 1.0, 1.0)
    keeper()
    assert not machine.moves, "there is room"


def test_they_leave_a_crowded_one_for_the_least_busy(machine: Machine) -> None:
    keeper = begun(machine)
    machine.goes_on(0.0, 0.3, 0.8, 0.5)
    keeper()
    assert machine.moves == {101: {2}, 102: {2}}
    machine.goes_on(1.0, 1.0, 0.3, 1.0)
    keeper()
    assert machine.moves == {101: {2}, 102: {2}}, "it is theirs now that is looked at"


@pytest.mark.parametrize("idle", [(0.02, 0.2, 0.1, 0.0), (0.06, 1.0, 1.0, 1.0), (0.0, 0.0, 0.0, 0.0)])
def test_they_do_not_leave_for_little(machine: Machine, idle: tuple[float, ...]) -> None:
    keeper = begun(machine)
    machine.goes_on(*idle)
    keeper()
    assert machine.moves == {101: {0}, 102: {0}}


def test_what_somebody_else_has_decided_holds(machine: Machine) -> None:
    keeper = begun(machine)
    machine.allowed = {2, 3}
    machine.goes_on(1.0, 1.0, 0.4, 0.0)
    keeper()
    assert machine.moves == {101: {2}, 102: {2}}
    machine.goes_on(1.0, 1.0, 0.0, 0.4)
    keeper()
    assert machine.moves == {101: {3}, 102: {3}}, "of those that it was given"
    machine.allowed = {1}
    machine.moves.clear()
    machine.goes_on(1.0, 0.0, 1.0, 1.0)
    keeper()
    assert not machine.moves


def test_on_a_machine_of_one_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, 1, monkeypatch)
    begun(machine)
    assert not machine.moves


def test_who_may_not_choose_does_not_try_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a unit of before, which does not allow it."""
    tried: list[int] = []

    def refused(thread: int, cpus: set[int]) -> None:
        tried.append(thread)
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refused)
    keeper = begun(machine)
    keeper()
    assert len(tried) == 1


def test_a_thread_that_has_ended_is_in_nobodys_way(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    move = os.sched_setaffinity

    def moved(thread: int, cpus: set[int]) -> None:
        if thread == 101:
            raise ProcessLookupError
        move(thread, cpus)

    monkeypatch.setattr(os, "sched_setaffinity", moved)
    begun(machine)
    assert machine.moves == {102: {0}}


def test_the_unit_and_devstack_let_it_choose_and_go_first() -> None:
    unit = (TOP / "etc/systemd/nova-lite-conductor.service").read_text().splitlines()
    assert f"Nice={cpu_affinity.NICE}" in unit
    filters = [line for line in unit if line.startswith("SystemCallFilter=")]
    assert filters[-1] == "SystemCallFilter=sched_setaffinity", "after what takes it away"
    script = (TOP / "devstack/lib/services.sh").read_text()
    assert f"nice={cpu_affinity.NICE}\n" in script and '--nicelevel "$nice"' in script


PROGRAM = """
import os, threading, time
from nova_lite.daemon.cpu_affinity import CpuAffinity
stop = threading.Event()
before = [threading.Thread(target=stop.wait) for _ in range(8)]
for each in before: each.start()
keeper = CpuAffinity()
keeper()
time.sleep(0.1)
keeper()
after = threading.Thread(target=stop.wait)
after.start()
found = {frozenset(os.sched_getaffinity(int(thread))) for thread in os.listdir("/proc/self/task")}
stop.set()
print(len(found), *map(len, found))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="it takes two CPUs")
def test_real_threads_from_before_and_after() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["1", "1"]

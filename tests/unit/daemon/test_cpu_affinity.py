"""CPU affinity: all threads of a daemon share one CPU, and leave it when it is too busy."""

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
    """A fake machine. ``allowed``: CPUs that the process may use. ``moves``: the CPUs that each thread was bound to."""

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
        self.run()

    def _set(self, thread: int, cpus: set[int]) -> None:
        if not (self.threads / str(thread)).exists():
            raise ProcessLookupError
        self.moves[thread] = self.allowed = set(cpus)

    def run(self, *idle: float) -> None:
        """Let 100 ticks pass. Each CPU is idle for this share of them."""
        for cpu, part in enumerate(idle):
            self.ticks[cpu][0] += round(100 * (1 - part))
            self.ticks[cpu][1] += round(100 * part)
        lines = [f"cpu{cpu} {busy} 0 0 {idle} 0 0 0 0 0 0" for cpu, (busy, idle) in self.ticks.items()]
        self.times.write_text("\n".join(["cpu  1 2 3 4 5 6 7 8 9 10", *lines, "intr 1 2 3", "ctxt 4"]) + "\n")


def bound(machine: Machine) -> CpuAffinity:
    """Return an affinity that has chosen the first CPU, the least busy one."""
    affinity = CpuAffinity()
    affinity()
    assert not machine.moves, "the first call only measures"
    machine.run(*([1.0] + [0.9] * (len(machine.ticks) - 1)))
    affinity()
    return affinity


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, 4, monkeypatch)


def test_affinity_binds_all_threads_to_one_cpu(machine: Machine) -> None:
    affinity = bound(machine)
    assert machine.moves == {101: {0}, 102: {0}}
    machine.moves.clear()
    machine.run(0.4, 1.0, 1.0, 1.0)
    affinity()
    assert not machine.moves, "the CPU is idle enough"


def test_affinity_leaves_a_busy_cpu_for_the_least_busy_one(machine: Machine) -> None:
    affinity = bound(machine)
    machine.run(0.0, 0.3, 0.8, 0.5)
    affinity()
    assert machine.moves == {101: {2}, 102: {2}}
    machine.run(1.0, 1.0, 0.3, 1.0)
    affinity()
    assert machine.moves == {101: {2}, 102: {2}}, "the CPU that they use now is idle"


@pytest.mark.parametrize("idle", [(0.02, 0.2, 0.1, 0.0), (0.06, 1.0, 1.0, 1.0), (0.0, 0.0, 0.0, 0.0)])
def test_affinity_stays_when_no_cpu_is_much_more_idle(machine: Machine, idle: tuple[float, ...]) -> None:
    affinity = bound(machine)
    machine.run(*idle)
    affinity()
    assert machine.moves == {101: {0}, 102: {0}}


def test_affinity_uses_the_cpus_that_somebody_else_has_set(machine: Machine) -> None:
    affinity = bound(machine)
    machine.allowed = {2, 3}
    machine.run(1.0, 1.0, 0.4, 0.0)
    affinity()
    assert machine.moves == {101: {2}, 102: {2}}
    machine.run(1.0, 1.0, 0.0, 0.4)
    affinity()
    assert machine.moves == {101: {3}, 102: {3}}, "the least busy of the two"
    machine.allowed = {1}
    machine.moves.clear()
    machine.run(1.0, 0.0, 1.0, 1.0)
    affinity()
    assert not machine.moves


def test_affinity_on_a_machine_with_one_cpu_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, 1, monkeypatch)
    bound(machine)
    assert not machine.moves


def test_affinity_that_is_forbidden_is_not_tried_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older unit file may forbid it."""
    tried: list[int] = []

    def refused(thread: int, cpus: set[int]) -> None:
        tried.append(thread)
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refused)
    affinity = bound(machine)
    affinity()
    assert len(tried) == 1


def test_affinity_ignores_a_thread_that_has_ended(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    move = os.sched_setaffinity

    def moved(thread: int, cpus: set[int]) -> None:
        if thread == 101:
            raise ProcessLookupError
        move(thread, cpus)

    monkeypatch.setattr(os, "sched_setaffinity", moved)
    bound(machine)
    assert machine.moves == {102: {0}}


def test_unit_and_devstack_allow_affinity_and_set_nice() -> None:
    unit = (TOP / "etc/systemd/nova-lite-conductor.service").read_text().splitlines()
    assert f"Nice={cpu_affinity.NICE}" in unit
    filters = [line for line in unit if line.startswith("SystemCallFilter=")]
    assert filters[-1] == "SystemCallFilter=sched_setaffinity", "it has to follow the line that forbids it"
    script = (TOP / "devstack/lib/services.sh").read_text()
    assert f"nice={cpu_affinity.NICE}\n" in script and '--nicelevel "$nice"' in script


PROGRAM = """
import os, threading, time
from nova_lite.daemon.cpu_affinity import CpuAffinity
stop = threading.Event()
before = [threading.Thread(target=stop.wait) for _ in range(8)]
for thread in before: thread.start()
affinity = CpuAffinity()
affinity()
time.sleep(0.1)
affinity()
after = threading.Thread(target=stop.wait)
after.start()
cpus = {frozenset(os.sched_getaffinity(int(thread))) for thread in os.listdir("/proc/self/task")}
stop.set()
print(len(cpus), *map(len, cpus))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_affinity_covers_real_threads_that_start_before_and_after() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["1", "1"]

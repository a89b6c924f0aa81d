"""All threads of a daemon on one CPU of the machine, the least busy one.

Python runs one thread of a process at a time. A conductor under load hands the interpreter's lock from thread to thread
thousands of times a second, and the kernel wakes each of them on whichever CPU is idle: that one has to be woken first,
which takes longer than what the thread then does, and nobody works meanwhile. Measured with 40 creates a second at
1,000 hosts, in turns of 12 seconds on one cloud and two CPUs: half of the creates were accepted after 75 ms on one CPU
and 139 on both, 99 of 100 of a sample of three seconds after 175 and 288 (medians), with half as many switches between
threads (4,200 a second and 8,500) and less CPU in all daemons (`benchmarks/soak.py`).

What else wants that CPU, the kernel takes to another one. Where that is not enough, as others are bound to it, too, the
daemon goes to one that is less busy.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
from pathlib import Path

LOG = logging.getLogger(__name__)

#: Of the conductor, as its unit says: who waits for the broker, the database and users waits for it, too, and it takes
#: one CPU at most. In turns of 12 seconds, under the load above: half of the creates were accepted after 85 ms (97), 99
#: of 100 of three seconds after 202 (241).
NICE = -10

#: Seconds between two looks at how busy the CPUs are.
INTERVAL = 2.0
#: Part of its time that a CPU is idle at most where there is no room any more; and how much more another one has to be
#: idle to be worth going there.
CROWDED = 0.05
MORE = 0.25

_TIMES = Path("/proc/stat")
_THREADS = Path("/proc/self/task")


class CpuAffinity:
    """To be called every `INTERVAL`. Of the CPUs that the process may use it keeps to one, from the second time on: a
    daemon that begins competes with others that do. If somebody else gives it others meanwhile, it is of those; if
    there is only one, or it may not choose, nothing is done."""

    def __init__(self) -> None:
        self._allowed: set[int] = set()
        self._cpu: int | None = None
        self._before: dict[int, tuple[int, int]] = {}
        self._forbidden = False

    def __call__(self) -> None:
        if self._forbidden:
            return
        try:
            self._look()
        except PermissionError as error:
            self._forbidden = True
            LOG.info("Threads are on whatever CPUs the kernel gives them, as it may not be said: %s", error)

    def _look(self) -> None:
        current = os.sched_getaffinity(0)
        if current != {self._cpu}:
            self._allowed, self._cpu = current, None
        if len(self._allowed) < 2:
            return
        now = _times()
        idle = {cpu: _idle(self._before[cpu], now[cpu]) for cpu in self._allowed & now.keys() & self._before.keys()}
        self._before = now
        if not idle:
            return
        best = max(idle, key=lambda cpu: (idle[cpu], random.random()))
        own = idle.get(self._cpu, 0.0) if self._cpu is not None else 0.0
        if self._cpu is None or (own <= CROWDED and idle[best] - own >= MORE):
            self._go(best)

    def _go(self, cpu: int) -> None:
        """With all threads; those that are started later are where the one is that starts them."""
        done: set[str] = set()
        while threads := {path.name for path in _THREADS.iterdir()} - done:
            for thread in threads:
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    os.sched_setaffinity(int(thread), {cpu})
            done |= threads
        self._cpu = cpu
        LOG.debug("All threads are on CPU %d", cpu)


def _times() -> dict[int, tuple[int, int]]:
    """Of each CPU, ticks that it was idle or waited for a disk, and all ticks; proc_stat(5)."""
    found = {}
    for line in _TIMES.read_text().splitlines():
        name, *ticks = line.split()
        if name.startswith("cpu") and name != "cpu":
            found[int(name[3:])] = int(ticks[3]) + int(ticks[4]), sum(map(int, ticks[:8]))
    return found


def _idle(before: tuple[int, int], now: tuple[int, int]) -> float:
    """The part of the time; 0 where it cannot be told."""
    return (now[0] - before[0]) / (now[1] - before[1]) if now[1] > before[1] else 0.0

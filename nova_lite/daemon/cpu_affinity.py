"""CPU affinity: keeps all threads of a daemon on one CPU, the least busy one.

Python runs one thread of a process at a time. A busy conductor passes the GIL from thread to thread thousands of times
a second. The kernel would wake each thread on an idle CPU, and that wake-up takes longer than the thread then works. On
one CPU there are half as many switches between threads, and creates are accepted in about half the time.

The kernel moves other processes to other CPUs. Where that is not enough, because they are bound to this CPU too, the
daemon moves to a less busy one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
from pathlib import Path

LOG = logging.getLogger(__name__)

#: Nice value of the conductor's unit. Every process that waits for the broker, the database or a user's request waits
#: for the conductor, which needs at most one CPU.
NICE = -10

#: Seconds between two checks of how busy the CPUs are.
INTERVAL = 2.0
#: The daemon leaves its CPU when that is idle for at most this share of the time,
MIN_IDLE = 0.05
#: and when another CPU is idle for at least this much more.
MIN_GAIN = 0.25

_TIMES = Path("/proc/stat")
_THREADS = Path("/proc/self/task")


class CpuAffinity:
    """Binds all threads of this process to one of the CPUs that it may use. To be called every `INTERVAL` seconds.

    The first call only measures, because several daemons may start at the same time. If another program changes the
    CPUs of the process meanwhile, it chooses among those. It does nothing if there is only one, or if it may not
    choose.
    """

    def __init__(self) -> None:
        self._allowed: set[int] = set()
        self._cpu: int | None = None
        self._last_times: dict[int, tuple[int, int]] = {}
        self._forbidden = False

    def __call__(self) -> None:
        if self._forbidden:
            return
        try:
            self._update()
        except PermissionError as error:
            self._forbidden = True
            LOG.info("CPU affinity is off, as the process may not choose its CPU: %s", error)

    def _update(self) -> None:
        current = os.sched_getaffinity(0)
        if current != {self._cpu}:
            self._allowed, self._cpu = current, None
        if len(self._allowed) < 2:
            return
        now, last = _times(), self._last_times
        idle = {cpu: _idle_share(last[cpu], now[cpu]) for cpu in self._allowed & now.keys() & last.keys()}
        self._last_times = now
        if not idle:
            return
        best = max(idle, key=lambda cpu: (idle[cpu], random.random()))
        own = idle.get(self._cpu, 0.0) if self._cpu is not None else 0.0
        if self._cpu is None or (own <= MIN_IDLE and idle[best] - own >= MIN_GAIN):
            self._move_to(best)

    def _move_to(self, cpu: int) -> None:
        """Move all threads. A thread that starts later inherits the CPU of the thread that starts it."""
        moved: set[str] = set()
        while threads := {path.name for path in _THREADS.iterdir()} - moved:
            for thread in threads:
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    os.sched_setaffinity(int(thread), {cpu})
            moved |= threads
        self._cpu = cpu
        LOG.debug("All threads are on CPU %d", cpu)


def _times() -> dict[int, tuple[int, int]]:
    """Return for each CPU the ticks that it was idle or waited for a disk, and all ticks; see proc_stat(5)."""
    times = {}
    for line in _TIMES.read_text().splitlines():
        name, *ticks = line.split()
        if name.startswith("cpu") and name != "cpu":
            times[int(name[3:])] = int(ticks[3]) + int(ticks[4]), sum(map(int, ticks[:8]))
    return times


def _idle_share(last: tuple[int, int], now: tuple[int, int]) -> float:
    """Return the share of the time that a CPU was idle; 0 if no time has passed."""
    return (now[0] - last[0]) / (now[1] - last[1]) if now[1] > last[1] else 0.0

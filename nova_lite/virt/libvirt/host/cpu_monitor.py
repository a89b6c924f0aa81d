"""How busy the host's CPUs are, in Nova's names, for the scheduler's metrics filter and weigher.

What a host reports is stored and told to every scheduler when it changes, so it is kept steady: a reading is taken once
a minute at most, and only one that differs noticeably from the last reported takes its place.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import libvirt

from nova_lite.virt.libvirt.connection import Connection, LibvirtFailure

LOG = logging.getLogger(__name__)

#: Nova's name of the one monitor that there is, in ``[DEFAULT] compute_monitors``.
NAME = "cpu.virt_driver"

#: Seconds between two readings; the percentages are of the time between them.
INTERVAL = 60.0

#: What a percentage (0 to 1) and a frequency (as a share of itself) have to change by.
NOTICEABLE = 0.05

#: libvirt's kinds of processor time, each in nanoseconds since boot.
KINDS = ("user", "kernel", "idle", "iowait")

FREQUENCY = "cpu.frequency"


class CpuMonitor:
    """``clock``: seconds."""

    def __init__(self, connection: Connection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._next = float("-inf")
        self._times: Mapping[str, int] = dict.fromkeys(KINDS, 0)
        self._reported: dict[str, float] = {}

    def metrics(self) -> dict[str, float]:
        """Frequency in MHz, times in ns since boot, percentages from 0 to 1; the first ones are of the time since boot.

        Where libvirt cannot tell, those of the last reading that worked, or none: the host is of use all the same.
        Raises `HypervisorUnavailable`.
        """
        if self._clock() >= self._next:
            self._next = self._clock() + INTERVAL
            try:
                self._read()
            except LibvirtFailure as error:
                LOG.warning("The CPUs could not be measured: %s", error.message)
        return self._reported

    def _read(self) -> None:
        times = self._connection.connect_call("getCPUStats", libvirt.VIR_NODE_CPU_STATS_ALL_CPUS, 0)
        mhz = self._connection.connect_call("getInfo")[3]
        found = cpu_metrics(self._times, times, mhz)
        self._times = times
        if differs(self._reported, found):
            self._reported = found


def cpu_metrics(before: Mapping[str, int], now: Mapping[str, int], mhz: int) -> dict[str, float]:
    """From two readings of the processor times in `KINDS`; a kind that libvirt does not tell counts as 0."""
    spent = {kind: max(0, now.get(kind, 0) - before.get(kind, 0)) for kind in KINDS}
    total = sum(spent.values()) or 1
    metrics: dict[str, float] = {FREQUENCY: mhz}
    for kind in KINDS:
        metrics[f"cpu.{kind}.time"] = now.get(kind, 0)
        metrics[f"cpu.{kind}.percent"] = round(spent[kind] / total, 4)
    metrics["cpu.percent"] = round((spent["user"] + spent["kernel"] + spent["iowait"]) / total, 4)
    return metrics


def differs(before: Mapping[str, float], now: Mapping[str, float]) -> bool:
    """Noticeably. The times grow all the while, and say nothing new."""
    if before.keys() != now.keys():
        return True
    if abs(now[FREQUENCY] - before[FREQUENCY]) > NOTICEABLE * before[FREQUENCY]:
        return True
    return any(abs(now[name] - before[name]) >= NOTICEABLE for name in now if name.endswith(".percent"))

"""Load of the host's CPUs, with Nova's names, for the scheduler's metrics filter and weigher.

A changed report is stored and published to every scheduler. So the values are kept stable: they are read at most once a
minute, and only a noticeable change replaces the last reported values.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import libvirt

from nova_lite.virt.libvirt.connection import Connection, LibvirtFailure

LOG = logging.getLogger(__name__)

#: Nova's name of the only monitor, in ``[DEFAULT] compute_monitors``.
NAME = "cpu.virt_driver"

#: Seconds between two readings. The percentages apply to the time between them.
INTERVAL = 60.0

#: Least change of a percentage (0 to 1), and of a frequency (as a fraction of itself), that is reported.
NOTICEABLE = 0.05

#: libvirt's kinds of processor time, each in nanoseconds since boot.
KINDS = ("user", "kernel", "idle", "iowait")

FREQUENCY = "cpu.frequency"


class CpuMonitor:
    """Reads the load. ``clock``: returns seconds."""

    def __init__(self, connection: Connection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._next = float("-inf")
        self._times: Mapping[str, int] = dict.fromkeys(KINDS, 0)
        self._reported: dict[str, float] = {}

    def metrics(self) -> dict[str, float]:
        """Return the frequency in MHz, times in ns since boot, and percentages from 0 to 1.

        The first percentages apply to the time since boot. If libvirt fails, return the last values, or none: the host
        is usable without them. Raises `HypervisorUnavailable`.
        """
        if self._clock() >= self._next:
            self._next = self._clock() + INTERVAL
            try:
                self._read()
            except LibvirtFailure as error:
                LOG.warning("The load of the CPUs is unknown: %s", error.message)
        return self._reported

    def _read(self) -> None:
        times = self._connection.connect_call("getCPUStats", libvirt.VIR_NODE_CPU_STATS_ALL_CPUS, 0)
        mhz = self._connection.connect_call("getInfo")[3]
        found = cpu_metrics(self._times, times, mhz)
        self._times = times
        if has_changed(self._reported, found):
            self._reported = found


def cpu_metrics(before: Mapping[str, int], now: Mapping[str, int], mhz: int) -> dict[str, float]:
    """Calculate the metrics from two readings of the processor times in `KINDS`. A missing kind counts as 0."""
    spent = {kind: max(0, now.get(kind, 0) - before.get(kind, 0)) for kind in KINDS}
    total = sum(spent.values()) or 1
    metrics: dict[str, float] = {FREQUENCY: mhz}
    for kind in KINDS:
        metrics[f"cpu.{kind}.time"] = now.get(kind, 0)
        metrics[f"cpu.{kind}.percent"] = round(spent[kind] / total, 4)
    metrics["cpu.percent"] = round((spent["user"] + spent["kernel"] + spent["iowait"]) / total, 4)
    return metrics


def has_changed(before: Mapping[str, float], now: Mapping[str, float]) -> bool:
    """Check for a noticeable change. The times always grow, so they are ignored."""
    if before.keys() != now.keys():
        return True
    if abs(now[FREQUENCY] - before[FREQUENCY]) > NOTICEABLE * before[FREQUENCY]:
        return True
    return any(abs(now[name] - before[name]) >= NOTICEABLE for name in now if name.endswith(".percent"))

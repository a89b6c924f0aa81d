"""Reports of this host's load, and of each server's part in it, for balancing.

The conductor's reply says whether it needs them, how often, and over which time. While it needs none, nothing is
measured, and the host asks again every ten minutes.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.base.timing import TIMING, ComputeTiming
from nova_lite.objects.balance import HostLoad, Load, LoadRequest
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.virt.abilities import GuestStatistics, HostCounters
from nova_lite.virt.driver import ComputeDriver

LOG = logging.getLogger(__name__)

_MIB = 1024 * 1024
#: Bytes a second in one Mbit/s.
_MEGABIT = 125_000
#: A reading takes at most this part of the time, so that a slow hypervisor is not kept busy by it.
_SHARE = 5.0


class Reading(NamedTuple):
    """Counters at one moment, in seconds of a monotonic clock."""

    at: float
    host: HostCounters
    servers: dict[str, GuestStatistics]


class LoadReports:
    """Measures the load and reports it. Call `tick` every few seconds, from one thread."""

    def __init__(
        self,
        host: str,
        driver: ComputeDriver,
        conductor: ConductorRPC,
        timing: ComputeTiming = TIMING.compute,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._driver = driver
        self._conductor = conductor
        self._timing = timing
        self._clock = clock
        self._wanted = LoadRequest()
        self._readings: deque[Reading] = deque()
        self._next = float("-inf")
        self._next_dirty = float("-inf")

    def tick(self) -> None:
        """Measure and report if that is due."""
        if not self._driver.statistics or self._clock() < self._next:
            return
        self._next = self._clock() + self._timing.load_retry_interval
        started = self._clock()
        load = self._measure() if self._wanted.interval else None
        took = self._clock() - started
        self._wanted = self._report(load)
        if self._wanted.interval:
            self._next = started + max(self._wanted.interval, _SHARE * took)
        else:
            self._readings.clear()
            self._next = started + self._timing.load_ask_interval

    def _report(self, load: HostLoad | None) -> LoadRequest:
        return self._conductor.report_load(get_admin_context(), self._host, load)

    def _measure(self) -> HostLoad | None:
        """Return the means since the oldest reading within the window; None for the first reading.

        Raises `HypervisorUnavailable` if the counters cannot be read.
        """
        try:
            servers = {server.uuid: server for server in self._driver.statistics.guests()}
            dirty = self._dirty_rates()
            reading = Reading(self._clock(), self._driver.statistics.host(), servers)
        except (exceptions.VirtDriverError, OSError) as error:
            raise exceptions.HypervisorUnavailable(host=self._host, reason=f"its load is unknown: {error}") from error
        self._readings.append(reading)
        while len(self._readings) > 2 and self._readings[1].at <= self._readings[-1].at - self._wanted.window:
            self._readings.popleft()
        if len(self._readings) < 2:
            return None
        load = load_of(list(self._readings))
        load.dirty = dirty
        return load

    def _dirty_rates(self) -> dict[str, float]:
        """Return how fast guests change their memory. It is measured again once in a window."""
        is_due = self._clock() >= self._next_dirty
        if is_due:
            self._next_dirty = self._clock() + self._wanted.window
        return self._driver.statistics.dirty_rates(is_due)


def load_of(readings: list[Reading]) -> HostLoad:
    """Return the means of a host over its readings, at least two, the oldest first.

    A server counts from its first reading on. What it used before is part of ``other``. A server that has left counts
    nowhere from its first to its last reading: otherwise the host would seem busy for a window more, and give further
    servers away.
    """
    first, last = readings[0], readings[-1]
    seconds = max(last.at - first.at, 1e-3)
    memory = sum(reading.host.memory_used_mb for reading in readings) / len(readings)
    busy = max(0.0, last.host.disk_busy_seconds - first.host.disk_busy_seconds) / seconds
    used = Load(
        cpu=max(0.0, last.host.cpu_seconds - first.host.cpu_seconds) / seconds,
        memory=memory,
        disk=min(1.0, busy),
        network=max(0, last.host.network_bytes - first.host.network_bytes) / seconds / _MEGABIT,
    )
    capacity = Load(
        cpu=last.host.cpus,
        memory=last.host.memory_mb,
        disk=float(last.host.has_disk),
        network=last.host.network_mbps,
    )
    disk_bytes = max(0, last.host.disk_bytes - first.host.disk_bytes) / seconds
    busy_of_a_byte = used.disk / disk_bytes if disk_bytes else 0.0
    servers, known = {}, Load()
    for uuid in dict.fromkeys(uuid for reading in readings for uuid in reading.servers):
        having = [(reading.at, reading.servers[uuid]) for reading in readings if uuid in reading.servers]
        (since, oldest), (until, newest) = having[0], having[-1]
        if until <= since:
            continue
        load = _load_of_server(oldest, newest, until - since, busy_of_a_byte)
        known = known.plus(_part_of(load, (until - since) / seconds, len(having) / len(readings)))
        if uuid in last.servers:  # The host has no load of a server that has left.
            servers[uuid] = load
    return HostLoad(seconds=seconds, capacity=capacity, other=used.plus(known, -1), servers=servers)


def _load_of_server(oldest: GuestStatistics, newest: GuestStatistics, seconds: float, busy_of_a_byte: float) -> Load:
    def rate(*names: str) -> float:
        """Return the sum of these counters in a second. A guest that was started again counts from 0."""
        found = 0.0
        for name in names:
            before, now = getattr(oldest, name) or 0, getattr(newest, name) or 0
            found += (now - before if now >= before else now) / seconds
        return found

    return Load(
        cpu=rate("cpu_seconds"),
        memory=(newest.memory_bytes or 0) / _MIB,
        disk=min(1.0, rate("disk_read_bytes", "disk_written_bytes") * busy_of_a_byte),
        network=rate("network_received_bytes", "network_sent_bytes") / _MEGABIT,
    )


def _part_of(load: Load, share: float, present: float) -> Load:
    """Return what a server used in a mean over a longer time. Memory is no rate: it counts by the readings with it."""
    return Load(
        cpu=load.cpu * share, memory=load.memory * present, disk=load.disk * share, network=load.network * share
    )

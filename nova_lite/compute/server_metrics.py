"""Metrics of the servers of this host, from the driver's counters of all guests.

A scrape makes at most one call of the driver, and scrapes in quick succession share it. The call runs in its own
thread, so that a hypervisor that hangs delays a scrape by a few seconds only, and one call at a time hangs. A call that
takes long is repeated less often, so that reading never occupies more than a fifth of the time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator

from nova_lite.base import metrics
from nova_lite.base.timing import TIMING, ComputeTiming
from nova_lite.virt.abilities import GuestStatistics
from nova_lite.virt.driver import ComputeDriver

LOG = logging.getLogger(__name__)

#: Lifetime of counters in times of their reading, and their age at most, in lifetimes.
_REST, _LIFETIMES = 4.0, 3.0

#: Metric by the field of the statistics.
METRICS = {
    "cpu_seconds": metrics.SERVER_CPU,
    "memory_bytes": metrics.SERVER_MEMORY,
    "memory_limit_bytes": metrics.SERVER_MEMORY_LIMIT,
    "disk_read_bytes": metrics.SERVER_DISK_READ,
    "disk_written_bytes": metrics.SERVER_DISK_WRITTEN,
    "disk_reads": metrics.SERVER_DISK_READS,
    "disk_writes": metrics.SERVER_DISK_WRITES,
    "network_received_bytes": metrics.SERVER_RECEIVED,
    "network_sent_bytes": metrics.SERVER_SENT,
    "network_dropped": metrics.SERVER_DROPPED,
}


class ServerMetrics:
    """Metrics of at most ``limit`` running servers. A server that has metrics keeps them while it runs here."""

    def __init__(self, driver: ComputeDriver, limit: int, timing: ComputeTiming = TIMING.compute) -> None:
        self._driver = driver
        self._limit = limit if driver.statistics else 0
        self._timing = timing
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._read_at = float("-inf")
        self._took = 0.0
        self._servers: list[GuestStatistics] = []
        self._left_out = 0

    def samples(self) -> Iterator[tuple[str, metrics.Sample]]:
        """Yield the metrics for a scrape."""
        if not self._limit:
            return
        self._refresh()
        age = time.monotonic() - self._read_at
        if age > max(self._timing.statistics_max_age, _LIFETIMES * self._lifetime()):
            return
        yield metrics.sample(metrics.SERVERS_AGE, age)
        yield metrics.sample(metrics.SERVERS_LEFT_OUT, self._left_out)
        yield from _samples(self._servers)

    def _lifetime(self) -> float:
        return max(self._timing.statistics_lifetime, _REST * self._took)

    def _refresh(self) -> None:
        """Begin to read unless that is continuing, and wait a little for the result."""
        with self._lock:
            if time.monotonic() - self._read_at < self._lifetime():
                return
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._read, name="server-metrics", daemon=True)
                self._thread.start()
            thread = self._thread
        thread.join(self._timing.statistics_wait)

    def _read(self) -> None:
        started = time.monotonic()
        try:
            found = self._driver.statistics.guests()
        except Exception as error:
            LOG.info("The metrics of this host's servers cannot be read: %s", " ".join(str(error).split()))
            return
        ended = time.monotonic()
        shown = {server.uuid for server in self._servers}
        chosen = sorted(found, key=lambda server: (server.uuid not in shown, server.uuid))[: self._limit]
        with self._lock:
            self._servers, self._left_out = chosen, len(found) - len(chosen)
            self._read_at, self._took = ended, ended - started


def _samples(servers: Iterable[GuestStatistics]) -> Iterator[tuple[str, metrics.Sample]]:
    for server in servers:
        labels = (server.uuid, server.project_id)
        for field, name in METRICS.items():
            value = getattr(server, field)
            if value is not None:
                yield name, (labels, float(value))

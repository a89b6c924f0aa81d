"""History of the use of this host and its servers, for graphs.

Every 30 seconds the counters of all guests are read together, as for metrics and balancing, and their rates are written
into a file (`nova_lite.compute.usage_file`). A reading takes at most a fifth of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nova_lite.base import clock, exceptions
from nova_lite.compute.usage_file import HOST, UsageFile
from nova_lite.objects import USAGE_SPANS, UsageHistory, UsageSample
from nova_lite.virt.abilities import GuestStatistics, HostCounters
from nova_lite.virt.driver import ComputeDriver

_STEP = USAGE_SPANS["hour"][0]
_MIB = 1024 * 1024
#: A reading takes at most this part of the time.
_SHARE = 5
#: Steps that one reading may end, when the steps before it had none.
_MOST_STEPS = 10
#: Field of a sample by the counter that it is the rate of.
_RATES = {
    "cpu": "cpu_seconds",
    "disk_read_rate": "disk_read_bytes",
    "disk_write_rate": "disk_written_bytes",
    "rx_rate": "network_received_bytes",
    "tx_rate": "network_sent_bytes",
}


class _Reading(NamedTuple):
    """Counters at one moment. ``number``: the step of 30 seconds in which it lies; ``at``: by a monotonic clock."""

    number: int
    at: float
    host: HostCounters
    servers: dict[str, GuestStatistics]


class UsageRecorder:
    """Records the history. Call `tick` every second, from one thread."""

    def __init__(self, host: str, driver: ComputeDriver, path: str, wall: Callable[[], float] = clock.wall) -> None:
        self._host = host
        self._driver = driver
        self._wall = wall
        self._file = UsageFile(path)
        self._reading: _Reading | None = None
        self._rest = 0.0

    def tick(self) -> None:
        """Read the counters in the first second of a step, and record the means of the steps since the last reading.

        Raises `HypervisorUnavailable` if they cannot be read, and `ServiceUnavailable` if they cannot be recorded.
        """
        before, number = self._reading, self._number()
        if not self._driver.statistics or clock.monotonic() < self._rest or (before and number == before.number):
            return
        started = clock.monotonic()
        try:
            servers = {server.uuid: server for server in self._driver.statistics.guests()}
            now = _Reading(number, clock.monotonic(), self._driver.statistics.host(), servers)
        except (exceptions.VirtDriverError, OSError) as error:
            self._rest = clock.monotonic() + _STEP
            raise exceptions.HypervisorUnavailable(host=self._host, reason=f"its use is unknown: {error}") from error
        self._rest = started + _SHARE * (now.at - started)
        self._reading = now
        if before is None or not before.number < number <= before.number + _MOST_STEPS:
            return  # The daemon has just started, or the clock was set.
        try:
            for step in range(before.number, number):
                self._file.write(step, samples_of(before, now))
        except OSError as error:
            raise exceptions.ServiceUnavailable(f"The use of this host cannot be recorded: {error}") from error

    def read(self, instance_uuid: str | None, span: str) -> UsageHistory:
        """Return the history of a server, or of the host."""
        return self._file.read(instance_uuid or HOST, span, self._number() - 1)

    def _number(self) -> int:
        return int(self._wall() // _STEP)


def samples_of(before: _Reading, now: _Reading) -> dict[str, UsageSample]:
    """Return the use of the host and of each server between two readings."""
    seconds = max(now.at - before.at, 1e-3)
    found = {HOST: _sample(before.host, now.host, now.host.memory_used_mb, seconds)}
    for uuid, newest in now.servers.items():
        if (oldest := before.servers.get(uuid)) is not None:
            memory = None if newest.memory_bytes is None else newest.memory_bytes / _MIB
            found[uuid] = _sample(oldest, newest, memory, seconds)
    return found


def _sample(
    oldest: HostCounters | GuestStatistics, newest: HostCounters | GuestStatistics, memory: float | None, seconds: float
) -> UsageSample:
    def rate(counter: str) -> float | None:
        """Return the rate of a counter. A guest that was started again counts from 0."""
        start, end = getattr(oldest, counter), getattr(newest, counter)
        if start is None or end is None:
            return None
        return float(end - start if end >= start else end) / seconds

    return UsageSample(memory_mb=memory, **{field: rate(counter) for field, counter in _RATES.items()})

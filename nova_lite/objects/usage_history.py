"""Use of a server or a host over time, for graphs."""

from __future__ import annotations

import msgspec

#: Seconds of a step, and number of steps, by span.
USAGE_SPANS = {"hour": (30, 120), "day": (600, 144), "week": (3600, 168)}


class UsageSample(msgspec.Struct, kw_only=True, frozen=True):
    """Mean use in a step. None: unknown.

    ``cpu``: CPUs in use. ``memory_mb``: memory of the host that is in use. Rates: bytes a second.
    """

    cpu: float | None = None
    memory_mb: float | None = None
    disk_read_rate: float | None = None
    disk_write_rate: float | None = None
    rx_rate: float | None = None
    tx_rate: float | None = None


class UsageHistory(msgspec.Struct, kw_only=True):
    """Use over a span. ``start``: POSIX time at which the first step begins. ``step``: seconds of each.

    ``samples``: the oldest first, up to the last complete step of 30 seconds. None: nothing was measured.
    """

    start: int
    step: int
    samples: list[UsageSample | None]

"""Clocks that run at wrong rates: the same rate for the daemon and the guard of a host, within the promised bound."""

from __future__ import annotations

import random
import time

from nova_lite.compute import guard
from nova_lite.conductor.hosts.fencing import RATE_ERROR, LeaseWatch

_boot_time, _monotonic = guard.now, time.monotonic


def rate_of(seed: str, name: str) -> float:
    """Return the rate of a machine's clock. The extremes come often."""
    return 1 + random.Random(f"clock {seed} {name}").choice([-1, -0.5, 0.5, 1]) * RATE_ERROR


def run_guard_at(rate: float, origin: float) -> None:
    """Let the clock of leases run at a rate since ``origin``, so that all processes of a host agree."""
    guard.now = lambda: origin + (_boot_time() - origin) * rate


def run_at(rate: float, origin: float) -> None:
    """Let all clocks of this process run at a rate, except that of the wall."""
    began = _monotonic()
    time.monotonic = lambda: began + (_monotonic() - began) * rate
    LeaseWatch.__init__.__defaults__ = (time.monotonic,)
    run_guard_at(rate, origin)

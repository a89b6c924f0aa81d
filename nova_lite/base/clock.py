"""Clocks of this machine. Other modules read a clock, and sleep, through this module alone (`tools/seams.py`).

There are three clocks, and none replaces another. A *step* is a change of the wall clock by an operator or by NTP. Only
the wall clock has steps, so no duration may come from it.
"""

from __future__ import annotations

import time


def monotonic() -> float:
    """Return seconds since some moment. Has no steps, and stands still while the machine is suspended.

    For durations and deadlines in one process.
    """
    return time.monotonic()


def uptime() -> float:
    """Return seconds since the machine has booted. Has no steps, and counts the time in which it was suspended.

    For durations that processes of one machine share, and that a suspended machine must not lengthen.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall() -> float:
    """Return seconds since 1970. It may step. For the time that other machines and people read."""
    return time.time()


def sleep(seconds: float) -> None:
    time.sleep(seconds)

"""Polls with a deadline. `tests/unit/test_sleeps.py` names the few tests that sleep instead."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
DEADLINE = 120.0
FIRST_PAUSE = 0.001


def wait_for(what: str, condition: Callable[[], T | None], timeout: float = DEADLINE, interval: float = 0.1) -> T:
    """Poll until ``condition()`` is true and return it. Fail with ``what`` and its last value at the deadline."""
    value = None
    for _ in polls(timeout, interval):
        if value := condition():
            return value
    raise AssertionError(f"{what}: not within {timeout:g} s; last seen: {value!r:.2000}")


def wait_for_none(what: str, found: Callable[[], Any], timeout: float = DEADLINE, interval: float = 0.1) -> None:
    """Poll until ``found()`` is empty. Fail with ``what`` and the rest at the deadline."""
    left = None
    for _ in polls(timeout, interval):
        if not (left := found()):
            return
    raise AssertionError(f"{what}: not within {timeout:g} s; left: {left!r:.2000}")


def polls(timeout: float, interval: float = 0.1) -> Iterator[None]:
    """Yield for each poll, and once more at the deadline. Pauses double until they are ``interval`` long.

    For loops that do not fail at the deadline, or that watch for a stated time.
    """
    deadline = time.monotonic() + timeout
    pause = min(FIRST_PAUSE, interval)
    while (left := deadline - time.monotonic()) > 0:
        yield
        time.sleep(min(pause, left))
        pause = min(2 * pause, interval)
    yield

"""Delays after wrong passwords, by user and address and by address alone."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import cachetools

from nova_lite.base import exceptions

#: Failures before the first delay: of one user from one address, and of all users from one address.
FREE_OF_USER, FREE_OF_ADDRESS = 5, 50
#: Seconds of the first delay. Each further failure doubles it, up to the longest one.
FIRST_DELAY = 1.0
LONGEST_DELAY = 60.0
#: Seconds after the last failure until failures are forgotten.
MEMORY = 900.0
MAX_REMEMBERED = 10_000

_Key = tuple[str, str]


class Failures(NamedTuple):
    """Number of failures, and the time of the last one."""

    number: int
    last: float


class PasswordThrottle:
    """Counts wrong passwords. Each worker process has its own counts. Memory is bounded."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: cachetools.TTLCache[_Key, Failures] = cachetools.TTLCache(MAX_REMEMBERED, MEMORY, timer=clock)

    def check(self, user: str, address: str) -> None:
        """Raise `TooManyFailures` during a delay."""
        with self._lock:
            left = max(self._seconds_left(key, free) for key, free in self._keys(user, address))
        if left > 0:
            raise exceptions.TooManyFailures(seconds=math.ceil(left))

    def failed(self, user: str, address: str) -> None:
        with self._lock:
            for key, _ in self._keys(user, address):
                before = self._failures.get(key)
                self._failures[key] = Failures(1 if before is None else before.number + 1, self._clock())

    def succeeded(self, user: str, address: str) -> None:
        """Forget the user's failures from this address, but not the failures of the address."""
        with self._lock:
            self._failures.pop((user, address), None)

    @staticmethod
    def _keys(user: str, address: str) -> tuple[tuple[_Key, int], ...]:
        return ((user, address), FREE_OF_USER), (("", address), FREE_OF_ADDRESS)

    def _seconds_left(self, key: _Key, free: int) -> float:
        failures = self._failures.get(key)
        if failures is None or failures.number < free:
            return 0.0
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(failures.number - free, 16))
        return failures.last + delay - self._clock()

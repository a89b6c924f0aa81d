"""Guessing passwords gets slower with each that is wrong, by user and address, and by address alone."""

from __future__ import annotations

import collections
import math
import threading
import time
from collections.abc import Callable

from nova_lite.base import exceptions

#: How many may be wrong before the first wait, for one user from one address, and for all users from it.
FREE_OF_USER, FREE_OF_ADDRESS = 5, 50
FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
#: Seconds without a failure after which one is forgotten.
MEMORY = 900.0
MAX_REMEMBERED = 10_000

_Key = tuple[str, str]


class PasswordThrottle:
    """In this process alone: as many workers, as many guesses. What is asked of it is quick, and bounded in memory."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: By key: how many failures, and when the last one was; the oldest first.
        self._failures: collections.OrderedDict[_Key, tuple[int, float]] = collections.OrderedDict()

    def check(self, user: str, address: str) -> None:
        """Raises `TooManyFailures` while nobody may try."""
        with self._lock:
            left = max(self._left(key, free) for key, free in self._keys(user, address))
        if left > 0:
            raise exceptions.TooManyFailures(seconds=math.ceil(left))

    def failed(self, user: str, address: str) -> None:
        with self._lock:
            for key, _ in self._keys(user, address):
                self._failures[key] = self._count(key) + 1, self._clock()
                self._failures.move_to_end(key)
            while len(self._failures) > MAX_REMEMBERED:
                self._failures.popitem(last=False)

    def succeeded(self, user: str, address: str) -> None:
        """The user's failures from there are forgotten, those of others from there are not."""
        with self._lock:
            self._failures.pop((user, address), None)

    @staticmethod
    def _keys(user: str, address: str) -> tuple[tuple[_Key, int], ...]:
        return ((user, address), FREE_OF_USER), (("", address), FREE_OF_ADDRESS)

    def _count(self, key: _Key) -> int:
        count, last = self._failures.get(key, (0, 0.0))
        return count if self._clock() - last < MEMORY else 0

    def _left(self, key: _Key, free: int) -> float:
        over = self._count(key) - free
        if over < 0:
            return 0.0
        return self._failures[key][1] + min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(over, 16)) - self._clock()

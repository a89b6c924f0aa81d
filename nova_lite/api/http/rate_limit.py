"""Limit of the requests of one caller within a minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import cachetools

from nova_lite.base import exceptions

#: Largest number of callers with a request count.
MAX_REMEMBERED = 10_000


class RateLimit:
    """Counts the requests of each caller in windows of a minute, in this process. Memory is bounded."""

    WINDOW = 60.0

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._counts: cachetools.TTLCache[str, list[int]] = cachetools.TTLCache(
            MAX_REMEMBERED, self.WINDOW, timer=clock
        )

    def count(self, name: str) -> None:
        """Count a request. Raises `TooManyRequests`."""
        if not self._limit:
            return
        with self._lock:
            count = self._counts.get(name)
            if count is None:
                count = self._counts[name] = [0]
            count[0] += 1
        if count[0] > self._limit:
            raise exceptions.TooManyRequests(limit=self._limit)

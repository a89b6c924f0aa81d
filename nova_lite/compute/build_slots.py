"""Number of builds that a host runs at a time, which follows the speed of its hypervisor."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

LOG = logging.getLogger(__name__)

#: Seconds for an inventory above which a hypervisor counts as slow. An idle one needs some hundredths of a second.
SLOW_SECONDS = 1.0


class BuildSlots:
    """Slots for at most ``maximum`` builds. Further builds wait.

    Each slow answer of the hypervisor, and each broken connection, halves the number. Each fast answer adds one again.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._limit = maximum
        self._used = 0
        self._changed = threading.Condition()

    @property
    def limit(self) -> int:
        return self._limit

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Hold a slot, once there is one."""
        with self._changed:
            while self._used >= self._limit:
                self._changed.wait()
            self._used += 1
        try:
            yield
        finally:
            with self._changed:
                self._used -= 1
                self._changed.notify()

    def answered(self, seconds: float) -> None:
        """Adapt the number to an answer of the hypervisor that took so many seconds."""
        if seconds > SLOW_SECONDS:
            self.reduce(f"it took {seconds:.1f} s to answer")
            return
        with self._changed:
            if self._limit < self._maximum:
                self._limit += 1
                self._changed.notify()

    def reduce(self, reason: str) -> None:
        with self._changed:
            if self._limit == 1:
                return
            self._limit //= 2
            LOG.warning("The hypervisor is slow (%s): at most %d builds at a time", reason, self._limit)

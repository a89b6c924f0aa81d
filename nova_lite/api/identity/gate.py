"""Gate before a remote service that log-ins need. It keeps a service that hangs from blocking an API daemon."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from nova_lite.base import exceptions

LOG = logging.getLogger(__name__)

#: Seconds for which calls are refused after a failure.
PAUSE = 10.0
#: Seconds that a call waits at most for another one to end.
WAIT = 1.0


class UnreachableError(Exception):
    """The remote service did not answer, or it answered something that is useless."""


#: Calls of one service that run at a time in one process.
MAX_CALLS = 4


class Gate:
    """Limits the calls of a remote service that run at a time. After a failure it refuses calls for `PAUSE` seconds.

    The log has one line when the service stops answering, and one when it answers again.
    """

    def __init__(
        self, label: str, max_calls: int = MAX_CALLS, clock: Callable[[], float] = time.monotonic, wait: float = WAIT
    ) -> None:
        self._label, self._clock, self._wait = label, clock, wait
        self._slots = threading.BoundedSemaphore(max_calls)
        self._closed_until = 0.0
        self._is_failing = False

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Run the block. Raises `ServiceUnavailable` if it raises `UnreachableError`, or without running it."""
        if self._clock() < self._closed_until or not self._slots.acquire(timeout=self._wait):
            raise self._refusal()
        try:
            yield
        except UnreachableError as error:
            self._closed_until = self._clock() + PAUSE
            if not self._is_failing:
                LOG.error("%s cannot be used: %s", self._label, error)
            self._is_failing = True
            raise self._refusal() from error
        else:
            if self._is_failing:
                LOG.info("%s answers again", self._label)
            self._is_failing = False
        finally:
            self._slots.release()

    def _refusal(self) -> exceptions.ServiceUnavailable:
        return exceptions.ServiceUnavailable(f"{self._label} does not answer. Please try again later.")

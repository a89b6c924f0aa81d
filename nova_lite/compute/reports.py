"""Reports to the conductor that are not lost while this process lives."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import TypeVar

from nova_lite.base import exceptions

LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: The longest pause between two attempts, as a multiple of the first.
MAX_BACKOFF = 8


class Stopping(Exception):
    """The daemon ends. What was left undone is driven again by the conductor, when the lease has lapsed."""


class Retrier:
    """Does something again until it works, the daemon stops, or it is no longer wanted.

    ``interval``: seconds before the second attempt; the pause doubles up to `MAX_BACKOFF` times that. Each is drawn
    from half of it to one and a half, so that many hosts do not come at the same moment to a conductor that is back.
    """

    def __init__(self, interval: float, stopping: threading.Event) -> None:
        self._interval = interval
        self._stopping = stopping

    def ask(self, what: str, call: Callable[[], T], still_wanted: Callable[[], None]) -> T:
        """The answer of ``call``, once the control plane gives one: a value, or the `NovaLiteException` it raises.

        Only "not available" is retried, and a failure of the conductor that is none of our errors.
        ``still_wanted`` ends the wait by raising. Raises `Stopping` when the daemon stops before there is an answer.
        """

        def transient(error: Exception) -> bool:
            return isinstance(error, exceptions.ServiceUnavailable) or not isinstance(
                error, exceptions.NovaLiteException
            )

        return self._until_done(what, call, still_wanted, transient)

    def insist(self, what: str, call: Callable[[], T]) -> T:
        """Do what has no alternative (removing traces) again, whatever the failure. Raises `Stopping`."""
        return self._until_done(what, call, lambda: None, lambda error: True)

    def _until_done(
        self, what: str, call: Callable[[], T], still_wanted: Callable[[], None], transient: Callable[[Exception], bool]
    ) -> T:
        pause = self._interval
        while True:
            still_wanted()
            try:
                return call()
            except Exception as error:
                if not transient(error):
                    raise
                expected = isinstance(error, exceptions.NovaLiteException)
                drawn = pause * random.uniform(0.5, 1.5)
                LOG.warning("%s failed, again in %.1f s: %s", what, drawn, error, exc_info=not expected)
            if self._stopping.wait(drawn):
                raise Stopping(what)
            pause = min(pause * 2, self._interval * MAX_BACKOFF)


def exception_message(error: Exception, host: str) -> str:
    """The text of a failure for the instance's owner: that of our own errors, nothing internal of others."""
    if isinstance(error, exceptions.NovaLiteException):
        return error.message
    return f"Unexpected {type(error).__name__} on host {host}."

"""Calls to the control plane that are retried while this process lives, so that no report is lost."""

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
    """The daemon stops. The conductor retries unfinished work when its lease has expired."""


class Retrier:
    """Retries a call until it succeeds, the daemon stops, or its result is no longer needed.

    ``interval``: seconds before the second attempt. The pause doubles up to `MAX_BACKOFF` times that, and is varied at
    random by half, so that many hosts do not call a conductor at the same time when it is back.
    """

    def __init__(self, interval: float, stopping: threading.Event) -> None:
        self._interval = interval
        self._stopping = stopping

    def call(self, what: str, call: Callable[[], T], still_wanted: Callable[[], None]) -> T:
        """Return the result of ``call``, or raise its `NovaLiteException`, once the control plane has replied.

        Only `ServiceUnavailable` and unexpected errors are retried. ``still_wanted`` may end the retries by raising.
        Raises `Stopping` when the daemon stops before there is a reply.
        """

        def transient(error: Exception) -> bool:
            return isinstance(error, exceptions.ServiceUnavailable) or not isinstance(
                error, exceptions.NovaLiteException
            )

        return self._until_done(what, call, still_wanted, transient)

    def call_until_done(self, what: str, call: Callable[[], T]) -> T:
        """Retry a call that has to succeed, such as a removal, whatever its error. Raises `Stopping`."""
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
                delay = pause * random.uniform(0.5, 1.5)
                LOG.warning("%s failed, retrying in %.1f s: %s", what, delay, error, exc_info=not expected)
            if self._stopping.wait(delay):
                raise Stopping(what)
            pause = min(pause * 2, self._interval * MAX_BACKOFF)


def exception_message(error: Exception, host: str) -> str:
    """Return the text of an error for the instance's owner, without internal details of unexpected errors."""
    if isinstance(error, exceptions.NovaLiteException):
        return error.message
    return f"Unexpected {type(error).__name__} on host {host}."

"""An event that handlers of signals may set."""

from __future__ import annotations

import threading
import time


class StopEvent(threading.Event):
    """An event whose `set` never waits for the thread that it interrupts.

    Python runs a handler in the main thread, between any two of its instructions. `threading.Event.set` needs a lock
    that this thread holds for a moment in `wait`: then the process would hang. The lock of this event may be taken
    again. A handler that comes at that moment is noticed when the wait ends by its timeout, so the main thread waits
    with one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition(threading.RLock())
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        with self._changed:
            self._is_set = True
            self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set, at most ``timeout`` seconds. Return whether it is."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self._is_set:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
        return self._is_set

"""A thread that looks for guests that run twice."""

from __future__ import annotations

import abc
import threading


class Watch(abc.ABC):
    """Looks every ``interval`` seconds until `close`. ``twice``: the guests that ever ran twice."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._stop = threading.Event()
        self.twice: set[str] = set()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)

    def _watch(self) -> None:
        while not self._stop.wait(self._interval):
            self.twice |= self.look()

    @abc.abstractmethod
    def look(self) -> set[str]:
        """Return the guests that run twice now."""

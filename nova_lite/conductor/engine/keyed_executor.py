"""Threads in which the reconciler drives actions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent import futures


class KeyedExecutor:
    """Threads for drives that may wait for the same kind of daemon, so that they hold up no others.

    Drives of one ``key`` run one after another. While any of them is under way, what comes for that key is dropped:
    its lease brings it back. So a lane's queue never holds more than one entry a key.
    """

    def __init__(self, name: str, threads: int) -> None:
        self.pool: futures.Executor = futures.ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._under_way: set[str] = set()

    def drive(self, key: str, drives: Iterable[Callable[[], None]]) -> None:
        """None of ``drives`` raises."""
        with self._lock:
            if key in self._under_way:
                return
            self._under_way.add(key)
        self.pool.submit(self._run, key, drives)

    def stop(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, key: str, drives: Iterable[Callable[[], None]]) -> None:
        try:
            for each in drives:
                each()
        finally:
            with self._lock:
                self._under_way.discard(key)

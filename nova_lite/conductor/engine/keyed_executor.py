"""Threads in which the reconciler repeats steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent import futures

from nova_lite.base import threads


class KeyedExecutor:
    """Threads for tasks that wait for the same kind of daemon, so that they delay no other tasks.

    Tasks of one ``key`` run one after another. While they run, further tasks for that key are dropped: their actions
    are due again when their leases expire. So the queue holds at most one entry per key.
    """

    def __init__(self, name: str, size: int) -> None:
        self.pool: futures.Executor = threads.Pool(size, thread_name_prefix=name)
        self._lock = threads.Lock()
        self._running: set[str] = set()

    def run(self, key: str, tasks: Iterable[Callable[[], None]]) -> None:
        """Run the tasks in the background, unless others of this key are running. The tasks raise nothing."""
        with self._lock:
            if key in self._running:
                return
            self._running.add(key)
        self.pool.submit(self._run, key, tasks)

    def is_running(self, key: str) -> bool:
        """Check whether tasks of this key wait or run, so that `run` would drop others."""
        with self._lock:
            return key in self._running

    def stop(self) -> None:
        """Drop the tasks that have not begun."""
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, key: str, tasks: Iterable[Callable[[], None]]) -> None:
        try:
            for task in tasks:
                task()
        finally:
            with self._lock:
                self._running.discard(key)

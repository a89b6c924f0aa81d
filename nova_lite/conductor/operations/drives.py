"""Driving what was just accepted, by the conductor that has accepted it: without a message, and without reading again
what it wrote.

The action is leased in the transaction that writes it, and driven once that is committed. What is accepted while
others are driven is driven together next. If this daemon ends first, the lease does, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures

from nova_lite.conductor.operations.wanted import Wanted

#: Batches that are driven at a time: while the scheduler is asked about one, places are claimed for another.
AT_ONCE = 2
#: Instances in one batch, if more than one request is in it.
MOST = 64
#: Seconds that the end of the daemon waits for what is driven.
PATIENCE = 10.0


class Drives:
    """``place``: drives a batch, and raises nothing. Until it is started, nothing is driven here: who has accepted
    leaves it to whoever is nudged."""

    def __init__(self, place: Callable[[list[Wanted]], None]) -> None:
        self._place = place
        self._changed = threading.Condition()
        self._waiting: list[list[Wanted]] = []
        self._under_way = 0
        self._submit: Callable[[Callable[[], None]], object] | None = None
        self._pool: futures.Executor | None = None

    @property
    def started(self) -> bool:
        return self._submit is not None

    def start(self, submit: Callable[[Callable[[], None]], object] | None = None) -> None:
        """``submit``: what runs a batch, if not a pool of threads."""
        if self._pool is None and submit is None:
            self._pool = futures.ThreadPoolExecutor(AT_ONCE, thread_name_prefix="drive")
        self._submit = submit or self._submit or (self._pool.submit if self._pool else None)

    def stop(self) -> None:
        with self._changed:
            self._submit = None
            self._changed.wait_for(lambda: not self._under_way, PATIENCE)
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def add(self, wanted: list[Wanted]) -> None:
        """One request's, leased and committed."""
        with self._changed:
            self._waiting.append(wanted)
            submit = self._submit
            if submit is None or self._under_way >= AT_ONCE:
                return
            self._under_way += 1
        try:
            submit(self._run)
        except RuntimeError:  # the pool has just been shut down: what is leased is driven by others then
            with self._changed:
                self._under_way -= 1

    def _run(self) -> None:
        while batch := self._next():
            self._place(batch)

    def _next(self) -> list[Wanted]:
        """Empty when there is no more, and this thread has ended."""
        with self._changed:
            batch: list[Wanted] = []
            while self._waiting and (not batch or len(batch) + len(self._waiting[0]) <= MOST):
                batch += self._waiting.pop(0)
            if not batch:
                self._under_way -= 1
                self._changed.notify_all()
            return batch

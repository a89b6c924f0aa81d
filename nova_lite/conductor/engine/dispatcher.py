"""Driving what was just accepted, by the conductor that has accepted it: without a message, and without reading again
what it wrote.

The action is leased in the transaction that writes it, and driven once that is committed. What is accepted while
others are driven is driven together next; and where creates come in quick succession, each batch waits a moment for
more of them, as one that is driven by itself costs several times what it costs in a batch. One that comes alone does
not wait. If this daemon ends first, the lease does, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent import futures

from nova_lite.conductor.engine.placement_request import PlacementRequest

#: Batches that are driven at a time: while the scheduler is asked about one, places are claimed for another.
AT_ONCE = 2
#: Instances in one batch, if more than one request is in it.
MOST = 64
#: Seconds between two creates that are in quick succession, and those that the first of a batch waits then at most.
CLOSE = 0.05
MOMENT = 0.25
#: Seconds that the end of the daemon waits for what is driven.
PATIENCE = 10.0


class ActionDispatcher:
    """``place``: drives a batch, and raises nothing. Until it is started, nothing is driven here: who has accepted
    leaves it to whoever is nudged."""

    def __init__(self, place: Callable[[list[PlacementRequest]], None]) -> None:
        self._place = place
        self._changed = threading.Condition()
        self._waiting: list[list[PlacementRequest]] = []
        self._under_way = 0
        self._came = float("-inf")
        self._ready = float("-inf")
        self._gathers = False
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
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._under_way, PATIENCE)
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def add(self, wanted: list[PlacementRequest]) -> None:
        """One request's, leased and committed."""
        with self._changed:
            now = time.monotonic()
            if not self._waiting:
                crowded = self._under_way > 0 or now - self._came < CLOSE
                self._ready = now + (MOMENT if crowded else 0.0)
            self._came = now
            self._waiting.append(wanted)
            self._changed.notify_all()
            submit = self._submit
            if submit is None or self._under_way >= AT_ONCE or self._gathers:
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

    def _next(self) -> list[PlacementRequest]:
        """Empty when there is no more, or another thread waits for more; this one has ended then."""
        with self._changed:
            batch: list[PlacementRequest] = []
            if not self._gathers:
                self._gather()
                while self._waiting and (not batch or len(batch) + len(self._waiting[0]) <= MOST):
                    batch += self._waiting.pop(0)
            if not batch:
                self._under_way -= 1
                self._changed.notify_all()
            return batch

    def _gather(self) -> None:
        """Until what waits is a batch, has waited for its moment, or is not to wait any more."""
        self._gathers = True
        while self._waiting and self._submit is not None and sum(map(len, self._waiting)) < MOST:
            left = self._ready - time.monotonic()
            if left <= 0 or not self._changed.wait(left):
                break
        self._gathers = False

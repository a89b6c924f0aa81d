"""Dispatching of accepted creates: the conductor that has accepted them asks the scheduler itself.

That needs no message, and does not read again what was just written. An action is leased in the transaction that writes
it, and dispatched after the commit. If the daemon ends first, the lease expires and the reconciler takes over.

Creates that are accepted while others are dispatched form the next batch. If creates arrive in quick succession, each
batch waits up to ``dispatch_max_delay`` seconds for more, because a lone create costs several times its share of a
batch. A create that arrives alone does not wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent import futures

from nova_lite.base.timing import TIMING, ConductorTiming
from nova_lite.conductor.engine.placement_request import PlacementRequest

#: Batches that are placed at a time: while the scheduler works on one, places are claimed for another.
MAX_IN_FLIGHT = 2
#: Instances in one batch, if more than one request is in it.
MAX_BATCH = 64
#: Seconds that `ActionDispatcher.stop` waits for batches in flight.
STOP_TIMEOUT = 10.0


class ActionDispatcher:
    """Passes leased actions to ``place``, in batches.

    ``place`` must not raise. A dispatcher that is not started dispatches nothing: then the API sends `build_instances`.
    """

    def __init__(
        self, place: Callable[[list[PlacementRequest]], None], timing: ConductorTiming = TIMING.conductor
    ) -> None:
        self._place = place
        self._quiet_period = timing.dispatch_quiet_period
        self._max_delay = timing.dispatch_max_delay
        self._changed = threading.Condition()
        self._waiting: list[list[PlacementRequest]] = []
        self._in_flight = 0
        self._last_arrival = float("-inf")
        self._due = float("-inf")
        self._is_collecting = False
        self._submit: Callable[[Callable[[], None]], object] | None = None
        self._pool: futures.Executor | None = None

    @property
    def started(self) -> bool:
        return self._submit is not None

    def start(self, submit: Callable[[Callable[[], None]], object] | None = None) -> None:
        """Start to dispatch. ``submit`` runs a batch; by default, a pool of threads does."""
        if self._pool is None and submit is None:
            self._pool = futures.ThreadPoolExecutor(MAX_IN_FLIGHT, thread_name_prefix="dispatch")
        self._submit = submit or self._submit or (self._pool.submit if self._pool else None)

    def stop(self) -> None:
        """Take on no more work, and wait for the batches in flight."""
        with self._changed:
            self._submit = None
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._in_flight, STOP_TIMEOUT)
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def add(self, requests: list[PlacementRequest]) -> None:
        """Add the leased and committed actions of one request."""
        with self._changed:
            now = time.monotonic()
            if not self._waiting:
                is_crowded = self._in_flight > 0 or now - self._last_arrival < self._quiet_period
                self._due = now + (self._max_delay if is_crowded else 0.0)
            self._last_arrival = now
            self._waiting.append(requests)
            self._changed.notify_all()
            submit = self._submit
            if submit is None or self._in_flight >= MAX_IN_FLIGHT or self._is_collecting:
                return
            self._in_flight += 1
        try:
            submit(self._run)
        except RuntimeError:  # the pool has just been shut down: the reconciler takes over when the lease expires
            with self._changed:
                self._in_flight -= 1

    def _run(self) -> None:
        while batch := self._next_batch():
            self._place(batch)

    def _next_batch(self) -> list[PlacementRequest]:
        """Return the next batch. It is empty if nothing waits, or another thread collects: then this thread ends."""
        with self._changed:
            batch: list[PlacementRequest] = []
            if not self._is_collecting:
                self._collect()
                while self._waiting and (not batch or len(batch) + len(self._waiting[0]) <= MAX_BATCH):
                    batch += self._waiting.pop(0)
            if not batch:
                self._in_flight -= 1
                self._changed.notify_all()
            return batch

    def _collect(self) -> None:
        """Wait until a whole batch is there, its time is over, or the dispatcher stops."""
        self._is_collecting = True
        while self._waiting and self._submit is not None and sum(map(len, self._waiting)) < MAX_BATCH:
            left = self._due - time.monotonic()
            if left <= 0 or not self._changed.wait(left):
                break
        self._is_collecting = False

"""Admission of requests to a limited number of threads, by priority.

A daemon that accepts every request replies to none in time: each caller has given up before its reply arrives. So an
`AdmissionQueue` has a limit. Beyond it, the least important request is refused at once.
"""

from __future__ import annotations

import collections
import enum
import random
import threading
import time
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Priority(enum.IntEnum):
    """The order in which requests are handled. Refusals go in the opposite order.

    OWN: reports and queries of the control plane itself, without which accepted work would not end. DELETE: releases
    resources that others wait for. CHANGE: creates, and all other changes. READ: reads one thing. LIST: reads many.
    """

    OWN = 0
    DELETE = 1
    CHANGE = 2
    READ = 3
    LIST = 4


class QueuedRequest(NamedTuple, Generic[T]):
    """A request that waits for a thread.

    ``since``: its arrival (`time.monotonic`). ``deadline``: its caller gives up then; None: never. ``refusable``: its
    caller waits for a reply, which may be a refusal.
    """

    item: T
    priority: Priority
    since: float
    deadline: float | None = None
    refusable: bool = True


class AdmissionQueue(Generic[T]):
    """Requests that wait for one of ``threads``. At most ``limit`` refusable ones wait.

    An eighth of the threads takes only OWN and DELETE, so that slow requests do not delay urgent ones. ``at_once``: how
    many refusable requests below DELETE may run. The idle thread that worked last is woken first: its stack is in
    memory already.
    """

    def __init__(self, limit: int, threads: int, at_once: int | None = None) -> None:
        self.limit = limit
        self.threads = threads
        self._common = threads - (max(1, threads // 8) if threads > 1 else 0)
        self._at_once = min(at_once or self._common, self._common)
        self._waiting: dict[Priority, collections.deque[QueuedRequest[T]]] = {
            priority: collections.deque() for priority in Priority
        }
        self._lock = threading.Lock()
        #: A lock for each idle thread, which wakes it; the last one came last. Then the number of woken threads.
        self._idle: list[threading.Lock] = []
        self._woken = 0
        self._running = 0
        self._running_common = 0
        self._running_refusable = 0
        self._finished = 0
        self._closed = False

    def put(self, entry: QueuedRequest[T]) -> QueuedRequest[T] | None:
        """Add a request. Return the request that has to be refused for it: this one, or the newest of the least
        important.
        """
        with self._lock:
            is_full = self.waiting >= self.limit and not self._begins_at_once(entry)
            refused = self._least_important(entry) if is_full else None
            if refused is entry:
                return entry
            if refused is not None:
                self._waiting[refused.priority].remove(refused)
            self._waiting[entry.priority].append(entry)
            self._wake(1)
        return refused

    def take(self, last: QueuedRequest[T] | None = None) -> QueuedRequest[T] | None:
        """Wait for the next request. Return None once the queue is closed and empty.

        The caller passes the request to `done`, or as ``last`` when it takes the next one.
        """
        with self._lock:
            if last is not None:
                self._finish(last)
            while True:
                queue = self._next()
                if queue is not None:
                    entry = queue.popleft()
                    self._count(entry, 1)
                    if not self._woken and self._next() is not None:
                        self._wake(1)
                    return entry
                if self._closed and not self.waiting:
                    return None
                self._wait()

    def done(self, entry: QueuedRequest[T]) -> None:
        with self._lock:
            self._finish(entry)
            if not self._woken and self._next() is not None:
                self._wake(1)

    def wait_for_room(self, most: float) -> None:
        """Wait until fewer requests wait than four times the limit, for at most ``most`` seconds."""
        end = time.monotonic() + most
        while self.waiting >= 4 * self.limit and time.monotonic() < end:
            time.sleep(0.02)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._wake(len(self._idle))

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def running(self) -> int:
        return self._running

    @property
    def finished(self) -> int:
        """The number of requests that have ended."""
        return self._finished

    @property
    def is_full(self) -> bool:
        """True if a new request may have to wait for a thread."""
        return self.waiting > 0 or self._running >= self.threads

    @property
    def is_crowded(self) -> bool:
        """True if no further refusable request starts before a running one ends."""
        return self._running_refusable >= self._at_once

    def oldest(self) -> float:
        """Return for how many seconds the oldest request has waited."""
        with self._lock:
            firsts = [queue[0].since for queue in self._waiting.values() if queue]
        return time.monotonic() - min(firsts) if firsts else 0.0

    def _finish(self, entry: QueuedRequest[T]) -> None:
        self._count(entry, -1)
        self._finished += 1
        if self._closed:
            self._wake(len(self._idle))

    def _wake(self, count: int) -> None:
        """Wake up to ``count`` idle threads. The lock is held."""
        for _ in range(min(count, len(self._idle))):
            self._woken += 1
            self._idle.pop().release()

    def _wait(self) -> None:
        """Wait to be woken. The lock is held before and after, but not meanwhile."""
        bell = threading.Lock()
        bell.acquire()
        self._idle.append(bell)
        self._lock.release()
        try:
            bell.acquire()
        finally:
            self._lock.acquire()
            self._woken -= 1

    def _next(self) -> collections.deque[QueuedRequest[T]] | None:
        """Return the queue whose first request is next, or None."""
        for priority, queue in self._waiting.items():
            if queue and (priority <= Priority.DELETE or self._has_room(queue[0])):
                return queue
        return None

    def _begins_at_once(self, entry: QueuedRequest[T]) -> bool:
        """Check whether a thread that is reserved for urgent requests is free for this one."""
        before = len(self._waiting[Priority.OWN]) + len(self._waiting[Priority.DELETE])
        return entry.priority <= Priority.DELETE and self._running + before < self.threads

    def _has_room(self, entry: QueuedRequest[T]) -> bool:
        return self._running_common < self._common and (not entry.refusable or self._running_refusable < self._at_once)

    def _count(self, entry: QueuedRequest[T], one: int) -> None:
        self._running += one
        if entry.priority > Priority.DELETE:
            self._running_common += one
            self._running_refusable += one * entry.refusable

    def _least_important(self, new: QueuedRequest[T]) -> QueuedRequest[T] | None:
        """Return the request to refuse: of equal ones the newest. None if none may be refused."""
        for priority in reversed(Priority):
            if priority <= new.priority:
                break
            for entry in reversed(self._waiting[priority]):
                if entry.refusable:
                    return entry
        return new if new.refusable and new.priority > Priority.OWN else None


class Throttle:
    """Refuses requests at the client that an overloaded server would refuse anyway, which costs the server nothing.

    For each priority, it refuses a random share once the server refused more than it accepted within the last `WINDOW`
    seconds, and `FREE` more. Only replies of the server count, so the throttle opens as soon as the server accepts
    again. A single failure refuses no request.
    """

    WINDOW = 2.0
    FREE = 4
    _PARTS = 10

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Parts of the window: the start, and by priority the number of replies and of accepted requests.
        self._parts: collections.deque[tuple[float, dict[Priority, list[int]]]] = collections.deque()

    def admits(self, priority: Priority) -> bool:
        """Decide whether a request of this priority may be sent now."""
        return priority == Priority.OWN or random.random() >= self._refused(priority)

    def record(self, priority: Priority, accepted: bool) -> None:
        """Record whether the server has accepted a request."""
        now = time.monotonic()
        with self._lock:
            self._forget(now)
            if not self._parts or self._parts[-1][0] < now - self.WINDOW / self._PARTS:
                self._parts.append((now, {priority: [0, 0] for priority in Priority}))
            counts = self._parts[-1][1][priority]
            counts[0] += 1
            counts[1] += accepted

    def _refused(self, priority: Priority) -> float:
        """Return the share of requests to refuse."""
        with self._lock:
            self._forget(time.monotonic())
            sent, accepted = (sum(counts[priority][index] for _, counts in self._parts) for index in (0, 1))
        return max(0.0, (sent - 2 * accepted - self.FREE) / (sent + 1))

    def _forget(self, now: float) -> None:
        while self._parts and self._parts[0][0] < now - self.WINDOW:
            self._parts.popleft()

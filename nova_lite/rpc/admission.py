"""What waits for a thread, in the order in which it matters, and what has to go when there is too much of it.

A daemon that accepts every request answers none in time: each caller has given up before its reply arrives. So an
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
    """What is done first, and refused last.

    OWN: the control plane's own reports and questions, without which accepted work would not end. DELETE: gives back
    what others wait for. CHANGE: creates, and all else that changes something. READ: of one thing. LIST: of many."""

    OWN = 0
    DELETE = 1
    CHANGE = 2
    READ = 3
    LIST = 4


class QueuedRequest(NamedTuple, Generic[T]):
    """``since``: when it came (`time.monotonic`). ``deadline``: nobody wants it any more after that; None: it holds
    for good. ``refusable``: somebody waits for the answer, and can be told no."""

    item: T
    priority: Priority
    since: float
    deadline: float | None = None
    refusable: bool = True


class AdmissionQueue(Generic[T]):
    """Entries that wait for one of ``threads``. At most ``limit`` wait, beside those that can not be refused.

    An eighth of the threads takes nothing less than a delete, so that what is slow does not hold up what is urgent.
    ``at_once``: how many of those below may be under way that can be refused. Of idle threads the one that was at work
    last is taken first: its stack is in memory, and the others may never need theirs."""

    def __init__(self, limit: int, threads: int, at_once: int | None = None) -> None:
        self.limit = limit
        self.threads = threads
        self._common = threads - (max(1, threads // 8) if threads > 1 else 0)
        self._at_once = min(at_once or self._common, self._common)
        self._waiting: dict[Priority, collections.deque[QueuedRequest[T]]] = {
            each: collections.deque() for each in Priority
        }
        self._lock = threading.Lock()
        #: Of threads that wait, what each of them waits for; the last one came last. And how many are on their way.
        self._idle: list[threading.Lock] = []
        self._woken = 0
        self._running = 0
        self._running_common = 0
        self._running_refusable = 0
        self._finished = 0
        self._closed = False

    def put(self, entry: QueuedRequest[T]) -> QueuedRequest[T] | None:
        """Returns the entry that there is no room for: this one, or the newest of the least important ones."""
        with self._lock:
            is_full = self.waiting >= self.limit and not self._begins_at_once(entry)
            gone = self._least_important(entry) if is_full else None
            if gone is entry:
                return entry
            if gone is not None:
                self._waiting[gone.priority].remove(gone)
            self._waiting[entry.priority].append(entry)
            self._wake(1)
        return gone

    def take(self, last: QueuedRequest[T] | None = None) -> QueuedRequest[T] | None:
        """Wait for the next entry, to be told to `done` later, or as the ``last`` one of the thread that had it when it
        takes another. None: the line is closed, and nobody waits."""
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
        """Return when no more than four times the limit wait, or after so many seconds."""
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
        """How many have ever been `done`."""
        return self._finished

    @property
    def is_full(self) -> bool:
        """Whether whoever comes now may have to wait for a thread."""
        return self.waiting > 0 or self._running >= self.threads

    @property
    def is_crowded(self) -> bool:
        """Whether no more of what may be refused begins before one of those ends that are under way."""
        return self._running_refusable >= self._at_once

    def oldest(self) -> float:
        """Seconds that the first of all has waited."""
        with self._lock:
            firsts = [queue[0].since for queue in self._waiting.values() if queue]
        return time.monotonic() - min(firsts) if firsts else 0.0

    def _finish(self, entry: QueuedRequest[T]) -> None:
        self._count(entry, -1)
        self._finished += 1
        if self._closed:
            self._wake(len(self._idle))

    def _wake(self, count: int) -> None:
        """So many threads, if there are any; the lock is held."""
        for _ in range(min(count, len(self._idle))):
            self._woken += 1
            self._idle.pop().release()

    def _wait(self) -> None:
        """Until it is woken, without the lock, which is held before and after."""
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
        """Where the entry is whose turn it is."""
        for priority, queue in self._waiting.items():
            if queue and (priority <= Priority.DELETE or self._has_room(queue[0])):
                return queue
        return None

    def _begins_at_once(self, entry: QueuedRequest[T]) -> bool:
        """Whether one of the threads that are kept for what is urgent is free for it."""
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
        """Who goes: of equals the one that came last. None if nobody may be refused."""
        for priority in reversed(Priority):
            if priority <= new.priority:
                break
            for entry in reversed(self._waiting[priority]):
                if entry.refusable:
                    return entry
        return new if new.refusable and new.priority > Priority.OWN else None


class Throttle:
    """Refuses on the asker's side what the other one would refuse anyway, so that saying no costs it little.

    Of each priority it refuses a part at random as soon as, within the last `WINDOW` seconds, the other side has
    refused more than it answered, and `FREE` beside. Only what that side said counts: so it is open again so soon
    after the last refusal. One call that went wrong on a quiet day refuses nobody.
    """

    WINDOW = 2.0
    FREE = 4
    _PARTS = 10

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: For each part of the window: when it began, and by priority how many were told something, and answered.
        self._parts: collections.deque[tuple[float, dict[Priority, list[int]]]] = collections.deque()

    def lets(self, priority: Priority) -> bool:
        """Whether it may be asked for now."""
        return priority == Priority.OWN or random.random() >= self._refused(priority)

    def told(self, priority: Priority, answered: bool) -> None:
        """The other side has answered, or refused."""
        now = time.monotonic()
        with self._lock:
            self._forget(now)
            if not self._parts or self._parts[-1][0] < now - self.WINDOW / self._PARTS:
                self._parts.append((now, {each: [0, 0] for each in Priority}))
            counts = self._parts[-1][1][priority]
            counts[0] += 1
            counts[1] += answered

    def _refused(self, priority: Priority) -> float:
        """Which part of what is asked for."""
        with self._lock:
            self._forget(time.monotonic())
            told, answered = (sum(each[priority][index] for _, each in self._parts) for index in (0, 1))
        return max(0.0, (told - 2 * answered - self.FREE) / (told + 1))

    def _forget(self, now: float) -> None:
        while self._parts and self._parts[0][0] < now - self.WINDOW:
            self._parts.popleft()

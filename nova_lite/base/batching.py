"""Questions that arrive together travel together: what waits in a process while others of its kind are under way is one
message then, with one transaction.

A `Batcher` sends a lone request at once. Requests that arrive while a batch is running join the next one. No request is
answered by a batch that was sent before it arrived. A `BatchWindow` delays the first request so that others can join.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import typing
from collections.abc import Callable
from typing import Generic, TypeVar

from nova_lite.base import exceptions

LOG = logging.getLogger(__name__)

Q = TypeVar("Q")
A = TypeVar("A")
B = TypeVar("B")

#: Messages of one kind that may be under way at a time. A second one is not held up by a first that was lost.
AT_ONCE = 2
#: Seconds for which those that come meanwhile wait for the one that is under way, before a second one is sent.
PATIENCE = 0.02
#: The same of what writes. Two transactions at a time hold each other up, and one of twice as many rows takes hardly
#: longer: 40 creates a second at 1,000 hosts were accepted in 91 ms with 0.15 here and not in 141, in 133 with 0.5 and
#: not in 149 (in turns of ten seconds; `benchmarks/soak.py`), and the conductor took a sixteenth less CPU.
PATIENCE_TO_WRITE = 0.3
#: Reads that one message carries at most.
MOST = 64

#: Wakes nobody.
_NOBODY = threading.Event()


class _Read(Generic[Q, A]):
    def __init__(self, question: Q, later: ResponseFuture[A] | None = None) -> None:
        self.question = question
        #: Told of the answer; else its own thread waits to be woken.
        self.later = later
        self.woken = threading.Event() if later is None else _NOBODY
        #: What its own thread is to ask for, it being the first of these.
        self.leads: list[_Read[Q, A]] | None = None
        self.answer: A | None = None
        #: Stays if whoever leads is ended before there is an answer.
        self.error: Exception | None = exceptions.MessagingUnavailable(what="a read that was asked with others")

    def answered(self) -> A:
        if self.error is not None:
            raise self.error
        return typing.cast(A, self.answer)


class ResponseFuture(Generic[A]):
    """An answer that is still to come, for whoever does not wait for it. It keeps nothing of what it has handed on, so
    that nothing refers to itself: a hundred messages a second would else stay until garbage is looked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._get: Callable[[], A] | None = None
        self._listener: Callable[[Callable[[], A]], None] | None = None

    def tell(self, get: Callable[[], A]) -> None:
        """It has come: ``get`` returns it, or raises why there is none. To be called once."""
        with self._lock:
            listener, self._listener = self._listener, None
            if listener is None:
                self._get = get
        if listener is not None:
            listener(get)

    def then(self, listener: Callable[[Callable[[], A]], None]) -> None:
        """``listener`` hears of it once, by the thread that has it. There is one listener."""
        with self._lock:
            get, self._get = self._get, None
            if get is None:
                self._listener = listener
        if get is not None:
            listener(get)

    def mapped(self, change: Callable[[Callable[[], A]], B]) -> ResponseFuture[B]:
        """What ``change`` makes of it, or raises."""
        changed: ResponseFuture[B] = ResponseFuture()
        self.then(lambda get: changed.tell(lambda: change(get)))
        return changed

    def wait(self) -> A:
        came = threading.Event()
        found: list[Callable[[], A]] = []

        def listener(get: Callable[[], A]) -> None:
            found.append(get)
            came.set()

        self.then(listener)
        came.wait()
        return found[0]()


def now(answer: A | ResponseFuture[A]) -> A:
    """The answer, waited for if it comes later."""
    return answer.wait() if isinstance(answer, ResponseFuture) else answer


def _answer(reads: list[_Read[Q, A]], ask: Callable[[list[Q]], list[A]]) -> None:
    try:
        for read, answer in zip(reads, ask([each.question for each in reads]), strict=True):
            read.answer, read.error = answer, None
    except Exception as error:
        for read in reads:
            read.error = error


def _wake(reads: list[_Read[Q, A]]) -> None:
    for read in reads:
        read.woken.set()


def _tell(reads: list[_Read[Q, A]]) -> None:
    """By this thread; one that cannot be told keeps it from none."""
    for read in reads:
        later, read.later = read.later, None
        assert later is not None
        try:
            later.tell(read.answered)
        except Exception:
            LOG.exception("An answer could not be given")


class Batcher(Generic[Q, A]):
    """``ask`` answers questions, in their order. What it raises, each of those who asked gets. ``linger``: seconds at
    most for which those are waited for who were here when the last message ended. ``writes``: `PATIENCE_TO_WRITE`."""

    def __init__(
        self, ask: Callable[[list[Q]], list[A]], at_once: int = AT_ONCE, linger: float = 0.0, writes: bool = False
    ) -> None:
        self._ask = ask
        self._writes = writes
        self._at_once = at_once
        self._linger = linger
        #: When the last message ended, and how many there were then: those it had answered and those that waited.
        self._ended, self._together = -math.inf, 1
        #: Of one that is waited with: how many are missing, and what to set when they have come.
        self._missing: tuple[int, threading.Event] | None = None
        self._lock = threading.Lock()
        self._under_way = 0
        self._waiting: list[_Read[Q, A]] = []

    def ask(self, question: Q) -> A:
        read: _Read[Q, A] = _Read(question)
        with self._lock:
            if not self._under_way:
                self._under_way += 1
                read.leads = [read]
            else:
                self._waiting.append(read)
                if self._missing is not None and len(self._waiting) >= self._missing[0]:
                    self._missing[1].set()
        patience = PATIENCE_TO_WRITE if self._writes else PATIENCE
        while read.leads is None and not read.woken.wait(patience):
            if self._send_another():
                read.woken.wait()
        if read.leads is not None:
            self._lead(read.leads)
        return read.answered()

    def _lead(self, reads: list[_Read[Q, A]]) -> None:
        try:
            if self._linger:
                reads += self._others(len(reads))
            _answer(reads, self._ask)
        finally:
            self._hand_on(len(reads))
            _wake(reads[1:])

    def _others(self, count: int) -> list[_Read[Q, A]]:
        """Those that come soon, to go with ``count`` that are here."""
        all_here = threading.Event()
        with self._lock:
            left = self._ended + self._linger - time.monotonic()
            if self._together <= count or left <= 0 or self._missing is not None:
                return []
            self._missing = self._together - count, all_here
            if len(self._waiting) >= self._missing[0]:
                all_here.set()
        all_here.wait(left)
        with self._lock:
            self._missing = None
            others, self._waiting = self._waiting[: MOST - count], self._waiting[MOST - count :]
        return others

    def _send_another(self) -> bool:
        """One that waits has lost its patience: the first of those that do now asks for them, if it may. No: those that
        wait are themselves waited for."""
        with self._lock:
            if self._missing is not None:
                return False
            if self._under_way >= self._at_once or not self._waiting:
                return True
            self._under_way += 1
            following, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        following[0].leads = following
        following[0].woken.set()
        return True

    def _hand_on(self, answered: int) -> None:
        with self._lock:
            self._ended, self._together = time.monotonic(), answered + len(self._waiting)
            following, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            if not following:
                self._under_way -= 1
        if following:
            following[0].leads = following
            following[0].woken.set()


class BatchWindow(Generic[Q, A]):
    """``ask`` answers together what comes within ``seconds`` of the first, or as soon as there are ``most``. What it
    raises, each of those who asked gets. ``close``: seconds; who comes longer after the one before waits for nobody.

    The thread of the first one waits, and asks for all. The others' may `ask_later`, and have something else to do."""

    def __init__(self, ask: Callable[[list[Q]], list[A]], seconds: float, most: int, close: float = math.inf) -> None:
        self._ask = ask
        self._seconds = seconds
        self._most = most
        self._alone_after = close
        self._came = -math.inf
        self._lock = threading.Lock()
        self._waiting: list[_Read[Q, A]] = []

    def ask(self, question: Q) -> A:
        return now(self.ask_later(question))

    def ask_later(self, question: Q) -> A | ResponseFuture[A]:
        with self._lock:
            is_first = not self._waiting
            read: _Read[Q, A] = _Read(question, None if is_first else ResponseFuture())
            self._waiting.append(read)
            now = time.monotonic()
            is_alone = is_first and now - self._came > self._alone_after
            self._came = now
            if is_alone or len(self._waiting) >= self._most:
                self._close()
        if read.later is not None:
            return read.later
        read.woken.wait(self._seconds)
        with self._lock:
            if read.leads is None:
                self._close()
        assert read.leads is not None
        try:
            _answer(read.leads, self._ask)
        finally:
            _tell(read.leads[1:])
        return read.answered()

    def _close(self) -> None:
        """The first of those that wait now asks for them; who comes next is the first of others."""
        gathered, self._waiting = self._waiting, []
        gathered[0].leads = gathered
        gathered[0].woken.set()

"""`Batcher`: which requests share a batch, when a batch is sent, who gets which response."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.base import futures as response_futures
from nova_lite.base.batching import Batcher, BatchLimits, send_isolated
from nova_lite.base.futures import ResponseFuture
from tests.support.waiting import wait_for

DEADLINE = 30.0

#: Limits like those of heartbeats: the first request of a batch waits for others, and batches run independently.
WINDOW = BatchLimits(max_delay=DEADLINE, max_in_flight=None)
#: No request overtakes a running batch, however slow the machine is.
PATIENT = BatchLimits(overlap_after=DEADLINE)


class Backend:
    """Answers each request with the request itself. Holds batches back until `release`; records them."""

    def __init__(self, hold: bool = True) -> None:
        self.batches: list[list[int]] = []
        self.errors: dict[int, BaseException] = {}
        self._changed = threading.Condition()
        self._released = 0 if hold else 10**6

    def release(self, count: int = 10**6) -> None:
        with self._changed:
            self._released += count
            self._changed.notify_all()

    def send(self, requests: list[int]) -> list[int | Exception]:
        with self._changed:
            self.batches.append(list(requests))
            number = len(self.batches)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._released >= number, DEADLINE), self.batches
        for request in requests:
            if request in self.errors:
                raise self.errors[request]
        return [*requests]


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as executor:
        yield executor


def submit_all(pool: ThreadPoolExecutor, batcher: Batcher[int, int], *requests: int) -> list[Future[int]]:
    """Submit one request after the other, each in a thread of its own, that find a batch running or collecting."""
    pending = batcher.pending
    futures = []
    for number, request in enumerate(requests, 1):
        futures.append(pool.submit(batcher.submit, request))
        wait_for("it is pending", lambda number=number: batcher.pending == pending + number, DEADLINE)  # type: ignore[misc]
    return futures


def overlap_tried(batcher: Batcher[int, int], monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event: a request has waited `overlap_after` seconds, and the batcher has decided about it."""
    tried, start = threading.Event(), batcher._start_overlapping_batch

    def spied() -> None:
        start()
        tried.set()

    monkeypatch.setattr(batcher, "_start_overlapping_batch", spied)
    return tried


def start_first(pool: ThreadPoolExecutor, batcher: Batcher[int, int], backend: Backend, request: int) -> Future[int]:
    """Submit a request whose batch then runs."""
    count = len(backend.batches)
    future = pool.submit(batcher.submit, request)
    wait_for("its batch runs", lambda: len(backend.batches) > count, DEADLINE)
    return future


def is_lookup_error(error: Exception) -> bool:
    return isinstance(error, LookupError)


# --- which requests share a batch


def test_batcher_single_request_is_sent_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: threading.Event, timeout: float | None = None) -> bool:
        pytest.fail(f"The request waits {timeout} seconds.")

    backend = Backend(hold=False)
    batcher = Batcher(backend.send, BatchLimits(regroup_delay=DEADLINE))
    monkeypatch.setattr(threading.Event, "wait", fail)
    assert [batcher.submit(request) for request in (1, 2)] == [1, 2]
    assert backend.batches == [[1], [2]]


def test_batcher_requests_during_a_batch_share_the_next_one(backend: Backend, pool: ThreadPoolExecutor) -> None:
    batcher = Batcher(backend.send, PATIENT)
    first = start_first(pool, batcher, backend, 1)
    others = submit_all(pool, batcher, *range(2, 9))
    backend.release()
    assert [future.result(DEADLINE) for future in (first, *others)] == list(range(1, 9))
    assert backend.batches == [[1], list(range(2, 9))]


def test_batcher_slow_batch_is_overlapped_up_to_max_in_flight(
    backend: Backend, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    batcher = Batcher(backend.send, BatchLimits(overlap_after=0.001, max_in_flight=2))
    first = start_first(pool, batcher, backend, 1)
    second = start_first(pool, batcher, backend, 2)
    tried = overlap_tried(batcher, monkeypatch)
    third = submit_all(pool, batcher, 3)
    assert tried.wait(DEADLINE)
    assert backend.batches == [[1], [2]]
    backend.release()
    assert [future.result(DEADLINE) for future in (first, second, *third)] == [1, 2, 3]
    assert backend.batches == [[1], [2], [3]]


def test_batcher_batch_holds_at_most_max_batch_requests(backend: Backend, pool: ThreadPoolExecutor) -> None:
    batcher = Batcher(backend.send, BatchLimits(max_in_flight=1, max_batch=3))
    first = start_first(pool, batcher, backend, 0)
    others = submit_all(pool, batcher, *range(1, 8))
    backend.release()
    assert [future.result(DEADLINE) for future in (first, *others)] == list(range(8))
    assert [len(batch) for batch in backend.batches] == [1, 3, 3, 1]


# --- regrouping


def test_batcher_batch_waits_for_callers_of_the_last_one(backend: Backend, pool: ThreadPoolExecutor) -> None:
    batcher = Batcher(backend.send, PATIENT._replace(regroup_delay=DEADLINE))
    first = start_first(pool, batcher, backend, 1)
    others = submit_all(pool, batcher, 2, 3)
    backend.release()
    assert first.result(DEADLINE) == 1
    again = pool.submit(batcher.submit, 4)
    assert [future.result(DEADLINE) for future in (*others, again)] == [2, 3, 4]
    assert backend.batches == [[1], [2, 3, 4]]


def test_batcher_complete_batch_does_not_wait_for_regroup_delay(backend: Backend, pool: ThreadPoolExecutor) -> None:
    batcher = Batcher(backend.send, PATIENT._replace(regroup_delay=DEADLINE))
    batcher._last_end, batcher._last_count = time.monotonic(), 3
    backend.release()
    started = time.monotonic()
    futures = submit_all(pool, batcher, 1, 2)
    futures.append(pool.submit(batcher.submit, 3))
    assert [future.result(DEADLINE) for future in futures] == [1, 2, 3]
    assert backend.batches == [[1, 2, 3]]
    assert time.monotonic() - started < DEADLINE


def test_batcher_requests_that_regroup_send_no_overlapping_batch(
    backend: Backend, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    batcher = Batcher(backend.send, BatchLimits(overlap_after=0.001, regroup_delay=DEADLINE))
    batcher._last_end, batcher._last_count = time.monotonic(), 3
    tried = overlap_tried(batcher, monkeypatch)
    backend.release()
    futures = submit_all(pool, batcher, 1, 2)
    assert tried.wait(DEADLINE)
    assert backend.batches == []
    futures.append(pool.submit(batcher.submit, 3))
    assert [future.result(DEADLINE) for future in futures] == [1, 2, 3]
    assert backend.batches == [[1, 2, 3]]


def test_batcher_missing_caller_is_waited_for_only_once(
    backend: Backend, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    batcher = Batcher(backend.send, PATIENT._replace(regroup_delay=0.05))
    first = start_first(pool, batcher, backend, 1)
    other = submit_all(pool, batcher, 2)
    backend.release()
    assert [future.result(DEADLINE) for future in (first, *other)] == [1, 2]
    assert backend.batches == [[1], [2]]
    waits: list[float | None] = []
    monkeypatch.setattr(threading.Event, "wait", lambda self, timeout=None: waits.append(timeout))
    assert [batcher.submit(request) for request in (3, 4)] == [3, 4]
    assert waits == []


# --- batches that wait for their requests


def test_batcher_full_batch_does_not_wait_for_max_delay(backend: Backend, pool: ThreadPoolExecutor) -> None:
    batcher = Batcher(backend.send, WINDOW._replace(max_batch=3))
    backend.release()
    futures = submit_all(pool, batcher, 1, 2)
    futures.append(pool.submit(batcher.submit, 3))
    assert [future.result(DEADLINE) for future in futures] == [1, 2, 3]
    assert backend.batches == [[1, 2, 3]]


def test_batcher_incomplete_batch_is_sent_after_max_delay() -> None:
    backend = Backend(hold=False)
    batcher = Batcher(backend.send, WINDOW._replace(max_delay=0.05))
    started = time.monotonic()
    assert batcher.submit(1) == 1
    assert time.monotonic() - started >= 0.05


def test_batcher_request_after_quiet_period_is_sent_immediately(backend: Backend, pool: ThreadPoolExecutor) -> None:
    backend.release()
    batcher = Batcher(backend.send, WINDOW._replace(max_batch=2, quiet_period=DEADLINE))
    assert batcher.submit(1) == 1
    futures = submit_all(pool, batcher, 2)  # soon after the first one: it waits for another
    futures.append(pool.submit(batcher.submit, 3))
    assert [future.result(DEADLINE) for future in futures] == [2, 3]
    assert backend.batches == [[1], [2, 3]]


def test_batcher_request_that_arrived_during_a_batch_waits_for_more(backend: Backend, pool: ThreadPoolExecutor) -> None:
    """The batch that follows another one waits `max_delay` from its first request on, as if nothing had run."""
    limits = PATIENT._replace(max_batch=3, max_delay=DEADLINE, quiet_period=0.0)
    batcher = Batcher(backend.send, limits)
    futures = [start_first(pool, batcher, backend, 1), *submit_all(pool, batcher, 2)]
    backend.release()
    assert futures[0].result(DEADLINE) == 1
    futures += submit_all(pool, batcher, 3)
    futures.append(pool.submit(batcher.submit, 4))
    assert [future.result(DEADLINE) for future in futures] == [1, 2, 3, 4]
    assert backend.batches == [[1], [2, 3, 4]]


def test_batcher_request_that_waited_long_during_a_batch_is_sent_after_it(
    backend: Backend, pool: ThreadPoolExecutor
) -> None:
    batcher = Batcher(backend.send, PATIENT._replace(max_delay=DEADLINE, quiet_period=0.0))
    futures = [start_first(pool, batcher, backend, 1), *submit_all(pool, batcher, 2)]
    batcher._waiting[0].since -= DEADLINE
    backend.release()
    assert [future.result(DEADLINE) for future in futures] == [1, 2]
    assert backend.batches == [[1], [2]]


def test_batcher_unlimited_batches_do_not_wait_for_each_other(backend: Backend, pool: ThreadPoolExecutor) -> None:
    batcher = Batcher(backend.send, WINDOW._replace(max_delay=0.0))
    futures = [start_first(pool, batcher, backend, request) for request in range(5)]
    backend.release()
    assert [future.result(DEADLINE) for future in futures] == list(range(5))
    assert backend.batches == [[request] for request in range(5)]


# --- futures


def test_submit_later_only_the_leader_needs_a_thread(backend: Backend, pool: ThreadPoolExecutor) -> None:
    batcher = Batcher(backend.send, WINDOW._replace(max_batch=50))
    backend.release()
    delivered = threading.Semaphore(0)
    first = submit_all(pool, batcher, 0)
    for request in range(1, 50):
        response = batcher.submit_later(request)
        assert isinstance(response, ResponseFuture)
        response.add_callback(lambda get: delivered.release())
    assert first[0].result(DEADLINE) == 0
    assert all(delivered.acquire(timeout=DEADLINE) for _ in range(49))


def test_submit_later_waits_for_a_running_batch(backend: Backend, pool: ThreadPoolExecutor) -> None:
    batcher = Batcher(backend.send, PATIENT)
    first = start_first(pool, batcher, backend, 1)
    later = pool.submit(batcher.submit_later, 2)
    wait_for("it is pending", lambda: batcher.pending == 1, DEADLINE)
    backend.release()
    assert (first.result(DEADLINE), later.result(DEADLINE)) == (1, 2)


def test_submit_later_failing_callback_does_not_stop_the_others(backend: Backend, pool: ThreadPoolExecutor) -> None:
    batcher = Batcher(backend.send, WINDOW._replace(max_batch=4))
    backend.release()
    delivered: list[int] = []

    def fail(get: Callable[[], int]) -> None:
        raise RuntimeError("the caller is gone")

    first = submit_all(pool, batcher, 1)
    for request, callback in ((2, fail), (3, lambda get: delivered.append(get())), (4, None)):
        response = batcher.submit_later(request)
        assert isinstance(response, ResponseFuture)
        if callback is not None:
            response.add_callback(callback)
    assert first[0].result(DEADLINE) == 1
    assert response.result() == 4
    assert delivered == [3]


class Referenced:
    """Something that a callback refers to."""


@pytest.mark.parametrize("delivered_first", [True, False])
def test_submit_later_delivered_future_holds_no_reference(
    backend: Backend, pool: ThreadPoolExecutor, delivered_first: bool
) -> None:
    batcher = Batcher(backend.send, WINDOW._replace(max_batch=2))
    backend.release()
    gc.disable()
    try:
        (first,) = submit_all(pool, batcher, 1)
        response = batcher.submit_later(2)
        assert isinstance(response, ResponseFuture)
        referenced = Referenced()
        reference = weakref.ref(referenced)

        def change(get: Callable[[], int], referenced: Any = referenced) -> tuple[int, Any]:
            return get(), referenced

        if delivered_first:
            assert first.result(DEADLINE) == 1
        results: list[int] = []
        response.map(change).add_callback(lambda get: results.append(get()[0]))
        first.result(DEADLINE)
        wait_for("the callback has run", lambda: results == [2], DEADLINE)
        pool.shutdown()
        del referenced, change, response
        assert reference() is None
    finally:
        gc.enable()


def test_batcher_response_of_a_single_request_needs_no_garbage_collection() -> None:
    batcher: Batcher[int, Referenced] = Batcher(lambda requests: [Referenced() for _ in requests])
    gc.disable()
    try:
        reference = weakref.ref(batcher.submit(1))
        assert reference() is None
    finally:
        gc.enable()


# --- errors


def test_batcher_failed_batch_fails_every_caller(backend: Backend, pool: ThreadPoolExecutor) -> None:
    batcher = Batcher(backend.send, PATIENT)
    first = start_first(pool, batcher, backend, 1)
    others = submit_all(pool, batcher, 2, 3)
    backend.errors[3] = LookupError("3")
    backend.release()
    assert first.result(DEADLINE) == 1
    assert [str(future.exception(DEADLINE)) for future in others] == ["3", "3"]
    assert batcher.submit(4) == 4


def test_submit_later_failed_batch_fails_every_caller(backend: Backend, pool: ThreadPoolExecutor) -> None:
    batcher = Batcher(backend.send, WINDOW._replace(max_batch=2))
    backend.errors[1] = LookupError("1")
    backend.release()
    (first,) = submit_all(pool, batcher, 1)
    response = batcher.submit_later(2)
    for get in (lambda: first.result(DEADLINE), lambda: response_futures.wait_for(response)):
        with pytest.raises(LookupError):
            get()


def test_batcher_exception_in_response_fails_its_caller_alone(backend: Backend, pool: ThreadPoolExecutor) -> None:
    def send(requests: list[int]) -> list[int | Exception]:
        return [LookupError(request) if request == 2 else request for request in backend.send(requests)]

    batcher = Batcher(send, PATIENT)
    first = start_first(pool, batcher, backend, 1)
    faulty, other = submit_all(pool, batcher, 2, 3)
    backend.release()
    assert (first.result(DEADLINE), other.result(DEADLINE)) == (1, 3)
    assert isinstance(faulty.exception(DEADLINE), LookupError)


def test_batcher_wrong_number_of_responses_fails_every_caller() -> None:
    batcher: Batcher[int, int] = Batcher(lambda requests: [1, 2])
    with pytest.raises(ValueError, match="longer"):
        batcher.submit(1)


def test_batcher_ended_leader_fails_its_followers_and_not_the_next_batch(
    backend: Backend, pool: ThreadPoolExecutor
) -> None:
    batcher = Batcher(backend.send, PATIENT)
    first = start_first(pool, batcher, backend, 1)
    others = submit_all(pool, batcher, 2, 3)
    backend.errors[2] = SystemExit()
    backend.release()
    assert first.result(DEADLINE) == 1
    assert [type(future.exception(DEADLINE)) for future in others] == [SystemExit, exceptions.MessagingUnavailable]
    assert batcher.submit(4) == 4


def test_batcher_isolated_error_fails_its_caller_alone(backend: Backend, pool: ThreadPoolExecutor) -> None:
    batcher = Batcher(backend.send, PATIENT, is_lookup_error)
    first = start_first(pool, batcher, backend, 1)
    faulty, other = submit_all(pool, batcher, 2, 3)
    backend.errors[2] = LookupError("2")
    backend.release()
    assert (first.result(DEADLINE), other.result(DEADLINE)) == (1, 3)
    assert isinstance(faulty.exception(DEADLINE), LookupError)
    assert backend.batches == [[1], [2, 3], [2], [3]]


def test_send_isolated_other_error_is_not_retried() -> None:
    backend = Backend(hold=False)
    backend.errors[2] = ValueError("2")
    with pytest.raises(ValueError, match="2"):
        send_isolated(backend.send, [1, 2], is_lookup_error)
    assert backend.batches == [[1, 2]]


@pytest.mark.parametrize(
    ("error", "level"), [(LookupError("2"), logging.WARNING), (exceptions.NovaLiteException("2"), logging.INFO)]
)
def test_send_isolated_failed_batch_is_logged(caplog: pytest.LogCaptureFixture, error: Exception, level: int) -> None:
    caplog.set_level(logging.INFO, "nova_lite")
    backend = Backend(hold=False)
    backend.errors[2] = error
    assert send_isolated(backend.send, [1, 2], lambda error: True) == [1, error]
    assert send_isolated(backend.send, [], lambda error: True) == []
    ((_, logged, message),) = caplog.record_tuples
    assert logged == level
    assert message.startswith("A batch of 2 requests failed and is retried one by one: ")

"""Combines concurrent requests of one kind into batches, so that many callers share one message or transaction.

`Batcher` is the only primitive. `BatchLimits` says when it sends a batch. No request is answered by a batch that was
sent before the request arrived. No extra thread is used: the thread of one caller, the leader, sends the whole batch.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
import time
import typing
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from nova_lite.base import exceptions
from nova_lite.base.futures import ResponseFuture

LOG = logging.getLogger(__name__)

Request = TypeVar("Request")
Response = TypeVar("Response")

#: `BatchLimits.overlap_after` of batches that write. Two concurrent transactions block each other, and one transaction
#: of twice as many rows takes hardly longer.
OVERLAP_AFTER_WRITE = 0.3


class BatchLimits(NamedTuple):
    """Size limits and timings of a batcher's batches. Times are in seconds.

    With the default limits a request that arrives alone is sent at once. A request that arrives while a batch is
    running joins the next batch.
    """

    #: Requests in one batch.
    max_batch: int = 64
    #: Batches that run at the same time. None: a batch never waits for another one to end.
    max_in_flight: int | None = 2
    #: Time that a request waits for a running batch to end, before a further batch is sent (up to `max_in_flight`).
    #: The limit keeps a lost message from blocking all later requests.
    overlap_after: float = 0.02
    #: Time that the first request of a batch waits for others, from its arrival on.
    max_delay: float = 0.0
    #: A request that arrives longer than this after the preceding one does not wait `max_delay`.
    quiet_period: float = math.inf
    #: Time after the end of a batch in which the next batch waits until as many requests have arrived as there were
    #: then. Else callers that send one request after the other fall apart into two halves, which take turns.
    regroup_delay: float = 0.0


@dataclasses.dataclass(slots=True, eq=False)
class _Call(Generic[Request, Response]):
    """The request of one caller, with its response or error once there is one.

    A caller that leads has ``batch``. Any other caller has ``woken``, which its thread waits for, or ``future``.
    """

    request: Request
    since: float = dataclasses.field(default_factory=time.monotonic)
    batch: _Batch[Request, Response] | None = None
    woken: threading.Event | None = None
    future: ResponseFuture[Response] | None = None
    response: Response | None = None
    error: Exception | None = None
    done: bool = False

    def set_response(self, response: Response | Exception) -> None:
        if isinstance(response, Exception):
            self.error = response
        else:
            self.response = response
        self.done = True

    def result(self) -> Response:
        if self.error is not None:
            raise self.error
        if not self.done:  # the thread of the leader was ended
            raise exceptions.MessagingUnavailable(what="a batched request")
        return typing.cast(Response, self.response)

    def wake(self) -> None:
        """Deliver the result. A failing callback does not stop the others."""
        future, self.future = self.future, None
        if future is None:
            assert self.woken is not None
            self.woken.set()
            return
        try:
            future.set_result(self.result)
        except Exception:
            LOG.exception("A callback of a batched request failed")


@dataclasses.dataclass(slots=True, eq=False)
class _Batch(Generic[Request, Response]):
    """Requests that are sent together by the thread of the first one.

    While it collects, it waits until ``deadline`` for ``expected`` requests; ``complete`` is set when they are there.
    """

    calls: list[_Call[Request, Response]]
    expected: int = 0
    deadline: float = 0.0
    complete: threading.Event | None = None

    def hand_over(self) -> None:
        """Let the waiting thread of the first request lead."""
        leader = self.calls[0]
        assert leader.woken is not None
        leader.batch = self
        leader.woken.set()


class Batcher(Generic[Request, Response]):
    """Sends concurrent requests in batches. Each caller gets its own response, or the error of its batch."""

    def __init__(
        self,
        send: Callable[[list[Request]], Sequence[Response | Exception]],
        limits: BatchLimits | None = None,
        isolate_errors: Callable[[Exception], bool] | None = None,
    ) -> None:
        """``send`` returns one response per request, in order. A response that is an exception is raised for its caller
        alone. If ``send`` raises, every caller of the batch fails.

        ``isolate_errors``: for which of these errors the requests are retried one by one (`send_isolated`).
        """
        self.limits = limits or BatchLimits()
        self._send = send
        self._isolate_errors = isolate_errors
        self._lock = threading.Lock()
        self._in_flight = 0
        #: Requests that wait for a running batch to end.
        self._waiting: list[_Call[Request, Response]] = []
        #: The batch that new requests join, while its leader waits for them.
        self._collecting: _Batch[Request, Response] | None = None
        self._last_arrival = -math.inf
        #: The end of the last batch, and the number of requests then: in that batch and waiting.
        self._last_end = -math.inf
        self._last_count = 1

    @property
    def pending(self) -> int:
        """Number of requests that wait for a running batch, or for others to join."""
        with self._lock:
            return len(self._waiting) + (len(self._collecting.calls) if self._collecting is not None else 0)

    def submit(self, request: Request) -> Response:
        """Return the response to ``request``, or raise its error."""
        call: _Call[Request, Response] = _Call(request)
        self._enter(call, may_defer=False)
        return self._complete(call)

    def submit_later(self, request: Request) -> Response | ResponseFuture[Response]:
        """Return the response, or its future if another caller's thread sends this batch anyway.

        Blocks like `submit` while the thread leads, or waits for a running batch to end.
        """
        call: _Call[Request, Response] = _Call(request)
        future = self._enter(call, may_defer=True)
        return self._complete(call) if future is None else future

    def _enter(self, call: _Call[Request, Response], may_defer: bool) -> ResponseFuture[Response] | None:
        """Put the request into a batch, or let it wait. Returns a future if its thread needs not wait."""
        limits = self.limits
        with self._lock:
            now = call.since
            is_quiet = now - self._last_arrival > limits.quiet_period
            self._last_arrival = now
            if self._collecting is not None:
                if may_defer:
                    call.future = future = ResponseFuture[Response]()
                    self._join(self._collecting, call)
                    return future
                call.woken = threading.Event()
                self._join(self._collecting, call)
            elif limits.max_in_flight is None or not self._in_flight:
                self._in_flight += 1
                call.batch = _Batch([call])
                if limits.max_delay and not is_quiet:
                    self._collect(call.batch, limits.max_batch, now + limits.max_delay)
                else:
                    self._regroup(call.batch)
            else:
                call.woken = threading.Event()
                self._waiting.append(call)
        return None

    def _complete(self, call: _Call[Request, Response]) -> Response:
        if call.woken is not None and not call.woken.wait(self.limits.overlap_after):
            self._start_overlapping_batch()
            call.woken.wait()
        batch, call.batch = call.batch, None  # a batch that refers to its leader alone needs no garbage collector
        if batch is not None:
            self._lead(batch)
        return call.result()

    def _lead(self, batch: _Batch[Request, Response]) -> None:
        try:
            if batch.complete is not None:
                batch.complete.wait(batch.deadline - time.monotonic())
                self._close(batch)
            self._send_batch(batch.calls)
        finally:
            self._finish(batch)
            for follower in batch.calls[1:]:
                follower.wake()

    def _send_batch(self, calls: list[_Call[Request, Response]]) -> None:
        requests = [call.request for call in calls]
        try:
            if self._isolate_errors is None:
                responses = self._send(requests)
            else:
                responses = send_isolated(self._send, requests, self._isolate_errors)
            for call, response in zip(calls, responses, strict=True):
                call.set_response(response)
        except Exception as error:
            for call in calls:
                call.set_response(error)

    def _finish(self, batch: _Batch[Request, Response]) -> None:
        """Give the leadership to a waiting request, if there is one."""
        with self._lock:
            if self._collecting is batch:
                self._collecting = None
            self._last_end = time.monotonic()
            self._last_count = len(batch.calls) + len(self._waiting)
            following = self._take_waiting()
            if following is None:
                self._in_flight -= 1
            elif self.limits.max_delay:
                self._collect(following, self.limits.max_batch, following.calls[0].since + self.limits.max_delay)
            else:
                self._regroup(following)
        if following is not None:
            following.hand_over()

    def _start_overlapping_batch(self) -> None:
        """Send what waits although a batch is running, if one more may run."""
        with self._lock:
            limit = self.limits.max_in_flight
            if limit is not None and self._in_flight >= limit:
                return
            batch = self._take_waiting()
            if batch is None:
                return
            self._in_flight += 1
        batch.hand_over()

    # --- these are called with the lock

    def _take_waiting(self) -> _Batch[Request, Response] | None:
        if not self._waiting:
            return None
        size = self.limits.max_batch
        calls, self._waiting = self._waiting[:size], self._waiting[size:]
        return _Batch(calls)

    def _regroup(self, batch: _Batch[Request, Response]) -> None:
        if self.limits.regroup_delay:
            expected = min(self._last_count, self.limits.max_batch)
            self._collect(batch, expected, self._last_end + self.limits.regroup_delay)

    def _collect(self, batch: _Batch[Request, Response], expected: int, deadline: float) -> None:
        """Let new requests join the batch, if it is worth waiting for them."""
        if self._collecting is None and len(batch.calls) < expected and time.monotonic() < deadline:
            batch.expected, batch.deadline, batch.complete = expected, deadline, threading.Event()
            self._collecting = batch

    def _join(self, batch: _Batch[Request, Response], call: _Call[Request, Response]) -> None:
        batch.calls.append(call)
        if len(batch.calls) >= self.limits.max_batch:
            self._collecting = None
        if len(batch.calls) >= batch.expected and batch.complete is not None:
            batch.complete.set()

    def _close(self, batch: _Batch[Request, Response]) -> None:
        with self._lock:
            if self._collecting is batch:
                self._collecting = None


def send_isolated(
    send: Callable[[list[Request]], Sequence[Response | Exception]],
    requests: list[Request],
    isolate_errors: Callable[[Exception], bool],
) -> list[Response | Exception]:
    """Send a batch. If it fails, send each request alone, so that only the faulty ones fail.

    Returns a response or an error for each request. Raises an error of the batch for which ``isolate_errors`` is false:
    it would hit each single request as well.
    """
    if len(requests) > 1:
        try:
            return [*send(requests)]
        except Exception as error:
            if not isolate_errors(error):
                raise
            level = logging.INFO if isinstance(error, exceptions.NovaLiteException) else logging.WARNING
            text = " ".join(str(error).split())
            LOG.log(level, "A batch of %d requests failed and is retried one by one: %s", len(requests), text)
    return [_send_alone(send, request) for request in requests]


def _send_alone(
    send: Callable[[list[Request]], Sequence[Response | Exception]], request: Request
) -> Response | Exception:
    try:
        (response,) = send([request])
    except Exception as error:
        return error
    return response

"""Large bodies and responses: moved piece by piece in native threads that do nothing else.

A piece is as long as the socket's data, or its room, at this moment. Between two pieces a connection waits in the loop,
without a thread. So slow transfers delay neither requests nor other transfers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import webob

from nova_lite.base import concurrency

if TYPE_CHECKING:
    from nova_lite.api.http.admission import Executor

#: Key of the environment. If the body is too large to be received before the application runs, the value is a function
#: that takes a `BodySink` and the caller's project, and gives the body to the sink. It raises `ServiceUnavailable` if
#: client or project have too many uploads. A successful response of the application is then a promise: its headers are
#: kept. After an error the sink gets nothing. Such a body has a CONTENT_LENGTH only if the client announced it.
RECEIVE = "nova_lite.receive_body"

#: Key of the environment: the server waits for bodies that give a `Later`. The value is true.
WAITS = "nova_lite.waits_for_pieces"

MAX_THREADS = 8
#: Pieces of one connection before others get their turn.
PIECES = 16


class Later(bytes):
    """A piece of a response's body that says: the next one comes later. It sends nothing.

    The server waits without a thread, and calls `when_ready` each time. Any native thread may call the function that it
    passes, once or more often, but not after the body is closed. If there is a piece, or the end, already, `when_ready`
    calls it.
    """

    def when_ready(self, notify: Callable[[], None]) -> None:
        raise NotImplementedError


class BodySink(Protocol):
    """Receives a large body. `write` and `complete` are called by native threads, `respond` as the application is."""

    def write(self, data: bytes) -> Callable[[], None] | None:
        """Take the next piece. It may raise, and the rest of the body is then refused.

        It may return a function, which is called as the application is. No piece is received until it has returned.
        """

    def complete(self) -> None:
        """Check and keep what was received. It may raise."""

    def respond(self, error: Exception | None) -> webob.Response:
        """Return the response. ``error``: what `write` or `complete` raised; OSError if the client disconnected."""


class TransferThreads:
    """Up to `MAX_THREADS` native threads, which start when there is work for them."""

    def __init__(self, executor: Executor) -> None:
        native = concurrency.native("queue")
        self._jobs: Any = native.SimpleQueue()
        self._executor = executor
        self._lock: Any = concurrency.native("threading").Lock()
        self._threads = 0
        self._idle = 0

    def put(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)
        with self._lock:
            needed = not self._idle and self._threads < MAX_THREADS
            self._threads += needed
        if needed:
            concurrency.native_thread(self._run, "transfer")

    def stop(self) -> None:
        """End the threads when they have done what was put before."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            job = self._jobs.get()
            with self._lock:
                self._idle -= 1
            if job is None:
                return
            try:
                job()
            except Exception as error:
                self._executor.log(logging.ERROR, "HTTP server: a transfer failed in an unexpected way: %r", error)

"""Limit of the CPU time of a request, with native threads.

A request that computes does not keep others from being answered, since Python gives each thread its turn. It makes them
slow, so it is ended after a while. A call of C code that keeps the GIL cannot be ended in this way: then the main loop
stands still, and the parent replaces the process (`nova_lite.api.http.prefork`). docs/adr/0047 has the reasons.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable

from nova_lite.base import exceptions
from nova_lite.base.timing import TIMING

LOG = logging.getLogger(__name__)

#: Seconds of CPU after which a request is ended once more, if its code continues after the first error.
_REPEATED = 1.0


class RequestTooCostly(exceptions.NovaLiteException):
    """Raised in a request that has used more CPU time than any request needs."""

    msg_fmt = "The request needed too much CPU time and was ended."


class _Job:
    """A running job. ``clock``: of its thread's CPU time. ``end``: the time on it at which the job is ended."""

    def __init__(self, limit: float) -> None:
        self.clock = time.pthread_getcpuclockid(threading.get_ident())
        self.end = time.clock_gettime(self.clock) + limit
        self.ended = 0


class CpuLimit:
    """Ends jobs of native threads that compute for more than ``limit`` seconds."""

    def __init__(self, limit: float = TIMING.api.request_cpu) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._running: dict[int, _Job] = {}

    def run(self, job: Callable[[], None]) -> None:
        """Run the job in this thread. It gets a `RequestTooCostly` when it has computed for too long."""
        thread = threading.get_ident()
        running = _Job(self._limit)
        with self._lock:
            self._running[thread] = running
        try:
            job()
        finally:
            self._finish(thread, running)

    def check(self) -> None:
        """End jobs that are over the limit. Call this about each second, in another thread."""
        with self._lock:
            for thread, job in self._running.items():
                if time.clock_gettime(job.clock) >= job.end:
                    job.end += _REPEATED
                    job.ended += 1
                    _raise_in(thread, RequestTooCostly)
                    if job.ended == 1:
                        LOG.error("A request has used %.0f s of CPU time and is ended; its stack follows", self._limit)

    def _finish(self, thread: int, job: _Job) -> None:
        """Forget the job. The error may come just now: it is dropped then."""
        while thread in self._running:
            try:
                with self._lock:
                    del self._running[thread]
                if job.ended:
                    _raise_in(thread, None)
            except RequestTooCostly:
                continue


def _raise_in(thread: int, error: type[Exception] | None) -> None:
    """Raise an error in a thread of this process as soon as it runs Python code. None: drop the error on the way."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error and ctypes.py_object(error))

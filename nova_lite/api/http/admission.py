"""Threads that carry out requests, with native threads: requests wait by importance, the rest gets a 503.

The importance of a request is its `nova_lite.rpc.admission.Priority`, which its method and path determine.
"""

from __future__ import annotations

import logging
import random
import re
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import webob

from nova_lite.api.http import wsgi
from nova_lite.api.http.cpu_limit import CpuLimit
from nova_lite.base import metrics
from nova_lite.rpc.admission import AdmissionQueue, Priority, QueuedRequest

LOG = logging.getLogger(__name__)

_METHOD_PRIORITIES = {"DELETE": Priority.DELETE, "GET": Priority.READ, "HEAD": Priority.READ}
_DIGIT = re.compile(r"\d")

TOO_MANY = "This API has more requests than it can answer; nothing was done. Please try again in a moment."


def priority_of(method: str, path: str) -> Priority:
    """Return the priority of a request."""
    priority = _METHOD_PRIORITIES.get(method, Priority.CHANGE)
    if priority == Priority.READ and not _DIGIT.search(path.rstrip("/").rpartition("/")[2]):
        return Priority.LIST
    return priority


def busy_response() -> webob.Response:
    """Return the 503 of a request that was not begun."""
    return wsgi.fault(503, TOO_MANY, random.randint(1, 3))


class Job(NamedTuple):
    """A piece of work for a request thread.

    ``refuse`` is called instead of ``run`` if there is no room. Without it, the job is always carried out.
    """

    run: Callable[[], None]
    refuse: Callable[[], None] | None = None
    priority: Priority = Priority.CHANGE


class Executor(Protocol):
    """Carries out jobs: `RequestThreads`, or green threads."""

    def start(self) -> None: ...

    def put(self, job: Job) -> None:
        """Carry out a job soon. Any native thread may call it. It does not block."""

    def log(self, level: int, text: str, *args: object) -> None:
        """Log a message of another native thread."""

    def check(self) -> None:
        """End jobs that compute for too long, if this is possible. The server calls this about each second."""

    def stop(self, timeout: float) -> None:
        """Wait until all jobs are done, up to ``timeout`` seconds."""


class RequestThreads:
    """Native threads. Up to ``limit`` jobs wait for one of ``threads``, the most important first.

    A job that has waited for ``wait`` seconds is refused.
    """

    def __init__(self, limit: int, threads: int, wait: float) -> None:
        self._queue: AdmissionQueue[Job] = AdmissionQueue(limit, threads)
        self._wait = wait
        self._cpu = CpuLimit()
        self._threads = [
            threading.Thread(target=self._loop, name=f"request-{number}", daemon=True) for number in range(threads)
        ]

    @property
    def waiting(self) -> int:
        return self._queue.waiting

    def start(self) -> None:
        metrics.add_gauges(self, lambda: [metrics.sample(metrics.API_WAITING, self._queue.waiting)])
        for thread in self._threads:
            thread.start()

    def put(self, job: Job) -> None:
        entry = QueuedRequest(job, job.priority, time.monotonic(), refusable=job.refuse is not None)
        evicted = self._queue.put(entry)
        if evicted is not None:
            self._refuse(evicted)

    def log(self, level: int, text: str, *args: object) -> None:
        LOG.log(level, text, *args)

    def check(self) -> None:
        self._cpu.check()

    def stop(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        self._queue.close()
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        metrics.remove_gauges(self)

    def _loop(self) -> None:
        entry: QueuedRequest[Job] | None = None
        while (entry := self._queue.take(entry)) is not None:
            try:
                if entry.refusable and time.monotonic() - entry.since > self._wait:
                    self._refuse(entry)
                else:
                    self._cpu.run(entry.item.run)
            except Exception:
                LOG.exception("HTTP server: a request failed in an unexpected way")

    @staticmethod
    def _refuse(entry: QueuedRequest[Job]) -> None:
        metrics.REFUSED_REQUESTS.labels(entry.priority.name.lower()).inc()
        assert entry.item.refuse is not None
        entry.item.refuse()

"""What an API server with native threads does with more requests than it can answer: the least important are told 503.

Requests wait for a thread in the order of `nova_lite.rpc.admission.Priority`, which is told from their first line."""

from __future__ import annotations

import contextlib
import queue
import random
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from nova_lite.api.http import wsgi
from nova_lite.base import metrics
from nova_lite.rpc.admission import AdmissionQueue, Priority, QueuedRequest

_REQUEST = re.compile(rb"([A-Z]+) (?:https?://[^/ ]+)?([^? ]*)")
_OF_METHODS = {b"DELETE": Priority.DELETE, b"GET": Priority.READ, b"HEAD": Priority.READ}

TOO_MANY = "This API has more requests than it can answer; nothing was done. Please try again in a moment."


def priority_of(seen: bytes) -> Priority:
    """Of a request that begins like this; one that cannot be read (TLS) counts as a change."""
    request = _REQUEST.match(seen)
    if request is None:
        return Priority.CHANGE
    of_method = _OF_METHODS.get(request[1], Priority.CHANGE)
    if of_method == Priority.READ and not re.search(rb"\d", request[2].rstrip(b"/").rpartition(b"/")[2]):
        return Priority.LIST
    return of_method


class ConnectionQueue:
    """In place of the queue of cheroot's thread pool: connections whose request is here, most important first.

    ``refuse`` is given those that there is no room for, or that waited for ``wait`` seconds."""

    def __init__(self, limit: int, threads: int, wait: float, refuse: Callable[[Any], None]) -> None:
        self.line: AdmissionQueue[Any] = AdmissionQueue(limit, threads)
        self._wait = wait
        self._refuse = refuse
        self._own = threading.local()
        metrics.state_of(self, lambda: [metrics.one(metrics.API_WAITING, self.line.waiting)])

    def put(self, conn: Any, block: bool = True, timeout: float | None = None) -> None:
        """A connection, or cheroot's word that one thread shall end, which comes after all that waits."""
        is_request = hasattr(conn, "priority")
        entry = QueuedRequest(
            conn, conn.priority if is_request else Priority.LIST, time.monotonic(), refusable=is_request
        )
        gone = self.line.put(entry)
        if gone is not None:
            self._tell(gone)

    def get(self) -> Any:
        """For the threads of the pool: who asks for the next one has done the last one."""
        entry = getattr(self._own, "entry", None)
        self._own.entry = None
        while (entry := self.line.take(entry)) is not None:
            if not entry.refusable:
                self.line.done(entry)
                return entry.item
            if time.monotonic() - entry.since <= self._wait:
                self._own.entry = entry
                return entry.item
            self._tell(entry)
        raise queue.Empty

    def _tell(self, gone: QueuedRequest[Any]) -> None:
        metrics.REFUSED_REQUESTS.labels(gone.priority.name.lower()).inc()
        self._refuse(gone.item)

    def qsize(self) -> int:
        return self.line.waiting


def send_busy_response(conn: Any) -> None:
    """Tell the client of a connection whose request nobody has read, and close it. Only waits for a client that does
    not take 400 bytes."""
    response = wsgi.fault(503, TOO_MANY, random.randint(1, 3))
    head = [f"HTTP/1.1 {response.status}", "Connection: close", *(f"{k}: {v}" for k, v in response.headers.items())]
    with contextlib.suppress(OSError):
        conn.socket.settimeout(1.0)
        conn.socket.recv(1 << 18)  # what is unread when a connection is closed resets it, and the answer is lost
        conn.socket.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + response.body)
    conn.close()

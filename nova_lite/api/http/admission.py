"""Overload of an API server with native threads: requests wait for a thread by importance, the rest gets a 503.

The importance of a request is its `nova_lite.rpc.admission.Priority`, which its first line determines.
"""

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
_METHOD_PRIORITIES = {b"DELETE": Priority.DELETE, b"GET": Priority.READ, b"HEAD": Priority.READ}

TOO_MANY = "This API has more requests than it can answer; nothing was done. Please try again in a moment."


def priority_of(head: bytes) -> Priority:
    """Return the priority of a request whose first bytes are ``head``. An unreadable one (TLS) counts as a change."""
    request = _REQUEST.match(head)
    if request is None:
        return Priority.CHANGE
    priority = _METHOD_PRIORITIES.get(request[1], Priority.CHANGE)
    if priority == Priority.READ and not re.search(rb"\d", request[2].rstrip(b"/").rpartition(b"/")[2]):
        return Priority.LIST
    return priority


class ConnectionQueue:
    """Replaces the queue of cheroot's thread pool. Holds connections whose request has arrived, most important first.

    ``refuse`` is called with a connection that finds no room, or that has waited for ``wait`` seconds.
    """

    def __init__(self, limit: int, threads: int, wait: float, refuse: Callable[[Any], None]) -> None:
        self._queue: AdmissionQueue[Any] = AdmissionQueue(limit, threads)
        self._wait = wait
        self._refuse = refuse
        #: The entry that this thread works on.
        self._current = threading.local()
        metrics.add_gauges(self, lambda: [metrics.sample(metrics.API_WAITING, self._queue.waiting)])

    def put(self, conn: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add a connection, or cheroot's request to end one thread, which all waiting connections precede."""
        is_request = hasattr(conn, "priority")
        entry = QueuedRequest(
            conn, conn.priority if is_request else Priority.LIST, time.monotonic(), refusable=is_request
        )
        evicted = self._queue.put(entry)
        if evicted is not None:
            self._refuse_entry(evicted)

    def get(self) -> Any:
        """Return the next connection for a thread of the pool, which has finished its previous one."""
        entry = getattr(self._current, "entry", None)
        self._current.entry = None
        while (entry := self._queue.take(entry)) is not None:
            if not entry.refusable:
                self._queue.done(entry)
                return entry.item
            if time.monotonic() - entry.since <= self._wait:
                self._current.entry = entry
                return entry.item
            self._refuse_entry(entry)
        raise queue.Empty

    def _refuse_entry(self, entry: QueuedRequest[Any]) -> None:
        metrics.REFUSED_REQUESTS.labels(entry.priority.name.lower()).inc()
        self._refuse(entry.item)

    def qsize(self) -> int:
        return self._queue.waiting


def send_busy_response(conn: Any) -> None:
    """Send a 503 to a client whose request was not read, and close the connection. Blocks for one second at most."""
    response = wsgi.fault(503, TOO_MANY, random.randint(1, 3))
    head = [f"HTTP/1.1 {response.status}", "Connection: close", *(f"{k}: {v}" for k, v in response.headers.items())]
    with contextlib.suppress(OSError):
        conn.socket.settimeout(1.0)
        conn.socket.recv(1 << 18)  # closing with unread data would reset the connection, and lose the response
        conn.socket.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + response.body)
    conn.close()

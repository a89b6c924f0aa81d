"""Queue of the events of an API process, and the thread that sends them to the conductor in batches."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable

from oslo_config import cfg

from nova_lite.api.audit.flood import FailureLimits
from nova_lite.base import exceptions, metrics
from nova_lite.base.context import get_admin_context
from nova_lite.base.timing import TIMING, ApiTiming
from nova_lite.compute.api import API
from nova_lite.objects import AuditEvent
from nova_lite.objects.audit import FAILURE
from nova_lite.rpcapi.conductor import ConductorRPC

LOG = logging.getLogger(__name__)

#: Events of a process that wait for a conductor, at some 600 bytes each.
QUEUE_SIZE = 10_000
#: Events in one message.
BATCH = 200


class Recorder:
    """Keeps events until the conductor has stored them.

    ``record`` never waits. While no conductor answers, the newest events are lost once the queue is full: a metric
    counts them. Events that wait when the process is killed are lost, too.
    """

    def __init__(self, conductor: Callable[[], ConductorRPC], enabled: bool, timing: ApiTiming = TIMING.api) -> None:
        self.enabled = enabled
        self._conductor = conductor
        self._timing = timing
        self._waiting: deque[AuditEvent] = deque()
        self._failures = FailureLimits()
        self._arrived, self._stopping, self._ended = threading.Event(), threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._dropped = 0
        self._failed = False
        #: No conductor answered the last call, and the log says so.
        self._is_away = False

    @property
    def waiting(self) -> list[AuditEvent]:
        """Events that the conductor has not stored yet, the oldest first."""
        return list(self._waiting)

    def record(self, event: AuditEvent) -> None:
        if event.outcome != FAILURE or self._failures.admits(event):
            self._add(event)

    def start(self) -> None:
        """Start to send. Until then, events wait: a process that forks others starts after it."""
        if self.enabled:
            self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Send what waits, within `ApiTiming.audit_last_attempt` seconds."""
        self._stopping.set()
        self._arrived.set()
        if self._thread is not None:
            self._thread.join(self._timing.audit_last_attempt)
            self._thread = None
        self._ended.set()
        if self._waiting:
            LOG.warning("%d events of the audit log are lost: no conductor took them", len(self._waiting))

    def _add(self, event: AuditEvent) -> None:
        if len(self._waiting) >= QUEUE_SIZE:
            metrics.AUDIT_DROPPED.inc()
            self._dropped += 1
            if self._dropped == 1:
                LOG.error("Events of the audit log are lost: %d wait for a conductor already", QUEUE_SIZE)
            return
        self._waiting.append(event)
        self._arrived.set()

    def flush(self) -> None:
        """Send what waits now, with the summaries of failures so far."""
        self._send_all(last=True)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._arrived.wait(self._timing.audit_retry)
            self._stopping.wait(self._timing.audit_delay)
            self._arrived.clear()
            self._send_all()
            if self._failed:
                self._stopping.wait(self._timing.audit_retry)
        self.flush()

    def _send_all(self, last: bool = False) -> None:
        for summary in self._failures.take(at_once=last):
            self._add(summary)
        self._failed = False
        while self._waiting and not self._failed:
            batch = [self._waiting[index] for index in range(min(BATCH, len(self._waiting)))]
            self._failed = not self._send(batch)
            if not self._failed:
                for _ in batch:
                    self._waiting.popleft()
        if self._dropped and not self._waiting:
            LOG.warning("The audit log continues; %d events were lost", self._dropped)
            self._dropped = 0

    def _send(self, batch: list[AuditEvent]) -> bool:
        """Send events. Returns False if they have to be sent again."""
        try:
            self._conductor().audit_record(get_admin_context(), batch)
        except exceptions.ServiceUnavailable as error:
            if not self._is_away:
                LOG.warning("The audit log waits for a conductor: %s", error)
            self._is_away = True
            return False
        except Exception:
            if self._ended.is_set():
                return False  # the connection is closed
            if len(batch) > 1:
                return all(self._send([event]) for event in batch)
            LOG.exception("The conductor does not store an event of the audit log: %s", batch[0])
            metrics.AUDIT_DROPPED.inc()
        self._is_away = False
        return True


_recorders: weakref.WeakKeyDictionary[API, Recorder] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def of(conf: cfg.ConfigOpts, compute: API) -> Recorder:
    """Return the recorder that all applications of a process share."""
    with _lock:
        if compute not in _recorders:
            reference = weakref.ref(compute)
            _recorders[compute] = Recorder(lambda: _conductor(reference), conf.audit.enabled)
        return _recorders[compute]


def _conductor(reference: weakref.ref[API]) -> ConductorRPC:
    """Return the client of the conductor, which a daemon gets after its applications."""
    compute = reference()
    if compute is None:
        raise exceptions.ServiceUnavailable("This API daemon is stopping.")
    return compute.conductor

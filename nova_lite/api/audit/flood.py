"""Limits of the failures that one API process records one by one. A flood becomes a few summaries a minute."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import msgspec

from nova_lite.base import ip
from nova_lite.objects import AuditEvent

#: Seconds of a window.
WINDOW = 60.0
#: Failures of a window that are recorded one by one: from one client, and from all.
PER_CLIENT, PER_PROCESS = 20, 300
#: Summaries of a window. Further clients share the summaries without an address.
MAX_SUMMARIES = 200

_Key = tuple[str, str, str, int]


class FailureLimits:
    """Decides which failures are recorded one by one, and counts the others by client, API, action and status."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        self._recorded: Counter[str] = Counter()
        self._summaries: dict[_Key, AuditEvent] = {}

    def admits(self, event: AuditEvent) -> bool:
        """Check whether a failure is recorded alone. Else it is counted in a summary."""
        with self._lock:
            client = ip.client_of(event.address)
            if self._recorded[client] < PER_CLIENT and self._recorded.total() < PER_PROCESS:
                self._recorded[client] += 1
                return True
            self._count(event)
            return False

    def take(self, at_once: bool = False) -> list[AuditEvent]:
        """Return the summaries of a window that is over, and begin a new one. ``at_once``: end the window now."""
        with self._lock:
            if not at_once and self._clock() - self._began < WINDOW:
                return []
            summaries = list(self._summaries.values())
            self._began = self._clock()
            self._recorded.clear()
            self._summaries = {}
            return summaries

    def _count(self, event: AuditEvent) -> None:
        event = msgspec.structs.replace(event, address=ip.client_of(event.address))
        key = event.address, event.service, event.action, event.reason_code
        if key not in self._summaries and len(self._summaries) >= MAX_SUMMARIES:
            event = msgspec.structs.replace(event, address="", action="unknown", reason_code=0)
            key = "", event.service, event.action, 0
        known = self._summaries.get(key)
        if known is None:
            self._summaries[key] = msgspec.structs.replace(
                event, credential="", agent="", target_type="", target_id="", path="", request_id=""
            )
            return
        known.count += 1
        known.event_time = event.event_time
        for name in ("user_id", "project_id"):
            if getattr(known, name) != getattr(event, name):
                setattr(known, name, "")

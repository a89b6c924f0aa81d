"""Events of libvirt about changes of domains' power states, and about guests that have failed.

libvirt calls back in the native thread of its event loop. In eventlet mode none of our code may run there. So the
callback only queues the uuid, and wakes an ordinary thread through a socket. It never waits: the loop also answers
libvirtd's keepalives.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import libvirt

from nova_lite.objects import IncidentKind

LOG = logging.getLogger(__name__)

_POWER_EVENTS = frozenset(
    (
        libvirt.VIR_DOMAIN_EVENT_STARTED,
        libvirt.VIR_DOMAIN_EVENT_SUSPENDED,
        libvirt.VIR_DOMAIN_EVENT_RESUMED,
        libvirt.VIR_DOMAIN_EVENT_STOPPED,
        libvirt.VIR_DOMAIN_EVENT_PMSUSPENDED,
        libvirt.VIR_DOMAIN_EVENT_CRASHED,
    )
)

#: Incident by the action that qemu took when a guest did not feed its watchdog.
_WATCHDOG = {
    libvirt.VIR_DOMAIN_EVENT_WATCHDOG_NONE: IncidentKind.WATCHDOG_NONE,
    libvirt.VIR_DOMAIN_EVENT_WATCHDOG_PAUSE: IncidentKind.WATCHDOG_PAUSE,
    libvirt.VIR_DOMAIN_EVENT_WATCHDOG_RESET: IncidentKind.WATCHDOG_RESET,
    libvirt.VIR_DOMAIN_EVENT_WATCHDOG_POWEROFF: IncidentKind.WATCHDOG_POWEROFF,
    libvirt.VIR_DOMAIN_EVENT_WATCHDOG_SHUTDOWN: IncidentKind.WATCHDOG_POWEROFF,
}


class EventRelay:
    """Relays events.

    ``is_relevant(uuid)`` returns whether a domain is relevant; it is called outside of libvirt's thread.
    """

    def __init__(self, is_relevant: Callable[[str], bool]) -> None:
        self._is_relevant = is_relevant
        self._pending: collections.deque[tuple[str, IncidentKind | None]] = collections.deque()
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._callback: Callable[[str, IncidentKind | None], None] | None = None
        self._watched: dict[str, threading.Event] = {}

    def register(self, connection: Any) -> None:
        """Register a (new) connection for lifecycle and watchdog events of all domains."""
        connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._on_event, None)
        connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_WATCHDOG, self._on_watchdog, None)

    def start(self, callback: Callable[[str, IncidentKind | None], None]) -> None:
        """Call ``callback(uuid, incident)`` from a separate thread from now on. Returns at once."""
        self._callback = callback
        threading.Thread(target=self._deliver, name="libvirt-event-relay", daemon=True).start()

    @contextlib.contextmanager
    def watch(self, instance_uuid: str) -> Iterator[threading.Event]:
        """Yield an event that is set each time the domain's power state changes. The caller holds the instance's lock.

        Events may get lost, so nothing may rely on them alone.
        """
        changed = self._watched[instance_uuid] = threading.Event()
        try:
            yield changed
        finally:
            self._watched.pop(instance_uuid, None)

    def _on_event(self, _connection: Any, domain: Any, event: int, detail: int, _opaque: Any) -> None:
        if event in _POWER_EVENTS:
            panicked = (event, detail) == (libvirt.VIR_DOMAIN_EVENT_CRASHED, libvirt.VIR_DOMAIN_EVENT_CRASHED_PANICKED)
            self._queue(domain, IncidentKind.PANIC if panicked else None)

    def _on_watchdog(self, _connection: Any, domain: Any, action: int, _opaque: Any) -> None:
        if (incident := _WATCHDOG.get(action)) is not None:
            self._queue(domain, incident)

    def _queue(self, domain: Any, incident: IncidentKind | None) -> None:
        if self._callback is not None:
            self._pending.append((domain.UUIDString(), incident))
            # A full socket wakes the reader, too. eventlet's os.write would wait for room in a hub of this thread.
            with contextlib.suppress(BlockingIOError):
                os.writev(self._writer.fileno(), [b"!"])

    def _deliver(self) -> None:
        while self._reader.recv(4096):
            while self._pending:
                self._deliver_one(*self._pending.popleft())

    def _deliver_one(self, instance_uuid: str, incident: IncidentKind | None) -> None:
        if (changed := self._watched.get(instance_uuid)) is not None:
            changed.set()
        if self._callback is None or not self._is_relevant(instance_uuid):
            return
        try:
            self._callback(instance_uuid, incident)
        except Exception:
            LOG.exception("The event of domain %s could not be handled", instance_uuid)

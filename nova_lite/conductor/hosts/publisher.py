"""Publishes committed changes of compute hosts to the schedulers.

Each publication reads the nodes as they are then. It follows ``publish_interval`` seconds after the first change, so
that it does not slow down the build that has made the change. Further changes share it. A request that changes a host
(disables it, adds it to an aggregate) waits until the change is published, because the next create has to respect it.
A lost message is repaired by the schedulers' resync.

Freed capacity matters only to the next request for a place, whose claim is a change. So it is published with the next
change, or after ``publish_freed_delay`` seconds. Before a request is refused, all capacity is published that any
conductor has freed lately (`publish_before_refusal`). A scheduler that does not know the latest generations then,
refuses nothing.
"""

from __future__ import annotations

import datetime
import logging

from nova_lite.base import clock, exceptions, threads
from nova_lite.base.context import get_admin_context
from nova_lite.base.timing import TIMING, ConductorTiming
from nova_lite.db.core.engine import Database, UnitOfWork, translate
from nova_lite.db.core.events import HostChanged, HostFreed, HostRemoved
from nova_lite.db.hosts import hosts
from nova_lite.objects import HostState
from nova_lite.rpcapi.scheduler import SchedulerRPC

LOG = logging.getLogger(__name__)


class HostPublisher:
    """Publishes changes in a thread of its own. Before `start`, each change is published by the thread that adds it."""

    def __init__(self, db: Database, scheduler: SchedulerRPC, timing: ConductorTiming = TIMING.conductor) -> None:
        self._db = db
        self._interval = timing.publish_interval
        self._freed_delay = timing.publish_freed_delay
        self._scheduler = scheduler
        self._lock = threads.Lock()
        self._changed: set[int] = set()
        self._deleted: dict[int, HostState] = {}
        self._freed: set[int] = set()
        self._freed_since = 0.0
        #: The time of the newest freed capacity of each node that `publish_before_refusal` has published.
        self._published_freed: dict[int, datetime.datetime] = {}
        self._publishing = threads.Lock()
        self._wake_up = threads.Event()
        self._stopping = threads.Event()
        self._thread: threads.Thread | None = None

    def start(self) -> None:
        if self._thread is not None:
            return
        self._thread = threads.start(self._run, "host-publisher")

    def stop(self) -> None:
        self._stopping.set()
        self._wake_up.set()
        if self._thread is not None:
            self._thread.join(self._interval)
            self.publish()

    def announce(self, uow: UnitOfWork) -> None:
        """Add the changes of a transaction after its commit."""
        changes = uow.published(HostChanged)
        deleted = {event.state.id: event.state for event in uow.published(HostRemoved)}
        freed = {event.node_id for event in uow.published(HostFreed)}
        if not changes and not deleted:
            uow.after_commit(lambda: self.add_freed(freed))
            return
        changed = freed | {event.node_id for event in changes}
        at_once = bool(deleted) or any(event.at_once for event in changes)
        uow.after_commit(lambda: self.add(changed, deleted, at_once))

    def add(self, changed: set[int], deleted: dict[int, HostState], at_once: bool = False) -> None:
        """Add ids of changed nodes, and the last states of deleted ones. With ``at_once`` it publishes them itself."""
        with self._lock:
            self._changed |= changed - deleted.keys()
            self._deleted |= deleted
        if at_once or self._thread is None:
            self.publish()
        else:
            self._wake_up.set()

    def add_freed(self, nodes: set[int]) -> None:
        """Add ids of nodes that have free capacity again, and did not change otherwise."""
        with self._lock:
            if not self._freed:
                self._freed_since = clock.monotonic()
            self._freed |= nodes
        if self._thread is None:
            self.publish()
        else:
            self._wake_up.set()

    def publish_before_refusal(self) -> int:
        """Publish all that a scheduler perhaps does not know, also from other conductors. It has found no host.

        Return the sum of all generations, which a scheduler has to know before it refuses. Raises
        `DatabaseUnavailable`.
        """
        # Seconds for which capacity that another conductor has freed may be unknown to the schedulers.
        lately = self._db.conf.scheduler.resync_interval + 2 * self._freed_delay
        try:
            generations, freed = self._db.read(hosts.freed_lately, lately)
        except Exception as error:
            raise translate(error) from error
        with self._lock:
            self._freed |= {node_id for node_id, at in freed.items() if self._published_freed.get(node_id) != at}
            self._published_freed = freed
        self.publish()
        return generations

    def publish(self) -> None:
        """Publish all changes that were added. A failure is logged."""
        with self._publishing:
            self._publish()

    def _publish(self) -> None:
        with self._lock:
            changed, deleted = self._changed | (self._freed - self._deleted.keys()), self._deleted
            self._changed, self._deleted, self._freed = set(), {}, set()
        try:
            states = self._db.read(hosts.states, sorted(changed)) if changed else []
            states += deleted.values()
            if states:
                self._scheduler.update_host_states(get_admin_context(), states)
        except Exception as error:
            ours = translate(error)
            if not isinstance(ours, exceptions.NovaLiteException):
                raise
            self._published_freed = {}
            LOG.info("Changes of %d host(s) reach schedulers with their next resync", len(changed) + len(deleted))

    def _seconds_until_due(self) -> float | None:
        """Return the seconds until the next publication is due, or None if there is nothing to publish."""
        with self._lock:
            if self._changed or self._deleted:
                return 0.0
            return max(0.0, self._freed_since + self._freed_delay - clock.monotonic()) if self._freed else None

    def _run(self) -> None:
        while True:
            self._wake_up.wait(self._seconds_until_due())
            if self._stopping.is_set():
                return
            self._wake_up.clear()
            if self._seconds_until_due() != 0:
                continue
            self._stopping.wait(self._interval)
            try:
                self.publish()
            except Exception:
                LOG.exception("Changes of hosts cannot be published; they reach schedulers with their next resync")

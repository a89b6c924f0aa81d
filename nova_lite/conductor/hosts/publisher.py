"""Telling schedulers what was committed of hosts.

Each announcement reads the nodes as they are then, so that what is committed while one is under way, or right after it,
shares the next. Who builds or deletes waits for none; who changes a host (disables it, puts it into an aggregate) waits
until it is told, as the next create has to respect it. One that is lost is healed by the schedulers' resync.

That a place is free again matters to nobody before a place is asked for. So it is told with the next announcement,
before this conductor asks a scheduler, or after `FREED_PAUSE`; and whoever would be refused has all told to schedulers
that any conductor has written of places that were freed lately (`refused`).
"""

from __future__ import annotations

import datetime
import logging
import threading
import time

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.db import hosts
from nova_lite.db.engine import Database, translate
from nova_lite.objects import HostState
from nova_lite.scheduler.rpcapi import SchedulerRPC

LOG = logging.getLogger(__name__)

#: Seconds between two announcements at least.
PAUSE = 0.1
#: Seconds after which a free place is told at the latest.
FREED_PAUSE = 10.0
#: Seconds, besides the schedulers' ``resync_interval``, for which what another conductor has freed may be unknown.
FREED_LATELY = 2 * FREED_PAUSE


class HostPublisher:
    """Until it is started, what is added is told at once, by whoever adds it. ``count``: of announcements."""

    def __init__(self, db: Database, scheduler: SchedulerRPC) -> None:
        self._db = db
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._changed: set[int] = set()
        self._deleted: dict[int, HostState] = {}
        self._freed: set[int] = set()
        self._freed_since = 0.0
        self._told_freed: dict[int, datetime.datetime] = {}
        self._telling = threading.Lock()
        self.count = 0
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is not None:
            return
        self._thread = threading.Thread(target=self._run, name="host-news", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(PAUSE)
            self.tell_freed()

    def add(self, changed: set[int], deleted: dict[int, HostState], at_once: bool = False) -> None:
        """Ids of nodes that were changed, and the last states of those that are gone. ``at_once``: it is told when this
        returns."""
        with self._lock:
            self._changed |= changed - deleted.keys()
            self._deleted |= deleted
        if at_once or self._thread is None:
            self.tell()
        else:
            self._wanted.set()

    def add_freed(self, nodes: set[int]) -> None:
        """Ids of nodes that have got a place back, and were not changed in any other way."""
        with self._lock:
            if not self._freed:
                self._freed_since = time.monotonic()
            self._freed |= nodes
        if self._thread is None:
            self.tell()
        else:
            self._wanted.set()

    def tell_freed(self) -> None:
        """Before a scheduler is asked."""
        if self._freed:
            self.tell()

    def refused(self) -> None:
        """A scheduler has found no host: tell whatever it may not know, of other conductors' too."""
        interval = self._db.conf.scheduler.resync_interval
        try:
            freed = self._db.read(hosts.freed_lately, interval + FREED_LATELY)
        except Exception as error:
            ours = translate(error)
            if not isinstance(ours, exceptions.NovaLiteException):
                raise
            freed = {}
        with self._lock:
            self._freed |= {node_id for node_id, at in freed.items() if self._told_freed.get(node_id) != at}
            self._told_freed = freed
        self.tell()

    def _patience(self) -> float | None:
        """Seconds until there has to be an announcement; None: there is nothing to tell."""
        with self._lock:
            if self._changed or self._deleted:
                return 0.0
            return max(0.0, self._freed_since + FREED_PAUSE - time.monotonic()) if self._freed else None

    def tell(self) -> None:
        """Whatever was added, all of it when this returns. A failure is logged."""
        with self._telling:
            self._tell()

    def _tell(self) -> None:
        with self._lock:
            changed, deleted = self._changed | (self._freed - self._deleted.keys()), self._deleted
            self._changed, self._deleted, self._freed = set(), {}, set()
        try:
            states = self._db.read(hosts.states, sorted(changed)) if changed else []
            states += deleted.values()
            if states:
                self.count += 1
                self._scheduler.update_host_states(get_admin_context(), states)
        except Exception as error:
            ours = translate(error)
            if not isinstance(ours, exceptions.NovaLiteException):
                raise
            self._told_freed = {}
            LOG.info("Schedulers were not told about %d host(s); their next resync will", len(changed) + len(deleted))

    def _run(self) -> None:
        while True:
            self._wanted.wait(self._patience())
            if self._stopping.is_set():
                return
            self._wanted.clear()
            if self._patience() != 0:
                continue
            try:
                self.tell()
            except Exception:
                LOG.exception("Schedulers could not be told of hosts; their next resync does it")
            self._stopping.wait(PAUSE)

"""The scheduler's RPC methods, and how its view of the hosts is kept fresh."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from nova_lite.base import exceptions, version
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.objects import Destination, HostState, Placement, RequestSpec
from nova_lite.scheduler import core, filters, weights
from nova_lite.scheduler.hosts import HostView

LOG = logging.getLogger(__name__)

Notify = Callable[[RequestContext, str, dict[str, Any]], None]

BINARY = "nova-scheduler"

#: Hosts in one answer of a full read: some milliseconds of work for each side. It says all instances of its hosts, and
#: what the largest answer takes stays with both sides.
RESYNC_PAGE = 50

#: Seconds that such an answer may take. Shorter than rpc_response_timeout: it is asked again if the answer was lost.
RESYNC_TIMEOUT = 15.0


class SchedulerManager:
    """Answers from memory. Nothing here asks another service while a caller waits: a conductor whose threads all wait
    for a scheduler could not answer it."""

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        conductor: ConductorRPC,
        rng: random.Random | None = None,
        notify: Notify | None = None,
    ) -> None:
        """``notify(context, event_type, payload)`` tells those who watch; it must not wait for anything."""
        self._conf = conf
        self._conductor = conductor
        self._rng = rng or random.Random()
        self._filters = filters.load(conf)
        self._weighers = weights.load(conf)
        self._options = core.Options(conf.scheduler.host_subset_size, conf.scheduler.max_alternates)
        self._notify = notify or (lambda context, event_type, payload: None)
        self._hosts = HostView()
        self._deciding = threading.Lock()
        self._ready = False
        self._next_resync = 0.0

    # --- RPC

    def select_destinations(self, context: RequestContext, spec: RequestSpec) -> list[Destination]:
        """A place with alternates for each instance of the request, or `NoValidHost`; `SchedulerNotReady` before the
        hosts are known. One decision at a time, so that each sees what the one before it took.

        What was decided and not (yet) claimed steers, but refuses nobody: such a place may never be claimed, because
        its conductor died or its server was deleted. If there is room without it, the claim decides.
        """
        if not self._ready:
            raise exceptions.SchedulerNotReady()
        asked: dict[str, Any] = {
            "instance_uuids": spec.instance_uuids,
            "project_id": spec.project_id,
            "flavor": spec.flavor.flavorid,
            "attempt": spec.attempt,
        }
        self._notify(context, "scheduler.select_destinations.start", asked)
        with self._deciding:
            try:
                destinations = self._decide_and_consume(spec)
            except exceptions.NoValidHost as error:
                self._notify(context, "scheduler.select_destinations.end", {**asked, "reason": error.message})
                raise
        hosts = [each.selected.host for each in destinations]
        self._notify(context, "scheduler.select_destinations.end", {**asked, "hosts": hosts})
        return destinations

    def select_destinations_batch(self, context: RequestContext, specs: list[RequestSpec]) -> list[Placement]:
        return [self._placement(context, spec) for spec in specs]

    def _placement(self, context: RequestContext, spec: RequestSpec) -> Placement:
        try:
            return Placement(destinations=self.select_destinations(context, spec))
        except exceptions.NoValidHost as error:
            return Placement(reason=error.message, details=str(error.kwargs.get("details", "")))

    def _decide_and_consume(self, spec: RequestSpec) -> list[Destination]:
        try:
            destinations = self._decide(self._hosts.snapshot(), spec)
        except exceptions.NoValidHost:
            destinations = self._decide(self._hosts.rows(), spec)
        if not spec.stays:
            self._hosts.consume(destinations, spec)
        return destinations

    def _decide(self, hosts: list[HostState], spec: RequestSpec) -> list[Destination]:
        return core.select_destinations(hosts, spec, self._filters, self._weighers, self._options, self._rng)

    def update_host_states(self, context: RequestContext, states: list[HostState]) -> None:
        """Hosts that changed, from the conductor."""
        self._hosts.apply(states)

    # --- for metrics and health

    def known_hosts(self) -> int:
        return len(self._hosts.rows())

    def require_hosts(self) -> None:
        """Raises `SchedulerNotReady` before the hosts are known."""
        if not self._ready:
            raise exceptions.SchedulerNotReady()

    # --- in the background

    def keep_fresh(self) -> None:
        """Read all hosts from the conductor if it is time to, or if the last attempt failed.

        Raises `MessagingUnavailable` or `DatabaseUnavailable`; to be called again soon.
        """
        if time.monotonic() < self._next_resync:
            return
        mark = self._hosts.mark()
        states = self._read_all()
        self._hosts.replace_all(states, since=mark)
        self._next_resync = time.monotonic() + self._conf.scheduler.resync_interval
        if not self._ready:
            self._ready = True
            LOG.info("Host states are loaded: %d hosts", len(states))

    def _read_all(self) -> list[HostState]:
        """All hosts, in pages: neither side is busy with one message for long, so decisions go on meanwhile."""
        states: list[HostState] = []
        while True:
            last = states[-1].id if states else 0
            page = self._conductor.host_states_get(
                get_admin_context(), after=last, limit=RESYNC_PAGE, timeout=RESYNC_TIMEOUT
            )
            states += self._hosts.known(page)
            if len(page) < RESYNC_PAGE:
                return states

    def report(self) -> None:
        """Heartbeat."""
        self._conductor.report_service(
            get_admin_context(), host=self._conf.host, binary=BINARY, topic="scheduler", version=version.VERSION
        )

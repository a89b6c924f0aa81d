"""RPC methods of the scheduler, and the upkeep of its host states."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from oslo_config import cfg

from nova_lite.base import clock, exceptions, randomness, threads, version
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.objects import Destination, HostState, HostVersion, Placement, RequestSpec
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.scheduler import advice, core, filters, weights
from nova_lite.scheduler.hosts import HostView

LOG = logging.getLogger(__name__)

Item = TypeVar("Item", HostState, HostVersion)

Notify = Callable[[RequestContext, str, dict[str, Any]], None]

BINARY = "nova-scheduler"

#: Hosts in one page of a full read. A page lists all instances of its hosts, so it must not be too large.
RESYNC_PAGE = 50

#: Hosts in one page of versions.
VERSION_PAGE = 1000

#: Number of parts of all hosts. Each resync reads one part, whether its versions have changed or not.
RESYNC_PARTS = 10

#: Seconds to wait for a page. It is shorter than rpc_response_timeout, so that a lost reply is requested again soon.
RESYNC_TIMEOUT = 15.0

#: Hosts that are checked for the advice of a refusal: a few hundredths of a second in a cloud of 10,000 hosts.
ADVICE_CHECKS = 50_000

#: Notifications of a decision.
_START, _END = "scheduler.select_destinations.start", "scheduler.select_destinations.end"

_OUTDATED = "The scheduler's host states may be outdated, and it reads them again. By them:"


class SchedulerManager:
    """Decides from memory.

    A decision never waits for another service. Otherwise a conductor whose threads all wait for schedulers would block
    them.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        conductor: ConductorRPC,
        rng: randomness.Source | None = None,
        notify: Notify | None = None,
    ) -> None:
        """Load filters and weighers. ``notify(context, event_type, payload)`` sends a notification without blocking."""
        self._conf = conf
        self._conductor = conductor
        self._rng = rng or randomness.Source()
        self._filters = filters.load(conf)
        self._weighers = weights.load(conf)
        self._options = core.Options(conf.scheduler.host_subset_size, conf.scheduler.max_alternates)
        self._notify = notify or (lambda context, event_type, payload: None)
        self._hosts = HostView()
        self._deciding = threads.Lock()
        self._ready = False
        #: False if the last attempt to read all hosts failed.
        self._is_current = False
        self._next_resync = 0.0
        #: Id of the last host that a resync has read although its version was known.
        self._last_part = 0

    # --- RPC

    def select_destinations(self, context: RequestContext, spec: RequestSpec) -> list[Destination]:
        """Return a destination for each instance of the request, or raise `NoValidHost`.

        Raises `SchedulerNotReady` before the host states are loaded. It does so also instead of a refusal if the last
        resync failed, or if the conductor knows later generations (``spec.known``): announcements of freed capacity may
        be lost or late. Then the next resync is due at once. Decisions are made one at a time, so each one sees the
        places of the one before.

        Places that are decided but not claimed are avoided. They do not cause a refusal, because they may never be
        claimed: their conductor may have died, or their server was deleted. If there is room without them, the claim
        decides.
        """
        self.require_hosts()
        payload = _payload(spec)
        self._notify(context, _START, payload)
        with self._deciding:
            try:
                destinations = self._decide_and_consume(spec)
            except exceptions.NoValidHost as error:
                self._notify(context, _END, {**payload, "reason": error.message})
                if not self._is_current or self._hosts.known_generations() < spec.known:
                    self._next_resync = 0.0
                    raise exceptions.SchedulerNotReady(f"{_OUTDATED} {error.message}") from error
                refusal, hosts = error, self._hosts.rows()
            else:
                self._notify(context, _END, payload | _hosts_of(destinations))
                return destinations
        raise self._advised(refusal, hosts, spec) if spec.known else refusal

    def _advised(
        self, refusal: exceptions.NoValidHost, hosts: list[HostState], spec: RequestSpec
    ) -> exceptions.NoValidHost:
        """Return a refusal that the conductor accepts, with advice. It did not accept one without ``spec.known``."""
        search = advice.Search(hosts, spec, self._filters, self._weighers, self._rng, ADVICE_CHECKS)
        return advice.advised(refusal, search)

    def select_destinations_batch(self, context: RequestContext, specs: list[RequestSpec]) -> list[Placement]:
        """Return a placement for each spec.

        Alike specs are decided as one request. So all hosts are filtered and weighed once for them, which takes most of
        the time if there are thousands. If there is no room for all of them, they are decided one by one.
        """
        self.require_hosts()
        placements: dict[int, Placement] = {}
        for alike in self._alike(specs):
            together = self._decide_together(context, [specs[position] for position in alike])
            for number, position in enumerate(alike):
                found = together[number] if together else self._placement(context, specs[position])
                placements[position] = found
        return [placements[position] for position in range(len(specs))]

    def _alike(self, specs: list[RequestSpec]) -> list[list[int]]:
        """Return the positions of specs that differ by their instances only, and perhaps by an owner that no filter or
        weigher looks at.

        A spec with a server group is alone, as the group grows with each decision; and one whose server stays.
        """
        hosts = self._hosts.snapshot() if len(specs) > 1 else []
        judges_owner = any(item.judges_owner(hosts) for item in self._filters)
        judges_owner = judges_owner or any(item.judges_owner(hosts) for item in self._weighers)
        found: dict[object, list[int]] = {}
        for position, spec in enumerate(specs):
            owner = (spec.project_id, spec.user_id) if judges_owner else ("", "")
            common = msgspec.structs.replace(spec, instance_uuids=[], project_id="", user_id="")
            alone = spec.instance_group is not None or spec.stays
            key = position if alone else (owner, msgspec.msgpack.encode(common))
            found.setdefault(key, []).append(position)
        return list(found.values())

    def _decide_together(self, context: RequestContext, alike: list[RequestSpec]) -> list[Placement]:
        """Return a placement for each of several alike specs; none if there is only one, or no room for all."""
        if len(alike) == 1:
            return []
        uuids = [uuid for spec in alike for uuid in spec.instance_uuids]
        request = msgspec.structs.replace(alike[0], instance_uuids=uuids)
        try:
            with self._deciding:
                decided = self._decide(self._hosts.snapshot(), request)
                self._hosts.consume(decided, request)
        except exceptions.NoValidHost:
            return []
        found = iter(decided)
        placements = []
        for spec in alike:
            destinations = [next(found) for _ in spec.instance_uuids]
            self._notify(context, _START, _payload(spec))
            self._notify(context, _END, _payload(spec) | _hosts_of(destinations))
            placements.append(Placement(destinations=destinations))
        return placements

    def _placement(self, context: RequestContext, spec: RequestSpec) -> Placement:
        try:
            return Placement(destinations=self.select_destinations(context, spec))
        except exceptions.NoValidHost as error:
            return Placement(reason=error.message, details=str(error.kwargs.get("details", "")))

    def fitting_hosts(self, context: RequestContext, specs: list[RequestSpec]) -> list[list[str]]:
        """Return for each spec the hosts that pass all filters now. Raises `SchedulerNotReady` like the others."""
        self.require_hosts()
        states = self._hosts.snapshot()
        options = core.Options(max_alternates=len(states))
        return [self._fitting(states, spec, options) for spec in specs]

    def _fitting(self, states: list[HostState], spec: RequestSpec, options: core.Options) -> list[str]:
        try:
            (found,) = core.select_destinations(states, spec, self._filters, self._weighers, options, self._rng)
        except exceptions.NoValidHost:
            return []
        return [place.host for place in (found.selected, *found.alternates)]

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
        """Take over host states that the conductor publishes."""
        self._hosts.apply(states)

    # --- for metrics and health

    def known_hosts(self) -> int:
        return len(self._hosts.rows())

    def require_hosts(self) -> None:
        """Raise `SchedulerNotReady` before the host states are loaded."""
        if not self._ready:
            raise exceptions.SchedulerNotReady()

    # --- in the background

    def keep_fresh(self) -> None:
        """Compare all hosts with the conductor's if that is due, or if the last attempt failed.

        Called every few seconds. Raises `MessagingUnavailable` or `DatabaseUnavailable`.
        """
        if clock.monotonic() < self._next_resync:
            return
        mark = self._hosts.mark()
        try:
            states = self._read()
        except exceptions.NovaLiteException:
            self._is_current = False
            raise
        self._hosts.replace_all(states, since=mark)
        self._is_current = True
        self._next_resync = clock.monotonic() + self._conf.scheduler.resync_interval
        if not self._ready:
            self._ready = True
            LOG.info("Host states are loaded: %d hosts", len(states))

    def _read(self) -> list[HostState]:
        """Return the current state of all hosts.

        At first, and if one page has them all, it reads them. Otherwise it reads their versions, and the hosts that
        have changed. What a version does not show is found too, a part of the hosts at a time.
        """
        versions = self._read_versions() if self._ready and self.known_hosts() >= RESYNC_PAGE else []
        if not versions:
            return self._read_all()
        unchanged = self._hosts.unchanged(versions)
        again = self._next_part([version.id for version in versions])
        ids = [version.id for version in versions if version.id in again or version.id not in unchanged]
        return [state for id, state in unchanged.items() if id not in again] + self._read_some(ids)

    def _read_versions(self) -> list[HostVersion]:
        """Read the version of each host."""
        return _all_pages(
            lambda after: self._conductor.host_versions_get(
                get_admin_context(), after=after, limit=VERSION_PAGE, timeout=RESYNC_TIMEOUT
            ),
            VERSION_PAGE,
        )

    def _next_part(self, ids: list[int]) -> set[int]:
        """Return the ids, of these in ascending order, that follow the last part; the first ones after the end."""
        size = -(-len(ids) // RESYNC_PARTS)
        part = [id for id in ids if id > self._last_part][:size] or ids[:size]
        self._last_part = part[-1] if part else 0
        return set(part)

    def _read_some(self, ids: list[int]) -> list[HostState]:
        states: list[HostState] = []
        for start in range(0, len(ids), RESYNC_PAGE):
            page = self._conductor.host_states_get(
                get_admin_context(), ids=ids[start : start + RESYNC_PAGE], timeout=RESYNC_TIMEOUT
            )
            states += self._hosts.known(page)
        return states

    def _read_all(self) -> list[HostState]:
        """Read all hosts in pages, so that neither side is busy with one message for long."""
        return _all_pages(
            lambda after: self._hosts.known(
                self._conductor.host_states_get(
                    get_admin_context(), after=after, limit=RESYNC_PAGE, timeout=RESYNC_TIMEOUT
                )
            ),
            RESYNC_PAGE,
        )

    def report(self) -> None:
        """Send a heartbeat."""
        self._conductor.report_service(
            get_admin_context(), host=self._conf.host, binary=BINARY, topic="scheduler", version=version.VERSION
        )


def _payload(spec: RequestSpec) -> dict[str, Any]:
    """Return what notifications of a decision show of its request."""
    return {
        "instance_uuids": spec.instance_uuids,
        "project_id": spec.project_id,
        "flavor": spec.flavor.flavorid,
        "attempt": spec.attempt,
    }


def _hosts_of(destinations: list[Destination]) -> dict[str, Any]:
    return {"hosts": [destination.selected.host for destination in destinations]}


def _all_pages(read: Callable[[int], list[Item]], size: int) -> list[Item]:
    """Return the items of all pages. ``read(after)``: reads up to ``size`` items with ids above ``after``, in order."""
    found: list[Item] = []
    while True:
        page = read(found[-1].id if found else 0)
        found += page
        if len(page) < size:
            return found

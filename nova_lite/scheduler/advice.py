"""Advice after a refusal: the least changes of the request or of a host with which it would fit.

A set of changes has any `changes.Drop` of the request, and changes of one host: it gets what it lacks, or the flavor
takes less; servers are freed; the host is enabled, and brought up. Instead of changes of a host, a request for several
servers may ask for as many as fit. One change comes before two, and two before three. Of sets with the same kinds, the
one with the smallest `changes.Change.loss` is kept. The search is pure, like the core that judges every set.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from nova_lite.base import randomness
from nova_lite.base.exceptions import NoValidHost
from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler import changes, core
from nova_lite.scheduler.changes import Change
from nova_lite.scheduler.filters import hints
from nova_lite.scheduler.filters.base import HostFilter
from nova_lite.scheduler.filters.capacity import CapacityFilter, shared_vcpus
from nova_lite.scheduler.filters.compute import ComputeFilter
from nova_lite.scheduler.weights.base import HostWeigher

#: Changes that have to be made together.
ChangeSet = tuple[Change, ...]

#: Most changes in a set.
LIMIT = 3

#: Cost of a set of changes of the request, beside the hosts, as checks of hosts.
PASS = 100

#: Sets that a sentence names.
NAMED = 5

#: Kinds of changes, in the order in which they are named.
_ORDER = (
    changes.Enable, changes.Start, changes.Free, changes.Add, changes.Fewer, changes.Shrink, changes.Drop,
)  # fmt: skip


@dataclass(frozen=True)
class Advice:
    """Sets of changes, each of which is sufficient. ``is_least``: no smaller set is."""

    sets: list[ChangeSet]
    is_least: bool

    def __str__(self) -> str:
        if not self.sets:
            return ""
        said = ", or ".join(" and ".join(map(str, found)) for found in self.sets[:NAMED])
        return f"{'Least change' if self.is_least else 'A change that helps'}: {said}."


@dataclass
class Search:
    """Search for advice. ``servers``: servers that may be freed, one instance each.

    ``checks``: about how many checks of hosts may be made. After that, the advice may not be the least.
    """

    hosts: Sequence[HostState]
    spec: RequestSpec
    filters: Sequence[HostFilter]
    weighers: Sequence[HostWeigher]
    rng: randomness.Source
    checks: int
    servers: dataclasses.InitVar[Sequence[RequestSpec]] = ()
    _found: dict[tuple[tuple[str, ...], ...], ChangeSet] = field(default_factory=dict)
    #: Sizes of the smallest sets, and of the smallest of changes of the request.
    _least: int = LIMIT
    _least_of_request: int = LIMIT
    #: All sets with so many changes of the request were tried.
    _complete: int = -1

    def __post_init__(self, servers: Sequence[RequestSpec]) -> None:
        by_uuid = {server.instance_uuids[0]: server for server in servers}
        self._servers = {
            (host.host, host.node): sorted(
                (by_uuid[uuid] for uuid in host.instances if uuid in by_uuid),
                key=lambda server: (server.flavor.memory_mb, server.instance_uuids),
            )
            for host in (self.hosts if by_uuid else ())
        }
        self._search()

    def advice(self, of_request: bool) -> Advice:
        """Return the least sets; those of changes of the request only, if the reader may know no more."""
        least = self._least_of_request if of_request else self._least
        fitting = [
            found
            for found in self._found.values()
            if 0 < len(found) == least and (not of_request or _is_of_request(found)) and self._is_sufficient(found)
        ]
        return Advice(sorted(fitting, key=_rank), is_least=least - 1 <= self._complete)

    def _is_sufficient(self, found: ChangeSet) -> bool:
        hosts, spec = _applied(found, self.hosts, self.spec)
        try:
            core.select_destinations(hosts, spec, self.filters, self.weighers, core.Options(max_alternates=0), self.rng)
        except NoValidHost:
            return False
        return True

    def _search(self) -> None:
        options = changes.drops(self.spec)
        for size in range(min(LIMIT, len(options)) + 1):
            if size > max(self._least, self._least_of_request):
                return
            for dropped in itertools.combinations(options, size):
                self._try(dropped)
                if self.checks <= 0:
                    return
            self._complete = size if size < len(options) else LIMIT

    def _try(self, dropped: ChangeSet) -> None:
        """Record the sets with these changes of the request and any of one host."""
        hosts, spec = _applied(dropped, self.hosts, self.spec)
        try:
            hosts, filters = core.candidates(hosts, spec, self.filters)
        except NoValidHost:
            return
        self.checks -= PASS + len(hosts) + len(spec.instance_uuids)
        filters = [item for item in filters if item.applies(spec)]
        hosts, rest = self._placed(hosts, spec, filters)
        count, missing = len(spec.instance_uuids), len(rest.instance_uuids)
        if not missing:
            self._record(dropped)
            return
        if missing < count:
            self._record((*dropped, changes.Fewer(count - missing, count)))
        may_shrink = changes.may_shrink(spec)
        for host, failed in self._hopeful(hosts, rest, filters, len(dropped)):
            if self.checks <= 0:
                return
            servers = self._servers.get((host.host, host.node), [])
            for repair in self._repairs(host, rest, filters, failed, may_shrink, servers, len(dropped)):
                found = (*dropped, *repair)
                if self._is_better(found) and self._fits(host, repair, rest, filters):
                    self._record(found)

    def _hopeful(
        self, hosts: Sequence[HostState], spec: RequestSpec, filters: Sequence[HostFilter], size: int
    ) -> list[tuple[HostState, list[HostFilter]]]:
        """Return the hosts that changes may help, beside ``size`` others, with all filters that reject them."""
        failed: dict[int, list[HostFilter]] = {}
        room = max(self._least, self._least_of_request) - size
        for item in filters:
            passing = item.passing(hosts, spec)
            if len(passing) == len(hosts):
                continue
            kept = {id(host) for host in passing}
            for host in hosts:
                servers = self._servers.get((host.host, host.node))
                lacking = [*failed.get(id(host), []), item]
                if id(host) in kept or not (servers or sum(map(_has_own_change, lacking)) <= room):
                    continue
                if _is_repaired(item, host, spec, bool(servers)):
                    failed[id(host)] = lacking
                    kept.add(id(host))
            hosts = [host for host in hosts if id(host) in kept]
        return [(host, failed.get(id(host), [])) for host in hosts]

    def _placed(
        self, hosts: Sequence[HostState], spec: RequestSpec, filters: Sequence[HostFilter]
    ) -> tuple[Sequence[HostState], RequestSpec]:
        """Return the hosts with as many instances as fit, and the request for the others."""
        pool = core.HostPool(hosts, spec, filters, [] if spec.stays else self.weighers)
        after = {}
        left = list(spec.instance_uuids)
        while left and (host := pool.place(left[0], 1, self.rng)) is not None:
            after[host.host, host.node] = host
            left.pop(0)
        hosts = [after.get((host.host, host.node), host) for host in hosts] if after else hosts
        return hosts, msgspec.structs.replace(pool.spec, instance_uuids=left)

    def _repairs(
        self,
        host: HostState,
        spec: RequestSpec,
        filters: Sequence[HostFilter],
        failed: Sequence[HostFilter],
        may_shrink: bool,
        servers: Sequence[RequestSpec],
        size: int,
    ) -> Iterator[ChangeSet]:
        """Yield sets of changes by which the host should pass, beside ``size`` others. Of alike servers, one is
        freed."""
        yield from changes.repairs(host, spec, filters, failed, may_shrink)
        named = {*hints.uuids(spec, "same_host"), *hints.uuids(spec, "different_host")}
        seen = set()
        for number, server in enumerate(servers):
            if size >= self._least or self.checks <= 0:
                return
            uuid, flavor = server.instance_uuids[0], server.flavor
            alike = (
                flavor.flavorid,
                flavor.memory_mb,
                flavor.disk_gb,
                shared_vcpus(server),
                uuid if uuid in named else "",
            )
            if alike in seen:
                continue
            seen.add(alike)
            self.checks -= 1
            free = changes.Free(host.host, host.node, server)
            freed = free.on(host)
            lacking = [item for item in filters if not item.host_passes(freed, spec)]
            others = servers[number + 1 :]
            for more in self._repairs(freed, spec, filters, lacking, may_shrink, others, size + 1):
                yield (free, *more)

    def _is_better(self, found: ChangeSet) -> bool:
        """Check whether a set is no larger than the least ones, and better than the known one of its kinds."""
        known = self._found.get(_kinds(found))
        least = self._least_of_request if _is_of_request(found) else self._least
        return len(found) <= least and (known is None or _loss(found) < _loss(known))

    def _fits(self, host: HostState, repair: ChangeSet, spec: RequestSpec, filters: Sequence[HostFilter]) -> bool:
        """Check whether the changed host takes all instances of ``spec``."""
        self.checks -= len(spec.instance_uuids)
        hosts, changed = _applied(repair, [host], spec)
        return not self._placed(hosts, changed, filters)[1].instance_uuids

    def _record(self, found: ChangeSet) -> None:
        if not self._is_better(found):
            return
        self._found[_kinds(found)] = found
        self._least = min(self._least, len(found))
        if _is_of_request(found):
            self._least_of_request = min(self._least_of_request, len(found))


def advised(refusal: NoValidHost, search: Search) -> NoValidHost:
    """Return the refusal with the advice: for the owner in its reason, for admins in its details."""
    sentence, line = str(search.advice(of_request=True)), str(search.advice(of_request=False))
    reason, details = str(refusal.kwargs.get("reason", "")), str(refusal.kwargs.get("details", ""))
    return NoValidHost(
        reason=" ".join(filter(None, (reason, sentence))), details="\n".join(filter(None, (details, line)))
    )


def _applied(
    found: ChangeSet, hosts: Sequence[HostState], spec: RequestSpec
) -> tuple[Sequence[HostState], RequestSpec]:
    for change in found:
        hosts, spec = change.apply(hosts, spec)
    return hosts, spec


def _has_own_change(item: HostFilter) -> bool:
    """Check whether each failure needs a change that helps against no other, unless a server is freed."""
    return isinstance(item, CapacityFilter | ComputeFilter)


def _is_repaired(item: HostFilter, host: HostState, spec: RequestSpec, has_servers: bool) -> bool:
    """Check whether changes of the host may let it pass the filter: more capacity, or fewer servers."""
    if _has_own_change(item):
        return True
    if item.run_once_per_request and not has_servers:
        return False  # its use is nothing to this filter
    empty = msgspec.structs.replace(host, memory_mb_used=0, vcpus_used=0, disk_gb_used=0, instances=[], flavors={})
    empty.memory_mb += spec.flavor.memory_mb
    empty.vcpus += spec.flavor.vcpus
    empty.disk_gb += spec.flavor.disk_gb
    return item.host_passes(empty, spec)


def _is_of_request(found: ChangeSet) -> bool:
    return all(change.of_request for change in found)


def _kinds(found: ChangeSet) -> tuple[tuple[str, ...], ...]:
    return tuple(change.kind for change in found)


def _loss(found: ChangeSet) -> float:
    return sum(change.loss for change in found)


def _rank(found: ChangeSet) -> list[int]:
    return [_ORDER.index(type(change)) for change in found]

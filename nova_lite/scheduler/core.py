"""The decision: host states and a request in, places (or reasons why not) out.

Pure: no messages, no I/O, no clock; randomness is passed in. The hosts are filtered and weighed once per request and
kept in a heap, best first. Placing an instance changes one host; what else it may change (a server group's policy) is
asked again of a host only when it comes to the top. So a hundred instances cost little more than one.
"""

from __future__ import annotations

import contextlib
import copy
import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from nova_lite import hardware
from nova_lite.base.exceptions import NoValidHost
from nova_lite.hardware import fitting
from nova_lite.objects import Destination, HostState, RequestedDestination, RequestSpec, Selection
from nova_lite.objects.numa import taken
from nova_lite.scheduler import reasons, uuids
from nova_lite.scheduler.filters.base import HostFilter
from nova_lite.scheduler.weights.base import HostWeigher

#: (cost, position, host): the smallest is the best; hosts of equal weight keep the order in which they came.
Candidate = tuple[float, int, HostState]


@dataclass(frozen=True)
class Options:
    """``host_subset_size``: how many of the best hosts chance chooses among. ``max_alternates``: per instance."""

    host_subset_size: int = 1
    max_alternates: int = 3


def select_destinations(
    hosts: Sequence[HostState],
    spec: RequestSpec,
    filters: Sequence[HostFilter],
    weighers: Sequence[HostWeigher],
    options: Options,
    rng: random.Random,
) -> list[Destination]:
    """A place for each of ``spec.instance_uuids``, in their order, with alternates. Raises `NoValidHost` when there are
    fewer.

    Neither ``hosts`` nor ``spec`` is changed. Alternates have room after all picks, so they are worth trying.
    """
    if spec.requested_destination is not None:
        hosts = requested_hosts(hosts, spec.requested_destination)
    if spec.forced_host or spec.forced_node:
        hosts, filters = forced_hosts(hosts, spec), [each for each in filters if each.binds_forced_hosts]
    if spec.stays:
        filters, weighers = [each for each in filters if each.judges_images], []
    pool = HostPool(hosts, spec, filters, weighers)
    picked: list[HostState] = []
    for uuid in spec.instance_uuids:
        host = pool.place(uuid, options.host_subset_size, rng)
        if host is None:
            raise reasons.no_valid_host(pool.rejected, pool.spec, len(hosts), len(picked))
        picked.append(host)
    return [
        Destination(
            instance_uuid=uuid,
            selected=selection(host),
            alternates=[selection(other) for other in pool.alternates(host, options.max_alternates)],
        )
        for uuid, host in zip(spec.instance_uuids, picked, strict=True)
    ]


def requested_hosts(hosts: Sequence[HostState], wanted: RequestedDestination) -> list[HostState]:
    """The only candidates of a request that names them; they have to pass every filter."""
    found = [host for host in hosts if wanted.covers(host.host, host.node)]
    if not found:
        name = "/".join(filter(None, (wanted.host, wanted.node)))
        raise NoValidHost(reason="The requested host does not exist.", details=f"Unknown host {name}.")
    return found


def forced_hosts(hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
    """The hosts that the request names. They skip the filters, so that an operator can try a disabled or full one; but
    a host that is down cannot build, and one that was already tried is not tried again."""
    wanted = [
        host
        for host in hosts
        if spec.forced_host in (None, "", host.host) and spec.forced_node in (None, "", host.node)
    ]
    name = "/".join(filter(None, (spec.forced_host, spec.forced_node)))
    if not wanted:
        raise NoValidHost(reason="The requested host does not exist.", details=f"Unknown host {name}.")
    running = [host for host in wanted if host.up]
    if not running:
        raise NoValidHost(reason="The requested host is down.", details=f"Host {name} is down.")
    untried = [host for host in running if host.host not in spec.ignore_hosts]
    if not untried:
        raise NoValidHost(reason="The requested host was already tried.", details=f"Host {name} was already tried.")
    return untried


def consume(host: HostState, spec: RequestSpec, instance_uuid: str) -> HostState:
    """``host`` as it will be with one more instance of ``spec``; ``host`` itself stays as it is."""
    after = copy.copy(host)
    after.memory_mb_used += spec.flavor.memory_mb
    after.disk_gb_used += spec.flavor.disk_gb
    _take_cpus(after, spec)
    after.instances = uuids.plus(host.instances, instance_uuid)
    after.flavors = {**host.flavors, spec.flavor.flavorid: host.flavors.get(spec.flavor.flavorid, 0) + 1}
    after.io_ops += 1
    return after


def _take_cpus(after: HostState, spec: RequestSpec) -> None:
    """One more instance's CPUs, and what it has of NUMA cells if it fits into them. On a host that was asked for by
    name it need not fit."""
    wanted = hardware.numa_of(spec.flavor, spec.image)
    if wanted is None or not wanted.dedicated:
        after.vcpus_used += spec.flavor.vcpus
    if wanted is not None:
        with contextlib.suppress(fitting.FitError):
            after.numa_used = taken(after.numa_used, fitting.fit_host(wanted, after))


def selection(host: HostState) -> Selection:
    limits = {"memory_mb": host.memory_mb, "vcpus": host.vcpus, "disk_gb": host.disk_gb}
    return Selection(host=host.host, node=host.node, limits=limits)


class Ranking:
    """Sums up the weighers. The scale (worst and best raw weight) is taken from the hosts that fit when the request
    begins and then stays, so that placing an instance moves one host and not all of them. Where all hosts are alike,
    their common weight is the scale, so that a host that is used more than the others shows."""

    def __init__(self, weighers: Sequence[HostWeigher], hosts: Sequence[HostState], spec: RequestSpec) -> None:
        self._spec = spec
        self._scales: list[tuple[HostWeigher, float, float]] = []
        self.costs = [0.0] * len(hosts)
        self._varied = any(host.aggregates for host in hosts)
        for weigher in weighers:
            if not weigher.applies(spec):
                continue
            raw = weigher.weights(hosts, spec)
            low, high = min(raw, default=0.0), max(raw, default=0.0)
            scale = 1.0 / (high - low or abs(high) or 1.0)
            self._scales.append((weigher, low, scale))
            if self._varied:
                factors = [scale * weigher.multiplier_of(host) for host in hosts]
                parts = zip(self.costs, raw, factors, strict=True)
                self.costs = [cost - factor * (value - low) for cost, value, factor in parts]
            elif low != high:
                factor = scale * weigher.multiplier
                self.costs = [cost - factor * (value - low) for cost, value in zip(self.costs, raw, strict=True)]

    def cost(self, host: HostState) -> float:
        """The negated weight of a host that has changed."""
        cost = 0.0
        for weigher, low, scale in self._scales:
            multiplier = weigher.multiplier_of(host) if self._varied else weigher.multiplier
            cost -= scale * multiplier * (weigher.weight(host, self._spec) - low)
        return cost


class HostPool:
    """The hosts that fit, best first, and those that do not, by the filter that took them out.

    A filter may say no to a host that it let pass before, when instances were placed meanwhile; never the reverse.
    """

    def __init__(
        self,
        hosts: Sequence[HostState],
        spec: RequestSpec,
        filters: Sequence[HostFilter],
        weighers: Sequence[HostWeigher],
    ) -> None:
        self.spec = _with_own_group(spec)
        filters = [each for each in filters if each.applies(spec)]
        self.rejected: dict[HostFilter, list[HostState]] = {each: [] for each in filters}
        self._rechecks = [each for each in filters if not each.run_once_per_request]
        fitting = self._fitting(list(hosts), filters)
        self._ranking = Ranking(weighers, fitting, self.spec)
        self._heap: list[Candidate] = list(zip(self._ranking.costs, range(len(fitting)), fitting, strict=True))
        heapq.heapify(self._heap)

    def place(self, instance_uuid: str, subset_size: int, rng: random.Random) -> HostState | None:
        """Put an instance on one of the ``subset_size`` best hosts; the host as it is then, None when none is left."""
        best = self._pop(subset_size)
        if not best:
            return None
        chosen = best.pop(rng.randrange(len(best)) if len(best) > 1 else 0)
        self._push(best)
        _, position, host = chosen
        host = consume(host, self.spec, instance_uuid)
        if self.spec.instance_group is not None:
            self.spec.instance_group.hosts.append(host.host)
        self._push([(self._ranking.cost(host), position, host)])
        return host

    def alternates(self, selected: HostState, count: int) -> list[HostState]:
        """Up to ``count`` best hosts other than ``selected``. Members of an anti-affine group have none in common."""
        taken: list[Candidate] = []
        skipped: list[Candidate] = []
        while len(taken) < count and (best := self._pop(1)):
            (skipped if best[0][2].host == selected.host else taken).extend(best)
        apart = self.spec.instance_group is not None and self.spec.instance_group.policy == "anti-affinity"
        self._push(skipped if apart else skipped + taken)
        return [host for _, _, host in taken]

    def _fitting(self, hosts: list[HostState], filters: Sequence[HostFilter]) -> list[HostState]:
        """All hosts through one filter after the other: each is counted with the first that refuses it."""
        for each in filters:
            passing = each.passing(hosts, self.spec)
            if len(passing) != len(hosts):
                kept = {id(host) for host in passing}
                self.rejected[each].extend(host for host in hosts if id(host) not in kept)
            hosts = passing
        return hosts

    def _passes(self, host: HostState, filters: Sequence[HostFilter]) -> bool:
        for each in filters:
            if not each.host_passes(host, self.spec):
                self.rejected[each].append(host)
                return False
        return True

    def _pop(self, count: int) -> list[Candidate]:
        """Take the ``count`` best that still fit out of the heap, or as many as there are."""
        best: list[Candidate] = []
        while self._heap and len(best) < count:
            candidate = heapq.heappop(self._heap)
            if self._passes(candidate[2], self._rechecks):
                best.append(candidate)
        return best

    def _push(self, candidates: list[Candidate]) -> None:
        for candidate in candidates:
            heapq.heappush(self._heap, candidate)


def _with_own_group(spec: RequestSpec) -> RequestSpec:
    """``spec`` with a server group that may grow here without the caller seeing it."""
    group = spec.instance_group
    if group is None:
        return spec
    return msgspec.structs.replace(spec, instance_group=msgspec.structs.replace(group, hosts=list(group.hosts)))

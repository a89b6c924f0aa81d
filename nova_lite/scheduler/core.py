"""The decision: host states and a request spec in, destinations or reasons out.

The core is pure: no messages, no I/O, no clock; randomness is a parameter. Hosts are filtered and weighed once per
request, and kept in a heap, best first. Placing an instance changes one host. Some filters may reject a host after such
a change: they check it again when it comes to the top. So a hundred instances cost little more than one.
"""

from __future__ import annotations

import contextlib
import copy
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from nova_lite import hardware
from nova_lite.base import randomness
from nova_lite.base.exceptions import NoValidHost
from nova_lite.hardware import fitting, pci
from nova_lite.objects import Destination, HostState, RequestedDestination, RequestSpec, Selection
from nova_lite.objects.numa import usage_with
from nova_lite.scheduler import reasons, uuids
from nova_lite.scheduler.filters.base import HostFilter
from nova_lite.scheduler.filters.capacity import shared_vcpus
from nova_lite.scheduler.weights.base import HostWeigher

#: Cost, position and host: the smallest is the best. Hosts of equal cost keep their order.
Candidate = tuple[float, int, HostState]


@dataclass(frozen=True)
class Options:
    """Options of a decision. ``host_subset_size``: number of best hosts to choose from at random. ``max_alternates``:
    per instance."""

    host_subset_size: int = 1
    max_alternates: int = 3


def select_destinations(
    hosts: Sequence[HostState],
    spec: RequestSpec,
    filters: Sequence[HostFilter],
    weighers: Sequence[HostWeigher],
    options: Options,
    rng: randomness.Source,
) -> list[Destination]:
    """Return a destination for each of ``spec.instance_uuids``, in their order. Raises `NoValidHost` if there are fewer
    hosts.

    ``hosts`` and ``spec`` are not changed. Alternates have room left after all instances are placed.
    """
    hosts, filters = candidates(hosts, spec, filters)
    weighers = [] if spec.stays else weighers
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


def candidates(
    hosts: Sequence[HostState], spec: RequestSpec, filters: Sequence[HostFilter]
) -> tuple[Sequence[HostState], list[HostFilter]]:
    """Return the hosts that the request may be on, and the filters that they have to pass. Raises `NoValidHost`."""
    if spec.requested_destination is not None:
        hosts = requested_hosts(hosts, spec.requested_destination)
    if spec.forced_host or spec.forced_node:
        hosts, filters = forced_hosts(hosts, spec), [item for item in filters if item.binds_forced_hosts]
    if spec.stays:
        filters = [item for item in filters if item.judges_images]
    return hosts, list(filters)


def requested_hosts(hosts: Sequence[HostState], destination: RequestedDestination) -> list[HostState]:
    """Return the hosts that the request accepts, which still have to pass every filter. Raises `NoValidHost`."""
    accepted = [host for host in hosts if destination.covers(host.host, host.node)]
    if not accepted:
        name = "/".join(filter(None, (destination.host, destination.node)))
        raise NoValidHost(reason="The requested host does not exist.", details=f"Unknown host {name}.")
    return accepted


def forced_hosts(hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
    """Return the hosts that the request forces. They skip most filters, so that an operator can try a disabled or full
    host.

    A host that is down or was already tried is left out. Raises `NoValidHost` if no host is left.
    """
    named = [
        host
        for host in hosts
        if spec.forced_host in (None, "", host.host) and spec.forced_node in (None, "", host.node)
    ]
    name = "/".join(filter(None, (spec.forced_host, spec.forced_node)))
    if not named:
        raise NoValidHost(reason="The requested host does not exist.", details=f"Unknown host {name}.")
    running = [host for host in named if host.up]
    if not running:
        raise NoValidHost(reason="The requested host is down.", details=f"Host {name} is down.")
    untried = [host for host in running if host.host not in spec.ignore_hosts]
    if not untried:
        why = spec.why_ignored(running[0].host)
        raise NoValidHost(reason=f"The requested host is {why}.", details=f"Host {name} is {why}.")
    return untried


def consume_from_request(host: HostState, spec: RequestSpec, instance_uuid: str) -> HostState:
    """Return a copy of ``host`` with one more instance of ``spec``."""
    after = copy.copy(host)
    after.memory_mb_used += spec.flavor.memory_mb
    after.disk_gb_used += spec.flavor.disk_gb
    _take_cpus(after, spec)
    after.instances = uuids.plus(host.instances, instance_uuid)
    after.flavors = {**host.flavors, spec.flavor.flavorid: host.flavors.get(spec.flavor.flavorid, 0) + 1}
    after.io_ops += 1
    return after


def without(host: HostState, spec: RequestSpec) -> HostState:
    """Return a copy of ``host`` without the server of ``spec``, the opposite of `consume_from_request`.

    Its use of NUMA cells stays, because its CPUs are not known here. So they are given to no other server.
    """
    flavorid = spec.flavor.flavorid
    left = copy.copy(host)
    left.memory_mb_used -= spec.flavor.memory_mb
    left.disk_gb_used -= spec.flavor.disk_gb
    left.vcpus_used -= shared_vcpus(spec)
    left.instances = [uuid for uuid in host.instances if uuid not in spec.instance_uuids]
    left.flavors = {name: count - (name == flavorid) for name, count in host.flavors.items()}
    left.flavors = {name: count for name, count in left.flavors.items() if count > 0}
    return left


def _take_cpus(after: HostState, spec: RequestSpec) -> None:
    """Add the CPUs and the NUMA use of one instance. A forced host may lack room for the topology."""
    topology = hardware.numa_of(spec.flavor, spec.image)
    after.vcpus_used += spec.flavor.vcpus if topology is None else topology.shared_vcpus
    if topology is not None or spec.pci:
        with contextlib.suppress(fitting.FitError):
            place, devices = pci.place_on_host(spec.pci, topology, after)
            after.numa_used = after.numa_used if place is None else usage_with(after.numa_used, place)
            after.pci_used = [*after.pci_used, *(device.address for device in devices)]


def selection(host: HostState) -> Selection:
    limits = {"memory_mb": host.memory_mb, "vcpus": host.vcpus, "disk_gb": host.disk_gb}
    return Selection(host=host.host, node=host.node, limits=limits)


class Ranking:
    """Sum of all weighers, as a cost for each host: the smallest is the best.

    Raw weights are scaled by the best and worst weight among the hosts that fit when the request begins. The scale
    stays, so placing an instance changes the cost of one host only. If all raw weights are equal, their common value is
    the scale, so that a host with more use than the others still differs.
    """

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
        """Return the cost of a host that has changed: its negated weight."""
        cost = 0.0
        for weigher, low, scale in self._scales:
            multiplier = weigher.multiplier_of(host) if self._varied else weigher.multiplier
            cost -= scale * multiplier * (weigher.weight(host, self._spec) - low)
        return cost


class HostPool:
    """Hosts that fit a request, best first, and the hosts that do not, by filter.

    While instances are placed, a filter may reject a host that it accepted before, but never the reverse.
    """

    def __init__(
        self,
        hosts: Sequence[HostState],
        spec: RequestSpec,
        filters: Sequence[HostFilter],
        weighers: Sequence[HostWeigher],
    ) -> None:
        self.spec = _with_own_group(spec)
        filters = [item for item in filters if item.applies(spec)]
        self.rejected: dict[HostFilter, list[HostState]] = {item: [] for item in filters}
        self._rechecks = [item for item in filters if not item.run_once_per_request]
        fitting = self._fitting(list(hosts), filters)
        self._ranking = Ranking(weighers, fitting, self.spec)
        self._heap: list[Candidate] = list(zip(self._ranking.costs, range(len(fitting)), fitting, strict=True))
        heapq.heapify(self._heap)

    def place(self, instance_uuid: str, subset_size: int, rng: randomness.Source) -> HostState | None:
        """Place an instance on one of the ``subset_size`` best hosts. Return the changed host; None if none fits."""
        best = self._pop(subset_size)
        if not best:
            return None
        chosen = best.pop(rng.randrange(len(best)) if len(best) > 1 else 0)
        self._push(best)
        _, position, host = chosen
        host = consume_from_request(host, self.spec, instance_uuid)
        if self.spec.instance_group is not None:
            self.spec.instance_group.hosts.append(host.host)
        self._push([(self._ranking.cost(host), position, host)])
        return host

    def alternates(self, selected: HostState, count: int) -> list[HostState]:
        """Return up to ``count`` best hosts other than ``selected``.

        Members of an anti-affinity group get different alternates, because two of them cannot share one.
        """
        alternates: list[Candidate] = []
        skipped: list[Candidate] = []
        while len(alternates) < count and (best := self._pop(1)):
            (skipped if best[0][2].host == selected.host else alternates).extend(best)
        apart = self.spec.instance_group is not None and self.spec.instance_group.policy == "anti-affinity"
        self._push(skipped if apart else skipped + alternates)
        return [host for _, _, host in alternates]

    def _fitting(self, hosts: list[HostState], filters: Sequence[HostFilter]) -> list[HostState]:
        """Return the hosts that pass all filters. Each other host is recorded for the first filter that rejects it."""
        for host_filter in filters:
            passing = host_filter.passing(hosts, self.spec)
            if len(passing) != len(hosts):
                kept = {id(host) for host in passing}
                self.rejected[host_filter].extend(host for host in hosts if id(host) not in kept)
            hosts = passing
        return hosts

    def _passes(self, host: HostState, filters: Sequence[HostFilter]) -> bool:
        for host_filter in filters:
            if not host_filter.host_passes(host, self.spec):
                self.rejected[host_filter].append(host)
                return False
        return True

    def _pop(self, count: int) -> list[Candidate]:
        """Remove the ``count`` best hosts that still fit from the heap, or as many as there are."""
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
    """Return ``spec`` with its own copy of the server group, which grows while instances are placed."""
    group = spec.instance_group
    if group is None:
        return spec
    return msgspec.structs.replace(spec, instance_group=msgspec.structs.replace(group, hosts=list(group.hosts)))

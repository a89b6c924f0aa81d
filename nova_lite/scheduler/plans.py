"""Plans from the same core: where each server of a host would go if it had to leave, and what would even out the
hosts."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from nova_lite.base.exceptions import NoValidHost
from nova_lite.objects import HostState, InstanceGroup, RequestSpec
from nova_lite.scheduler import core
from nova_lite.scheduler.filters.base import HostFilter
from nova_lite.scheduler.filters.capacity import shared_vcpus
from nova_lite.scheduler.weights.base import HostWeigher


@dataclass(frozen=True)
class PlannedMove:
    """``target``: name of the host to go to; None if there is none, and ``reason`` says why."""

    instance_uuid: str
    target: str | None
    reason: str = ""


@dataclass(frozen=True)
class PlanStep:
    """One server that goes from ``source`` to ``target`` (names of hosts); `spread` before and after it."""

    instance_uuid: str
    source: str
    target: str
    spread_before: float
    spread_after: float


#: What a step has to take at least from the sum of the squares of the hosts' distances from their mean use. Far above
#: what rounding does to it for a hundred thousand hosts, far below what moving any real server does.
LEAST_GAIN = 1e-6


def drain(
    source: str,
    hosts: Sequence[HostState],
    specs: Sequence[RequestSpec],
    filters: Sequence[HostFilter],
    weighers: Sequence[HostWeigher],
    options: core.Options,
    rng: random.Random,
) -> list[PlannedMove]:
    """A move for each of ``specs`` (one instance each, all on host ``source``), the largest first, so that small ones
    fill what is left. Each sees those before it as moved, members of its group included."""
    states = [host for host in hosts if host.host != source]
    settled: dict[str, list[str]] = {}
    moves = []
    for spec in sorted(specs, key=lambda each: (-each.flavor.memory_mb, -each.flavor.vcpus)):
        group = _group_after(spec.instance_group, source, settled)
        asked = msgspec.structs.replace(_free(spec), instance_group=group)
        (uuid,) = spec.instance_uuids
        try:
            (destination,) = core.select_destinations(states, asked, filters, weighers, options, rng)
        except NoValidHost as error:
            moves.append(PlannedMove(uuid, None, error.message))
            continue
        target = destination.selected
        chosen = next(n for n, each in enumerate(states) if (each.host, each.node) == (target.host, target.node))
        states[chosen] = core.consume(states[chosen], asked, uuid)
        if asked.instance_group is not None:
            settled.setdefault(asked.instance_group.id, []).append(target.host)
        moves.append(PlannedMove(uuid, target.host))
    return moves


def _group_after(group: InstanceGroup | None, source: str, settled: dict[str, list[str]]) -> InstanceGroup | None:
    """The group as if nothing of it were left on ``source`` but what is ``settled`` elsewhere."""
    if group is None:
        return None
    elsewhere = [host for host in group.hosts if host != source]
    return msgspec.structs.replace(group, hosts=elsewhere + settled.get(group.id, []))


def use(host: HostState) -> float:
    """The largest share of its memory, vCPUs or disk that is given out: 0 for an empty host, 1 for a full one, more
    for one whose capacity shrank below its use."""
    shares = (
        (host.memory_mb_used, host.memory_mb),
        (host.vcpus_used, host.vcpus),
        (host.disk_gb_used, host.disk_gb),
    )
    return max(used / capacity if capacity > 0 else float(used > 0) for used, capacity in shares)


def spread(hosts: Sequence[HostState]) -> float:
    """The standard deviation of the hosts' `use`: 0 when all are used alike, at most 0.5 while none is over its
    capacity."""
    if not hosts:
        return 0.0
    used = [use(host) for host in hosts]
    mean = math.fsum(used) / len(used)
    return math.sqrt(math.fsum((each - mean) ** 2 for each in used) / len(used))


def rebalance(
    hosts: Sequence[HostState],
    specs: Sequence[RequestSpec],
    filters: Sequence[HostFilter],
    weighers: Sequence[HostWeigher],
    rng: random.Random,
    max_moves: int,
) -> list[PlanStep]:
    """At most ``max_moves`` steps that even out ``hosts``, in their order; each finds the steps before it done.

    ``specs``: the servers that may be moved, one instance each, all on some of ``hosts``. The fullest host gives a
    server first: the one, and to the place, that lowers the `spread` of all ``hosts`` most. The place passes all
    filters and has room for it, as the claim demands, whatever filters are enabled. A host that has no such server is
    not asked again, and no server moves twice; so the plan ends, and the spread falls with each step.
    """
    states = list(hosts)
    at = {uuid: position for position, host in enumerate(states) for uuid in host.instances}
    waiting: dict[int, list[RequestSpec]] = {}
    for spec in specs:
        waiting.setdefault(at[spec.instance_uuids[0]], []).append(spec)
    done: list[tuple[RequestSpec, PlanStep]] = []
    while waiting and len(done) < max_moves:
        source = max(waiting, key=lambda position: use(states[position]))
        best = _best(states, source, waiting[source], done, filters, weighers, rng)
        if best is None:
            del waiting[source]
            continue
        spec, target = best
        waiting[source].remove(spec)
        before = spread(states)
        states[source] = _without(states[source], spec)
        states[target] = core.consume(states[target], spec, spec.instance_uuids[0])
        names = states[source].host, states[target].host
        done.append((spec, PlanStep(spec.instance_uuids[0], *names, before, spread(states))))
    return [step for _, step in done]


def _best(
    states: Sequence[HostState],
    source: int,
    specs: Sequence[RequestSpec],
    done: Sequence[tuple[RequestSpec, PlanStep]],
    filters: Sequence[HostFilter],
    weighers: Sequence[HostWeigher],
    rng: random.Random,
) -> tuple[RequestSpec, int] | None:
    """The server of ``specs`` (all on ``source``) and the host that lower the spread most; None if none does."""
    used = [use(host) for host in states]
    total = math.fsum(used)
    found: tuple[float, RequestSpec, int] | None = None
    for spec in specs:
        left = use(_without(states[source], spec))
        gains: dict[tuple[str, str], tuple[float, int]] = {}
        for position, host in enumerate(states):
            if host.host == states[source].host or used[position] >= used[source]:
                continue
            joined = core.consume(host, spec, spec.instance_uuids[0])
            gain = _gain(used[source], left, used[position], use(joined), total, len(used))
            if gain > max(LEAST_GAIN, found[0] if found else 0.0) and _within_capacity(joined):
                gains[host.host, host.node] = gain, position
        candidates = [states[position] for _, position in gains.values()]
        allowed = [
            gains[place] for place in _places(candidates, _asked(spec, states[source], done), filters, weighers, rng)
        ]
        if allowed:
            gain, position = max(allowed, key=lambda each: each[0])
            found = gain, spec, position
    return None if found is None else found[1:]


def _gain(source: float, source_after: float, target: float, target_after: float, total: float, count: int) -> float:
    """By how much the sum of the squares of the distances from the mean use falls; ``total``: the sum of all uses."""
    squares = source_after**2 - source**2 + target_after**2 - target**2
    total_after = total + source_after - source + target_after - target
    return (total_after**2 - total**2) / count - squares


def _places(
    candidates: Sequence[HostState],
    spec: RequestSpec,
    filters: Sequence[HostFilter],
    weighers: Sequence[HostWeigher],
    rng: random.Random,
) -> list[tuple[str, str]]:
    """All of the candidates that the core would take, the best by the weighers first."""
    try:
        options = core.Options(max_alternates=len(candidates))
        (found,) = core.select_destinations(candidates, spec, filters, weighers, options, rng)
    except NoValidHost:
        return []
    return [(place.host, place.node) for place in (found.selected, *found.alternates)]


def _asked(spec: RequestSpec, source: HostState, done: Sequence[tuple[RequestSpec, PlanStep]]) -> RequestSpec:
    """``spec`` of a server that may go anywhere, with its group as it is after the steps that are ``done``."""
    group = spec.instance_group
    if group is not None:
        members = list(group.hosts)
        for other, step in done:
            if other.instance_group is not None and other.instance_group.id == group.id:
                members.remove(step.source)
                members.append(step.target)
        group = msgspec.structs.replace(group, hosts=members)
    return msgspec.structs.replace(
        _free(spec), instance_group=group, ignore_hosts=[], current_zone=source.availability_zone
    )


def _free(spec: RequestSpec) -> RequestSpec:
    """``spec`` without what was asked of its first place only."""
    return msgspec.structs.replace(spec, forced_host=None, forced_node=None, requested_destination=None)


def _without(host: HostState, spec: RequestSpec) -> HostState:
    """``host`` when the server has left it: the opposite of `core.consume`, but for what it has of NUMA cells: which
    CPUs those are is not known here, so nobody is planned to get them."""
    flavorid = spec.flavor.flavorid
    left = copy.copy(host)
    left.memory_mb_used -= spec.flavor.memory_mb
    left.disk_gb_used -= spec.flavor.disk_gb
    left.vcpus_used -= shared_vcpus(spec)
    left.instances = [each for each in host.instances if each not in spec.instance_uuids]
    left.flavors = {name: count - (name == flavorid) for name, count in host.flavors.items()}
    left.flavors = {name: count for name, count in left.flavors.items() if count > 0}
    return left


def _within_capacity(host: HostState) -> bool:
    return host.memory_mb_used <= host.memory_mb and host.vcpus_used <= host.vcpus and host.disk_gb_used <= host.disk_gb

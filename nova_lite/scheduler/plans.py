"""Plans to drain a host and to rebalance hosts, made with the core of the scheduler."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

import msgspec

from nova_lite.base import randomness
from nova_lite.base.exceptions import NoValidHost
from nova_lite.objects import HostState, InstanceGroup, RequestSpec
from nova_lite.scheduler import core
from nova_lite.scheduler.filters.base import HostFilter
from nova_lite.scheduler.weights.base import HostWeigher


@dataclass(frozen=True)
class PlannedMove:
    """Move of one server. ``target``: name of the host; None if no host fits, then ``reason`` explains why.

    ``is_off``: the server is to move while it is off, and ``reason`` explains why it cannot move while it runs.
    """

    instance_uuid: str
    target: str | None
    reason: str = ""
    is_off: bool = False


@dataclass(frozen=True)
class PlanStep:
    """Move of one server from ``source`` to ``target`` (names of hosts), with the `spread` before and after it."""

    instance_uuid: str
    source: str
    target: str
    spread_before: float
    spread_after: float


#: Least decrease of the sum of squared distances from the mean use that a step needs. It is far above the rounding
#: errors of a hundred thousand hosts, and far below the effect of moving any real server.
LEAST_GAIN = 1e-6


def drain(
    source: str,
    hosts: Sequence[HostState],
    specs: Sequence[RequestSpec],
    filters: Sequence[HostFilter],
    weighers: Sequence[HostWeigher],
    options: core.Options,
    rng: randomness.Source,
    may_stop: bool = False,
) -> list[PlannedMove]:
    """Return a move for each of ``specs``: one instance each, all on the host ``source``. ``may_stop``: see `evacuate`.

    The largest instances come first, so that small ones fill what is left. Each move sees the moves before it as done,
    also for the members of its server group.
    """
    largest_first = sorted(specs, key=lambda item: (-item.flavor.memory_mb, -item.flavor.vcpus))
    return evacuate({source}, hosts, largest_first, filters, weighers, options, rng, may_stop)


def evacuate(
    sources: Set[str],
    hosts: Sequence[HostState],
    specs: Sequence[RequestSpec],
    filters: Sequence[HostFilter],
    weighers: Sequence[HostWeigher],
    options: core.Options,
    rng: randomness.Source,
    may_stop: bool = False,
) -> list[PlannedMove]:
    """Return a move for each of ``specs``, in this order: one instance each, all on hosts of ``sources``.

    ``may_stop``: a running guest that can continue on no host is to move while it is off.
    """
    states = [host for host in hosts if host.host not in sources]
    settled: dict[str, list[str]] = {}
    moves = []
    for spec in specs:
        group = _group_after(spec.instance_group, sources, settled)
        free_spec = msgspec.structs.replace(free(spec), instance_group=group)
        (uuid,) = spec.instance_uuids
        attempts, reasons = [free_spec], []
        if may_stop and free_spec.guest_cpu is not None:
            attempts.append(msgspec.structs.replace(free_spec, guest_cpu=None))
        for attempt in attempts:
            try:
                (destination,) = core.select_destinations(states, attempt, filters, weighers, options, rng)
                break
            except NoValidHost as error:
                reasons.append(error.message)
        else:
            moves.append(PlannedMove(uuid, None, reasons[-1]))
            continue
        target = destination.selected
        chosen = next(n for n, host in enumerate(states) if (host.host, host.node) == (target.host, target.node))
        states[chosen] = core.consume_from_request(states[chosen], free_spec, uuid)
        if free_spec.instance_group is not None:
            settled.setdefault(free_spec.instance_group.id, []).append(target.host)
        reason = f"It cannot move while it runs. {reasons[0]}" if reasons else ""
        moves.append(PlannedMove(uuid, target.host, reason, is_off=bool(reasons)))
    return moves


def _group_after(group: InstanceGroup | None, sources: Set[str], settled: dict[str, list[str]]) -> InstanceGroup | None:
    """Return the group without its members on ``sources``, but with the members that are ``settled`` elsewhere."""
    if group is None:
        return None
    elsewhere = [host for host in group.hosts if host not in sources]
    return msgspec.structs.replace(group, hosts=elsewhere + settled.get(group.id, []))


def use(host: HostState) -> float:
    """Return the largest used share of memory, vCPUs or disk: 0 for an empty host, 1 for a full one.

    It is more than 1 if the capacity shrank below the use.
    """
    shares = (
        (host.memory_mb_used, host.memory_mb),
        (host.vcpus_used, host.vcpus),
        (host.disk_gb_used, host.disk_gb),
    )
    return max(used / capacity if capacity > 0 else float(used > 0) for used, capacity in shares)


def spread(hosts: Sequence[HostState]) -> float:
    """Return the standard deviation of the hosts' `use`: 0 if all are equal, at most 0.5 if no host is over its
    capacity."""
    if not hosts:
        return 0.0
    used = [use(host) for host in hosts]
    mean = math.fsum(used) / len(used)
    return math.sqrt(math.fsum((share - mean) ** 2 for share in used) / len(used))


def rebalance(
    hosts: Sequence[HostState],
    specs: Sequence[RequestSpec],
    filters: Sequence[HostFilter],
    weighers: Sequence[HostWeigher],
    rng: randomness.Source,
    max_moves: int,
) -> list[PlanStep]:
    """Return at most ``max_moves`` steps that even out ``hosts``. Each step sees the steps before it as done.

    ``specs``: the servers that may move, one instance each, all on ``hosts``. Each step takes a server from the fullest
    host. It chooses the server and the target that lower the `spread` most. The target passes all filters and has room,
    as the claim demands. A host without such a server is not tried again, and no server moves twice. So the plan ends,
    and each step lowers the spread.
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
        states[source] = core.without(states[source], spec)
        states[target] = core.consume_from_request(states[target], spec, spec.instance_uuids[0])
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
    rng: randomness.Source,
) -> tuple[RequestSpec, int] | None:
    """Return the server of ``specs`` (all on ``source``) and the host that lower the spread most, or None."""
    used = [use(host) for host in states]
    total = math.fsum(used)
    best: tuple[float, RequestSpec, int] | None = None
    for spec in specs:
        left = use(core.without(states[source], spec))
        gains: dict[tuple[str, str], tuple[float, int]] = {}
        for position, host in enumerate(states):
            if host.host == states[source].host or used[position] >= used[source]:
                continue
            joined = core.consume_from_request(host, spec, spec.instance_uuids[0])
            gain = _gain(used[source], left, used[position], use(joined), total, len(used))
            if gain > max(LEAST_GAIN, best[0] if best else 0.0) and _within_capacity(joined):
                gains[host.host, host.node] = gain, position
        candidates = [states[position] for _, position in gains.values()]
        allowed = [
            gains[place]
            for place in _places(candidates, _after_steps(spec, states[source], done), filters, weighers, rng)
        ]
        if allowed:
            gain, position = max(allowed, key=lambda pair: pair[0])
            best = gain, spec, position
    return None if best is None else best[1:]


def _gain(source: float, source_after: float, target: float, target_after: float, total: float, count: int) -> float:
    """Return the decrease of the sum of squared distances from the mean use. ``total``: the sum of all uses."""
    squares = source_after**2 - source**2 + target_after**2 - target**2
    total_after = total + source_after - source + target_after - target
    return (total_after**2 - total**2) / count - squares


def _places(
    candidates: Sequence[HostState],
    spec: RequestSpec,
    filters: Sequence[HostFilter],
    weighers: Sequence[HostWeigher],
    rng: randomness.Source,
) -> list[tuple[str, str]]:
    """Return the candidates that pass the filters, as (host, node), the best first."""
    try:
        options = core.Options(max_alternates=len(candidates))
        (destination,) = core.select_destinations(candidates, spec, filters, weighers, options, rng)
    except NoValidHost:
        return []
    return [(place.host, place.node) for place in (destination.selected, *destination.alternates)]


def _after_steps(spec: RequestSpec, source: HostState, done: Sequence[tuple[RequestSpec, PlanStep]]) -> RequestSpec:
    """Return ``spec`` free of a place, with its server group as it is after the steps that are ``done``."""
    group = spec.instance_group
    if group is not None:
        members = list(group.hosts)
        for other, step in done:
            if other.instance_group is not None and other.instance_group.id == group.id:
                members.remove(step.source)
                members.append(step.target)
        group = msgspec.structs.replace(group, hosts=members)
    return msgspec.structs.replace(
        free(spec), instance_group=group, ignore_hosts=[], current_zone=source.availability_zone
    )


def free(spec: RequestSpec) -> RequestSpec:
    """Return ``spec`` without the demands that apply only to the first host of the server."""
    return msgspec.structs.replace(spec, forced_host=None, forced_node=None, requested_destination=None)


def _within_capacity(host: HostState) -> bool:
    return host.memory_mb_used <= host.memory_mb and host.vcpus_used <= host.vcpus and host.disk_gb_used <= host.disk_gb

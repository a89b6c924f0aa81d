"""Decides which servers move off hosts under pressure. Data in, plan out: no clock, no messages, no randomness.

A host is under pressure when the used share of a resource reaches its limit (`Limits.high`). It stays so until all its
shares are at or below the limit minus the margin: the low mark. The *excess* of a host is the sum of its shares above
their low marks. Each move takes a server from a host under pressure to a host that is at or below its low marks
afterwards. So a target has no excess, before and after, and each move lowers the sum of all excesses by `Limits.gain`
at least. Therefore, while the load is constant, at most (sum of excesses / gain) moves follow, no server moves twice,
and no host that gave servers away gets one back.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping

from nova_lite.objects.balance import RESOURCES, BalanceMove, BalancePlan, HostPressure, Load, ServerVerdict

#: Returns the hosts that pass the scheduler's filters for a server.
Fits = Callable[[str], Collection[str]]

#: Seconds that a move takes besides the transfer. It keeps the smallest servers from being the best ones always.
OVERHEAD = 10.0
#: Share of the bandwidth that a server's changes of memory may take. A faster one would hardly end its migration.
MOST_DIRTY = 0.8
_NOTHING = Load()
#: Limit of a resource from which it is ignored, however busy it is.
_IGNORED = 1.0
#: Rounding errors do not decide.
_EPSILON = 1e-9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a plan.

    ``high``: share (0 to 1) of each resource from which a host is under pressure; 1: the resource is ignored.
    ``margin``: distance of the low marks from it. ``gain``: least decrease of a host's excess by a move. ``moves``,
    ``moves_in``, ``moves_out``: moves that begin within an hour, in the cloud, to a host, and from a host. ``at_once``:
    moves that are under way at a time. ``bandwidth``: Mbit/s of a transfer. ``move_seconds``: longest transfer.
    """

    high: Mapping[str, float]
    margin: float
    gain: float
    moves: int
    moves_in: int
    moves_out: int
    at_once: int
    bandwidth: float
    move_seconds: float

    def mark(self, resource: str) -> float:
        """Return the share from which a host is under pressure: none for a resource that is ignored."""
        return self.high[resource] if self.high[resource] < _IGNORED else math.inf

    def low(self, resource: str) -> float:
        return max(0.0, self.mark(resource) - self.margin)

    def part(self, resource: str, share: float) -> float:
        """Return the part that a share is of its mark: 0 for a resource that is ignored."""
        return share / self.mark(resource)


@dataclasses.dataclass(frozen=True)
class Room:
    """Amounts that the scheduler counts: allocated to a server, or free on a host."""

    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0

    def holds(self, other: Room) -> bool:
        return self.vcpus >= other.vcpus and self.memory_mb >= other.memory_mb and self.disk_gb >= other.disk_gb

    def minus(self, other: Room) -> Room:
        return Room(self.vcpus - other.vcpus, self.memory_mb - other.memory_mb, self.disk_gb - other.disk_gb)


@dataclasses.dataclass(frozen=True)
class Group:
    """Server group of a server. ``limit``: members on one host, of the policy anti-affinity."""

    id: str
    policy: str
    limit: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Host:
    """A host. ``absent``: why it takes no part; "" if it does. ``was_hot``: it was under pressure at the last plan.
    ``fenceable``: it can be fenced. ``moves_in``, ``moves_out``: of the last hour. ``seconds``: of its measurement.
    """

    name: str
    capacity: Load
    other: Load = _NOTHING
    seconds: float = 600.0
    absent: str = ""
    was_hot: bool = False
    fenceable: bool = False
    free: Room = Room()
    moves_in: int = 0
    moves_out: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server:
    """A server that is on a host, or is on its way there.

    ``load``: None if it is unknown. ``stays``: why it may not move; "" if it may. ``disk_gb``: to be copied. ``dirty``:
    MB of memory that it changes in a second. ``alone``: it has dedicated CPUs, so at most one such server moves to a
    host in a plan. ``protected``: it is to run again if its host is lost.
    """

    uuid: str
    name: str
    host: str
    load: Load | None
    room: Room = Room()
    stays: str = ""
    disk_gb: float = 0.0
    dirty: float = 0.0
    alone: bool = False
    protected: bool = False
    group: Group | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cloud:
    """Hosts and servers. ``moves``: begun within the last hour; ``running``: under way."""

    hosts: tuple[Host, ...]
    servers: tuple[Server, ...]
    moves: int = 0
    running: int = 0


def pressure(load: Load, capacity: Load) -> dict[str, float]:
    """Return the used share of each resource whose capacity is known."""
    return {name: getattr(load, name) / getattr(capacity, name) for name in RESOURCES if getattr(capacity, name) > 0}


def transfer_seconds(server: Server, limits: Limits) -> float:
    """Return the estimated seconds of a live migration; infinity for a server that changes its memory too fast.

    Memory that changes during the transfer is sent again, so the transfer takes memory / (bandwidth - changes).
    """
    rate = limits.bandwidth / 8
    if server.dirty >= MOST_DIRTY * rate:
        return float("inf")
    memory = server.load.memory if server.load is not None else 0.0
    return OVERHEAD + memory / (rate - server.dirty) + server.disk_gb * 1024 / rate


def worst(shares: Mapping[str, float], limits: Limits) -> str:
    """Return the resource that is closest to, or farthest above, its limit; "" if none is known."""
    return max(shares, key=lambda name: limits.part(name, shares[name]), default="")


class _Model:
    """The cloud as it is after the moves of the plan so far."""

    def __init__(self, cloud: Cloud, limits: Limits) -> None:
        self.limits = limits
        self.hosts = {host.name: host for host in cloud.hosts}
        self.used = {host.name: host.other for host in cloud.hosts}
        self.free = {host.name: host.free for host in cloud.hosts}
        self.moves_in = {host.name: host.moves_in for host in cloud.hosts}
        self.moves_out = {host.name: host.moves_out for host in cloud.hosts}
        self.members: dict[tuple[str, str], int] = {}
        self.group_hosts: dict[str, set[str]] = {}
        self.taken_alone: set[str] = set()
        self.unmeasured: dict[str, int] = {}
        self.on: dict[str, list[Server]] = {host.name: [] for host in cloud.hosts}
        for server in cloud.servers:
            self._add_member(server, server.host, 1)
            if server.host not in self.hosts:
                continue
            self.on[server.host].append(server)
            if server.load is None:
                self.unmeasured[server.host] = self.unmeasured.get(server.host, 0) + 1
            else:
                self.used[server.host] = self.used[server.host].plus(server.load)
        self.absent = {name: self._absent(host) for name, host in self.hosts.items()}
        self.hot = {name for name in self.hosts if not self.absent[name] and self._is_hot(name)}

    def _absent(self, host: Host) -> str:
        number = self.unmeasured.get(host.name, 0)
        return host.absent or (f"{number} of its servers are not measured yet" if number else "")

    def _is_hot(self, name: str) -> bool:
        shares = self.shares(name)
        if self.hosts[name].was_hot:
            return any(share > self.limits.low(resource) + _EPSILON for resource, share in shares.items())
        return any(share >= self.limits.mark(resource) - _EPSILON for resource, share in shares.items())

    def _add_member(self, server: Server, host: str, number: int) -> None:
        if server.group is not None:
            key = server.group.id, host
            self.members[key] = self.members.get(key, 0) + number
            self.group_hosts.setdefault(server.group.id, set()).add(host)

    def shares(self, name: str) -> dict[str, float]:
        return pressure(self.used[name], self.hosts[name].capacity)

    def excess(self, shares: Mapping[str, float]) -> float:
        return sum(max(0.0, share - self.limits.low(resource)) for resource, share in shares.items())

    def gain(self, server: Server) -> float:
        """Return the decrease of the excess of the server's host if the server leaves."""
        assert server.load is not None
        after = pressure(self.used[server.host].plus(server.load, -1), self.hosts[server.host].capacity)
        return self.excess(self.shares(server.host)) - self.excess(after)

    def shares_with(self, name: str, server: Server) -> dict[str, float]:
        assert server.load is not None
        return pressure(self.used[name].plus(server.load), self.hosts[name].capacity)

    def refusal(self, server: Server, name: str) -> str:
        """Return why the host may not take the server now, or ""."""
        limits, host = self.limits, self.hosts[name]
        if self.absent[name]:
            return self.absent[name]
        if name in self.hot:
            return "it is under pressure itself"
        if self.moves_in[name] >= limits.moves_in:
            return f"{self.moves_in[name]} servers have moved there within an hour, which is the limit"
        if not self.free[name].holds(server.room):
            return "it has no room"
        if server.alone and name in self.taken_alone:
            return "a server with dedicated CPUs moves there already"
        if server.protected and not host.fenceable and self.hosts[server.host].fenceable:
            return "it cannot be fenced, and the server is protected"
        if not self._keeps_group(server, name):
            return "the server's group would be kept less"
        for resource, share in self.shares_with(name, server).items():
            if share > limits.low(resource) + _EPSILON:
                return f"its {RESOURCES[resource]} pressure would be {percent(share)}"
        return ""

    def _keeps_group(self, server: Server, target: str) -> bool:
        """Check a hard policy, and that a move does not make a soft one worse."""
        group = server.group
        if group is None:
            return True
        beside = self.members.get((group.id, server.host), 0) - 1
        there = self.members.get((group.id, target), 0)
        if group.policy == "anti-affinity":
            return there < group.limit
        if group.policy == "soft-anti-affinity":
            return there <= beside
        if group.policy == "soft-affinity":
            return there >= beside
        others = sum(number for (group_id, _), number in self.members.items() if group_id == group.id) - 1
        return there == others

    def move(self, server: Server, target: str) -> None:
        assert server.load is not None
        source = server.host
        self.used[source] = self.used[source].plus(server.load, -1)
        self.used[target] = self.used[target].plus(server.load)
        self.free[target] = self.free[target].minus(server.room)
        self.moves_out[source] += 1
        self.moves_in[target] += 1
        self._add_member(server, source, -1)
        self._add_member(server, target, 1)
        self.on[source] = [other for other in self.on[source] if other.uuid != server.uuid]
        if server.alone:
            self.taken_alone.add(target)
        if all(share <= self.limits.low(name) + _EPSILON for name, share in self.shares(source).items()):
            self.hot.discard(source)


def hot_hosts(cloud: Cloud, limits: Limits) -> set[str]:
    """Return the hosts under pressure. A host that takes no part at the moment is as it was."""
    model = _Model(cloud, limits)
    return model.hot | {name for name, host in model.hosts.items() if model.absent[name] and host.was_hot}


def candidates(cloud: Cloud, limits: Limits) -> list[Server]:
    """Return the servers whose hosts the planner may ask for: those on hosts under pressure that may move."""
    model = _Model(cloud, limits)
    return [server for name in sorted(model.hot) for server in model.on[name] if not _stays(server, limits)]


def pressures(cloud: Cloud) -> dict[str, dict[str, float]]:
    """Return the shares of all hosts that take part."""
    used = {host.name: host.other for host in cloud.hosts}
    for server in cloud.servers:
        if server.load is not None and server.host in used:
            used[server.host] = used[server.host].plus(server.load)
    return {host.name: pressure(used[host.name], host.capacity) for host in cloud.hosts if not host.absent}


def make_plan(cloud: Cloud, limits: Limits, fits: Fits, *, explain: bool = False) -> BalancePlan:
    """Return the moves that may begin now, the best first, and with ``explain`` a verdict for each server considered.

    A server's value is its gain for each second of its transfer. Equal data give an equal plan.
    """
    model = _Model(cloud, limits)
    before = {name: model.shares(name) for name in model.hosts}
    hot = sorted(model.hot)
    moves: list[BalanceMove] = []
    limit = ""
    while model.hot:
        limit = _limit(cloud, limits, len(moves))
        best = None if limit else _best(model, fits)
        if best is None:
            break
        server, target = best
        moves.append(_move_of(model, server, target, before))
        model.move(server, target)
    plan = BalancePlan(moves=moves, limit=limit if model.hot else "")
    plan.hosts = [_pressure_of(model, host, before[host.name], host.name in hot) for host in cloud.hosts]
    if explain:
        moved = {move.instance_uuid: move for move in moves}
        plan.verdicts = [
            ServerVerdict(
                instance_uuid=server.uuid,
                name=server.name,
                host=server.host,
                verdict=_verdict(model, fits, server, moved.get(server.uuid), limit),
            )
            for server in cloud.servers
            if server.host in hot
        ]
    return plan


def _limit(cloud: Cloud, limits: Limits, planned: int) -> str:
    if cloud.running + planned >= limits.at_once:
        return f"{cloud.running + planned} moves run or are planned, which is the limit"
    if cloud.moves + planned >= limits.moves:
        return f"{cloud.moves + planned} moves of an hour are used or planned, which is the limit"
    return ""


def _stays(server: Server, limits: Limits) -> str:
    """Return why a server does not move wherever it might go, or ""."""
    if server.stays:
        return server.stays
    if server.load is None:
        return "it is not measured yet"
    seconds = transfer_seconds(server, limits)
    if seconds == float("inf"):
        return f"it changes {server.dirty:.0f} MB of memory a second, too fast for {limits.bandwidth:.0f} Mbit/s"
    if seconds > limits.move_seconds:
        return f"its transfer would take {seconds:.0f} s, and {limits.move_seconds:.0f} s are allowed"
    return ""


def _best(model: _Model, fits: Fits) -> tuple[Server, str] | None:
    """Return the server that relieves the most loaded host best, and its target. Other hosts follow if it has none."""
    for source in sorted(model.hot, key=lambda name: (-model.excess(model.shares(name)), name)):
        if model.moves_out[source] >= model.limits.moves_out:
            continue
        for server in _by_value(model, source):
            target = _target(model, fits, server)
            if target is not None:
                return server, target
    return None


def _by_value(model: _Model, source: str) -> Iterable[Server]:
    """Return the servers that may leave the host with enough gain, the best first."""
    found = []
    for server in model.on[source]:
        if not _stays(server, model.limits):
            gain = model.gain(server)
            if gain >= model.limits.gain - _EPSILON and gain > 0:
                found.append((-gain / transfer_seconds(server, model.limits), server.uuid, server))
    return [server for _, _, server in sorted(found, key=lambda item: item[:2])]


def _target(model: _Model, fits: Fits, server: Server) -> str | None:
    """Return the host that is least loaded with the server, or None."""
    allowed = [name for name in fits(server.uuid) if name in model.hosts and name != server.host]
    usable = [name for name in allowed if not model.refusal(server, name)]

    def rank(name: str) -> tuple[float, str]:
        shares = model.shares_with(name, server)
        return max((model.limits.part(key, share) for key, share in shares.items()), default=0.0), name

    return min(usable, key=rank, default=None)


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _move_of(model: _Model, server: Server, target: str, before: Mapping[str, Mapping[str, float]]) -> BalanceMove:
    """Describe a move in plain words, by the worst resource of its source."""
    assert server.load is not None
    source, limits = server.host, model.limits
    resource = worst(model.shares(source), limits)
    after_source = pressure(model.used[source].plus(server.load, -1), model.hosts[source].capacity)
    after_target = model.shares_with(target, server)
    gain, seconds = model.gain(server), transfer_seconds(server, limits)
    minutes = model.hosts[source].seconds / 60
    is_first = before[source] == model.shares(source) and before[target] == model.shares(target)
    until = "after this move" if is_first else "after this move and those that the plan makes first"
    reason = (
        f"Host {source} had {percent(before[source][resource])} {RESOURCES[resource]} pressure over {minutes:.0f} min, "
        f"host {target} {percent(before[target].get(resource, 0.0))}. Expected {until}: {source} "
        f"{percent(after_source[resource])}, {target} {percent(after_target.get(resource, 0.0))}. "
        f"Gain: {100 * gain:.0f} points for about {seconds:.0f} s of transfer."
    )
    return BalanceMove(
        instance_uuid=server.uuid,
        name=server.name,
        source=source,
        target=target,
        gain=round(100 * gain, 1),
        seconds=round(seconds, 1),
        reason=reason,
    )


def _pressure_of(model: _Model, host: Host, shares: Mapping[str, float], is_hot: bool) -> HostPressure:
    status = model.absent[host.name]
    if not status:
        status = "under pressure" if is_hot else "no pressure"
        if is_hot and model.moves_out[host.name] >= model.limits.moves_out:
            status = f"under pressure; {model.moves_out[host.name]} moves from it in an hour are the limit"
    figures = {} if host.absent else {name: round(100 * share, 1) for name, share in shares.items()}
    return HostPressure(host=host.name, pressure=figures, status=status)


def _verdict(model: _Model, fits: Fits, server: Server, move: BalanceMove | None, limit: str) -> str:
    """Return why a server of a host that was under pressure moves or stays, after all moves of the plan."""
    if move is not None:
        return f"moves to {move.target}. {move.reason}"
    if text := _stays(server, model.limits):
        return f"stays: {text}"
    if server.host not in model.hot:
        return "stays: the moves of the plan relieve its host"
    gain = model.gain(server)
    if gain < model.limits.gain - _EPSILON or gain <= 0:
        return f"stays: it would gain {100 * gain:.1f} points, and {100 * model.limits.gain:.0f} are needed"
    if model.moves_out[server.host] >= model.limits.moves_out:
        return f"stays: {model.moves_out[server.host]} moves from its host in an hour are the limit"
    allowed = sorted(name for name in fits(server.uuid) if name in model.hosts and name != server.host)
    if not allowed:
        return "stays: no other host passes the scheduler's filters"
    refusals = {name: model.refusal(server, name) for name in allowed}
    if not all(refusals.values()):
        return f"stays for now: {limit or 'another server is moved first'}"
    return "stays: " + "; ".join(f"{name}: {text}" for name, text in list(refusals.items())[:3])

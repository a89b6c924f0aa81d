"""Load of hosts and servers, and plans of moves that relieve hosts under pressure."""

from __future__ import annotations

import msgspec

#: Fields of `Load`, with their names for people.
RESOURCES = {"cpu": "CPU", "memory": "memory", "disk": "disk", "network": "network"}


class Load(msgspec.Struct, kw_only=True, frozen=True):
    """Amounts of a host's resources.

    ``cpu``: CPUs. ``memory``: MB. ``disk``: share of time in which the disk of servers is busy. ``network``: Mbit/s,
    received and sent. A capacity of 0 is unknown, and its resource is not judged.
    """

    cpu: float = 0.0
    memory: float = 0.0
    disk: float = 0.0
    network: float = 0.0

    def plus(self, other: Load, sign: int = 1) -> Load:
        """Return the sum; with the ``sign`` -1 the difference, which is never negative."""
        return Load(
            cpu=max(0.0, self.cpu + sign * other.cpu),
            memory=max(0.0, self.memory + sign * other.memory),
            disk=max(0.0, self.disk + sign * other.disk),
            network=max(0.0, self.network + sign * other.network),
        )


class HostLoad(msgspec.Struct, kw_only=True):
    """Load of a host, as it measured it: means over the last ``seconds``.

    ``other``: what its servers do not use. ``servers``: use of each running server that was measured long enough.
    ``dirty``: MB of memory that a server changes in a second, where that is known.
    """

    seconds: float
    capacity: Load
    other: Load
    servers: dict[str, Load] = msgspec.field(default_factory=dict)
    dirty: dict[str, float] = msgspec.field(default_factory=dict)


class LoadRequest(msgspec.Struct, kw_only=True):
    """Request of the conductor for measurements. ``interval``: seconds until the next report; 0: none is needed.
    ``window``: seconds of the means."""

    interval: float = 0.0
    window: float = 600.0


class BalanceMove(msgspec.Struct, kw_only=True):
    """Move of a server that relieves its host. ``gain``: percentage points. ``seconds``: estimated transfer."""

    instance_uuid: str
    name: str
    source: str
    target: str
    gain: float
    seconds: float
    reason: str
    begun: bool = False


class HostPressure(msgspec.Struct, kw_only=True):
    """Pressure of a host: the used share of each resource, in percent. ``status``: what the planner makes of it."""

    host: str
    pressure: dict[str, float]
    status: str


class ServerVerdict(msgspec.Struct, kw_only=True):
    """Explanation why a server moves or stays."""

    instance_uuid: str
    name: str
    host: str
    verdict: str


class BalancePlan(msgspec.Struct, kw_only=True):
    """Plan of moves. ``mode``: of the conductors' loop. ``limit``: why the plan has no further move; "" if none
    helps."""

    mode: str = "off"
    moves: list[BalanceMove] = msgspec.field(default_factory=list)
    hosts: list[HostPressure] = msgspec.field(default_factory=list)
    verdicts: list[ServerVerdict] = msgspec.field(default_factory=list)
    limit: str = ""

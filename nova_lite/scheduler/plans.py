"""Plans from the same core: where each server of a host would go, if it had to leave."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from nova_lite.exception import NoValidHost
from nova_lite.objects import HostState, InstanceGroup, RequestSpec
from nova_lite.scheduler import core
from nova_lite.scheduler.filters.base import HostFilter
from nova_lite.scheduler.weights.base import HostWeigher


@dataclass(frozen=True)
class Move:
    """``target``: name of the host to go to; None if there is none, and ``reason`` says why."""

    instance_uuid: str
    target: str | None
    reason: str = ""


def drain(
    source: str,
    hosts: Sequence[HostState],
    specs: Sequence[RequestSpec],
    filters: Sequence[HostFilter],
    weighers: Sequence[HostWeigher],
    options: core.Options,
    rng: random.Random,
) -> list[Move]:
    """A move for each of ``specs`` (one instance each, all on host ``source``), the largest first, so that small ones
    fill what is left. Each sees those before it as moved, members of its group included."""
    states = [host for host in hosts if host.host != source]
    settled: dict[str, list[str]] = {}
    moves = []
    for spec in sorted(specs, key=lambda each: (-each.flavor.memory_mb, -each.flavor.vcpus)):
        asked = msgspec.structs.replace(
            spec,
            forced_host=None,
            forced_node=None,
            requested_destination=None,
            instance_group=_group_after(spec.instance_group, source, settled),
        )
        (uuid,) = spec.instance_uuids
        try:
            (destination,) = core.select_destinations(states, asked, filters, weighers, options, rng)
        except NoValidHost as error:
            moves.append(Move(uuid, None, error.message))
            continue
        target = destination.selected
        chosen = next(n for n, each in enumerate(states) if (each.host, each.node) == (target.host, target.node))
        states[chosen] = core.consume(states[chosen], asked, uuid)
        if asked.instance_group is not None:
            settled.setdefault(asked.instance_group.id, []).append(target.host)
        moves.append(Move(uuid, target.host))
    return moves


def _group_after(group: InstanceGroup | None, source: str, settled: dict[str, list[str]]) -> InstanceGroup | None:
    """The group as if nothing of it were left on ``source`` but what is ``settled`` elsewhere."""
    if group is None:
        return None
    elsewhere = [host for host in group.hosts if host != source]
    return msgspec.structs.replace(group, hosts=elsewhere + settled.get(group.id, []))

"""The way of a packet as its tenant may see it: hosts have no names there, and nothing of another project is shown."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from nova_lite.network.trace.packets import ANTI_SPOOFING, HOST, NAT, OUTSIDE, PORT, ROUTER, RULE, TUNNEL, Hop, Trace
from nova_lite.network.trace.walk import Cloud
from nova_lite.objects import PacketWay, WayPart

#: Texts instead of texts that name a host, or a router or network of another project.
_GENERAL = {
    (ROUTER, True): "A router passes it on.",
    (ROUTER, False): "A router stops it: it does not know the way.",
    (NAT, True): "Its address is translated.",
    (TUNNEL, True): "It passes to another host.",
    (TUNNEL, False): "It stops between two hosts: the network does not connect them.",
    (HOST, True): "A host takes it.",
    (HOST, False): "A host stops it.",
    (OUTSIDE, True): "It leaves the cloud.",
    (OUTSIDE, False): "Nothing outside of the cloud has its destination.",
}
_FOREIGN = "It goes to a port of another project, whose rules decide."


class Visible(NamedTuple):
    """Ids of the ports of a project, and of the networks and routers that it may see."""

    ports: Collection[str]
    others: Collection[str]


def shown(trace: Trace, cloud: Cloud, visible: Visible) -> PacketWay:
    """Return the way of a packet of an own port, up to the first part that is a port of another project."""
    interfaces = [(host, item) for host in cloud.hosts.values() for item in host.interfaces if item.id in visible.ports]
    groups = {group.id for host, item in interfaces for group in host.groups_of(item)}
    secret = [text for host in cloud.hosts.values() for text in (host.name, *map(str, host.addresses))]
    parts = []
    for hop in trace.hops:
        if _is_foreign(hop, visible, groups):
            parts.append(WayPart(kind=PORT, id=None, group_id=None, passes=None, text=_FOREIGN))
            return PacketWay(packet=trace.packet, arrives=None, arrived_at=None, parts=parts)
        is_known = (
            hop.kind in (PORT, ANTI_SPOOFING, RULE) or hop.id is None or hop.id in {*visible.ports, *visible.others}
        )
        is_open = is_known and not any(text in hop.text for text in secret)
        parts.append(
            WayPart(
                kind=hop.kind,
                id=hop.id if is_known else None,
                group_id=hop.group_id,
                passes=hop.passes,
                text=hop.text if is_open else _GENERAL[hop.kind, hop.passes],
            )
        )
    return PacketWay(packet=trace.packet, arrives=trace.arrives, arrived_at=trace.arrived_at, parts=parts)


def _is_foreign(hop: Hop, visible: Visible, groups: Collection[str]) -> bool:
    """Check whether a part is of another project's port."""
    if hop.group_id is not None:
        return hop.group_id not in groups
    return hop.kind in (PORT, ANTI_SPOOFING, RULE, NAT) and hop.id is not None and hop.id not in visible.ports

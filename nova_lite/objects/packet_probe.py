"""The way of a packet as its tenant sees it, and its probe: a marked packet, and the places where hosts see it."""

from __future__ import annotations

import msgspec

#: Kinds of places: a port's device, a network's gateway, a realm's way out, a network's tunnel, and all other devices.
AT_PORT, AT_GATEWAY, AT_WAY_OUT, AT_TUNNEL, AT_OUTSIDE = "port", "gateway", "way out", "tunnel", "outside"


class PacketProbe(msgspec.Struct, kw_only=True, frozen=True):
    """A packet of a port, with a mark of 32 bits that no other packet has.

    ``source``: an address of the port. ``protocol``: icmp, tcp or udp. ``port``: None for icmp. ``neighbour``: MAC
    address to which the guest would send it; None: the gateway's. A host that has not the port only looks for it.
    """

    instance_uuid: str
    port_id: str
    source: str
    destination: str
    protocol: str
    port: int | None
    neighbour: str | None
    mark: int


class Place(msgspec.Struct, frozen=True):
    """Place of a host. ``id``: of the port, the network or the realm, and empty outside. ``enters``: the packet comes
    from there."""

    kind: str
    id: str
    enters: bool


class PacketSighting(msgspec.Struct, frozen=True):
    """A packet that a host has seen at a place, with its addresses there. ``is_answer``: it answers the probe."""

    place: Place
    source: str
    destination: str
    is_answer: bool = False


class WayPart(msgspec.Struct, kw_only=True):
    """Part of the way of a packet. ``id``: of the port, the rule, the router or the network, if the tenant may see it.

    ``passes``: False at the part that stops the packet; None: the tenant may not know.
    """

    kind: str
    id: str | None
    group_id: str | None
    passes: bool | None
    text: str


class PacketWay(msgspec.Struct, kw_only=True):
    """Way of a packet of a tenant's port. ``arrives``: None if another project's port decides that.

    ``arrived_at``: an own port, or ``metadata``, ``gateway``, ``host`` or ``outside``.
    """

    packet: str
    arrives: bool | None
    arrived_at: str | None
    parts: list[WayPart]

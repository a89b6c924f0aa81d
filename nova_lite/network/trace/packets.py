"""A packet, and what happens to it on its way."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from nova_lite.base import ip
from nova_lite.objects import Place
from nova_lite.objects.security_group import ICMP, ICMPV6

TCP, UDP = 6, 17
PROTOCOLS = {"icmp": ICMP, "tcp": TCP, "udp": UDP}

#: Kinds of hops.
PORT, ANTI_SPOOFING, RULE, ROUTER, NAT, TUNNEL, HOST, OUTSIDE = (
    "port", "anti-spoofing", "rule", "router", "nat", "tunnel", "host", "outside",
)  # fmt: skip


class Packet(NamedTuple):
    """First packet of a connection, or a ping. ``protocol``: a key of `PROTOCOLS`; ``port``: None for ICMP."""

    source: ip.Address
    destination: ip.Address
    protocol: str = "icmp"
    port: int | None = None

    @property
    def version(self) -> int:
        return self.destination.version

    @property
    def number(self) -> int:
        """Return the number of its protocol."""
        number = PROTOCOLS[self.protocol]
        return ICMPV6 if number == ICMP and self.version == 6 else number

    @property
    def icmp(self) -> tuple[int, int]:
        """Return type and code of a ping."""
        return (8 if self.version == 4 else 128), 0

    def __str__(self) -> str:
        what = "ping" if self.protocol == "icmp" else f"{self.protocol} port {self.port}"
        return f"{self.source} to {self.destination}, {what}"


class Hop(msgspec.Struct, kw_only=True, frozen=True):
    """Part of the way. ``kind``: one of the words above. ``id``: of the port, the rule, the router or the network.

    ``passes``: False at the part that stops the packet. ``place``: where a probe sees it after that; None: nowhere.
    """

    kind: str
    host: str | None = None
    id: str | None = None
    group_id: str | None = None
    passes: bool = True
    text: str
    place: Place | None = None


class Trace(msgspec.Struct, kw_only=True):
    """Way of a packet. ``arrived_at``: id of a port, or one of `METADATA`, `GATEWAY`, `HOST` and `OUTSIDE`."""

    packet: str
    arrives: bool
    arrived_at: str | None
    hops: list[Hop]


METADATA, GATEWAY = "metadata", "gateway"

"""Conntrack zones: the kernel tracks the connections of each bridge apart.

Guests of two networks may have equal addresses and ports. Without zones, a reply to an allowed connection of one
network would open a port of the other. The zone of a packet is set before its fragments are reassembled, since
fragments of two networks may be equal, too.

The zone is the number of the bridge's interface, which the kernel gives once. So two daemons on a machine choose the
same one. Numbers beyond the 65,535 zones begin again, with the next free zone.

Packets to the bridge's own MAC address are for the host, which replies or routes outside of the bridge. They have no
zone, and neither have their replies.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from nova_lite.virt.libvirt.net import nft

#: The last zone. Zone 0 has the connections without a zone.
MAX_ZONE = 65535
#: The kernel's NF_IP_PRI_RAW_BEFORE_DEFRAG.
_BEFORE_REASSEMBLY = -450


class ConntrackZones:
    """Zones of this host's bridges. A bridge keeps its zone."""

    def __init__(self) -> None:
        #: Zones by the number of the interface.
        self._zones: dict[int, int] = {}

    def ruleset(self, table: str, bridges: Iterable[str]) -> str:
        """Return the nft commands that add the chain to the table of ports. Missing bridges have no zone."""
        found = nft.usable("bridge", sorted(bridges), _bridge, str)
        indexes = {index: (name, mac_address) for name, index, mac_address in filter(None, found)}
        self._zones = {index: zone for index, zone in self._zones.items() if index in indexes}
        for index in sorted(indexes.keys() - self._zones.keys()):
            self._zones[index] = _free_zone(index, set(self._zones.values()))
        if not indexes:
            return ""
        own = ", ".join(f"{name} . {mac_address}" for name, mac_address in indexes.values())
        zones = ", ".join(f"{name} : {self._zones[index]:d}" for index, (name, _) in indexes.items())
        return f"""table inet {table} {{
  chain zones {{
    type filter hook prerouting priority {_BEFORE_REASSEMBLY}; policy accept;
    iifname . ether daddr {{ {own} }} accept
    ct zone set iifname map {{ {zones} }}
  }}
}}
"""


def _free_zone(index: int, taken: set[int]) -> int:
    zone = (index - 1) % MAX_ZONE + 1
    while zone in taken:
        zone = zone % MAX_ZONE + 1
    return zone


def _bridge(name: str) -> tuple[str, int, str] | None:
    """Return a bridge's quoted name, the number of its interface and its MAC address; None if it is missing."""
    quoted = nft.interface(name)
    try:
        with open(f"/sys/class/net/{name}/address") as file:
            return quoted, socket.if_nametoindex(name), nft.mac(file.read().strip())
    except OSError:
        return None

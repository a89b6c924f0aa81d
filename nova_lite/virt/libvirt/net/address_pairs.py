"""Address pairs: further addresses that a guest has, as a virtual address of several guests.

A pair has a range of addresses, and the MAC address that its frames come from. It never includes the addresses of hosts
on the network.
"""

from __future__ import annotations

from typing import NamedTuple

from nova_lite.base import ip
from nova_lite.objects import VIF
from nova_lite.virt.libvirt.net import dual_stack, nft


class Pair(NamedTuple):
    """A valid pair."""

    prefix: ip.Network
    mac_address: str

    @property
    def family(self) -> str:
        return "ip" if self.prefix.version == 4 else "ip6"

    def text(self, side: str) -> str:
        """Return the match of an address of a packet in nft's words. ``side``: ``saddr`` or ``daddr``."""
        if not self.prefix.prefixlen:
            return f"ether type {self.family}"
        return f"{self.family} {side} {nft.network(self.prefix)}"

    def inet(self, side: str) -> str:
        """Return the same match for tables of the family ``inet``."""
        return self.text(side) if self.prefix.prefixlen else f"meta nfproto ipv{self.prefix.version:d}"

    def arp(self) -> str:
        """Return the match of the sender of an ARP frame."""
        return f"arp saddr ip {nft.network(self.prefix)} " if self.prefix.prefixlen else ""

    def target(self) -> str:
        """Return the match of the target of a neighbour advertisement: bytes after the first 8 of ICMPv6."""
        length = self.prefix.prefixlen
        number = int(self.prefix.network_address) >> (128 - length)
        return f"icmpv6 type nd-neighbor-advert @th,64,{length:d} 0x{number:x}" if length else _ADVERTISEMENT


_ADVERTISEMENT = "icmpv6 type nd-neighbor-advert"


def of(vif: VIF) -> list[Pair]:
    """Return the pairs of an interface, without invalid ones, which are logged, and without IPv6 on IPv4 networks."""
    versions = {4, 6} if dual_stack.addresses(vif) else {4}
    made = nft.usable("address pair", vif.address_pairs or [], _pair, lambda pair: f"{vif.id} {pair}")
    return [pair for pair in made if pair.prefix.version in versions]


def _pair(pair: dict[str, str]) -> Pair:
    return Pair(ip.parse_network(pair["ip_address"]), nft.mac(pair["mac_address"]))

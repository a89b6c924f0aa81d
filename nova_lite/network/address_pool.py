"""Arithmetic of one network's addresses; no I/O."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterator

from nova_lite.objects import Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressPool:
    """What a network may give out: ``start`` to ``end``, without its gateway, network and broadcast addresses."""

    def __init__(self, network: Network) -> None:
        self.cidr = ipaddress.ip_network(network.cidr)
        self.gateway = ipaddress.ip_address(network.gateway) if network.gateway else None
        self.first = int(ipaddress.ip_address(network.start)) if network.start else int(self.cidr.network_address)
        self.last = int(ipaddress.ip_address(network.end)) if network.end else int(self.cidr.broadcast_address)
        self._kind = ipaddress.IPv4Address if self.cidr.version == 4 else ipaddress.IPv6Address

    def usable(self, address: Address) -> bool:
        """May an instance have it at all (on request also from outside ``start`` to ``end``)?"""
        if address not in self.cidr or address == self.gateway:
            return False
        if self.cidr.num_addresses <= 2:
            return True
        return address not in (self.cidr.network_address, self.cidr.broadcast_address)

    def parse(self, text: str) -> Address | None:
        """A usable address, or None."""
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return None
        return address if self.usable(address) else None

    def sample(self, count: int, rng: random.Random) -> list[str]:
        """Up to ``count`` usable addresses of the pool at random, without looking at all of it."""
        size = self.last - self.first + 1
        if size <= count:
            found = list(self.all())
            rng.shuffle(found)
            return found
        picks = {self._kind(self.first + rng.randrange(size)) for _ in range(count)}
        return [str(address) for address in picks if self.usable(address)]

    def all(self) -> Iterator[str]:
        """Every usable address of the pool, lowest first."""
        for number in range(self.first, self.last + 1):
            address = self._kind(number)
            if self.usable(address):
                yield str(address)

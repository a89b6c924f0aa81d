"""Addresses that one network may allocate. No I/O."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterator

from nova_lite.base import ip
from nova_lite.objects import Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressPool:
    """Addresses from ``start`` to ``end``, without the gateway, network and broadcast addresses."""

    def __init__(self, network: Network) -> None:
        self.cidr = ip.parse_network(network.cidr)
        self.gateway = ip.parse(network.gateway) if network.gateway else None
        self.first = int(ip.parse(network.start)) if network.start else int(self.cidr.network_address)
        self.last = int(ip.parse(network.end)) if network.end else int(self.cidr.broadcast_address)
        self._kind = ipaddress.IPv4Address if self.cidr.version == 4 else ipaddress.IPv6Address

    def usable(self, address: Address) -> bool:
        """Return whether an instance may have the address. On request it may be outside ``start`` to ``end``."""
        if address not in self.cidr or address == self.gateway:
            return False
        if self.cidr.num_addresses <= 2:
            return True
        return address not in (self.cidr.network_address, self.cidr.broadcast_address)

    def parse(self, text: str) -> Address | None:
        """Return the address, or None if it is not usable."""
        try:
            address = ip.parse(text)
        except ValueError:
            return None
        return address if self.usable(address) else None

    def sample(self, count: int, rng: random.Random) -> list[str]:
        """Return up to ``count`` random usable addresses, without enumerating a large pool."""
        size = self.last - self.first + 1
        if size <= count:
            addresses = list(self.all())
            rng.shuffle(addresses)
            return addresses
        picks = {self._kind(self.first + rng.randrange(size)) for _ in range(count)}
        return [str(address) for address in picks if self.usable(address)]

    def all(self) -> Iterator[str]:
        """Yield every usable address of the pool, lowest first."""
        for number in range(self.first, self.last + 1):
            address = self._kind(number)
            if self.usable(address):
                yield str(address)

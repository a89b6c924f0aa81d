"""Addresses that one network may allocate. No I/O."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterator

from nova_lite.base import ip
from nova_lite.objects import Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressPool:
    """Addresses of a network's pools, without those of the hosts, and the network and broadcast addresses."""

    def __init__(self, network: Network) -> None:
        self.cidr = ip.parse_network(network.cidr)
        self._of_hosts = [ip.parse(text) for text in (network.gateway, network.host_address) if text]
        if network.pools is not None:
            ranges = [_range(ip.parse(pool["start"]), ip.parse(pool["end"])) for pool in network.pools]
        else:
            first = ip.parse(network.start) if network.start else self.cidr.network_address
            last = ip.parse(network.end) if network.end else self.cidr.broadcast_address
            ranges = [_range(first, last)]
        self._ranges = sorted(ranges, key=lambda item: item.start)
        self.size = sum(map(_size, self._ranges))
        self._kind = ipaddress.IPv4Address if self.cidr.version == 4 else ipaddress.IPv6Address

    def usable(self, address: Address) -> bool:
        """Return whether an instance may have the address. On request it may be outside of the pools."""
        if address not in self.cidr or address in self._of_hosts:
            return False
        if self.cidr.num_addresses <= 2:
            return True
        if address.version == 6:
            return address != self.cidr.network_address
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
        if self.size <= count:
            addresses = list(self.all())
            rng.shuffle(addresses)
            return addresses
        picks = {self._kind(self._at(rng.randrange(self.size))) for _ in range(count)}
        return [str(address) for address in picks if self.usable(address)]

    def all(self) -> Iterator[str]:
        """Yield every usable address of the pool, lowest first."""
        for number in (number for item in self._ranges for number in item):
            address = self._kind(number)
            if self.usable(address):
                yield str(address)

    def _at(self, index: int) -> int:
        """Return the address with this index among those of all pools."""
        for item in self._ranges:
            if index < _size(item):
                return item.start + index
            index -= _size(item)
        raise IndexError(index)


def _range(first: Address, last: Address) -> range:
    return range(int(first), int(last) + 1)


def _size(addresses: range) -> int:
    """Return the number of addresses, which may be more than ``len`` can return."""
    return addresses.stop - addresses.start

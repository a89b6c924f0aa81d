"""IPv6 addresses of interfaces on built-in networks.

A network's prefix has 64 bits. Each interface derives the rest of its address from its MAC address (SLAAC, EUI-64). So
the address is known before the guest exists, and is as unique as the MAC address.
"""

from __future__ import annotations

import uuid

from nova_lite.base import ip
from nova_lite.objects.instance import FixedIp
from nova_lite.objects.network import Network

LINK_LOCAL = "fe80::/64"

_SUBNETS = uuid.UUID("a3f1f0d2-3f0a-4f5c-9a44-6d1f6f0c9b27")


def address_of(prefix: str, mac_address: str) -> str:
    """Return the address of the interface with this MAC address, in a prefix of 64 bits. Raises ValueError."""
    octets = bytes.fromhex(mac_address.replace(":", ""))
    if len(octets) != 6:
        raise ValueError(f"{mac_address!r} is not a MAC address")
    identifier = bytes([octets[0] ^ 0x02]) + octets[1:3] + b"\xff\xfe" + octets[3:]
    return str(ip.parse_network6(prefix)[int.from_bytes(identifier, "big")])


def address_on(network: Network, mac_address: str) -> str | None:
    return address_of(network.cidr6, mac_address) if network.cidr6 else None


def host_address(network: Network) -> str:
    """Return the address of each host's bridge: the first of the prefix, which is never an EUI-64 address."""
    return str(ip.parse_network6(network.cidr6)[1])


def gateway(network: Network) -> str | None:
    """Return the IPv6 gateway. A network has one if it has an IPv4 gateway."""
    return host_address(network) if network.cidr6 and network.gateway else None


def subnet_id(network_id: str) -> str:
    """Return the id of a network's IPv6 subnet. Its IPv4 subnet has the id of the network."""
    return str(uuid.uuid5(_SUBNETS, network_id))


def further_addresses(network: Network, address6: str | None) -> list[FixedIp]:
    """Return the addresses of an interface besides its IPv4 address."""
    if address6 is None:
        return []
    return [
        FixedIp(address=address6, subnet_id=subnet_id(network.id), cidr=network.cidr6, gateway=gateway(network), dns=[])
    ]

"""IPv6 beside IPv4: a network's prefix has 64 bits, and each interface makes the rest of its address of its MAC
address, as router advertisements ask it to (SLAAC, EUI-64). So the address is known before there is a guest, and is as
unique as the MAC address."""

from __future__ import annotations

import ipaddress
import uuid

from nova_lite.objects.instance import FixedIp
from nova_lite.objects.network import Network

LINK_LOCAL = "fe80::/64"

_SUBNETS = uuid.UUID("a3f1f0d2-3f0a-4f5c-9a44-6d1f6f0c9b27")


def address_of(prefix: str, mac_address: str) -> str:
    """Of the interface with this MAC address, in a /64."""
    octets = bytes.fromhex(mac_address.replace(":", ""))
    identifier = bytes([octets[0] ^ 0x02]) + octets[1:3] + b"\xff\xfe" + octets[3:]
    return str(ipaddress.IPv6Network(prefix)[int.from_bytes(identifier, "big")])


def address_on(network: Network, mac_address: str) -> str | None:
    return address_of(network.cidr6, mac_address) if network.cidr6 else None


def host_address(network: Network) -> str:
    """Of each host's bridge: the first, which no EUI-64 is."""
    return str(ipaddress.IPv6Network(network.cidr6)[1])


def gateway(network: Network) -> str | None:
    """Where IPv4 has a way out, IPv6 has one."""
    return host_address(network) if network.cidr6 and network.gateway else None


def subnet_id(network_id: str) -> str:
    """The id of a network is that of its IPv4 subnet, too; the other one follows from it."""
    return str(uuid.uuid5(_SUBNETS, network_id))


def further(network: Network, address6: str | None) -> list[FixedIp]:
    """What an interface has besides its IPv4 address."""
    if address6 is None:
        return []
    return [
        FixedIp(address=address6, subnet_id=subnet_id(network.id), cidr=network.cidr6, gateway=gateway(network), dns=[])
    ]

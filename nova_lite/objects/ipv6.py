"""IPv6 addresses of interfaces on built-in networks.

In most modes an interface derives the second half of its address from its MAC address (SLAAC, EUI-64), in a prefix of
64 bits. So the address is known before the guest exists, and is as unique as the MAC address. In the others the
conductor takes it from the subnet's pools, and the hosts assign it by DHCPv6.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Protocol

import msgspec

from nova_lite.base import ip
from nova_lite.objects.instance import AddressMode, FixedIp, version_of
from nova_lite.objects.network import Network, Subnet6

LINK_LOCAL = "fe80::/64"

SLAAC, STATELESS, STATEFUL = MODES = ("slaac", "dhcpv6-stateless", "dhcpv6-stateful")

_SUBNETS = uuid.UUID("a3f1f0d2-3f0a-4f5c-9a44-6d1f6f0c9b27")
_DERIVING = {SLAAC, STATELESS}


class Link(Protocol):
    """Network, or segment of one, with the ids of its subnets."""

    @property
    def id(self) -> str: ...
    @property
    def subnet_id(self) -> str | None: ...
    @property
    def subnet6_id(self) -> str | None: ...


def address_of(prefix: str, mac_address: str) -> str:
    """Return the address of the interface with this MAC address, in a prefix of 64 bits. Raises ValueError."""
    octets = bytes.fromhex(mac_address.replace(":", ""))
    if len(octets) != 6:
        raise ValueError(f"{mac_address!r} is not a MAC address")
    identifier = bytes([octets[0] ^ 0x02]) + octets[1:3] + b"\xff\xfe" + octets[3:]
    return str(ip.parse_network6(prefix)[int.from_bytes(identifier, "big")])


def is_derived(subnet: Subnet6 | None) -> bool:
    """Check whether interfaces derive their addresses from MAC addresses."""
    return subnet is None or not _DERIVING.isdisjoint({subnet.ra_mode, subnet.address_mode})


def address_on(network: Network, mac_address: str) -> str | None:
    """Return the address that an interface derives, None if it derives none."""
    return address_of(network.cidr6, mac_address) if network.cidr6 and is_derived(network.subnet6) else None


def host_address(network: Network) -> str:
    """Return the address of each host's bridge. No interface has it."""
    if network.subnet6 is not None and (known := network.subnet6.gateway or network.subnet6.host_address):
        return known
    return first_address(network.cidr6)


def first_address(cidr: str) -> str:
    """Return the first address of a machine, which is never an EUI-64 address."""
    return str(ip.parse_network6(cidr)[1])


def gateway(network: Network) -> str | None:
    """Return the IPv6 gateway. In a network of the operator there is one if there is an IPv4 gateway."""
    if network.subnet6 is not None:
        return network.subnet6.gateway
    return host_address(network) if network.cidr6 and network.gateway else None


def is_advertised(network: Network) -> bool:
    """Check whether hosts send router advertisements, and answer DHCPv6."""
    return bool(network.cidr6) and (network.subnet6 is None or network.subnet6.enable_dhcp)


def is_assigned(network: Network) -> bool:
    """Check whether hosts assign addresses by DHCPv6. Neutron's DHCP server does so without modes, too."""
    return is_advertised(network) and not is_derived(network.subnet6)


def is_stateless(network: Network) -> bool:
    """Check whether hosts answer DHCPv6 without assigning addresses."""
    modes = network.subnet6
    return is_advertised(network) and modes is not None and STATELESS in (modes.ra_mode, modes.address_mode)


def as_subnet(network: Network) -> Network:
    """Return a network whose one subnet is the IPv6 subnet, to choose an address of its pools."""
    settings = network.subnet6 or Subnet6(host_address=host_address(network))
    last = str(ip.parse_network6(network.cidr6)[-1])
    return msgspec.structs.replace(
        network,
        cidr=network.cidr6,
        gateway=settings.gateway,
        host_address=settings.host_address,
        start=None,
        end=last,
        pools=None if network.subnet6 is None else settings.pools,
    )


def subnet_id_of(link: Link, version: int = 4) -> str:
    """Return the id of a subnet. Subnets of older versions have the network's id, or for IPv6 a derived id."""
    if version == 4:
        return link.subnet_id or link.id
    return link.subnet6_id or subnet_id(link.id)


def subnet_id(network_id: str) -> str:
    """Return the id of an IPv6 subnet of an older version."""
    return str(uuid.uuid5(_SUBNETS, network_id))


def further_addresses(network: Network, address6: str | None, others: Iterable[str] = ()) -> list[FixedIp]:
    """Return the addresses of an interface besides its first IPv4 address. ``others``: further ones of any version."""
    found = [] if address6 is None else [_first(network, address6)]
    return found + [_other(network, address) for address in ordered(others)]


def ordered(addresses: Iterable[str]) -> list[str]:
    """Return addresses of both versions in their order, IPv4 first."""
    return sorted(addresses, key=lambda address: (version_of(address), int(ip.parse(address))))


def _other(network: Network, address: str) -> FixedIp:
    """Return a further address. The guest configures it itself, and has the routes of its first one."""
    version = version_of(address)
    return FixedIp(
        address=address,
        subnet_id=subnet_id_of(network, version),
        cidr=network.cidr if version == 4 else network.cidr6,
        address_mode=AddressMode.STATIC,
        is_further=True,
    )


def _first(network: Network, address6: str) -> FixedIp:
    return FixedIp(
        address=address6,
        subnet_id=subnet_id_of(network, version=6),
        cidr=network.cidr6,
        gateway=gateway(network),
        dns=list(network.subnet6.dns) if network.subnet6 is not None else [],
        address_mode=_address_mode(network),
    )


def _address_mode(network: Network) -> str:
    """Return how guests get their addresses; "" in an operator's network, as in older records."""
    if network.subnet6 is None:
        return ""
    if not network.subnet6.enable_dhcp:
        return AddressMode.STATIC
    if not is_derived(network.subnet6):
        return AddressMode.DHCPV6_STATEFUL
    return AddressMode.DHCPV6_STATELESS if is_stateless(network) else AddressMode.SLAAC

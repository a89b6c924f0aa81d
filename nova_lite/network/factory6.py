"""Builds and validates the IPv6 subnet of a network from a user's values."""

from __future__ import annotations

import itertools
from ipaddress import IPv6Address, IPv6Network

from nova_lite.base import exceptions, ip
from nova_lite.network import factory
from nova_lite.objects import Network, NetworkRecord, Subnet6, ipv6

#: Lengths of prefixes that the DHCP server of hosts serves. Interfaces derive addresses in prefixes of 64 bits only.
SHORTEST, LONGEST, DERIVED = 64, 127, 64


def add_subnet(
    network: NetworkRecord, cidr: str, subnet: Subnet6, gateway: str | None, has_no_pools: bool = False
) -> None:
    """Give a network its IPv6 subnet. ``gateway``: as in `factory.new_network`. ``has_no_pools``: otherwise a subnet
    without pools has all addresses. Raises `InvalidInput`.
    """
    addresses = _cidr(cidr)
    check_modes(subnet, addresses)
    if subnet.enable_dhcp:
        factory.check_dhcp(addresses)
    if network.mtu < factory.MIN_MTU6:
        raise exceptions.InvalidInput(
            reason=f"IPv6 needs an MTU of at least {factory.MIN_MTU6}, and network {network.id} has {network.mtu}"
        )
    network.cidr6, network.subnet6 = str(addresses), subnet
    subnet.gateway = None
    if gateway != factory.NO_GATEWAY:
        subnet.gateway = str(_first(addresses)) if gateway is None else machine(network, "gateway", gateway)
    if not subnet.pools and not has_no_pools:
        subnet.pools = _default_pools(addresses, None if subnet.gateway is None else ip.parse6(subnet.gateway))
    set_settings(network, subnet)


def _first(addresses: IPv6Network) -> IPv6Address:
    """Return the first address for hosts. Routers have both addresses of a /127."""
    return addresses[0] if addresses.num_addresses == 2 else addresses[1]


def set_settings(network: Network, subnet: Subnet6) -> None:
    """Complete and check settings of a subnet with a valid gateway. Raises `InvalidInput` and errors of pools."""
    addresses = ip.parse_network6(network.cidr6)
    set_pools(network.cidr6, subnet)
    subnet.host_address = None if subnet.gateway is not None else _host_address(addresses, subnet)
    subnet.dns = [factory.name_server(text, version=6) for text in subnet.dns]
    routes = [
        factory.host_route(route["destination"], route["nexthop"], version=6) for route in subnet.host_routes or ()
    ]
    subnet.host_routes = routes or None


def check_modes(subnet: Subnet6, addresses: IPv6Network) -> None:
    """Raise `InvalidInput` for modes that exclude each other, as Neutron does."""
    modes = {"ipv6_ra_mode": subnet.ra_mode, "ipv6_address_mode": subnet.address_mode}
    for name, mode in modes.items():
        if mode is not None and mode not in ipv6.MODES:
            raise exceptions.InvalidInput(reason=f"{name} '{mode[:64]}' is none of {', '.join(ipv6.MODES)}")
    if not subnet.enable_dhcp and any(modes.values()):
        raise exceptions.InvalidInput(
            reason="ipv6_ra_mode or ipv6_address_mode cannot be set when enable_dhcp is set to False."
        )
    if all(modes.values()) and subnet.ra_mode != subnet.address_mode:
        raise exceptions.InvalidInput(
            reason=f"ipv6_ra_mode set to '{subnet.ra_mode}' with ipv6_address_mode set to '{subnet.address_mode}' is "
            "not valid. If both attributes are set, they must be the same value"
        )
    if ipv6.is_derived(subnet) and addresses.prefixlen != DERIVED:
        raise exceptions.InvalidInput(
            reason=f"Invalid CIDR {addresses} for IPv6 address mode. OpenStack uses the EUI-64 address format, which "
            f"requires the prefix to be /{DERIVED}"
        )


def machine(network: Network, name: str, text: str) -> str:
    """Return the address of a machine of the subnet. Raises `InvalidInput`."""
    addresses = ip.parse_network6(network.cidr6)
    try:
        address = ip.parse6(text)
    except ValueError as error:
        raise exceptions.InvalidInput(reason=f"{name} {text!r} is not an IPv6 address") from error
    if address not in addresses or address < _first(addresses):
        raise exceptions.InvalidInput(reason=f"{name} {address} is not a host address of {addresses}")
    return str(address)


def set_pools(cidr: str, subnet: Subnet6) -> None:
    """Check the pools of a subnet.

    Raises `InvalidInput`, `OverlappingAllocationPools` or `GatewayConflictWithAllocationPools`.
    """
    gateway = None if subnet.gateway is None else ip.parse6(subnet.gateway)
    network = Network(id="", name="", cidr="", cidr6=cidr)
    ranges = []
    for pool in subnet.pools:
        first, last = (ip.parse6(machine(network, name, pool[name])) for name in ("start", "end"))
        if first > last:
            raise exceptions.InvalidInput(reason=f"start {first} comes after end {last}")
        if gateway is not None and first <= gateway <= last:
            raise exceptions.GatewayConflictWithAllocationPools(ip_address=str(gateway), pool=f"{first}-{last}")
        ranges.append((first, last))
    ranges.sort()
    for (first, last), (following, end) in itertools.pairwise(ranges):
        if following <= last:
            raise exceptions.OverlappingAllocationPools(
                pool_1=f"{first}-{last}", pool_2=f"{following}-{end}", subnet_cidr=cidr
            )
    subnet.pools = [{"start": str(first), "end": str(last)} for first, last in ranges]


def _default_pools(addresses: IPv6Network, gateway: IPv6Address | None) -> list[dict[str, str]]:
    first, last = addresses[1] if gateway is None else _first(addresses), addresses[-1]
    parts = [(first, last)] if gateway is None else [(first, gateway - 1), (gateway + 1, last)]
    return [{"start": str(start), "end": str(end)} for start, end in parts if start <= end]


def _host_address(addresses: IPv6Network, subnet: Subnet6) -> str:
    """Return an address for the hosts' bridges without a gateway: the first or last one, if possible of no pool."""
    ends = [_first(addresses), addresses[-1]]
    ranges = [(ip.parse6(pool["start"]), ip.parse6(pool["end"])) for pool in subnet.pools]
    outside = [item for item in ends if not any(first <= item <= last for first, last in ranges)]
    return str((outside or ends)[0])


def _cidr(text: str) -> IPv6Network:
    try:
        addresses = ip.parse_network6(text)
    except ValueError as error:
        raise exceptions.InvalidInput(reason=f"{text!r} is not an IPv6 network: {error}") from error
    if not SHORTEST <= addresses.prefixlen <= LONGEST:
        raise exceptions.InvalidInput(reason=f"{text} is not a prefix of {SHORTEST} to {LONGEST} bits, as subnets here")
    factory.refuse_reserved(addresses)
    return addresses

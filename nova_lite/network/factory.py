"""Builds and validates a network of the built-in backend from an operator's or a user's values."""

from __future__ import annotations

import ipaddress
import itertools
import re
import uuid

from nova_lite.base import exceptions, ip
from nova_lite.objects import Network

NO_GATEWAY = "none"

#: MTU of Ethernet, MTU inside VXLAN over IPv4, and the smallest MTUs for IPv4 and IPv6.
ETHERNET_MTU, TUNNEL_MTU, MIN_MTU, MIN_MTU6 = 1500, 1450, 68, 1280
#: Largest MTU: of the jumbo frames that network cards and switches have.
MAX_MTU = 9216
MAX_VNI = 2**24 - 1

#: Ranges whose addresses no machine of a network can have.
_RESERVED: dict[ip.Network, str] = {
    ip.parse_network(text): meaning
    for text, meaning in (
        ("0.0.0.0/8", "this network"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "single links, such as the metadata service"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "broadcast, or reserved"),
        ("::/8", "loopback and IPv4 addresses"),
        ("fe80::/10", "single links"),
        ("ff00::/8", "multicast"),
    )
}

#: Names of interfaces that Linux accepts.
_BRIDGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
_NAME = re.compile(r"[^\x00-\x1f\x7f/]{1,255}")


def new_network(
    name: str,
    cidr: str,
    gateway: str | None = None,
    dns: list[str] | None = None,
    bridge: str | None = None,
    start: str | None = None,
    end: str | None = None,
    mtu: int | None = None,
    is_default: bool = False,
    project_id: str | None = None,
    vni: int | None = None,
    cidr6: str | None = None,
) -> Network:
    """Return a complete network, with defaults for gateway, pool, bridge and MTU. Raises `InvalidInput`."""
    if not _NAME.fullmatch(name) or name != name.strip():
        raise exceptions.InvalidInput(reason=f"{name!r} is not a valid name of a network")
    network_id = str(uuid.uuid4())
    bridge = bridge or "nlbr" + network_id[:8]
    if not _BRIDGE.fullmatch(bridge):
        raise exceptions.InvalidInput(
            reason=f"{bridge!r} is not a valid name of a bridge (up to 15 letters, digits, _ . -)"
        )
    network = Network(
        id=network_id,
        name=name,
        cidr="",
        bridge=bridge,
        mtu=(ETHERNET_MTU if vni is None else TUNNEL_MTU) if mtu is None else mtu,
        project_id=project_id,
        is_default=is_default,
        vni=_vni(vni),
        cidr6=_cidr6(cidr6) if cidr6 else "",
    )
    if not MIN_MTU <= network.mtu <= MAX_MTU:
        raise exceptions.InvalidInput(reason=f"the MTU {network.mtu} is not a number from {MIN_MTU} to {MAX_MTU}")
    if network.cidr6 and network.mtu < MIN_MTU6:
        raise exceptions.InvalidInput(
            reason=f"IPv6 needs an MTU of at least {MIN_MTU6}, and {network.mtu} is requested"
        )
    add_subnet(network, cidr, gateway, dns, start, end)
    return network


def _vni(number: int | None) -> int | None:
    if number is not None and not 1 <= number <= MAX_VNI:
        raise exceptions.InvalidInput(reason=f"{number} is not a valid VNI (1 to {MAX_VNI})")
    return number


def vni_range(text: str) -> range:
    """Parse an option's ``FIRST-LAST``. Raises `ConfigurationError`."""
    first, _, last = text.partition("-")
    if not 1 <= int(first) <= int(last) <= MAX_VNI:
        raise exceptions.ConfigurationError(
            reason=f"[network] project_vnis: {text} is not a range of VNIs (1-{MAX_VNI})"
        )
    return range(int(first), int(last) + 1)


def _cidr6(text: str) -> str:
    """Return the prefix. It has 64 bits, because guests generate the other half of their addresses (SLAAC)."""
    try:
        prefix = ip.parse_network6(text)
    except ValueError as error:
        raise exceptions.InvalidInput(reason=f"{text!r} is not an IPv6 network: {error}") from error
    if prefix.prefixlen != 64:
        raise exceptions.InvalidInput(reason=f"{text} is not a /64, which SLAAC needs")
    refuse_reserved(prefix)
    return str(prefix)


def refuse_reserved(wanted: ip.Network) -> None:
    """Raise an error for a range with addresses that no machine of a network can have."""
    for reserved, meaning in _RESERVED.items():
        if reserved.version == wanted.version and wanted.overlaps(reserved):
            raise exceptions.InvalidInput(reason=f"{wanted} has addresses of {reserved}, which are for {meaning}")


def add_subnet(
    network: Network, cidr: str, gateway: str | None, dns: list[str] | None, start: str | None, end: str | None
) -> None:
    """Give a network its subnet. The arguments are those of `new_network`. Raises `InvalidInput`."""
    addresses = _cidr(cidr)
    if network.enable_dhcp:
        check_dhcp(addresses)
    if addresses.num_addresses == 1:
        raise exceptions.InvalidInput(reason=f"{addresses} has one address, which hosts would need for themselves")
    add_range(network, addresses, gateway, start, end)
    network.dns = [name_server(text) for text in dns or []]
    network.host_address = host_address(network)


def add_range(
    network: Network, addresses: ipaddress.IPv4Network, gateway: str | None, start: str | None, end: str | None
) -> None:
    """Give a network its range, gateway and pool."""
    hosts = _machines(addresses)
    default = addresses[1] if addresses.num_addresses > 1 else None
    gateway_address = default
    if gateway is not None:
        gateway_address = None if gateway == NO_GATEWAY else _gateway(gateway, addresses)
    first_free = hosts[0] + 1 if gateway_address == hosts[0] else hosts[0]
    first = _address("start", start, addresses, default=first_free)
    last = _address("end", end, addresses, default=hosts[1])
    if first > last:
        raise exceptions.InvalidInput(reason=f"start {first} comes after end {last}")
    network.cidr = str(addresses)
    network.gateway = None if gateway_address is None else str(gateway_address)
    network.start, network.end = str(first), str(last)


def check_dhcp(addresses: ip.Network) -> None:
    """Raise `InvalidInput` for a range that DHCP does not serve, as Neutron does."""
    if addresses.num_addresses < 4:
        raise exceptions.InvalidInput(
            reason=f"Subnet {addresses} has a prefix length that is incompatible with DHCP service enabled. Set "
            "enable_dhcp to false"
        )


def _machines(addresses: ipaddress.IPv4Network) -> tuple[ipaddress.IPv4Address, ipaddress.IPv4Address]:
    """Return the first and the last address of machines. A range of two addresses has no others."""
    return (addresses[1], addresses[-2]) if addresses.num_addresses > 2 else (addresses[0], addresses[-1])


def _gateway(text: str, addresses: ipaddress.IPv4Network) -> ipaddress.IPv4Address:
    """Return a gateway. Of two addresses it is the second one: the host's bridge has broadcasts there."""
    address = _address("gateway", text, addresses, default=addresses[0])
    if addresses.num_addresses <= 2 and address != addresses[-1]:
        raise exceptions.InvalidInput(reason=f"gateway {address} is not the second address of {addresses}")
    return address


def gateway(network: Network, text: str) -> str:
    """Return another gateway for a network with a subnet. Raises `InvalidInput`."""
    return str(_gateway(text, ip.parse_network4(network.cidr)))


def pools_of(network: Network) -> list[dict[str, str]]:
    """Return the pools of a network with a subnet."""
    if network.pools is not None:
        return network.pools
    return [{"start": network.start or "", "end": network.end or ""}]


def set_pools(network: Network, pools: list[dict[str, str]] | None) -> None:
    """Replace the pools of a network with a subnet. None: all addresses besides the gateway.

    Raises `InvalidInput`, or `OverlappingAllocationPools`.
    """
    addresses = ip.parse_network4(network.cidr)
    default = _default_pools(addresses, network.gateway)
    ranges = default if pools is None else sorted(_pool(pool, addresses) for pool in pools)
    for (first, last), (following, end) in itertools.pairwise(ranges):
        if following <= last:
            raise exceptions.OverlappingAllocationPools(
                pool_1=f"{first}-{last}", pool_2=f"{following}-{end}", subnet_cidr=network.cidr
            )
    network.pools = [{"start": str(first), "end": str(last)} for first, last in ranges] if len(ranges) != 1 else None
    outermost = ranges or default
    network.start, network.end = str(outermost[0][0]), str(outermost[-1][1])


def _pool(
    pool: dict[str, str], addresses: ipaddress.IPv4Network
) -> tuple[ipaddress.IPv4Address, ipaddress.IPv4Address]:
    first, last = (_address(name, pool[name], addresses, default=addresses[0]) for name in ("start", "end"))
    if first > last:
        raise exceptions.InvalidInput(reason=f"start {first} comes after end {last}")
    return first, last


def _default_pools(
    addresses: ipaddress.IPv4Network, gateway: str | None
) -> list[tuple[ipaddress.IPv4Address, ipaddress.IPv4Address]]:
    """Return all addresses of machines, without the gateway."""
    first, last = _machines(addresses)
    if gateway is None:
        return [(first, last)]
    middle = ip.parse4(gateway)
    parts = [(first, middle - 1), (middle + 1, last)]
    return [(start, end) for start, end in parts if start <= end]


def host_address(network: Network) -> str | None:
    """Return an address for the hosts' bridges on a network without a gateway; None: they have the gateway's.

    It is the first or the last address, one outside of the pools if there is one. Of two addresses it is the second.
    """
    if network.gateway is not None:
        return None
    addresses = ip.parse_network4(network.cidr)
    if addresses.num_addresses == 2:
        return str(addresses[1])
    ends = [addresses[1], addresses[-2]]
    ranges = [(ip.parse4(pool["start"]), ip.parse4(pool["end"])) for pool in pools_of(network)]
    outside = [item for item in ends if not any(first <= item <= last for first, last in ranges)]
    return str((outside or ends[::-1])[0])


def host_route(destination: str, nexthop: str, version: int = 4) -> dict[str, str]:
    """Return a valid host route of a subnet. Raises `InvalidInput`."""
    network: ip.Network
    address: ip.Address
    try:
        if version == 4:
            network, address = ip.parse_network4(destination, strict=False), ip.parse4(nexthop)
        else:
            network, address = ip.parse_network6(destination, strict=False), ip.parse6(nexthop)
    except ValueError as error:
        raise exceptions.InvalidInput(reason=f"the route to {destination} through {nexthop}: {error}") from error
    if str(network) != destination:
        raise exceptions.InvalidInput(reason=f"{destination} is not the address of a network: {network} is")
    return {"destination": str(network), "nexthop": str(address)}


def _cidr(text: str) -> ipaddress.IPv4Network:
    try:
        addresses = ip.parse_network4(text)
    except ValueError as error:
        raise exceptions.InvalidInput(reason=f"{text!r} is not an IPv4 network: {error}") from error
    refuse_reserved(addresses)
    return addresses


def pool_range(text: str) -> ipaddress.IPv4Network:
    """Return the range of a pool of floating addresses. Raises `InvalidInput`."""
    try:
        addresses = ip.parse_network4(text)
    except ValueError as error:
        raise exceptions.InvalidInput(reason=f"{text!r} is not an IPv4 network: {error}") from error
    refuse_reserved(addresses)
    return addresses


def _address(
    name: str, text: str | None, addresses: ipaddress.IPv4Network, default: ipaddress.IPv4Address
) -> ipaddress.IPv4Address:
    if text is None:
        return default
    try:
        address = ip.parse4(text)
    except ValueError as error:
        raise exceptions.InvalidInput(reason=f"{name} {text!r} is not an IPv4 address") from error
    first, last = _machines(addresses)
    if not first <= address <= last:
        raise exceptions.InvalidInput(reason=f"{name} {address} is not a host address of {addresses}")
    return address


def name_server(text: str, version: int = 4) -> str:
    """Return the address of a name server. The DHCP servers of hosts forward queries to it. Raises `InvalidInput`."""
    address: ip.Address
    try:
        address = ip.parse4(text) if version == 4 else ip.parse6(text)
    except ValueError as error:
        raise exceptions.InvalidInput(reason=f"name server {text!r} is not an IPv{version} address") from error
    if not is_remote(address):
        raise exceptions.InvalidInput(reason=f"name server {address} is not the address of another machine")
    return str(address)


def is_remote(address: ip.Address) -> bool:
    """Check whether another machine may have the address: not for loopback, link-local, group and other such ones."""
    return not any(address in reserved for reserved in _RESERVED if reserved.version == address.version)

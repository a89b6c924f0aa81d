"""Making a network of the built-in backend from what an operator says about it."""

from __future__ import annotations

import ipaddress
import re
import uuid

from nova_lite.base import exceptions
from nova_lite.objects import Network

NO_GATEWAY = "none"

#: What fits into an Ethernet frame; the same inside of VXLAN, over IPv4; the least that IPv6 allows.
ETHERNET_MTU, TUNNEL_MTU, MIN_MTU6 = 1500, 1450, 1280
MAX_VNI = 2**24 - 1

#: What Linux takes as an interface's name.
_BRIDGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
_NAME = re.compile(r"[^\x00-\x1f\x7f/]{1,255}")


def network(
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
    """A complete network: gateway, pool, bridge and MTU are chosen where they are not said. Raises `InvalidInput`."""
    if not _NAME.fullmatch(name) or name != name.strip():
        raise exceptions.InvalidInput(reason=f"{name!r} is no name for a network")
    network_id = str(uuid.uuid4())
    bridge = bridge or "nlbr" + network_id[:8]
    if not _BRIDGE.fullmatch(bridge):
        raise exceptions.InvalidInput(reason=f"{bridge!r} is no name for a bridge (15 letters, digits, _ . - at most)")
    made = Network(
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
    if made.cidr6 and made.mtu < MIN_MTU6:
        raise exceptions.InvalidInput(reason=f"IPv6 needs an MTU of {MIN_MTU6} or more, and {made.mtu} is asked for")
    add_subnet(made, cidr, gateway, dns, start, end)
    return made


def _vni(number: int | None) -> int | None:
    if number is not None and not 1 <= number <= MAX_VNI:
        raise exceptions.InvalidInput(reason=f"{number} is no VNI (1 to {MAX_VNI})")
    return number


def vni_range(text: str) -> range:
    """Of an option's ``FIRST-LAST``; raises `ConfigurationError`."""
    first, _, last = text.partition("-")
    if not 1 <= int(first) <= int(last) <= MAX_VNI:
        raise exceptions.ConfigurationError(reason=f"[network] project_vnis: {text} is no range of VNIs (1-{MAX_VNI})")
    return range(int(first), int(last) + 1)


def _cidr6(text: str) -> str:
    """Guests make the other half of their addresses themselves (SLAAC), so the prefix has 64 bits."""
    try:
        prefix = ipaddress.IPv6Network(text)
    except ValueError as error:
        raise exceptions.InvalidInput(reason=f"{text!r} is not an IPv6 network: {error}") from error
    if prefix.prefixlen != 64:
        raise exceptions.InvalidInput(reason=f"{text} is not a /64, in which guests find their addresses by themselves")
    if prefix.is_link_local or prefix.is_multicast or prefix.is_loopback or prefix.is_unspecified:
        raise exceptions.InvalidInput(reason=f"{text} is not for hosts' addresses")
    return str(prefix)


def add_subnet(
    network: Network, cidr: str, gateway: str | None, dns: list[str] | None, start: str | None, end: str | None
) -> None:
    """Its addresses, as `network` takes them. Raises `InvalidInput`."""
    addresses = _cidr(cidr)
    hosts = (addresses.network_address + 1, addresses.broadcast_address - 1)
    gateway_address = None if gateway == NO_GATEWAY else _address("gateway", gateway, addresses, default=hosts[0])
    first_free = hosts[0] + 1 if gateway_address == hosts[0] else hosts[0]
    first = _address("start", start, addresses, default=first_free)
    last = _address("end", end, addresses, default=hosts[1])
    if first > last:
        raise exceptions.InvalidInput(reason=f"start {first} comes after end {last}")
    network.cidr = str(addresses)
    network.gateway = None if gateway_address is None else str(gateway_address)
    network.dns = [_name_server(text) for text in dns or []]
    network.start, network.end = str(first), str(last)


def _cidr(text: str) -> ipaddress.IPv4Network:
    try:
        addresses = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise exceptions.InvalidInput(reason=f"{text!r} is not an IPv4 network: {error}") from error
    if addresses.prefixlen > 30:
        raise exceptions.InvalidInput(reason=f"{text} has no room for a gateway and a server")
    return addresses


def _address(
    what: str, text: str | None, addresses: ipaddress.IPv4Network, default: ipaddress.IPv4Address
) -> ipaddress.IPv4Address:
    if text is None:
        return default
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError as error:
        raise exceptions.InvalidInput(reason=f"{what} {text!r} is not an IPv4 address") from error
    if address not in addresses or address in (addresses.network_address, addresses.broadcast_address):
        raise exceptions.InvalidInput(reason=f"{what} {address} is not an address for hosts of {addresses}")
    return address


def _name_server(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError as error:
        raise exceptions.InvalidInput(reason=f"name server {text!r} is not an IPv4 address") from error

"""Making a network of the built-in backend from what an operator says about it."""

from __future__ import annotations

import ipaddress
import re
import uuid

from nova_lite import exception
from nova_lite.objects import Network

NO_GATEWAY = "none"

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
    mtu: int = 1500,
    is_default: bool = False,
    project_id: str | None = None,
) -> Network:
    """A complete network: gateway, pool and bridge are chosen where they are not said. Raises `InvalidInput`."""
    if not _NAME.fullmatch(name) or name != name.strip():
        raise exception.InvalidInput(reason=f"{name!r} is no name for a network")
    addresses = _cidr(cidr)
    hosts = (addresses.network_address + 1, addresses.broadcast_address - 1)
    gateway_address = None if gateway == NO_GATEWAY else _address("gateway", gateway, addresses, default=hosts[0])
    first_free = hosts[0] + 1 if gateway_address == hosts[0] else hosts[0]
    first = _address("start", start, addresses, default=first_free)
    last = _address("end", end, addresses, default=hosts[1])
    if first > last:
        raise exception.InvalidInput(reason=f"start {first} comes after end {last}")
    network_id = str(uuid.uuid4())
    bridge = bridge or "nlbr" + network_id[:8]
    if not _BRIDGE.fullmatch(bridge):
        raise exception.InvalidInput(reason=f"{bridge!r} is no name for a bridge (15 letters, digits, _ . - at most)")
    return Network(
        id=network_id,
        name=name,
        cidr=str(addresses),
        gateway=None if gateway_address is None else str(gateway_address),
        dns=[_name_server(text) for text in dns or []],
        bridge=bridge,
        mtu=mtu,
        start=str(first),
        end=str(last),
        project_id=project_id,
        is_default=is_default,
    )


def _cidr(text: str) -> ipaddress.IPv4Network:
    try:
        addresses = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise exception.InvalidInput(reason=f"{text!r} is not an IPv4 network: {error}") from error
    if addresses.prefixlen > 30:
        raise exception.InvalidInput(reason=f"{text} has no room for a gateway and a server")
    return addresses


def _address(
    what: str, text: str | None, addresses: ipaddress.IPv4Network, default: ipaddress.IPv4Address
) -> ipaddress.IPv4Address:
    if text is None:
        return default
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError as error:
        raise exception.InvalidInput(reason=f"{what} {text!r} is not an IPv4 address") from error
    if address not in addresses or address in (addresses.network_address, addresses.broadcast_address):
        raise exception.InvalidInput(reason=f"{what} {address} is not an address for hosts of {addresses}")
    return address


def _name_server(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError as error:
        raise exception.InvalidInput(reason=f"name server {text!r} is not an IPv4 address") from error

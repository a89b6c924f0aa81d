"""Addresses of ports, as ``fixed_ips`` requests them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, TypeAlias

from nova_lite.api.network import fields
from nova_lite.base import exceptions
from nova_lite.objects.instance import version_of

#: A port without an address.
NO_ADDRESS = "none"

#: IP version, and id of the network or segment, of subnets by their ids.
Subnets: TypeAlias = Mapping[str, tuple[int, str]]


class FixedIp(NamedTuple):
    """Item of ``fixed_ips``. ``address`` "": any one."""

    subnet_id: str | None
    address: str


class FixedAddresses(NamedTuple):
    """The IPv4 and the IPv6 address that a request wants: an address, "" for any one, or `NO_ADDRESS` for none.

    ``link_id``: the network or segment of the named subnets, None if the request names none.
    """

    address: str
    address6: str
    link_id: str | None


def fixed_ips(value: Any, name: str) -> list[FixedIp]:
    """Return the items of a list of addresses. Raises a 400."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise fields.invalid(name, "It must be a list of objects.")
    if any(item.keys() - {"subnet_id", "ip_address"} for item in value):
        raise fields.invalid(name, "Allowed are subnet_id and ip_address.")
    given = [(item.get("subnet_id"), item.get("ip_address")) for item in value]
    return [
        FixedIp(
            None if subnet_id is None else fields.an_id(subnet_id, "subnet_id"),
            "" if address is None else fields.address(address, name),
        )
        for subnet_id, address in given
    ]


FixedIps: TypeAlias = Annotated[list[FixedIp] | None, fields.checked(fixed_ips)]


def fixed_addresses(items: list[FixedIp], known: Subnets, others: Callable[[], Subnets]) -> FixedAddresses:
    """Return what ``fixed_ips`` requests. Raises a 400.

    ``known``: subnets of the port. ``others``: returns its network's subnets. An item without a subnet is about one of
    the address's version, or about IPv4.
    """
    found: dict[int, str] = {}
    links: set[str] = set()
    if any(item.subnet_id is not None and item.subnet_id not in known for item in items):
        known = {**known, **others()}
    for subnet_id, wanted in items:
        if subnet_id is None:
            version = version_of(wanted)
        elif subnet_id in known:
            version, link_id = known[subnet_id]
            links.add(link_id)
        else:
            raise exceptions.SubnetNotFound(subnet_id=subnet_id)
        if wanted and version != version_of(wanted):
            raise fields.invalid("fixed_ips", f"IP address {wanted} is not a valid IP for the specified subnet.")
        if version in found:
            raise fields.invalid(
                "fixed_ips",
                f"A port has one IPv{version} address. Give the server a port for each further address, or the port an "
                "address pair.",
            )
        found[version] = wanted
    if len(links) > 1:
        raise fields.invalid(
            "fixed_ips",
            "These two subnets have links of their own, and a port is on one. Give the server a port on each.",
        )
    return FixedAddresses(found.get(4, NO_ADDRESS), found.get(6, NO_ADDRESS), next(iter(links), None))

"""Addresses of ports, as ``fixed_ips`` requests them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, NamedTuple, TypeAlias

from nova_lite.api.network import fields
from nova_lite.base import exceptions
from nova_lite.objects.instance import version_of
from nova_lite.objects.network import ANY_ADDRESS, MAX_ADDRESSES

#: A port without an address.
NO_ADDRESS = "none"

#: IP version, and id of the network or segment, of subnets by their ids.
Subnets: TypeAlias = Mapping[str, tuple[int, str]]


class FixedIp(NamedTuple):
    """Item of ``fixed_ips``. ``address`` "": any one."""

    subnet_id: str | None
    address: str


class FixedAddresses(NamedTuple):
    """Addresses that a request wants. The first of each IP version: an address, "" for any one, or `NO_ADDRESS`.

    ``link_id``: the network or segment of the named subnets, None if the request names none. ``further``: the others,
    as in `nova_lite.objects.Port`.
    """

    address: str
    address6: str
    link_id: str | None
    further: list[str]


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


def fixed_addresses(
    items: list[FixedIp], known: Subnets, others: Callable[[], Subnets], present: Iterable[tuple[int, str]] = ()
) -> FixedAddresses:
    """Return what ``fixed_ips`` requests. Raises a 400.

    ``known``: subnets of the port. ``others``: returns its network's subnets. An item without a subnet is about one of
    the address's version, or about IPv4. ``present``: addresses of the port with their versions, the first ones first.
    """
    if len(items) > MAX_ADDRESSES:
        raise fields.invalid("fixed_ips", f"A port has at most {MAX_ADDRESSES} fixed addresses.")
    wanted: dict[int, list[str]] = {4: [], 6: []}
    links, own = set[str](), {link_id for _, link_id in known.values()}
    if any(item.subnet_id is not None and item.subnet_id not in known for item in items):
        known = {**known, **others()}
    for subnet_id, address in items:
        if subnet_id is None:
            version = version_of(address)
        elif subnet_id in known:
            version, link_id = known[subnet_id]
            links.add(link_id)
        else:
            raise exceptions.SubnetNotFound(subnet_id=subnet_id)
        if address and version != version_of(address):
            raise fields.invalid("fixed_ips", f"IP address {address} is not a valid IP for the specified subnet.")
        if address and address in wanted[version]:
            raise fields.invalid("fixed_ips", f"IP address {address} is in the list twice.")
        wanted[version].append(address)
    if len(links) > 1:
        raise fields.invalid(
            "fixed_ips",
            "These subnets have links of their own, and a port is on one. Give the server a port on each.",
        )
    kept = [] if links - own else list(present)
    firsts, further = [], []
    for version, texts in wanted.items():
        first, *rest = _chosen(texts, [text for item, text in kept if item == version]) or [NO_ADDRESS]
        firsts.append(first)
        further += [text or ANY_ADDRESS[version] for text in rest]
    return FixedAddresses(firsts[0], firsts[1], next(iter(links), None), further)


def _chosen(wanted: list[str], present: list[str]) -> list[str]:
    """Return the wanted addresses of one IP version. Those for which any will do are present ones as far as possible.

    A present first address that stays is the first one.
    """
    spare = [text for text in present if text not in wanted]
    found = [text or (spare.pop(0) if spare else "") for text in wanted]
    if present and present[0] in found:
        found.remove(present[0])
        found.insert(0, present[0])
    return found

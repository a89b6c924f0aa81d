"""What clients may say about networks and what belongs to them, checked."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Any

from nova_lite.api.http import validation
from nova_lite.api.http.rest import ServiceRequest
from nova_lite.base import exceptions
from nova_lite.objects import ipv6

_MAC_ADDRESS = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")

#: What every body may have, and what is the same whatever it says: the only value that each may have.
_FIXED: dict[str, tuple[Any, ...]] = {
    "admin_state_up": (True,),
    "port_security_enabled": (True,),
    "allowed_address_pairs": ([],),
    "tags": ([],),
    "availability_zone_hints": ([],),
    "extra_dhcp_opts": ([],),
    "binding:profile": ({},),
    "binding:vnic_type": ("normal",),
    "dns_name": ("",),
    "dns_domain": ("",),
    "qos_policy_id": (),
    "router:external": (False,),
    "is_default": (False,),
    "vlan_transparent": (False,),
    "ha": (False,),
    "enable_dhcp": (True,),
    "ip_version": (4,),
    "host_routes": ([],),
    "service_types": ([],),
    "subnetpool_id": (),
    "segment_id": (),
    "ipv6_ra_mode": (),
    "ipv6_address_mode": (),
    "use_default_subnetpool": (False,),
    "stateful": (True,),
    "shared_group": (False,),
    "remote_address_group_id": (),
    "propagate_uplink_status": (False,),
    "numa_affinity_policy": (),
    "subnet_id": (),
}

#: Why another value is refused, where that is not plain.
_WHY = {
    "admin_state_up": "What is there is up here",
    "port_security_enabled": "Ports are always filtered here, by their security groups and by their addresses",
    "allowed_address_pairs": "A port speaks for its own address alone here",
    "router:external": "Networks that floating addresses come from are made by the operator (nova-lite-manage "
    "floating-pool create)",
    "enable_dhcp": "Addresses are always told by DHCP here",
    "ip_version": "A network is given IPv6 when it is made, by the operator (nova-lite-manage network create --cidr6)",
    "subnetpool_id": "There are no subnet pools here: a subnet says its cidr",
    "stateful": "Security groups follow connections here",
    "subnet_id": "A floating address is of a network here, whichever is free or the one that is said",
}


def body(req: ServiceRequest, key: str, known: Collection[str], fixed: Collection[str]) -> dict[str, Any]:
    """The object under the one key of the body: only ``known`` attributes, and those of ``fixed`` with the value that
    they have here. Raises a 400."""
    wanted = req.json_object().get(key)
    if not isinstance(wanted, dict):
        raise exceptions.ValidationError(detail=f"Unable to find '{key}' in request body")
    for name, value in wanted.items():
        if name in fixed:
            if value is not None and not any(value == each and type(value) is type(each) for each in _FIXED[name]):
                reason = _WHY.get(name, "This cloud's networks do not have that")
                raise exceptions.ValidationError(detail=f"Invalid input for {name}. {reason}.")
        elif name not in known:
            raise exceptions.ValidationError(detail=f"Unrecognized attribute(s) '{name[:64]}'")
    return wanted


def text(wanted: dict[str, Any], name: str) -> str | None:
    """None: not said."""
    value = wanted.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > 255 or not value.isprintable():
        raise exceptions.ValidationError(
            detail=f"Invalid input for {name}. It has to be a text of at most 255 printable characters."
        )
    return value


def texts(wanted: dict[str, Any], *names: str) -> dict[str, str]:
    """Those that are said; null is empty."""
    return {name: text(wanted, name) or "" for name in names if name in wanted}


def an_id(wanted: dict[str, Any], name: str) -> str | None:
    value = wanted.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not validation.is_uuid(value):
        raise exceptions.ValidationError(detail=f"Invalid input for {name}. '{str(value)[:64]}' is not a valid UUID.")
    return value


def needed_id(wanted: dict[str, Any], name: str) -> str:
    found = an_id(wanted, name)
    if found is None:
        raise exceptions.ValidationError(detail=f"Failed to parse request. Required attribute '{name}' not specified")
    return found


def ids(wanted: dict[str, Any], name: str) -> list[str] | None:
    """None: not said."""
    value = wanted.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, str) and validation.is_uuid(each) for each in value):
        raise exceptions.ValidationError(detail=f"Invalid input for {name}. It has to be a list of UUIDs.")
    return list(dict.fromkeys(value))


def address(value: Any, name: str) -> str:
    try:
        return str(ipaddress.ip_address(value if isinstance(value, str) else ""))
    except ValueError as error:
        raise exceptions.ValidationError(
            detail=f"Invalid input for {name}. '{str(value)[:64]}' is not a valid IP address."
        ) from error


def mac_address(wanted: dict[str, Any]) -> str:
    """ "": not said."""
    value = wanted.get("mac_address")
    if value is None:
        return ""
    if not isinstance(value, str) or not _MAC_ADDRESS.fullmatch(value) or int(value[:2], 16) & 1:
        raise exceptions.ValidationError(
            detail="Invalid input for mac_address. It has to be six pairs of hexadecimal digits, of one interface."
        )
    return value.lower()


def number(wanted: dict[str, Any], name: str, lowest: int, highest: int) -> int | None:
    """None: not said."""
    value = wanted.get(name)
    if isinstance(value, str) and value.lstrip("-").isdecimal() and value.isascii() and len(value) < 10:
        value = int(value)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise exceptions.ValidationError(
            detail=f"Invalid input for {name}. It has to be a number from {lowest} to {highest}."
        )
    return value


def flag(wanted: dict[str, Any], name: str) -> bool:
    value = wanted.get(name) or False
    if not isinstance(value, bool):
        raise exceptions.ValidationError(detail=f"Invalid input for {name}. It has to be true or false.")
    return value


def project(req: ServiceRequest, wanted: dict[str, Any]) -> str:
    """Whose it is to be: the asker's, or what an admin says. Raises a 403."""
    said = text(wanted, "project_id") or text(wanted, "tenant_id")
    own = req.context.project_id or ""
    if said and said != own and not req.context.is_admin:
        raise exceptions.Forbidden("Things are made for one's own project; an admin may name another.")
    return said or own


def fixed_address(wanted: dict[str, Any], network_id: str | None) -> str | None:
    """The IPv4 address that ``fixed_ips`` asks for: "" for any one; None: not said. ``network_id``: of the port, with
    which its subnet has the id in common. One in its subnet of IPv6 comes besides, and follows from the MAC address."""
    said = wanted.get("fixed_ips")
    if said is None:
        return None
    if not isinstance(said, list) or not all(isinstance(each, dict) for each in said):
        raise exceptions.ValidationError(detail="Invalid input for fixed_ips. It has to be a list of objects.")
    if network_id is not None and {"subnet_id": ipv6.subnet_id(network_id)} in said:
        said = [each for each in said if each != {"subnet_id": ipv6.subnet_id(network_id)}] or [{}]
    if len(said) != 1:
        raise exceptions.ValidationError(detail="Invalid input for fixed_ips. A port has one IPv4 address here.")
    subnet_id = an_id(said[0], "subnet_id")
    if subnet_id is not None and network_id is not None and subnet_id != network_id:
        raise exceptions.SubnetNotFound(subnet_id=subnet_id)
    if said[0].keys() - {"subnet_id", "ip_address"}:
        raise exceptions.ValidationError(detail="Invalid input for fixed_ips. It says subnet_id and ip_address.")
    return address(said[0]["ip_address"], "fixed_ips") if said[0].get("ip_address") else ""

"""Attributes of bodies: the types of their fields, each with the check of its value.

A check takes the value and the name of an attribute. It returns the value to use, and raises a 400.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import msgspec

from nova_lite.api.http import bodies, validation
from nova_lite.api.http.bodies import Body
from nova_lite.base import exceptions, ip
from nova_lite.objects import dhcp_options as options_of_dhcp
from nova_lite.objects.pci import NORMAL, PORT_DEVICES

#: Number of tags that a resource may have, and characters of a tag.
MAX_TAGS = 50
_MAX_TAG = 255
#: Number of prefixes of a subnet pool, and of an address group: each of these is a rule of the hosts.
MAX_PREFIXES = 1000
#: Number of DHCP options in a request: a port has half of them, and a request may replace each.
MAX_DHCP_OPTIONS = 2 * options_of_dhcp.MAX_OPTIONS

_MAC_ADDRESS = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_NO_MAC_ADDRESS = "00:00:00:00:00:00"
#: Beginnings of the MAC addresses of hosts: bridges of networks that span hosts (`names.bridge_mac`), other bridges of
#: libvirt, and the host's ends of guests' interfaces.
_OF_HOSTS = ("fa:16:3f:", "52:54:00:", "fe:")

_range = functools.partial(ip.parse_network, strict=False)


def invalid(name: str, why: str) -> exceptions.ValidationError:
    return exceptions.ValidationError(detail=f"Invalid input for {name}. {why}")


def missing(name: str) -> exceptions.ValidationError:
    return exceptions.ValidationError(detail=f"Failed to parse request. Required attribute '{name}' not specified")


def unknown(name: str) -> exceptions.ValidationError:
    return exceptions.ValidationError(detail=f"Unrecognized attribute(s) '{name[:64]}'")


def text(value: Any, name: str) -> str:
    if not isinstance(value, str) or len(value) > 255 or not validation.is_shown(value):
        raise invalid(name, "It must be a text of at most 255 printable characters.")
    return value


def an_id(value: Any, name: str) -> str:
    if not isinstance(value, str) or not validation.is_uuid(value):
        raise invalid(name, f"'{str(value)[:64]}' is not a valid UUID.")
    return value


def ids(value: Any, name: str) -> list[str]:
    """Return a list of different ids."""
    if not isinstance(value, list) or not all(isinstance(item, str) and validation.is_uuid(item) for item in value):
        raise invalid(name, "It must be a list of UUIDs.")
    if len(set(value)) < len(value):
        raise invalid(name, "It has duplicate items.")
    return value


def tags(value: Any, name: str, most: int = MAX_TAGS) -> list[str]:
    """Return up to ``most`` tags in order."""
    if not isinstance(value, list):
        raise invalid(name, "It must be a list of texts.")
    wanted = sorted({tag(item) for item in value})
    if len(wanted) > most:
        raise invalid(name, f"A resource has at most {most}.")
    return wanted


def tag(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_TAG or not validation.is_shown(value) or "," in value:
        raise invalid("tags", f"A tag is a text of 1 to {_MAX_TAG} printable characters without commas.")
    return value


def address(value: Any, name: str) -> str:
    return str(_parsed(ip.parse, value, name, "IP address"))


def _parsed(parse: Callable[[str], Any], value: Any, name: str, what: str) -> Any:
    try:
        return parse(value if isinstance(value, str) else "")
    except ValueError as error:
        raise invalid(name, f"'{str(value)[:64]}' is not a valid {what}.") from error


def prefixes(value: Any, name: str, least: int = 0) -> list[str]:
    """Return a list of prefixes without host bits and duplicates."""
    if not isinstance(value, list) or not least <= len(value) <= MAX_PREFIXES:
        raise invalid(name, f"It must be a list of up to {MAX_PREFIXES} prefixes such as 10.1.0.0/16.")
    return list(dict.fromkeys(str(_parsed(_range, item, name, "IP subnet")) for item in value))


def mac_address(value: Any, name: str) -> str:
    """Return a MAC address in lower case."""
    if not isinstance(value, str) or not _MAC_ADDRESS.fullmatch(value) or int(value[:2], 16) & 1:
        raise invalid(name, "It must be six pairs of hexadecimal digits, and not a group address.")
    if value.lower() == _NO_MAC_ADDRESS or value.lower().startswith(_OF_HOSTS):
        raise invalid(name, f"{value} belongs to no interface of a server: use one that begins with fa:16:3e.")
    return value.lower()


def vnic_type(value: Any, name: str) -> str:
    if value not in (NORMAL, *PORT_DEVICES):
        raise invalid(name, f"Servers have ports of the kinds {', '.join((NORMAL, *PORT_DEVICES))}.")
    return str(value)


def number(value: Any, name: str, lowest: int, highest: int) -> int:
    if isinstance(value, str) and value.lstrip("-").isdecimal() and value.isascii() and len(value) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise invalid(name, f"It must be a number from {lowest} to {highest}.")
    return value


def flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise invalid(name, "It must be true or false.")
    return value


def state_up(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise invalid(name, f"'{str(value)[:64]}' is not a boolean: use true or false.")
    return value


def address_pairs(value: Any, name: str) -> list[dict[str, str]]:
    """Return pairs of an address or a range of addresses, and perhaps a MAC address."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise invalid(name, "Reason: Allowed address pairs must be a list.")
    found = []
    for item in value:
        if others := sorted(item.keys() - {"ip_address", "mac_address"}):
            raise invalid(name, f"Unrecognized attribute(s) '{others[0][:64]}'")
        if "ip_address" not in item:
            raise exceptions.ValidationError(detail="AllowedAddressPair must contain ip_address")
        wanted, mac = item["ip_address"], item.get("mac_address")
        has_prefix = isinstance(wanted, str) and "/" in wanted
        pair = {"ip_address": _prefix(wanted, name) if has_prefix else address(wanted, name)}
        found.append(pair if mac is None else pair | {"mac_address": mac_address(mac, "mac_address")})
    return found


def dhcp_options(value: Any, name: str) -> list[dict[str, Any]]:
    """Return DHCP options with ``opt_name``, ``opt_value`` (None: without it) and ``ip_version``."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise invalid(name, "It must be a list of objects with opt_name and opt_value.")
    if len(value) > MAX_DHCP_OPTIONS:
        raise invalid(name, f"At most {MAX_DHCP_OPTIONS} are allowed.")
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for item in value:
        if others := sorted(item.keys() - {"opt_name", "opt_value", "ip_version"}):
            raise invalid(name, f"Unrecognized attribute(s) '{others[0][:64]}'")
        option, wanted = text(item.get("opt_name"), "opt_name"), item.get("opt_value")
        version = number(item.get("ip_version", 4), "ip_version", 4, 6)
        if version == 5:
            raise invalid("ip_version", "It must be 4 or 6.")
        try:
            key = (version, options_of_dhcp.number(option, version))
            if wanted is not None:
                options_of_dhcp.words(option, text(wanted, "opt_value"), version)
        except ValueError as error:
            raise invalid(name, f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
        if key in found:
            raise invalid(name, f"Option {option} is there twice.")
        found[key] = {"opt_name": option, "opt_value": wanted, "ip_version": version}
    return [*found.values()]


def routes(value: Any, name: str) -> list[dict[str, str]]:
    """Return routes with ``destination`` and ``nexthop``."""
    keys = {"destination", "nexthop"}
    if not isinstance(value, list) or not all(isinstance(item, dict) and item.keys() == keys for item in value):
        raise invalid(name, "It must be a list of objects with destination and nexthop.")
    found = [
        {"destination": _prefix(item["destination"], name), "nexthop": address(item["nexthop"], name)} for item in value
    ]
    for item in found:
        if found.count(item) > 1:
            raise invalid(name, f"Reason: Duplicate hostroute '{item}'.")
    return found


def _prefix(value: Any, name: str) -> str:
    """Return a range of addresses without host bits."""
    network = str(_parsed(_range, value, name, "range of addresses"))
    if network != value:
        raise invalid(name, f"'{str(value)[:64]}' isn't a recognized IP subnet cidr, '{network}' is recommended.")
    return network


def checked(
    check: Callable[[Any, str], Any], null: bool = False, required: bool = False, **schema: Any
) -> msgspec.Meta:
    """Return what a type says about the check of an attribute, and more than its Python type about its JSON schema.

    ``null``: the check is called for null, too, and for a required attribute that is missing. ``required``: null is
    refused as if the attribute was missing.
    """

    def check_of(sent: dict[str, Any], name: str) -> Any:
        value = sent.get(name)
        if value is None and required:
            raise missing(name)
        return check(value, name) if null or value is not None else None

    return bodies.checked(check_of, **schema)


def within(lowest: int, highest: int, check: Callable[..., Any] = number, null: bool = False) -> msgspec.Meta:
    """Return the same of a number within limits."""
    found = functools.partial(check, lowest=lowest, highest=highest)
    return checked(found, null, minimum=lowest, maximum=highest)


def only(*allowed: Any, why: str = "This cloud's networks do not support it.") -> msgspec.Meta:
    """Return the same of an attribute that is accepted with its default only, besides null, and then ignored."""

    def check(value: Any, name: str) -> None:
        if not any(value == item and type(value) is type(item) for item in allowed):
            raise invalid(name, why)

    return checked(check, enum=[None, *allowed])


Text: TypeAlias = Annotated[str, checked(text, maxLength=255)]
OptionalText: TypeAlias = Annotated[str | None, checked(text, maxLength=255)]
Id: TypeAlias = Annotated[str | None, checked(an_id, format="uuid")]
RequiredId: TypeAlias = Annotated[str, checked(an_id, required=True, format="uuid")]
Flag: TypeAlias = Annotated[bool, checked(flag)]
OptionalFlag: TypeAlias = Annotated[bool | None, checked(flag)]
StateUp: TypeAlias = Annotated[bool, checked(state_up, null=True)]
Length: TypeAlias = Annotated[int | None, within(0, 128)]
Tags: TypeAlias = Annotated[list[str], checked(tags, maxItems=MAX_TAGS)]
RequiredTags: TypeAlias = Annotated[list[str], checked(tags, null=True, maxItems=MAX_TAGS)]
Routes: TypeAlias = Annotated[list[dict[str, str]], checked(routes)]
_PREFIXES: dict[str, Any] = {"maxItems": MAX_PREFIXES}
Prefixes: TypeAlias = Annotated[list[str], checked(prefixes, **_PREFIXES)]
RequiredPrefixes: TypeAlias = Annotated[
    list[str], checked(functools.partial(prefixes, least=1), null=True, minItems=1, **_PREFIXES)
]
#: Attribute that is accepted in any form, and changes nothing.
Ignored: TypeAlias = Annotated[Any, checked(lambda value, name: None)]
#: Attribute that no request changes: handlers compare it with the present value.
Present: TypeAlias = Annotated[Any, checked(lambda value, name: value)]
OnlyNull: TypeAlias = Annotated[Any, only()]
OnlyFalse: TypeAlias = Annotated[Any, only(False)]
OnlyEmptyText: TypeAlias = Annotated[Any, only("")]
OnlyEmptyList: TypeAlias = Annotated[Any, only([])]


class Named(Body):
    """Attributes of most resources, which can be changed."""

    name: Text = ""
    description: Text = ""


class Owned(Body):
    """Attributes of new resources: only an admin names another project."""

    project_id: Text = ""
    tenant_id: Text = ""


class NamedAndOwned(Owned):
    name: Text = ""
    description: Text = ""

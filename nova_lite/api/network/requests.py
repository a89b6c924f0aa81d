"""Validation of requests about networks, ports, routers, security groups and floating addresses.

The types at the end are those of the fields of bodies. Each names its check.
"""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from nova_lite.api.http import bodies as structs
from nova_lite.api.http import validation
from nova_lite.api.http.bodies import Body, Check
from nova_lite.api.http.rest import ServiceRequest
from nova_lite.base import exceptions, ip
from nova_lite.objects.instance import version_of

_MAC_ADDRESS = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")

_REVISION = re.compile(r"revision_number=([0-9]{1,15})")

#: A port without an address.
NO_ADDRESS = "none"

#: Number of tags that a resource may have, and characters of a tag.
MAX_TAGS = 50
_MAX_TAG = 255

_NO_MAC_ADDRESS = "00:00:00:00:00:00"
#: Beginnings of the MAC addresses of hosts: bridges of networks that span hosts (`names.bridge_mac`), other bridges of
#: libvirt, and the host's ends of guests' interfaces.
_OF_HOSTS = ("fa:16:3f:", "52:54:00:", "fe:")

#: Attributes that this service accepts only with their default, besides null. The values are the allowed ones.
_ONLY_DEFAULT: dict[str, tuple[Any, ...]] = {
    "availability_zone_hints": ([],),
    "extra_dhcp_opts": ([],),
    "binding:profile": ({},),
    "binding:vnic_type": ("normal",),
    "dns_name": ("",),
    "dns_domain": ("",),
    "qos_policy_id": (),
    "is_default": (False,),
    "vlan_transparent": (False,),
    "ha": (False,),
    "distributed": (False,),
    "flavor_id": (),
    "service_type_id": (),
    "service_types": ([],),
    "segment_id": (),
    "stateful": (True,),
    "propagate_uplink_status": (False,),
    "numa_affinity_policy": (),
}

#: Reasons to refuse other values.
_WHY = {
    "ha": "The hosts of the guests route: the loss of one does not stop the others",
    "distributed": "Each host is the router of its own guests, whatever the request says: leave it out",
    "stateful": "Security groups of this cloud are always stateful",
}


#: Number of prefixes of a subnet pool, and of an address group: each of these is a rule of the hosts.
MAX_PREFIXES = 1000

B = TypeVar("B", bound=Body)
T = TypeVar("T", bound=msgspec.Struct)

#: Number of resources that one request may create.
MAX_BULK = 200


def read(req: ServiceRequest, kind: type[B]) -> B:
    """Return the object of a request. Raises a 400."""
    return structs.read(kind, _object(req, kind))


def changes(req: ServiceRequest, kind: type[Body]) -> dict[str, Any]:
    """Return the attributes that a request has, by the names of the struct's fields. Raises a 400."""
    return structs.changes(kind, _object(req, kind))


def _object(req: ServiceRequest, kind: type[Body]) -> dict[str, Any]:
    key, sent = req.service_route.key, req.json_object()
    return sent if key is None else _checked(sent.get(key), key, structs.names(kind), ())


def body(req: ServiceRequest, key: str, known: Collection[str], only_default: Collection[str]) -> dict[str, Any]:
    """Return the object under ``key`` in the body. Raises a 400.

    It may have the attributes ``known`` with any value, and the attributes ``only_default`` with their default.
    """
    return _checked(req.json_object().get(key), key, known, only_default)


def bodies(
    req: ServiceRequest, key: str, known: Collection[str], only_default: Collection[str]
) -> tuple[list[dict[str, Any]], bool]:
    """Return the objects of a request to create resources, and whether it is about several at once. Raises a 400.

    It has one object under ``key``, or a list of objects under the plural. Each object of the list may itself be under
    ``key``.
    """
    sent, plural = req.json_object(), f"{key}s"
    if plural not in sent or key in sent:
        return [body(req, key, known, only_default)], False
    items = sent[plural]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise exceptions.ValidationError(detail=f"Invalid input for {plural}. It must be a list of objects.")
    if not 0 < len(items) <= MAX_BULK:
        raise exceptions.ValidationError(
            detail=f"Invalid input for {plural}. One request creates at least one of them, and at most {MAX_BULK}."
        )
    objects = [item[key] if item.keys() == {key} else item for item in items]
    return [_checked(item, key, known, only_default) for item in objects], True


def _checked(fields: Any, key: str, known: Collection[str], only_default: Collection[str]) -> dict[str, Any]:
    if not isinstance(fields, dict):
        raise exceptions.ValidationError(detail=f"Unable to find '{key}' in request body")
    for name, value in fields.items():
        if name in only_default:
            if value is not None and not _is_default(name, value):
                reason = _WHY.get(name, "This cloud's networks do not support it")
                raise exceptions.ValidationError(detail=f"Invalid input for {name}. {reason}.")
        elif name not in known:
            raise exceptions.ValidationError(detail=f"Unrecognized attribute(s) '{name[:64]}'")
    return fields


def _is_default(name: str, value: Any) -> bool:
    return any(value == default and type(value) is type(default) for default in _ONLY_DEFAULT[name])


def text(fields: dict[str, Any], name: str) -> str | None:
    """Return a text, or None if the request has none."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > 255 or not validation.is_shown(value):
        raise exceptions.ValidationError(
            detail=f"Invalid input for {name}. It must be a text of at most 255 printable characters."
        )
    return value


def texts(fields: dict[str, Any], *names: str) -> dict[str, str]:
    """Return the named fields that are in the request. Null becomes an empty text."""
    return {name: text(fields, name) or "" for name in names if name in fields}


def an_id(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not validation.is_uuid(value):
        raise exceptions.ValidationError(detail=f"Invalid input for {name}. '{str(value)[:64]}' is not a valid UUID.")
    return value


def required_id(fields: dict[str, Any], name: str) -> str:
    value = an_id(fields, name)
    if value is None:
        raise exceptions.ValidationError(detail=f"Failed to parse request. Required attribute '{name}' not specified")
    return value


def ids(fields: dict[str, Any], name: str) -> list[str] | None:
    """Return a list of different ids, or None if the request has none. Raises a 400."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) and validation.is_uuid(item) for item in value):
        raise exceptions.ValidationError(detail=f"Invalid input for {name}. It must be a list of UUIDs.")
    if len(set(value)) < len(value):
        raise exceptions.ValidationError(detail=f"Invalid input for {name}. It has duplicate items.")
    return value


def tags(fields: dict[str, Any], name: str = "tags", required: bool = False) -> list[str]:
    """Return the tags of a request, in order. Raises a 400."""
    found = fields.get(name)
    if found is None and not required:
        return []
    if not isinstance(found, list):
        raise exceptions.ValidationError(detail="Invalid input for tags. It must be a list of texts.")
    wanted = sorted({a_tag(tag) for tag in found})
    if len(wanted) > MAX_TAGS:
        raise exceptions.ValidationError(detail=f"Invalid input for tags. A resource has at most {MAX_TAGS}.")
    return wanted


def a_tag(tag: Any) -> str:
    if not isinstance(tag, str) or not 0 < len(tag) <= _MAX_TAG or not validation.is_shown(tag) or "," in tag:
        raise exceptions.ValidationError(
            detail=f"Invalid input for tags. A tag is a text of 1 to {_MAX_TAG} printable characters without commas."
        )
    return tag


def expected_revision(req: ServiceRequest) -> int | None:
    """Return the revision that a change is for by the header ``If-Match``, None for any. Raises a 400."""
    header = req.headers.get("If-Match")
    if header is None:
        return None
    found = _REVISION.fullmatch(header.strip())
    if found is None:
        raise exceptions.ValidationError(
            detail="Invalid header If-Match. It must be revision_number=NUMBER, with the revision_number that was read."
        )
    return int(found[1])


def address(value: Any, name: str) -> str:
    try:
        return str(ip.parse(value if isinstance(value, str) else ""))
    except ValueError as error:
        raise exceptions.ValidationError(
            detail=f"Invalid input for {name}. '{str(value)[:64]}' is not a valid IP address."
        ) from error


def prefixes(fields: dict[str, Any], name: str, required: bool = False) -> list[str]:
    """Return a list of prefixes without host bits and duplicates. Raises a 400."""
    value = fields.get(name)
    if value is None and not required:
        return []
    if not isinstance(value, list) or len(value) > MAX_PREFIXES or (required and not value):
        raise exceptions.ValidationError(
            detail=f"Invalid input for {name}. It must be a list of up to {MAX_PREFIXES} prefixes such as 10.1.0.0/16."
        )
    return list(dict.fromkeys(_ip_subnet(item, name) for item in value))


def _ip_subnet(value: Any, name: str) -> str:
    try:
        return str(ip.parse_network(value if isinstance(value, str) else "", strict=False))
    except ValueError as error:
        raise exceptions.ValidationError(
            detail=f"Invalid input for {name}. '{str(value)[:64]}' is not a valid IP subnet."
        ) from error


def mac_address(fields: dict[str, Any]) -> str:
    """Return a MAC address in lower case, or an empty text if the request has none."""
    value = fields.get("mac_address")
    if value is None:
        return ""
    if not isinstance(value, str) or not _MAC_ADDRESS.fullmatch(value) or int(value[:2], 16) & 1:
        raise exceptions.ValidationError(
            detail="Invalid input for mac_address. It must be six pairs of hexadecimal digits, and not a group address."
        )
    if value.lower() == _NO_MAC_ADDRESS or value.lower().startswith(_OF_HOSTS):
        raise exceptions.ValidationError(
            detail=f"Invalid input for mac_address. {value} belongs to no interface of a server: use one that begins "
            "with fa:16:3e."
        )
    return value.lower()


def number(fields: dict[str, Any], name: str, lowest: int, highest: int) -> int | None:
    """Return a number within the limits, or None if the request has none."""
    value = fields.get(name)
    if isinstance(value, str) and value.lstrip("-").isdecimal() and value.isascii() and len(value) < 10:
        value = int(value)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise exceptions.ValidationError(
            detail=f"Invalid input for {name}. It must be a number from {lowest} to {highest}."
        )
    return value


def flag(fields: dict[str, Any], name: str, default: bool = False) -> bool:
    found = a_flag(fields, name)
    return default if found is None else found


def a_flag(fields: dict[str, Any], name: str) -> bool | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise exceptions.ValidationError(detail=f"Invalid input for {name}. It must be true or false.")
    return value


def state_up(fields: dict[str, Any]) -> bool:
    """Return ``admin_state_up``, which is true unless the request says something else."""
    value = fields.get("admin_state_up", True)
    if not isinstance(value, bool):
        raise exceptions.ValidationError(
            detail=f"Invalid input for admin_state_up. '{str(value)[:64]}' is not a boolean: use true or false."
        )
    return value


def address_pairs(fields: dict[str, Any]) -> list[dict[str, str]] | None:
    """Return the pairs of ``allowed_address_pairs``, or None if the request has none. Raises a 400."""
    value = fields.get("allowed_address_pairs")
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise exceptions.ValidationError(
            detail="Invalid input for allowed_address_pairs. Reason: Allowed address pairs must be a list."
        )
    found = []
    for item in value:
        if unknown := sorted(item.keys() - {"ip_address", "mac_address"}):
            raise exceptions.ValidationError(
                detail=f"Invalid input for allowed_address_pairs. Unrecognized attribute(s) '{unknown[0][:64]}'"
            )
        if "ip_address" not in item:
            raise exceptions.ValidationError(detail="AllowedAddressPair must contain ip_address")
        pair = {"ip_address": _address_or_prefix(item["ip_address"])}
        found.append(pair | ({"mac_address": mac_address(item)} if item.get("mac_address") is not None else {}))
    return found


def _address_or_prefix(value: Any) -> str:
    name = "allowed_address_pairs"
    return _prefix(value, name) if isinstance(value, str) and "/" in value else address(value, name)


def routes(fields: dict[str, Any], name: str) -> list[dict[str, str]] | None:
    """Return routes with ``destination`` and ``nexthop``, or None if the request has none. Raises a 400."""
    value = fields.get(name)
    if value is None:
        return None
    keys = {"destination", "nexthop"}
    if not isinstance(value, list) or not all(isinstance(item, dict) and item.keys() == keys for item in value):
        raise exceptions.ValidationError(
            detail=f"Invalid input for {name}. It must be a list of objects with destination and nexthop."
        )
    found = [
        {"destination": _prefix(item["destination"], name), "nexthop": address(item["nexthop"], name)} for item in value
    ]
    for item in found:
        if found.count(item) > 1:
            raise exceptions.ValidationError(detail=f"Invalid input for {name}. Reason: Duplicate hostroute '{item}'.")
    return found


def _prefix(value: Any, name: str) -> str:
    """Return a range of addresses without host bits. Raises a 400."""
    try:
        network = ip.parse_network(value if isinstance(value, str) else "", strict=False)
    except ValueError as error:
        raise exceptions.ValidationError(
            detail=f"Invalid input for {name}. '{str(value)[:64]}' is not a valid range of addresses."
        ) from error
    if str(network) != value:
        raise exceptions.ValidationError(
            detail=f"Invalid input for {name}. '{str(value)[:64]}' isn't a recognized IP subnet cidr, '{network}' is "
            "recommended."
        )
    return str(network)


def project(req: ServiceRequest, fields: dict[str, Any]) -> str:
    """Return the project of a new resource: the caller's, or another one if an admin names it. Raises a 403."""
    requested = text(fields, "project_id") or text(fields, "tenant_id")
    own = req.context.project_id or ""
    if requested and requested != own and not req.context.is_admin:
        raise exceptions.Forbidden("Only an admin may create resources of another project.")
    return requested or own


class HasProject(Protocol):
    @property
    def project_id(self) -> str: ...
    @property
    def tenant_id(self) -> str: ...


def new(req: ServiceRequest, kind: type[T], body: HasProject, **more: Any) -> T:
    """Return a new object with an id, its project, and the attributes that it has in common with the body."""
    common = {name: getattr(body, name) for name in kind.__struct_fields__ if hasattr(body, name)}
    return kind(**{**common, "id": str(uuid.uuid4()), "project_id": project_of(req, body), **more})


def project_of(req: ServiceRequest, body: HasProject) -> str:
    """Return the project of a new resource: the caller's, or another one if an admin names it. Raises a 403."""
    requested, own = body.project_id or body.tenant_id, req.context.project_id or ""
    if requested and requested != own and not req.context.is_admin:
        raise exceptions.Forbidden("Only an admin may create resources of another project.")
    return requested or own


#: IP version, and id of the network or segment, of subnets by their ids.
Subnets: TypeAlias = Mapping[str, tuple[int, str]]


class FixedAddresses(NamedTuple):
    """The IPv4 and the IPv6 address that a request wants: an address, "" for any one, or `NO_ADDRESS` for none.

    ``link_id``: the network or segment of the named subnets, None if the request names none.
    """

    address: str
    address6: str
    link_id: str | None


def fixed_addresses(fields: dict[str, Any], known: Subnets, others: Callable[[], Subnets]) -> FixedAddresses | None:
    """Return what ``fixed_ips`` requests, or None without ``fixed_ips``.

    ``known``: subnets of the port. ``others``: returns its network's subnets. An item without a subnet is about one of
    the address's version, or about IPv4.
    """
    items = fields.get("fixed_ips")
    if items is None:
        return None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise exceptions.ValidationError(detail="Invalid input for fixed_ips. It must be a list of objects.")
    found: dict[int, str] = {}
    links: set[str] = set()
    if any(isinstance(item.get("subnet_id"), str) and item["subnet_id"] not in known for item in items):
        known = {**known, **others()}
    for item in items:
        if item.keys() - {"subnet_id", "ip_address"}:
            raise exceptions.ValidationError(
                detail="Invalid input for fixed_ips. Allowed are subnet_id and ip_address."
            )
        wanted = address(item["ip_address"], "fixed_ips") if item.get("ip_address") is not None else ""
        subnet_id = an_id(item, "subnet_id")
        if subnet_id is None:
            version = version_of(wanted)
        elif subnet_id in known:
            version, link_id = known[subnet_id]
            links.add(link_id)
        else:
            raise exceptions.SubnetNotFound(subnet_id=subnet_id)
        if wanted and version != version_of(wanted):
            raise exceptions.ValidationError(
                detail=f"Invalid input for fixed_ips. IP address {wanted} is not a valid IP for the specified subnet."
            )
        if version in found:
            raise exceptions.ValidationError(
                detail=f"Invalid input for fixed_ips. A port has one IPv{version} address. Give the server a port for "
                "each further address, or the port an address pair."
            )
        found[version] = wanted
    if len(links) > 1:
        raise exceptions.ValidationError(
            detail="Invalid input for fixed_ips. These two subnets have links of their own, and a port is on one. Give "
            "the server a port on each."
        )
    return FixedAddresses(found.get(4, NO_ADDRESS), found.get(6, NO_ADDRESS), next(iter(links), None))


def checked(check: Check, **schema: Any) -> msgspec.Meta:
    """Return what a field's type says about its check, and more than its type about its JSON schema."""
    return msgspec.Meta(extra={"check": check}, extra_json_schema=schema)


def within(lowest: int, highest: int, check: Callable[..., Any] = number) -> msgspec.Meta:
    """Return the same of a number within limits."""
    found = functools.partial(check, lowest=lowest, highest=highest)
    return checked(found, minimum=lowest, maximum=highest)


Text: TypeAlias = Annotated[str, checked(text, maxLength=255)]
OptionalText: TypeAlias = Annotated[str | None, checked(text, maxLength=255)]
Id: TypeAlias = Annotated[str | None, checked(an_id, format="uuid")]
RequiredId: TypeAlias = Annotated[str, checked(required_id, format="uuid")]
Flag: TypeAlias = Annotated[bool, checked(a_flag)]
Tags: TypeAlias = Annotated[list[str], checked(tags, maxItems=MAX_TAGS)]
#: Attribute that is accepted in any form, and changes nothing.
Ignored: TypeAlias = Annotated[Any, checked(lambda fields, name: None)]
_PREFIXES: dict[str, Any] = {"maxItems": MAX_PREFIXES}
Prefixes: TypeAlias = Annotated[list[str], checked(prefixes, **_PREFIXES)]
RequiredPrefixes: TypeAlias = Annotated[
    list[str], checked(functools.partial(prefixes, required=True), minItems=1, **_PREFIXES)
]


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

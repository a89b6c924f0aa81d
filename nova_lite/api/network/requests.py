"""Validation of requests about networks, ports, routers, security groups and floating addresses.

The types at the end are those of the fields of bodies. Each names its check.
"""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from nova_lite.api.http import bodies, validation
from nova_lite.api.http.bodies import SAME, Body, Check
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

#: Number of prefixes of a subnet pool, and of an address group: each of these is a rule of the hosts.
MAX_PREFIXES = 1000

B = TypeVar("B", bound=Body)
T = TypeVar("T", bound=msgspec.Struct)

#: Number of resources that one request may create.
MAX_BULK = 200


def read(req: ServiceRequest, kind: type[B]) -> B:
    """Return the object of a request. Raises a 400."""
    return bodies.read(kind, _object(req, kind))


def changes(req: ServiceRequest, kind: type[Body]) -> dict[str, Any]:
    """Return the attributes that a request has, by the names of the struct's fields. Raises a 400."""
    return bodies.changes(kind, _object(req, kind))


def bulk(req: ServiceRequest, kind: type[B]) -> tuple[list[B], bool]:
    """Return the objects of a request to create resources, and whether it is about several at once. Raises a 400.

    It has one object under the route's key, or a list of objects under the plural. Each object of the list may itself
    be under the key.
    """
    sent, key = req.json_object(), req.service_route.key or ""
    plural = f"{key}s"
    if plural not in sent or key in sent:
        return [read(req, kind)], False
    items = sent[plural]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise exceptions.ValidationError(detail=f"Invalid input for {plural}. It must be a list of objects.")
    if not 0 < len(items) <= MAX_BULK:
        raise exceptions.ValidationError(
            detail=f"Invalid input for {plural}. One request creates at least one of them, and at most {MAX_BULK}."
        )
    objects = [item[key] if item.keys() == {key} else item for item in items]
    return [bodies.read(kind, _known(item, key, kind)) for item in objects], True


def _object(req: ServiceRequest, kind: type[Body]) -> dict[str, Any]:
    key, sent = req.service_route.key, req.json_object()
    return sent if key is None else _known(sent.get(key), key, kind)


def _known(fields: Any, key: str, kind: type[Body]) -> dict[str, Any]:
    if not isinstance(fields, dict):
        raise exceptions.ValidationError(detail=f"Unable to find '{key}' in request body")
    require_known(fields, kind)
    return fields


def require_known(fields: dict[str, Any], kind: type[Body]) -> None:
    """Check that a body has this kind's attributes only. Raises a 400."""
    known = bodies.names(kind)
    for name in fields:
        if name not in known:
            raise exceptions.ValidationError(detail=f"Unrecognized attribute(s) '{name[:64]}'")


def take_same(changes: dict[str, Any], now: Mapping[str, Any], why: str) -> None:
    """Take attributes that no request changes out of ``changes``. Raises a 400 with ``why`` if one would change."""
    for name in changes.keys() & now.keys():
        if changes.pop(name) != now[name]:
            raise exceptions.ValidationError(detail=why.format(name=name))


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


def mac_address(fields: dict[str, Any], name: str) -> str | None:
    """Return a MAC address in lower case, or None if the request has none."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not _MAC_ADDRESS.fullmatch(value) or int(value[:2], 16) & 1:
        raise exceptions.ValidationError(
            detail=f"Invalid input for {name}. It must be six pairs of hexadecimal digits, and not a group address."
        )
    if value.lower() == _NO_MAC_ADDRESS or value.lower().startswith(_OF_HOSTS):
        raise exceptions.ValidationError(
            detail=f"Invalid input for {name}. {value} belongs to no interface of a server: use one that begins "
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


def flag(fields: dict[str, Any], name: str) -> bool | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise exceptions.ValidationError(detail=f"Invalid input for {name}. It must be true or false.")
    return value


def state_up(fields: dict[str, Any], name: str) -> bool:
    """Return ``admin_state_up``, which cannot be null."""
    value = fields[name]
    if not isinstance(value, bool):
        raise exceptions.ValidationError(
            detail=f"Invalid input for {name}. '{str(value)[:64]}' is not a boolean: use true or false."
        )
    return value


def address_pairs(fields: dict[str, Any], name: str) -> list[dict[str, str]] | None:
    """Return pairs of an address and a MAC address, or None if the request has none. Raises a 400."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise exceptions.ValidationError(
            detail=f"Invalid input for {name}. Reason: Allowed address pairs must be a list."
        )
    found = []
    for item in value:
        if unknown := sorted(item.keys() - {"ip_address", "mac_address"}):
            raise exceptions.ValidationError(
                detail=f"Invalid input for {name}. Unrecognized attribute(s) '{unknown[0][:64]}'"
            )
        if "ip_address" not in item:
            raise exceptions.ValidationError(detail="AllowedAddressPair must contain ip_address")
        wanted, mac = item["ip_address"], mac_address(item, "mac_address")
        has_prefix = isinstance(wanted, str) and "/" in wanted
        pair = {"ip_address": _prefix(wanted, name) if has_prefix else address(wanted, name)}
        found.append(pair if mac is None else pair | {"mac_address": mac})
    return found


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


class HasProject(Protocol):
    @property
    def project_id(self) -> str: ...
    @property
    def tenant_id(self) -> str: ...


def new(req: ServiceRequest, kind: type[T], body: HasProject, **more: Any) -> T:
    """Return a new object with an id, its project, and the attributes that it has in common with the body."""
    return kind(**{**common(kind, body), "id": str(uuid.uuid4()), "project_id": project_of(req, body), **more})


def common(kind: type[msgspec.Struct], body: Any) -> dict[str, Any]:
    """Return the attributes of a body that objects of this kind have as well."""
    found = {name: getattr(body, name, SAME) for name in kind.__struct_fields__}
    return {name: value for name, value in found.items() if value is not SAME}


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


def fixed_ips(fields: dict[str, Any], name: str) -> list[dict[str, str | None]] | None:
    """Return objects with ``subnet_id`` and ``ip_address``, which may be None. Raises a 400."""
    items = fields.get(name)
    if items is None:
        return None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise exceptions.ValidationError(detail=f"Invalid input for {name}. It must be a list of objects.")
    if any(item.keys() - {"subnet_id", "ip_address"} for item in items):
        raise exceptions.ValidationError(detail=f"Invalid input for {name}. Allowed are subnet_id and ip_address.")
    return [
        {
            "subnet_id": an_id(item, "subnet_id"),
            "ip_address": None if item.get("ip_address") is None else address(item["ip_address"], name),
        }
        for item in items
    ]


def fixed_addresses(
    items: list[dict[str, str | None]], known: Subnets, others: Callable[[], Subnets]
) -> FixedAddresses:
    """Return what ``fixed_ips`` requests. Raises a 400.

    ``known``: subnets of the port. ``others``: returns its network's subnets. An item without a subnet is about one of
    the address's version, or about IPv4.
    """
    found: dict[int, str] = {}
    links: set[str] = set()
    if any(item["subnet_id"] and item["subnet_id"] not in known for item in items):
        known = {**known, **others()}
    for item in items:
        wanted, subnet_id = item["ip_address"] or "", item["subnet_id"]
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


def only(*allowed: Any, why: str = "This cloud's networks do not support it") -> msgspec.Meta:
    """Return the same of an attribute that is accepted with its default only, besides null."""

    def check(fields: dict[str, Any], name: str) -> None:
        value = fields[name]
        if value is not None and not any(value == item and type(value) is type(item) for item in allowed):
            raise exceptions.ValidationError(detail=f"Invalid input for {name}. {why}.")

    return checked(check, enum=[None, *allowed])


def within(lowest: int, highest: int, check: Callable[..., Any] = number) -> msgspec.Meta:
    """Return the same of a number within limits."""
    found = functools.partial(check, lowest=lowest, highest=highest)
    return checked(found, minimum=lowest, maximum=highest)


Text: TypeAlias = Annotated[str, checked(text, maxLength=255)]
OptionalText: TypeAlias = Annotated[str | None, checked(text, maxLength=255)]
Id: TypeAlias = Annotated[str | None, checked(an_id, format="uuid")]
RequiredId: TypeAlias = Annotated[str, checked(required_id, format="uuid")]
Flag: TypeAlias = Annotated[bool, checked(flag)]
OptionalFlag: TypeAlias = Annotated[bool | None, checked(flag)]
Tags: TypeAlias = Annotated[list[str], checked(tags, maxItems=MAX_TAGS)]
RequiredTags: TypeAlias = Annotated[list[str], checked(functools.partial(tags, required=True), maxItems=MAX_TAGS)]
StateUp: TypeAlias = Annotated[bool, checked(state_up)]
Routes: TypeAlias = Annotated[list[dict[str, str]], checked(routes)]
#: Attribute that is accepted in any form, and changes nothing.
Ignored: TypeAlias = Annotated[Any, checked(lambda fields, name: None)]
#: Attribute that no request changes: handlers compare it with the present value.
Present: TypeAlias = Annotated[Any, checked(lambda fields, name: fields[name])]
OnlyNull: TypeAlias = Annotated[Any, only()]
OnlyFalse: TypeAlias = Annotated[Any, only(False)]
OnlyEmptyText: TypeAlias = Annotated[Any, only("")]
OnlyEmptyList: TypeAlias = Annotated[Any, only([])]
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

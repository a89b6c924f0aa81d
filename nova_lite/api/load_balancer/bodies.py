"""Bodies of requests of the load balancer API, with the checks of their attributes.

What goes into the configuration of HAProxy has a check here, and another one where it is written
(`nova_lite.load_balancer.haproxy`).
"""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from nova_lite.api.http import bodies
from nova_lite.api.http.bodies import SAME, Body
from nova_lite.api.key_manager import resource
from nova_lite.api.network import fields, requests
from nova_lite.base import exceptions, ip
from nova_lite.load_balancer import haproxy
from nova_lite.load_balancer.objects import PROVIDERS, HealthMonitor, Listener, LoadBalancer, Member, Pool

T = TypeVar("T", Listener, Pool, Member, HealthMonitor)

#: Number of items of lists in a body.
MAX_CIDRS, MAX_PARTS, MAX_TAGS, MAX_CERTIFICATES = 100, 200, 200, 20

_NO_TLS = "Load balancers of this cloud speak no TLS to members: use HTTPS, which passes TLS through."
_NO_UDP = "Load balancers of this cloud pass TCP only."
_PROTOCOLS = {"UDP": _NO_UDP, "SCTP": _NO_UDP, "PROMETHEUS": _NO_UDP}
_MONITORS = {
    "PING": "The processes of load balancers have no right to ping: use TCP.",
    "UDP-CONNECT": _NO_UDP,
    "SCTP": _NO_UDP,
}
_CODES = re.compile(r"[1-5][0-9]{2}(-[1-5][0-9]{2}|(,[1-5][0-9]{2}){0,20})")


def choice(*allowed: str, refused: Mapping[str, str] = MappingProxyType({}), required: bool = False) -> msgspec.Meta:
    """Return the check of an attribute with a few values. ``refused``: sentences about Octavia's other ones."""

    def check(value: Any, name: str) -> str:
        if reason := refused.get(str(value)):
            raise exceptions.ProviderUnsupportedOption(option=f"{name} {value}", reason=reason)
        if value not in allowed:
            raise fields.invalid(name, f"It must be one of {', '.join(allowed)}.")
        return str(value)

    return fields.checked(check, required=required, enum=[*allowed])


def _matching(pattern: re.Pattern[str], words: str) -> msgspec.Meta:
    def check(value: Any, name: str) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise fields.invalid(name, f"It must be {words}.")
        return value

    return fields.checked(check, pattern=f"^{pattern.pattern}$")


def _address(value: Any, name: str) -> str:
    """Return an IPv4 address that a guest could have."""
    text = fields.address(value, name)
    address = ip.parse(text)
    is_special = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
    if address.version == 6 or is_special:
        raise fields.invalid(
            name, f"{text} is not the IPv4 address of a machine. Load balancers of this cloud use IPv4."
        )
    return text


def _cidrs(value: Any, name: str) -> list[str]:
    found = fields.prefixes(value, name)
    if len(found) > MAX_CIDRS or any(ip.parse_network(item).version == 6 for item in found):
        raise fields.invalid(name, f"It must be a list of up to {MAX_CIDRS} IPv4 prefixes.")
    return found


def _headers(value: Any, name: str) -> dict[str, str]:
    is_known = isinstance(value, dict) and all(
        key in haproxy.HEADERS and str(flag).lower() in ("true", "false") for key, flag in value.items()
    )
    if not is_known:
        raise fields.invalid(name, f"It is an object of true or false, for some of {', '.join(haproxy.HEADERS)}.")
    return {key: str(flag).lower() for key, flag in value.items()}


def _persistence(value: Any, name: str) -> dict[str, str | None]:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in haproxy.PERSISTENCE:
        raise fields.invalid(name, f"Its type must be one of {', '.join(haproxy.PERSISTENCE)}.")
    cookie = value.get("cookie_name")
    if unknown := sorted(value.keys() - {"type", "cookie_name", "persistence_timeout", "persistence_granularity"}):
        raise fields.unknown(f"{name}.{unknown[0]}")
    if value.get("persistence_timeout") or value.get("persistence_granularity"):
        raise fields.invalid(name, "persistence_timeout and persistence_granularity are for UDP.")
    if (kind == "APP_COOKIE") != bool(cookie) or (cookie and not haproxy.COOKIE.fullmatch(str(cookie))):
        raise fields.invalid(name, "APP_COOKIE, and it alone, has a cookie_name of letters, digits, _, . and -.")
    return {"type": kind, "cookie_name": cookie or None}


def _http_version(value: Any, name: str) -> float:
    if str(value) not in ("1.0", "1.1", "1"):
        raise fields.invalid(name, "It must be 1.0 or 1.1.")
    return float(value)


def _reference(value: Any, name: str) -> str | None:
    """Return the reference of a secret or a container; None for an empty one."""
    if value == "":
        return None
    try:
        resource.parsed(value)
    except ValueError as error:
        raise fields.invalid(name, str(error)) from error
    return str(value)


def _references(value: Any, name: str) -> list[str]:
    if not isinstance(value, list) or len(value) > MAX_CERTIFICATES:
        raise fields.invalid(name, f"It must be a list of up to {MAX_CERTIFICATES} references.")
    return [found for item in value if (found := _reference(item, name)) is not None]


def objects(value: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or len(value) > MAX_PARTS or not all(isinstance(item, dict) for item in value):
        raise fields.invalid(name, f"It must be a list of up to {MAX_PARTS} objects.")
    return value


Address: TypeAlias = Annotated[str, fields.checked(_address)]
RequiredAddress: TypeAlias = Annotated[str, fields.checked(_address, required=True)]
OptionalAddress: TypeAlias = Annotated[str | None, fields.checked(_address)]
OptionalPort: TypeAlias = Annotated[int | None, fields.within(1, 65535)]
Timeout: TypeAlias = Annotated[int, fields.within(0, 31536000000)]
Limit: TypeAlias = Annotated[int, fields.within(-1, 2**31 - 1)]
Seconds: TypeAlias = Annotated[int, fields.within(1, 3600)]
Retries: TypeAlias = Annotated[int, fields.within(1, 10)]
Objects: TypeAlias = Annotated[list[dict[str, Any]], fields.checked(objects, maxItems=MAX_PARTS)]
Tags: TypeAlias = Annotated[list[str], fields.checked(functools.partial(fields.tags, most=MAX_TAGS), maxItems=MAX_TAGS)]
Cidrs: TypeAlias = Annotated[list[str] | None, fields.checked(_cidrs)]
Headers: TypeAlias = Annotated[dict[str, str], fields.checked(_headers)]
Persistence: TypeAlias = Annotated[dict[str, str | None] | None, fields.checked(_persistence)]
Algorithm: TypeAlias = Annotated[str, choice(*haproxy.ALGORITHMS, required=True)]
PortNumber: TypeAlias = Annotated[
    int,
    fields.checked(lambda value, name: fields.number(value, name, 1, 65535), required=True, minimum=1, maximum=65535),
]
RequiredSeconds: TypeAlias = Annotated[
    int,
    fields.checked(lambda value, name: fields.number(value, name, 1, 3600), required=True, minimum=1, maximum=3600),
]
RequiredRetries: TypeAlias = Annotated[
    int, fields.checked(lambda value, name: fields.number(value, name, 1, 10), required=True, minimum=1, maximum=10)
]


class Named(Body):
    """Attributes of all kinds, which can be changed."""

    name: fields.Text = ""
    admin_state_up: fields.StateUp = True
    tags: Tags = msgspec.field(default_factory=list)
    #: A part has the project of its load balancer.
    project_id: fields.Ignored = SAME
    tenant_id: fields.Ignored = SAME


class Described(Named):
    description: fields.Text = ""


class ChangedLoadBalancer(Described):
    vip_qos_policy_id: fields.OnlyNull = SAME


class NewLoadBalancer(Described, kw_only=True):
    project_id: fields.Text = ""
    tenant_id: fields.Text = ""
    vip_address: Address = ""
    vip_port_id: fields.Id = None
    vip_subnet_id: fields.Id = None
    vip_network_id: fields.Id = None
    vip_qos_policy_id: fields.OnlyNull = None
    provider: Annotated[str, choice(*PROVIDERS)] = "haproxy"
    flavor_id: Annotated[Any, fields.only(why="This cloud has no flavors of load balancers.")] = None
    availability_zone: fields.OnlyNull = None
    listeners: Objects = msgspec.field(default_factory=list)
    pools: Objects = msgspec.field(default_factory=list)


class ChangedListener(Described):
    connection_limit: Limit = -1
    default_pool_id: fields.Id = None
    insert_headers: Headers = msgspec.field(default_factory=dict)
    timeout_client_data: Timeout = 50000
    timeout_member_connect: Timeout = 5000
    timeout_member_data: Timeout = 50000
    timeout_tcp_inspect: Timeout = 0
    allowed_cidrs: Cidrs = None
    default_tls_container_ref: Annotated[str | None, fields.checked(_reference)] = None
    sni_container_refs: Annotated[list[str], fields.checked(_references, maxItems=MAX_CERTIFICATES)] = []


class NewListener(ChangedListener, kw_only=True):
    loadbalancer_id: fields.RequiredId
    protocol: Annotated[str, choice("TCP", "HTTP", "HTTPS", haproxy.TLS, refused=_PROTOCOLS, required=True)]
    protocol_port: PortNumber


class ChangedPool(Described):
    lb_algorithm: Annotated[str, choice(*haproxy.ALGORITHMS)] = SAME
    session_persistence: Persistence = None
    tls_enabled: Annotated[Any, fields.only(False, why=_NO_TLS)] = SAME


class NewPool(Described, kw_only=True):
    loadbalancer_id: fields.Id = None
    listener_id: fields.Id = None
    protocol: Annotated[str, choice(*haproxy.POOLS, refused=_PROTOCOLS, required=True)]
    lb_algorithm: Algorithm
    session_persistence: Persistence = None
    tls_enabled: Annotated[Any, fields.only(False, why=_NO_TLS)] = None


class ChangedMember(Named):
    weight: Annotated[int, fields.within(0, 256)] = 1
    backup: fields.Flag = False
    monitor_address: OptionalAddress = None
    monitor_port: OptionalPort = None


class NewMember(ChangedMember, kw_only=True):
    address: RequiredAddress
    protocol_port: PortNumber
    subnet_id: fields.Id = None


class AllMembers(Body):
    members: Objects


class ChangedMonitor(Named):
    delay: Seconds = SAME
    timeout: Seconds = SAME
    max_retries: Retries = SAME
    max_retries_down: Retries = 3
    http_method: Annotated[str | None, choice(*haproxy.METHODS)] = None
    url_path: Annotated[str | None, _matching(haproxy.URL_PATH, "a path that begins with a slash")] = None
    expected_codes: Annotated[str | None, _matching(_CODES, "a status, a list or a range: 200, 200,201 or 200-204")] = (
        None
    )
    http_version: Annotated[float | None, fields.checked(_http_version)] = None
    domain_name: Annotated[str | None, _matching(haproxy.DOMAIN, "a domain name")] = None


class NewMonitor(ChangedMonitor, kw_only=True):
    pool_id: fields.RequiredId
    type: Annotated[str, choice(*haproxy.MONITORS, refused=_MONITORS, required=True)]
    delay: RequiredSeconds
    timeout: RequiredSeconds
    max_retries: RequiredRetries


def add_parts(balancer: LoadBalancer, body: NewLoadBalancer) -> None:
    """Add what the body of a new load balancer has in it: listeners with their pools, and pools, with all their parts.

    A listener names a pool of the load balancer, or has one of its own in ``default_pool``.
    """
    balancer.pools = [_pool(sent, balancer) for sent in body.pools]
    for sent in body.listeners:
        rest = dict(sent)
        default = rest.pop("default_pool", None)
        listener = _part(Listener, NewListener, rest | {"loadbalancer_id": balancer.id})
        balancer.listeners.append(listener)
        if isinstance(default, dict):
            named = [pool for pool in balancer.pools if pool.name and default == {"name": pool.name}]
            if not named:
                named = [_pool(default, balancer)]
                balancer.pools += named
            listener.default_pool_id = named[0].id


def _pool(sent: dict[str, Any], balancer: LoadBalancer) -> Pool:
    rest = dict(sent)
    members, monitor = objects(rest.pop("members", None) or [], "members"), rest.pop("healthmonitor", None)
    pool = _part(Pool, NewPool, rest | {"loadbalancer_id": balancer.id})
    pool.members = [member(item) for item in members]
    if isinstance(monitor, dict):
        pool.healthmonitor = _part(HealthMonitor, NewMonitor, monitor | {"pool_id": pool.id})
    return pool


def member(sent: dict[str, Any]) -> Member:
    return _part(Member, NewMember, sent)


def _part(kind: type[T], body: type[Body], sent: dict[str, Any]) -> T:
    """Return a new part with an id. Raises a 400."""
    requests.require_known(sent, body)
    return kind(**requests.common(kind, bodies.read(body, sent)) | {"id": str(uuid.uuid4())})

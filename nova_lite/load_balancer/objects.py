"""Load balancers with their parts, and what hosts and the conductor report to each other.

A load balancer is one document: its listeners, pools, members and monitors change together, under one lock.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from nova_lite.objects import VIF

#: The name of this wing in messages and in ``[DEFAULT] wings``.
WING = "load_balancer"
#: The only provider, and names of it that clients of Octavia send.
PROVIDERS = {"haproxy": "HAProxy on compute hosts.", "amphora": "Alias of haproxy.", "octavia": "Alias of haproxy."}
#: Owner of the ports of load balancers, as in Octavia.
DEVICE_OWNER = "Octavia"


class Provisioning(enum.StrEnum):
    """State of the last change."""

    ACTIVE = "ACTIVE"
    PENDING_CREATE = "PENDING_CREATE"
    PENDING_UPDATE = "PENDING_UPDATE"
    PENDING_DELETE = "PENDING_DELETE"
    ERROR = "ERROR"


class Operating(enum.StrEnum):
    """State of the traffic through a part."""

    ONLINE = "ONLINE"
    OFFLINE = "OFFLINE"
    DEGRADED = "DEGRADED"
    ERROR = "ERROR"
    NO_MONITOR = "NO_MONITOR"


class Kind(enum.StrEnum):
    """Kinds of parts, by the keys of their bodies."""

    LOAD_BALANCER = "loadbalancer"
    LISTENER = "listener"
    POOL = "pool"
    MEMBER = "member"
    MONITOR = "healthmonitor"


class Part(msgspec.Struct, kw_only=True):
    """Attributes of all kinds. ``tags``: sorted."""

    id: str
    name: str = ""
    admin_state_up: bool = True
    tags: list[str] = msgspec.field(default_factory=list)
    provisioning_status: Provisioning = Provisioning.PENDING_CREATE
    operating_status: Operating = Operating.OFFLINE
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class Member(Part, kw_only=True):
    """Machine that serves. ``monitor_address``, ``monitor_port``: where its health is checked; None: where it
    serves."""

    address: str
    protocol_port: int
    weight: int = 1
    backup: bool = False
    subnet_id: str | None = None
    monitor_address: str | None = None
    monitor_port: int | None = None


class HealthMonitor(Part, kw_only=True):
    type: str
    delay: int
    timeout: int
    max_retries: int
    max_retries_down: int = 3
    http_method: str | None = None
    url_path: str | None = None
    expected_codes: str | None = None
    http_version: float | None = None
    domain_name: str | None = None


class Pool(Part, kw_only=True):
    """Members, and how connections are spread. ``session_persistence``: ``type`` and ``cookie_name``."""

    description: str = ""
    protocol: str
    lb_algorithm: str
    session_persistence: dict[str, str | None] | None = None
    members: list[Member] = msgspec.field(default_factory=list)
    healthmonitor: HealthMonitor | None = None


class Listener(Part, kw_only=True):
    """Port of a load balancer. Timeouts are in milliseconds. ``connection_limit`` -1: none.

    ``certificates``: digests of what the secrets of ``default_tls_container_ref`` and ``sni_container_refs`` had when
    they were set, in this order.
    """

    description: str = ""
    protocol: str
    protocol_port: int
    connection_limit: int = -1
    default_pool_id: str | None = None
    insert_headers: dict[str, str] = msgspec.field(default_factory=dict)
    timeout_client_data: int = 50000
    timeout_member_connect: int = 5000
    timeout_member_data: int = 50000
    timeout_tcp_inspect: int = 0
    allowed_cidrs: list[str] | None = None
    default_tls_container_ref: str | None = None
    sni_container_refs: list[str] = msgspec.field(default_factory=list)
    certificates: list[str] = msgspec.field(default_factory=list)

    @property
    def secret_refs(self) -> list[str]:
        """References to the secrets with its certificates, the default one first."""
        first = [self.default_tls_container_ref] if self.default_tls_container_ref else []
        return list(dict.fromkeys([*first, *self.sni_container_refs]))


class LoadBalancer(Part, kw_only=True):
    """``version``: number of the last accepted change. ``problem``: why a host could not carry it out."""

    project_id: str
    description: str = ""
    vip_address: str = ""
    vip_port_id: str = ""
    vip_subnet_id: str = ""
    vip_network_id: str = ""
    provider: str = "haproxy"
    flavor_id: str | None = None
    listeners: list[Listener] = msgspec.field(default_factory=list)
    pools: list[Pool] = msgspec.field(default_factory=list)
    version: int = 1
    problem: str = ""
    host: str | None = None
    standby_host: str | None = None

    def pool(self, pool_id: str | None) -> Pool | None:
        return next((pool for pool in self.pools if pool.id == pool_id), None)

    def parts(self) -> Iterator[tuple[Kind, Part, Pool | None]]:
        """Yield everything but the load balancer itself, each with its pool if it is in one."""
        for listener in self.listeners:
            yield Kind.LISTENER, listener, None
        for pool in self.pools:
            yield Kind.POOL, pool, None
            if pool.healthmonitor is not None:
                yield Kind.MONITOR, pool.healthmonitor, pool
            for member in pool.members:
                yield Kind.MEMBER, member, pool


class Secret(msgspec.Struct, kw_only=True):
    """Secret of a project, without its payload. ``content_type`` None: it has no payload yet.

    A container has ``parts`` instead: ids of secrets by their names in it. Its ``type`` is the container's.
    """

    id: str
    project_id: str
    creator_id: str
    name: str = ""
    type: str = "opaque"
    content_type: str | None = None
    algorithm: str | None = None
    bit_length: int | None = None
    mode: str | None = None
    expiration: datetime.datetime | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    parts: dict[str, str] | None = None
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class Counters(msgspec.Struct, kw_only=True):
    """Statistics of a listener."""

    active_connections: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    request_errors: int = 0
    total_connections: int = 0

    def __add__(self, other: Counters) -> Counters:
        return Counters(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


class Report(msgspec.Struct, kw_only=True):
    """State of a load balancer on a host. ``version``: of the document that the host carries out.

    ``holds``: the host may have the address. ``members``: by id, whether it passes its checks. ``counters``: by id
    of the listener.
    """

    id: str
    version: int
    holds: bool = False
    problem: str = ""
    members: dict[str, bool] = msgspec.field(default_factory=dict)
    counters: dict[str, Counters] = msgspec.field(default_factory=dict)


class HostReport(msgspec.Struct, kw_only=True):
    """Report of a host. ``problem``: why the host runs no load balancers; "": it does.

    ``number``: grows with each report of the daemon that was started as ``boot_id``. ``public_key``: certificates are
    sealed to it; "": the host needs none.
    """

    public_key: str = ""
    boot_id: str = ""
    number: int = 0
    problem: str = ""
    balancers: list[Report] = msgspec.field(default_factory=list)


class Assignment(msgspec.Struct, kw_only=True):
    """Load balancer that a host runs. ``active``: it has the address; else it is the stand-by.

    ``certificates``: by listener, sealed to the host: a JSON list of PEM texts. Empty if the host has them already.
    """

    balancer: LoadBalancer
    vif: VIF
    active: bool
    certificates: dict[str, str] = msgspec.field(default_factory=dict)


class Assignments(msgspec.Struct, kw_only=True):
    """All load balancers of a host. ``lease``: seconds, from the host's report on, for which it may have addresses."""

    lease: float
    balancers: list[Assignment] = msgspec.field(default_factory=list)


AnyPart: TypeAlias = LoadBalancer | Listener | Pool | Member | HealthMonitor

STRUCTS: dict[Kind, type[AnyPart]] = {
    Kind.LOAD_BALANCER: LoadBalancer,
    Kind.LISTENER: Listener,
    Kind.POOL: Pool,
    Kind.MEMBER: Member,
    Kind.MONITOR: HealthMonitor,
}

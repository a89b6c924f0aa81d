"""Resources of the network API that only the API knows: hosts see their effects."""

from __future__ import annotations

import datetime
from typing import Any, TypeAlias

import msgspec

#: Target of a policy that is for all projects.
EVERYBODY = "*"
SHARED = "access_as_shared"
#: Action of policies of external networks: routers and floating addresses of the target may use one.
EXTERNAL = "access_as_external"


BANDWIDTH_LIMIT, DSCP_MARKING = "bandwidth_limit", "dscp_marking"
#: Types of the rules of QoS policies, each with its fields beside ``id`` and ``type``.
QOS_RULES = {BANDWIDTH_LIMIT: ("max_kbps", "max_burst_kbps", "direction"), DSCP_MARKING: ("dscp_mark",)}


class SubnetPool(msgspec.Struct, kw_only=True, tag="subnetpools"):
    """Prefixes from which subnets get theirs. ``default_quota``: addresses of a project's subnets; None: unlimited."""

    id: str
    project_id: str
    name: str = ""
    description: str = ""
    prefixes: list[str] = msgspec.field(default_factory=list)
    ip_version: int = 4
    min_prefixlen: int = 8
    max_prefixlen: int = 32
    default_prefixlen: int = 8
    default_quota: int | None = None
    is_default: bool = False
    shared: bool = False
    address_scope_id: str | None = None
    tags: list[str] | None = None
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class AddressScope(msgspec.Struct, kw_only=True, tag="address_scopes"):
    """Set of subnet pools whose prefixes do not overlap."""

    id: str
    project_id: str
    name: str = ""
    ip_version: int = 4
    shared: bool = False
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class AddressGroup(msgspec.Struct, kw_only=True, tag="address_groups"):
    """Prefixes that rules of security groups name together."""

    id: str
    project_id: str
    name: str = ""
    description: str = ""
    addresses: list[str] = msgspec.field(default_factory=list)
    shared: bool = False
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class RbacPolicy(msgspec.Struct, kw_only=True, tag="rbac_policies"):
    """Policy of a resource's owner: the project ``target`` (`EVERYBODY`: all) may use it.

    ``object_type``: ``network``, ``subnetpool``, ``address_scope``, ``address_group``, ``qos_policy`` or
    ``security_group``.
    """

    id: str
    project_id: str
    object_type: str
    object_id: str
    target: str
    action: str = SHARED
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class QosPolicy(msgspec.Struct, kw_only=True, tag="policies"):
    """Limits and marks of the traffic of ports, networks and floating addresses.

    ``rules``: objects with ``id``, ``type`` (of `QOS_RULES`) and the fields of that type. ``is_default``: new networks
    of its project have it.
    """

    id: str
    project_id: str
    name: str = ""
    description: str = ""
    rules: list[dict[str, Any]] = msgspec.field(default_factory=list)
    is_default: bool = False
    shared: bool = False
    tags: list[str] | None = None
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class PortForwarding(msgspec.Struct, kw_only=True, tag="port_forwardings"):
    """Ports of a floating address that lead to ports of one interface. ``project_id``: of the floating address.

    ``address``: of the interface; "" in a request: whatever it has. The external range is as long as the internal one,
    or that is one port.
    """

    id: str
    project_id: str
    floating_ip_id: str
    port_id: str
    protocol: str
    external_first: int
    external_last: int
    internal_first: int
    internal_last: int
    address: str = ""
    description: str = ""
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


NetworkObject: TypeAlias = SubnetPool | AddressScope | AddressGroup | RbacPolicy | QosPolicy | PortForwarding

"""Floating addresses of the built-in network service."""

from __future__ import annotations

import datetime

import msgspec

from nova_lite.objects.network_api_resources import PortForwarding


class FloatingIpPool(msgspec.Struct, kw_only=True):
    """Pool of floating addresses: an external network whose ``cidr`` is routed to this cloud's hosts.

    ``project_id``: admin's project that made it by the network API; None: the operator's. ``cidr`` "": it has no subnet
    yet. ``subnet_id``: of the subnet; None: as ``id``. ``ranges``: objects with ``start`` and ``end``, the addresses to
    allocate; None: all but the ``gateway``.
    """

    id: str
    name: str
    cidr: str
    project_id: str | None = None
    description: str | None = None
    subnet_name: str | None = None
    subnet_id: str | None = None
    gateway: str | None = None
    ranges: list[dict[str, str]] | None = None
    created_at: datetime.datetime | None = None


class FloatingIp(msgspec.Struct, kw_only=True):
    """Floating address of a project. ``port_id``, ``fixed_address`` and ``instance_uuid`` describe the interface that
    it leads to, if any. ``router_id``: router of that interface's network, if any. ``dns_name`` and ``dns_domain``: its
    name in DNS; "": that of its port. An address without a port may have ``port_forwardings``, all on one router.
    """

    id: str
    address: str
    pool: str
    project_id: str
    pool_id: str = ""
    description: str | None = None
    created_at: datetime.datetime | None = None
    port_id: str | None = None
    fixed_address: str | None = None
    instance_uuid: str | None = None
    router_id: str | None = None
    tags: list[str] | None = None
    dns_name: str = ""
    dns_domain: str = ""
    qos_policy_id: str | None = None
    updated_at: datetime.datetime | None = None
    port_forwardings: list[PortForwarding] = msgspec.field(default_factory=list)


class HostForwarding(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Forwarding as a host carries it out: ports of a floating address lead to ``address`` on a network of a router.

    ``is_held``: this host has the floating address. ``peer``: tunnel address of the guest's host, if that is another
    one; on a host that does not hold the address, that of the host which does.
    """

    floating: str
    router_id: str
    network_id: str
    port_id: str
    address: str
    protocol: str
    external: tuple[int, int]
    internal: tuple[int, int]
    is_held: bool = True
    peer: str | None = None

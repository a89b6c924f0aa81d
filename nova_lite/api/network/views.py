"""Responses of the network API in Neutron's form."""

from __future__ import annotations

import datetime
import uuid
from typing import Any, Protocol, TypeVar

from nova_lite.api.network import dns
from nova_lite.base import ip
from nova_lite.base.ids import derived_id
from nova_lite.network import factory
from nova_lite.network.trunks import VLAN, Subport, Trunk
from nova_lite.objects import (
    AddressGroup,
    AddressScope,
    FloatingIp,
    FloatingIpPool,
    NetworkObject,
    NetworkRecord,
    Port,
    PortForwarding,
    ProjectLimits,
    QosPolicy,
    RbacPolicy,
    Router,
    SecurityGroup,
    SecurityGroupRule,
    Service,
    Subnet6,
    SubnetPool,
    ipv6,
)
from nova_lite.objects.network import Revised, revision_number
from nova_lite.objects.network_api_resources import QOS_RULES
from nova_lite.objects.pci import VIF_TYPES
from nova_lite.operations.states import PowerState

View = dict[str, Any]
T = TypeVar("T")

_AGENTS = uuid.UUID("0f2a5e0c-6f0a-4d5a-8b7e-3a6a6c8f3b51")


def network(shown: NetworkRecord, for_admin: bool) -> View:
    view = {
        "id": shown.id,
        "name": shown.name,
        "description": shown.description,
        **_project(shown.project_id),
        "shared": shown.shared or shown.project_id is None,
        "router:external": False,
        "subnets": [view["id"] for view in subnets(shown)],
        "mtu": shown.mtu,
        **_network(),
        "port_security_enabled": shown.port_security_enabled,
        "admin_state_up": shown.admin_state_up,
        "dns_domain": shown.dns_domain,
        "qos_policy_id": shown.qos_policy_id,
        **_standard(shown),
    }
    return view | (_provider(*_kind(shown)) if for_admin else {})


def pool(shown: FloatingIpPool, for_admin: bool) -> View:
    """Return a pool of floating addresses as an external network."""
    view = {
        "id": shown.id,
        "name": "" if shown.name == shown.id else shown.name,
        "description": "Floating addresses" if shown.description is None else shown.description,
        **_project(shown.project_id),
        "shared": False,
        "router:external": True,
        "subnets": [shown.subnet_id or shown.id] if shown.cidr else [],
        "mtu": 1500,
        **_network(),
        **_untagged(shown.created_at),
    }
    return view | (_provider("flat") if for_admin else {})


def _network() -> View:
    return {
        "admin_state_up": True,
        "status": "ACTIVE",
        "port_security_enabled": True,
        "is_default": False,
        "availability_zone_hints": [],
        "availability_zones": [],
        "ipv4_address_scope": None,
        "ipv6_address_scope": None,
        "dns_domain": "",
        "qos_policy_id": None,
        "vlan_transparent": False,
    }


def _kind(shown: NetworkRecord) -> tuple[str, int | None, str | None]:
    """Return Neutron's network type, segment and physical network. A network with a VNI spans hosts."""
    if shown.physical_network is not None:
        return "flat" if shown.vlan is None else "vlan", shown.vlan, shown.physical_network
    return ("local", None, None) if shown.vni is None else ("vxlan", shown.vni, None)


def _provider(kind: str, number: int | None = None, physical_network: str | None = None) -> View:
    return {
        "provider:network_type": kind,
        "provider:physical_network": physical_network,
        "provider:segmentation_id": number,
    }


def subnet(shown: NetworkRecord) -> View:
    """Return the IPv4 subnet of a network or segment."""
    return _subnet(
        ipv6.subnet_id_of(shown),
        shown.subnet_name,
        shown.subnet_description,
        shown.project_id,
        shown.cidr,
        shown.gateway,
    ) | {
        "network_id": shown.public_id,
        "enable_dhcp": shown.enable_dhcp,
        "dns_nameservers": shown.dns,
        "host_routes": shown.host_routes or [],
        "allocation_pools": factory.pools_of(shown),
        "subnetpool_id": shown.subnet_pool_id,
        "service_types": shown.service_types or [],
        **_standard(shown, shown.subnet_tags or []),
    }


def subnets(shown: NetworkRecord) -> list[View]:
    """Return all subnets of a network."""
    own = [*([subnet(shown)] if shown.cidr else []), *([subnet6(shown)] if shown.cidr6 else [])]
    return [*own, *(view for segment in shown.segments for view in subnets(segment))]


def subnet6(shown: NetworkRecord) -> View:
    """Return the IPv6 subnet of a network or segment."""
    prefix = ip.parse_network6(shown.cidr6)
    settings = shown.subnet6 or Subnet6(
        name=f"{shown.name}-ipv6",
        ra_mode=ipv6.SLAAC,
        address_mode=ipv6.SLAAC,
        pools=[{"start": str(prefix[2]), "end": str(prefix[-1])}],
    )
    values = (settings.name, settings.description, shown.project_id, shown.cidr6, ipv6.gateway(shown))
    return _subnet(ipv6.subnet_id_of(shown, version=6), *values) | {
        "network_id": shown.public_id,
        "ip_version": 6,
        "ipv6_ra_mode": settings.ra_mode,
        "ipv6_address_mode": settings.address_mode,
        "enable_dhcp": settings.enable_dhcp,
        "dns_nameservers": settings.dns,
        "host_routes": settings.host_routes or [],
        "allocation_pools": settings.pools,
        "subnetpool_id": shown.subnet6_pool_id,
        "service_types": shown.service_types6 or [],
        **_standard(shown, settings.tags or []),
    }


def subnets_of_pool(shown: FloatingIpPool) -> list[View]:
    return [subnet_of_pool(shown)] if shown.cidr else []


def subnet_of_pool(shown: FloatingIpPool) -> View:
    addresses = ip.parse_network4(shown.cidr)
    name = shown.name if shown.project_id is None else shown.subnet_name or ""
    return _subnet(shown.subnet_id or shown.id, name, "", shown.project_id, shown.cidr, shown.gateway) | {
        "network_id": shown.id,
        "enable_dhcp": False,
        "dns_nameservers": [],
        "allocation_pools": [{"start": str(addresses[0]), "end": str(addresses[-1])}]
        if shown.ranges is None
        else shown.ranges,
        **_untagged(shown.created_at),
    }


def _subnet(
    subnet_id: str, name: str, description: str, project_id: str | None, cidr: str, gateway: str | None
) -> View:
    return {
        "id": subnet_id,
        "name": name,
        "description": description,
        **_project(project_id),
        "ip_version": 4,
        "cidr": cidr,
        "gateway_ip": gateway,
        "host_routes": [],
        "ipv6_ra_mode": None,
        "ipv6_address_mode": None,
        "subnetpool_id": None,
        "segment_id": None,
        "service_types": [],
        "dns_publish_fixed_ip": False,
    }


def port(shown: Port, for_admin: bool, domain: str = "") -> View:
    """Return a port. ``domain``: of names on networks without one."""
    view = {
        "id": shown.id,
        "name": shown.name,
        "description": shown.description,
        "network_id": shown.network_id,
        **_project(shown.project_id),
        "mac_address": shown.mac_address,
        "fixed_ips": _fixed_ips(shown),
        "device_id": shown.instance_uuid or shown.router_id or shown.device_id,
        "device_owner": _device_owner(shown),
        "status": _status(shown),
        "admin_state_up": shown.admin_state_up,
        "security_groups": shown.security_groups,
        "port_security_enabled": shown.port_security_enabled,
        "allowed_address_pairs": shown.address_pairs or [],
        "extra_dhcp_opts": shown.dhcp_options or [],
        "binding:vnic_type": shown.vnic_type,
        "dns_name": dns.name_of(shown),
        "dns_domain": shown.dns_domain,
        "dns_assignment": dns.assignment(shown, domain),
        "qos_policy_id": shown.qos_policy_id,
        "qos_network_policy_id": shown.qos_network_policy_id,
        "propagate_uplink_status": False,
        **_standard(shown),
    }
    if for_admin:
        bound = VIF_TYPES.get(shown.vnic_type, "bridge")
        view |= {
            "binding:host_id": shown.host or "",
            "binding:vif_type": bound if shown.host else "unbound",
            "binding:vif_details": {"port_filter": bound == "bridge"} if shown.host else {},
            "binding:profile": {},
        }
    return view


def trunk(shown: Trunk) -> View:
    return {
        "id": shown.id,
        "name": shown.name,
        "description": shown.description,
        **_project(shown.project_id),
        "port_id": shown.port_id,
        "admin_state_up": shown.admin_state_up,
        "status": shown.status,
        "sub_ports": [_subport(item) for item in shown.sub_ports],
        **_standard(shown),
    }


def _subport(shown: Subport) -> View:
    return {"port_id": shown.port_id, "segmentation_type": VLAN, "segmentation_id": shown.segmentation_id}


def trunk_details(shown: Trunk) -> View:
    """Return what the parent port of a trunk shows of it."""
    subports = [_subport(item) | {"mac_address": item.mac_address} for item in shown.sub_ports]
    return {"trunk_id": shown.id, "sub_ports": subports}


def _fixed_ips(shown: Port) -> list[View]:
    return [
        {"subnet_id": subnet_of_port(shown, version), "ip_address": address}
        for version, address in dns.addresses(shown)
    ]


def subnet_of_port(shown: Port, version: int) -> str:
    """Return the id of a port's subnet of this IP version."""
    if version == 4:
        return shown.subnet_id or shown.link_id
    return shown.subnet6_id or ipv6.subnet_id(shown.link_id)


def _device_owner(shown: Port) -> str:
    if shown.router_id is not None:
        return "network:router_interface"
    return f"compute:{shown.availability_zone or 'nova'}" if shown.instance_uuid else shown.device_owner


def _status(shown: Port) -> str:
    if shown.router_id is not None:
        return "ACTIVE"
    if shown.instance_uuid is None or shown.state == "detaching" or not shown.admin_state_up:
        return "DOWN"
    if shown.state == "attaching":
        return "BUILD"
    return "ACTIVE" if shown.power_state == PowerState.RUNNING else "DOWN"


def security_group(shown: SecurityGroup) -> View:
    return {
        "id": shown.id,
        "name": shown.name,
        "description": shown.description or "",
        **_project(shown.project_id),
        "stateful": shown.stateful,
        "shared": shown.shared,
        "security_group_rules": [rule(one, shown.project_id) for one in shown.rules],
        **_standard(shown),
    }


def rule(shown: SecurityGroupRule, project_id: str) -> View:
    return {
        "id": shown.id,
        "security_group_id": shown.security_group_id,
        **_project(project_id),
        "description": shown.description or "",
        "direction": shown.direction,
        "ethertype": shown.ethertype,
        "protocol": shown.protocol,
        "port_range_min": shown.port_range_min,
        "port_range_max": shown.port_range_max,
        "remote_ip_prefix": shown.remote_ip_prefix,
        "normalized_cidr": _normalized(shown.remote_ip_prefix),
        "remote_group_id": shown.remote_group_id,
        "remote_address_group_id": shown.remote_address_group_id,
        **_untagged(shown.created_at),
        "tags": shown.tags or [],
    }


def _normalized(prefix: str | None) -> str | None:
    """Return the prefix without host bits. None for a prefix that a former version accepted and hosts ignore."""
    try:
        return None if prefix is None else str(ip.parse_network(prefix, strict=False))
    except ValueError:
        return None


def floating_ip(shown: FloatingIp, associated: Port | None) -> View:
    """Return a floating address. ``associated``: its port."""
    details = None
    if associated is not None:
        port_view = port(associated, for_admin=False)
        names = ("name", "network_id", "mac_address", "admin_state_up", "status", "device_id", "device_owner")
        details = {name: port_view[name] for name in names}
    return {
        "id": shown.id,
        "floating_ip_address": shown.address,
        "floating_network_id": shown.pool_id,
        **_project(shown.project_id),
        "fixed_ip_address": shown.fixed_address,
        "port_id": shown.port_id,
        "port_details": details,
        "router_id": shown.router_id,
        "status": "ACTIVE" if shown.port_id is not None or shown.port_forwardings else "DOWN",
        "port_forwardings": [port_forwarding(item) for item in shown.port_forwardings],
        "description": shown.description or "",
        "dns_name": shown.dns_name,
        "dns_domain": shown.dns_domain,
        "qos_policy_id": shown.qos_policy_id,
        **_standard(shown),
    }


def port_forwarding(shown: NetworkObject) -> View:
    found = as_kind(PortForwarding, shown)
    return {
        "id": found.id,
        "internal_port_id": found.port_id,
        "internal_ip_address": found.address,
        "protocol": found.protocol,
        "description": found.description,
        **_ports_of(found, "internal"),
        **_ports_of(found, "external"),
    }


def _ports_of(shown: PortForwarding, side: str) -> View:
    """Return a range of ports, and the port if it is one only."""
    first, last = getattr(shown, f"{side}_first"), getattr(shown, f"{side}_last")
    return {f"{side}_port": first if first == last else None, f"{side}_port_range": f"{first}:{last}"}


def router(shown: Router) -> View:
    """Return a router. Without an address of its own, each host sends with the host's."""
    addresses = [{"subnet_id": item.subnet_id, "ip_address": item.address} for item in shown.addresses]
    gateway: View = {"network_id": shown.pool_id, "enable_snat": shown.enable_snat, "external_fixed_ips": addresses}
    return {
        "id": shown.id,
        "name": shown.name,
        "description": shown.description,
        **_project(shown.project_id),
        "admin_state_up": shown.admin_state_up,
        "status": "ACTIVE",
        "external_gateway_info": None if shown.pool_id is None else gateway,
        "routes": [{"destination": route.destination, "nexthop": route.nexthop} for route in shown.routes],
        "availability_zone_hints": [],
        "availability_zones": [],
        "ha": False,
        "flavor_id": None,
        "service_type_id": None,
        **_standard(shown),
    }


def agent(shown: Service) -> View:
    """Return a compute daemon as an agent, since it connects the guests of its host."""
    return {
        "id": derived_id(_AGENTS, shown.host),
        "agent_type": "Compute host",
        "binary": shown.binary,
        "host": shown.host,
        "topic": "N/A",
        "availability_zone": shown.availability_zone,
        "admin_state_up": not shown.disabled,
        "alive": shown.up,
        "configurations": {},
        "description": None,
        "resources_synced": None,
        "created_at": _agent_time(shown.created_at),
        "started_at": _agent_time(shown.created_at),
        "heartbeat_timestamp": _agent_time(shown.last_seen_up or shown.created_at),
    }


def quota(limits: ProjectLimits) -> View:
    return {name: quota.limit for name, quota in limits.quotas.items()}


def subnet_pool(shown: NetworkObject) -> View:
    pool = as_kind(SubnetPool, shown)
    names = ("default_prefixlen", "min_prefixlen", "max_prefixlen")
    return {
        "id": pool.id,
        "name": pool.name,
        "description": pool.description,
        **_project(pool.project_id),
        "prefixes": pool.prefixes,
        "ip_version": pool.ip_version,
        **{name: str(getattr(pool, name)) for name in names},
        "default_quota": pool.default_quota,
        "is_default": pool.is_default,
        "shared": pool.shared,
        "address_scope_id": pool.address_scope_id,
        **_standard(pool),
    }


def address_scope(shown: NetworkObject) -> View:
    scope = as_kind(AddressScope, shown)
    return {
        "id": scope.id,
        "name": scope.name,
        **_project(scope.project_id),
        "ip_version": scope.ip_version,
        "shared": scope.shared,
    }


def address_group(shown: NetworkObject) -> View:
    group = as_kind(AddressGroup, shown)
    return {
        "id": group.id,
        "name": group.name,
        "description": group.description,
        **_project(group.project_id),
        "addresses": group.addresses,
        "shared": group.shared,
        "revision_number": revision_number(group),
        **_times(group.created_at, group.updated_at),
    }


def rbac_policy(shown: NetworkObject) -> View:
    policy = as_kind(RbacPolicy, shown)
    return {
        "id": policy.id,
        **_project(policy.project_id),
        "object_type": policy.object_type,
        "object_id": policy.object_id,
        "action": policy.action,
        "target_tenant": policy.target,
    }


def qos_policy(shown: NetworkObject) -> View:
    policy = as_kind(QosPolicy, shown)
    return {
        "id": policy.id,
        "name": policy.name,
        "description": policy.description,
        **_project(policy.project_id),
        "shared": policy.shared,
        "is_default": policy.is_default,
        "rules": [rule | {"qos_policy_id": policy.id} for rule in policy.rules],
        **_standard(policy),
    }


def qos_rule(rule: dict[str, Any]) -> View:
    """Return a rule of a QoS policy. Its URL has its type and its policy."""
    return {name: value for name, value in rule.items() if name != "type"}


def as_kind(kind: type[T], shown: NetworkObject) -> T:
    if not isinstance(shown, kind):
        raise TypeError(f"a conductor returned {type(shown).__name__} for a {kind.__name__}")
    return shown


def project_quota(limits: ProjectLimits) -> View:
    """Return the quota of a project in a list."""
    return quota(limits) | _project(limits.project_id)


def ip_availability(shown: NetworkRecord | FloatingIpPool, used: dict[str, int]) -> View:
    """Return the number of addresses of a network that can be allocated, and of those in use, by id of the subnet."""
    shown_subnets = subnets_of_pool(shown) if isinstance(shown, FloatingIpPool) else subnets(shown)
    counted = [
        {
            "subnet_id": view["id"],
            "subnet_name": view["name"],
            "cidr": view["cidr"],
            "ip_version": view["ip_version"],
            "total_ips": sum(_size(allocation) for allocation in view["allocation_pools"]),
            "used_ips": used.get(view["id"], 0),
        }
        for view in shown_subnets
    ]
    return {
        "network_id": shown.id,
        "network_name": shown.name,
        **_project(shown.project_id),
        "total_ips": sum(item["total_ips"] for item in counted),
        "used_ips": sum(item["used_ips"] for item in counted),
        "subnet_ip_availability": counted,
    }


def _size(allocation: dict[str, str]) -> int:
    return int(ip.parse(allocation["end"])) - int(ip.parse(allocation["start"])) + 1


#: The one service provider: the hosts of the guests route.
SERVICE_PROVIDER: View = {"service_type": "L3_ROUTER_NAT", "name": "hosts", "default": True}


def quota_details(limits: ProjectLimits) -> View:
    return {
        name: {"limit": quota.limit, "used": quota.used, "reserved": quota.reserved}
        for name, quota in limits.quotas.items()
    }


def _project(project_id: str | None) -> View:
    return {"project_id": project_id or "", "tenant_id": project_id or ""}


class _Standard(Revised, Protocol):
    """A resource with tags and times."""

    @property
    def tags(self) -> list[str] | None: ...


def _standard(shown: _Standard, tags: list[str] | None = None) -> View:
    """Return the attributes that most resources have. ``tags``: if they are not those of ``shown``."""
    return {
        "tags": (shown.tags if tags is None else tags) or [],
        "revision_number": revision_number(shown),
        **_times(shown.created_at, shown.updated_at),
    }


def _untagged(created_at: datetime.datetime | None) -> View:
    """Return the same attributes of a resource that users cannot change."""
    return {"tags": [], "revision_number": 1, **_times(created_at, None)}


def _times(created_at: datetime.datetime | None, updated_at: datetime.datetime | None) -> View:
    created = _time(created_at)
    return {"created_at": created, "updated_at": _time(updated_at) or created}


def _time(moment: datetime.datetime | None) -> str | None:
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _agent_time(moment: datetime.datetime | None) -> str | None:
    return None if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S")


_FORWARDING = PortForwarding(
    id="",
    project_id="",
    floating_ip_id="",
    port_id="",
    protocol="",
    external_first=0,
    external_last=0,
    internal_first=0,
    internal_last=0,
)
#: Attributes of each kind of resource.
ATTRIBUTES: dict[str, set[str]] = {
    "networks": set(network(NetworkRecord(id="", name="", cidr=""), for_admin=True)),
    "subnets": set(subnet(NetworkRecord(id="", name="", cidr=""))),
    "ports": set(port(Port(id="", network_id=""), for_admin=True)),
    "security_groups": set(security_group(SecurityGroup(id="", name=""))),
    "security_group_rules": set(rule(SecurityGroupRule(id="", security_group_id=""), "")),
    "floatingips": set(floating_ip(FloatingIp(id="", address="", pool="", project_id=""), None)),
    "port_forwardings": set(port_forwarding(_FORWARDING)),
    "agents": set(agent(Service(id=0, uuid="", host="", binary="", topic="", up=True))),
    "availability_zones": {"name", "resource", "state"},
    "extensions": {"alias", "name", "description", "updated", "links"},
    "routers": set(router(Router(id="", project_id=""))),
    "quotas": set(project_quota(ProjectLimits(project_id="", quotas={}))),
    "network_ip_availabilities": {*ip_availability(NetworkRecord(id="", name="", cidr=""), {}), "ip_version"},
    "service_providers": set(SERVICE_PROVIDER),
    "subnetpools": set(subnet_pool(SubnetPool(id="", project_id=""))),
    "address_scopes": set(address_scope(AddressScope(id="", project_id=""))),
    "address_groups": set(address_group(AddressGroup(id="", project_id=""))),
    "policies": set(qos_policy(QosPolicy(id="", project_id=""))),
    **{f"{kind}_rules": {"id", *names} for kind, names in QOS_RULES.items()},
    "trunks": set(trunk(Trunk(id="", project_id="", port_id=""))),
    "rbac_policies": set(rbac_policy(RbacPolicy(id="", project_id="", object_type="", object_id="", target=""))),
}

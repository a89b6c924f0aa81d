"""Networks for the network API: listed, created and changed by users, with subnets.

A row has at most one subnet of each IP version. Further subnets of a network are in rows of its segments, which are
like networks to hosts and routers. Users see them as subnets only.

Two networks may have the same addresses (`nova_lite.db.network.overlaps`). A project's own networks stay within the
ranges that the operator configured for them, if any.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions, ip
from nova_lite.base.context import RequestContext
from nova_lite.db.core import if_match, paging, quotas, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.events import FiltersChanged
from nova_lite.db.core.models import FloatingIp, FloatingIpPool, Instance, Network, Port, RouterInterface6
from nova_lite.db.hosts import compute_nodes
from nova_lite.db.network import builtin_networks, further_addresses, overlaps, qos, rbac, subnet_pools
from nova_lite.network import factory, factory6
from nova_lite.objects import ListQuery, NetworkRecord, Subnet6, ipv6

#: Fields that `update` may change: names, and settings of the subnet.
UPDATABLE = (
    "name",
    "description",
    "subnet_name",
    "subnet_description",
    "admin_state_up",
    "port_security_enabled",
    "shared",
    "mtu",
    "qos_policy_id",
    "dns_domain",
    "service_types",
    "service_types6",
)
SETTINGS = ("gateway", "dns", "pools", "host_routes", "enable_dhcp")
#: Changes of the IPv6 subnet. They are fields of `Subnet6`: settings, and names.
SUBNET6 = "subnet6"
_UPDATABLE6 = {*SETTINGS, "name", "description"}
#: Changes of a network itself, and values that its segments have, too.
_OF_NETWORK = {
    "name", "description", "admin_state_up", "port_security_enabled", "shared", "mtu", "qos_policy_id", "dns_domain",
}  # fmt: skip
_COPIED = (
    "name", "mtu", "project_id", "admin_state_up", "port_security_enabled", "needs_router", "physical_network", "vlan",
    "qos_policy_id", "dns_domain",
)  # fmt: skip

#: Number of routes that DHCP delivers to a guest, as in Neutron.
MAX_HOST_ROUTES = 20

#: Names under which a project's own limits are stored.
RESOURCE = "networks"
SUBNETS = "subnets"

#: Instead of the id of a subnet pool: the default one.
DEFAULT_POOL = "default"

#: Number of retries with another random choice when a concurrent request took the first.
MAX_COLLISIONS = 16

_RANDOM = random.SystemRandom()

_NO_SUBNET6: dict[str, Any] = {"cidr6": "", "subnet6": None, "subnet6_pool_id": None, "service_types6": None}

_NO_SUBNET: dict[str, Any] = {
    "cidr": "",
    "start": "",
    "end": "",
    "gateway": None,
    "dns": [],
    "subnet_name": "",
    "subnet_description": "",
    "is_default": False,
    "enable_dhcp": True,
    "pools": None,
    "host_routes": None,
    "host_address": None,
    "revised": False,
    "service_types": None,
}


#: Condition of rows that are no segments. MariaDB would read all of them by an index of ``parent_id``.
_WHOLE = sa.func.coalesce(Network.parent_id, "") == ""

#: Filters of a list. ``subnet_id`` is another one.
_FILTERS: dict[str, sa.ColumnElement[Any] | Any] = {
    "id": Network.id,
    "name": Network.name,
    "project_id": Network.project_id,
    "cidr": Network.cidr,
}


def list_(uow: UnitOfWork, context: RequestContext, query: ListQuery | None = None) -> list[NetworkRecord]:
    """Return the networks that the context's project may see, for an admin all networks.

    ``query``: a page of them, by id; None: all, by name. Its filters are keys of `_FILTERS`, and ``subnet_id``.
    """
    if query is None:
        whole = sa.select(Network).where(_WHOLE, sa.or_(*_visible(context)))
        whole = whole.order_by(Network.name, Network.id)
        return _shown(uow, context, uow.session.scalars(whole).all())
    filters = dict(query.filters)
    if "subnet_id" in filters:
        filters["id"] = _of_subnets(uow, filters.pop("subnet_id"), filters.get("id"))
    conditions = [_WHOLE, *(_FILTERS[name].in_(values) for name, values in filters.items())]
    page = paging.by_id(sa.select(Network).where(*conditions), Network.id, _cases(context, conditions), query)
    return _shown(uow, context, uow.session.scalars(page).all())


def _shown(uow: UnitOfWork, context: RequestContext, found: Sequence[Network]) -> list[NetworkRecord]:
    """Return networks as the caller's project sees them."""
    shared = rbac.shared_ids(uow, context, "network") if any(row.project_id is not None for row in found) else set()
    segments = segments_of(uow, [row for row in found if row.is_segmented])
    return [
        rows.to_object(
            NetworkRecord,
            row,
            shared=row.id in shared,
            segments=[rows.to_object(NetworkRecord, item) for item in segments.get(row.id, ())],
        )
        for row in found
    ]


def segments_of(uow: UnitOfWork, found: Collection[Network], lock: bool = False) -> dict[str, list[Network]]:
    """Return the segments of these networks, by the network's id, oldest first."""
    if not found:
        return {}
    query = sa.select(Network).where(Network.parent_id.in_([row.id for row in found]))
    query = query.order_by(Network.created_at, Network.id)
    if lock:
        query = query.with_for_update().execution_options(populate_existing=True)
    segments: dict[str, list[Network]] = {}
    for row in uow.session.scalars(query):
        segments.setdefault(row.parent_id or "", []).append(row)
    return segments


def _visible(context: RequestContext) -> list[sa.ColumnElement[bool]]:
    """Build the cases of a network that the caller sees. No network meets two of them."""
    if context.is_admin:
        return [sa.true()]
    project_id = context.project_id or ""
    shared = Network.id.in_(rbac.shared_with("network", [project_id]))
    others = sa.and_(Network.project_id.is_not(None), Network.project_id != project_id, shared)
    return [Network.project_id.is_(None), Network.project_id == project_id, others]


def _cases(context: RequestContext, conditions: list[sa.ColumnElement[bool]]) -> list[sa.ColumnElement[bool]]:
    return [sa.and_(case, *conditions) for case in _visible(context)]


def _of_subnets(uow: UnitOfWork, ids: list[str], network_ids: list[str] | None) -> list[str]:
    """Return the ids of the networks of these subnets."""
    found = {link.parent_id or link.id for link, _ in _links_of(uow, ids)}
    return sorted(found if network_ids is None else found & set(network_ids))


def _links_of(uow: UnitOfWork, ids: Collection[str]) -> list[tuple[sa.Row[str, str | None], int]]:
    """Return the networks and segments that have these subnets, with the subnets' IP versions.

    Rows without an id of the subnet are as in `nova_lite.objects.ipv6.subnet_id_of`.
    """
    query = sa.select(Network.id, Network.parent_id)
    with_ipv4, with_ipv6 = query.where(Network.cidr > ""), query.where(Network.cidr6 > "")
    older6 = uow.session.execute(with_ipv6.where(Network.subnet6_id.is_(None)))
    return [
        *((row, 4) for row in uow.session.execute(with_ipv4.where(Network.subnet_id.in_(ids)))),
        *((row, 4) for row in uow.session.execute(with_ipv4.where(Network.id.in_(ids), Network.subnet_id.is_(None)))),
        *((row, 6) for row in uow.session.execute(with_ipv6.where(Network.subnet6_id.in_(ids)))),
        *((row, 6) for row in older6 if ipv6.subnet_id(row.id) in ids),
    ]


def subnet_of(uow: UnitOfWork, subnet_id: str) -> tuple[str, int]:
    """Return the id of the row, and the IP version, of a subnet. Raises `SubnetNotFound`."""
    for link, version in _links_of(uow, [subnet_id]):
        return link.id, version
    raise exceptions.SubnetNotFound(subnet_id=subnet_id[:64])


def create(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, network: NetworkRecord) -> NetworkRecord:
    """Create a network without a subnet. The caller chooses ``network.id``: a repeated id returns the same network.

    A project's own network has a way out only by a router.
    """
    known = uow.session.get(Network, network.id)
    if known is not None and known.project_id == network.project_id:
        return rows.to_object(NetworkRecord, known)
    if network.project_id is not None:
        check_quota(uow, conf, network.project_id)
    _check_physical(uow, network)
    qos.check(uow, context, network.qos_policy_id)
    if network.qos_policy_id is None and not network.physical_network:
        network.qos_policy_id = qos.default_of(uow, network.project_id or context.project_id)
    for _ in range(MAX_COLLISIONS):
        row = Network(**{**rows.values_of(network, Network), **_NO_SUBNET, **_NO_SUBNET6, "created_at": uow.now})
        row.bridge = _bridge(network.id)
        row.needs_router = network.project_id is not None or network.physical_network is not None
        vni = row.vni = None if network.physical_network else _free_vni(uow, conf)
        if vni is not None:
            row.mtu = min(row.mtu, factory.TUNNEL_MTU)
        try:
            rows.insert(uow, row, exceptions.NetworkExists(name=network.name))
        except exceptions.NetworkExists:
            if vni is None:
                raise
            continue  # another request was faster
        if network.project_id is None and context.project_id:
            rbac.share(uow, "network", row.id, context.project_id)
        return rows.to_object(NetworkRecord, row)
    raise exceptions.NetworkExists(name=network.name)


def _check_physical(uow: UnitOfWork, network: NetworkRecord) -> None:
    """Raise `Conflict` if another network is the same VLAN of the physical network, or all that is untagged there."""
    if network.physical_network:
        _check_qos(network.physical_network, network.qos_policy_id)
        same = (Network.physical_network == network.physical_network, Network.vlan.is_not_distinct_from(network.vlan))
        if other := uow.session.scalars(sa.select(Network.id).where(_WHOLE, *same)).first():
            where = "untagged" if network.vlan is None else f"VLAN {network.vlan}"
            raise exceptions.Conflict(
                f"Network {other} is {where} of physical network {network.physical_network} already."
            )


def _check_qos(physical_network: str | None, qos_policy_id: str | None) -> None:
    """Raise `InvalidInput` for a QoS policy of a network whose ports bypass their hosts."""
    if physical_network and qos_policy_id:
        raise exceptions.InvalidInput(
            reason=f"ports of physical network {physical_network} bypass their hosts, which cannot enforce a QoS policy"
        )


def _free_vni(uow: UnitOfWork, conf: cfg.ConfigOpts) -> int | None:
    """Return a random free VNI for a network; None: networks span no hosts here. Raises `Conflict` if all are taken."""
    ranges = [factory.vni_range(text) for text in conf.network.project_vnis]
    if not ranges:
        return None
    sample = [_RANDOM.choice(_RANDOM.choice(ranges)) for _ in range(MAX_COLLISIONS)]
    taken = set(uow.session.scalars(sa.select(Network.vni).where(Network.vni.in_(sample))))
    if (vni := next((number for number in sample if number not in taken), None)) is not None:
        return vni
    taken = set(uow.session.scalars(sa.select(Network.vni).where(Network.vni.is_not(None))))
    for item in ranges:
        if (free := next((number for number in item if number not in taken), None)) is not None:
            return free
    raise exceptions.Conflict("All VNIs for networks of projects are in use.")


def check_quota(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str) -> None:
    """Raise `QuotaExceeded` at the limit. Other requests of the project wait until the commit."""
    quotas.lock(uow, project_id)
    own = quotas.limits_of(uow, conf, project_id, None).of_project
    has, limit = used(uow, project_id), own.get(RESOURCE, conf.network.networks_per_project)
    if 0 <= limit <= has:
        raise exceptions.QuotaExceeded(overs="network", requested=1, used=has, allowed=limit)


def _check_subnet_quota(
    uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, default: int = quotas.UNLIMITED
) -> None:
    """Raise `QuotaExceeded` if the project has as many subnets as its limit, if any. Subnets come one by one.

    ``default``: limit of a project without a limit of subnets.
    """
    limit = quotas.limits_of(uow, conf, project_id, None).of_project.get(SUBNETS, default)
    has = used(uow, project_id, with_subnet=True)
    if 0 <= limit <= has:
        raise exceptions.QuotaExceeded(overs="subnet", requested=1, used=has, allowed=limit)


def used(uow: UnitOfWork, project_id: str, with_subnet: bool = False) -> int:
    query = sa.select(sa.func.count(Network.id)).where(Network.project_id == project_id)
    if not with_subnet:
        return uow.session.scalar(query.where(Network.parent_id.is_(None))) or 0
    return sum(uow.session.scalar(query.where(column != "")) or 0 for column in (Network.cidr, Network.cidr6))


def update(uow: UnitOfWork, context: RequestContext, network_id: str, changes: dict[str, Any]) -> NetworkRecord:
    """Change some of `UPDATABLE` and `SETTINGS`. Hosts with servers on the network learn of its settings.

    ``network_id``: of a segment, to change its subnets.
    """
    row = locked(uow, context, network_id)
    changes = dict(changes)
    if row.parent_id is not None and changes.keys() & _OF_NETWORK:
        raise exceptions.NetworkNotFound(network_id=network_id)
    of_subnet6 = changes.pop(SUBNET6, None)
    unknown = changes.keys() - {*UPDATABLE, *SETTINGS}
    if unknown:
        raise exceptions.InvalidInput(reason=f"{', '.join(sorted(unknown))} of a network cannot be changed")
    shared = changes.pop("shared", None)
    if shared and row.project_id is not None:
        rbac.share(uow, "network", row.id, row.project_id)
    elif shared is False:
        _unshare(uow, context, row)
    if changes.get("admin_state_up", row.admin_state_up) != row.admin_state_up:
        uow.publish(*map(FiltersChanged, _projects_on(uow, row.id)))
    segments = segments_of(uow, [row], lock=True).get(row.id, []) if row.is_segmented else []
    if changes.get("qos_policy_id", row.qos_policy_id) != row.qos_policy_id:
        _check_qos(row.physical_network, changes["qos_policy_id"])
        qos.check(uow, context, changes["qos_policy_id"], row.qos_policy_id)
        uow.publish(*(FiltersChanged(user) for link in (row, *segments) for user in _projects_on(uow, link.id)))
    is_remeasured = changes.get("mtu", row.mtu) != row.mtu
    if is_remeasured:
        _check_mtu([row, *segments], changes["mtu"])
    if is_remeasured or changes.get("dns_domain", row.dns_domain) != row.dns_domain:
        for link in (row, *segments):
            link.revised = True
            uow.publish(*map(FiltersChanged, _projects_on(uow, link.id)))
    for segment in segments:
        if changes.get("admin_state_up", row.admin_state_up) != row.admin_state_up:
            uow.publish(*map(FiltersChanged, _projects_on(uow, segment.id)))
        for name in changes.keys() & set(_COPIED):
            setattr(segment, name, changes[name])
    for name in changes.keys() & set(UPDATABLE):
        setattr(row, name, changes[name])
    settings = {name: changes[name] for name in SETTINGS if name in changes}
    if settings:
        _revise(uow, context, row, settings)
    if of_subnet6:
        _revise6(uow, context, row, of_subnet6)
    row.updated_at = uow.now
    uow.session.flush()
    return _shown(uow, context, [row])[0]


def _unshare(uow: UnitOfWork, context: RequestContext, row: Network) -> None:
    """End that all projects use a network. One without a policy, as of older versions, becomes the caller's."""
    if row.project_id is None and not rbac.is_shared(uow, "network", row.id, None):
        if not context.project_id or overlaps.is_of_operator(row):
            raise exceptions.Forbidden("The operator has made this network for all projects.")
        rbac.share(uow, "network", row.id, context.project_id)
    rbac.unshare(uow, "network", row.id)


def _check_mtu(links: Sequence[Network], mtu: int) -> None:
    """Raise `InvalidInput` for an MTU that tunnels or IPv6 do not have."""
    if mtu > factory.TUNNEL_MTU and any(link.vni is not None for link in links):
        raise exceptions.InvalidInput(
            reason=f"Requested MTU is too big, maximum is {factory.TUNNEL_MTU}, as the network spans hosts"
        )
    if mtu < factory.MIN_MTU6 and any(link.cidr6 for link in links):
        raise exceptions.InvalidInput(reason=f"IPv6 needs an MTU of at least {factory.MIN_MTU6}, not {mtu}")


def _projects_on(uow: UnitOfWork, network_id: str) -> set[str]:
    """Return the projects whose servers have ports on a network."""
    query = sa.select(Instance.project_id).join(Port, Port.instance_uuid == Instance.uuid)
    return set(uow.session.scalars(query.where(Port.network_id == network_id).distinct()))


def _revise(uow: UnitOfWork, context: RequestContext, row: Network, settings: dict[str, Any]) -> None:
    """Change settings of a network's subnet."""
    if not row.cidr:
        raise exceptions.SubnetNotFound(subnet_id=ipv6.subnet_id_of(row))
    network = rows.to_object(NetworkRecord, row)
    if network.gateway is None and network.host_address is None:
        network.host_address = factory.host_address(network)
    if settings.get("gateway", row.gateway) != row.gateway:
        _set_gateway(uow, network, settings["gateway"])
    if "pools" in settings:
        factory.set_pools(network, settings["pools"])
    if settings.keys() & {"gateway", "pools"}:
        _check_pools(network)
    if "dns" in settings:
        network.dns = [factory.name_server(text) for text in settings["dns"]]
        if not context.is_admin:
            _check_name_servers(uow, network)
    if "host_routes" in settings:
        network.host_routes = _host_routes(ipv6.subnet_id_of(row), settings["host_routes"])
    if settings.get("enable_dhcp", row.enable_dhcp) != row.enable_dhcp and ipv6.is_assigned(network):
        _require_no_servers(uow, row, "enable_dhcp")  # hosts have one file for both addresses of a server
    if settings.get("enable_dhcp"):
        factory.check_dhcp(ip.parse_network4(network.cidr))
    network.enable_dhcp = settings.get("enable_dhcp", network.enable_dhcp)
    for name in ("gateway", "host_address", "start", "end", *SETTINGS):
        setattr(row, name, getattr(network, name))
    row.revised = True
    uow.publish(*map(FiltersChanged, _projects_on(uow, row.id)))


def _revise6(uow: UnitOfWork, context: RequestContext, row: Network, changes: dict[str, Any]) -> None:
    """Change settings and names of a network's IPv6 subnet."""
    if row.subnet6 is None:
        raise exceptions.Forbidden("The operator has made this IPv6 subnet with its network.")
    if unknown := changes.keys() - _UPDATABLE6:
        raise exceptions.InvalidInput(reason=f"{', '.join(sorted(unknown))} of a subnet cannot be changed")
    before, network = row.subnet6, rows.to_object(NetworkRecord, row)
    subnet = network.subnet6 = msgspec.structs.replace(before, **changes)
    if subnet.gateway is not None:
        subnet.gateway = factory6.machine(network, "gateway", subnet.gateway)
    if changes.get("enable_dhcp"):
        factory.check_dhcp(ip.parse_network6(network.cidr6))
    _check_change6(uow, row, before, subnet)
    factory6.set_settings(network, subnet)
    if subnet.gateway is None:
        subnet.host_address = before.gateway or before.host_address
    if "dns" in changes and not context.is_admin:
        _check_name_servers(uow, network)
    row.subnet6 = subnet
    if changes.keys() & set(SETTINGS):
        row.revised = True
        uow.publish(*map(FiltersChanged, _projects_on(uow, row.id)))


def _check_change6(uow: UnitOfWork, row: Network, before: Subnet6, subnet: Subnet6) -> None:
    """Raise an error for a change that hosts would not carry out below servers, or that takes a used address."""
    for name in ("gateway", "enable_dhcp"):
        if getattr(subnet, name) != getattr(before, name):
            _require_no_servers(uow, row, name)
    if len(subnet.host_routes or ()) > MAX_HOST_ROUTES:
        raise exceptions.HostRoutesExhausted(subnet_id=ipv6.subnet_id_of(row, version=6), quota=MAX_HOST_ROUTES)
    if subnet.gateway == before.gateway:
        return
    users = sa.select(Port.id).where(Port.network_id == row.id)
    if before.gateway and (port_id := uow.session.scalars(users.where(Port.address6 == before.gateway)).first()):
        raise exceptions.GatewayIpInUse(ip_address=before.gateway, port_id=port_id)
    if subnet.gateway and uow.session.scalars(users.where(Port.address6 == subnet.gateway)).first():
        raise exceptions.FixedIpInUse(address=subnet.gateway, network_id=row.public_id)


def _require_no_servers(uow: UnitOfWork, row: Network, what: str) -> None:
    """Raise `Conflict` while a server has a port on the network: hosts set up IPv6 with the first server."""
    ports = sa.select(Port.id).where(Port.network_id == row.id, Port.instance_uuid.is_not(None))
    if uow.session.scalars(ports.limit(1)).first() is not None:
        raise exceptions.Conflict(
            f"Servers use network {row.public_id}: {what} of its IPv6 subnet cannot change meanwhile."
        )


def _set_gateway(uow: UnitOfWork, network: NetworkRecord, gateway: str | None) -> None:
    """Change the gateway, whose address the hosts' bridges have. Without a gateway they keep their address."""
    users = sa.select(Port.id).where(Port.network_id == network.id)
    if network.gateway is not None:
        port_id = uow.session.scalars(users.where(Port.address == network.gateway)).first()
        if port_id is not None:
            raise exceptions.GatewayIpInUse(ip_address=network.gateway, port_id=port_id)
    if network.cidr6 and network.subnet6 is None and None in (gateway, network.gateway):
        raise exceptions.InvalidInput(reason=f"network {network.public_id} has its IPv6 gateway with its IPv4 gateway")
    if gateway is None:
        network.gateway, network.host_address = None, network.gateway
        return
    network.gateway, network.host_address = factory.gateway(network, gateway), None
    if uow.session.scalars(users.where(Port.address == network.gateway)).first() is not None:
        raise exceptions.FixedIpInUse(address=network.gateway, network_id=network.public_id)


def _check_pools(network: NetworkRecord) -> None:
    """Raise an error if the gateway is in a pool."""
    if network.gateway is None:
        return
    gateway = ip.parse4(network.gateway)
    for pool in factory.pools_of(network):
        if ip.parse4(pool["start"]) <= gateway <= ip.parse4(pool["end"]):
            raise exceptions.GatewayConflictWithAllocationPools(
                ip_address=network.gateway, pool=f"{pool['start']}-{pool['end']}"
            )


def _host_routes(subnet_id: str, wanted: list[dict[str, str]]) -> list[dict[str, str]] | None:
    if len(wanted) > MAX_HOST_ROUTES:
        raise exceptions.HostRoutesExhausted(subnet_id=subnet_id, quota=MAX_HOST_ROUTES)
    return [factory.host_route(route["destination"], route["nexthop"]) for route in wanted] or None


def delete(uow: UnitOfWork, context: RequestContext, network_id: str) -> None:
    """Delete a network and its subnets. Raises `NetworkInUse` while a port is on it."""
    builtin_networks.remove(uow, locked_network(uow, context, network_id))
    rbac.forget(uow, "network", network_id)


def create_subnet(
    uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, subnet: NetworkRecord
) -> NetworkRecord:
    """Create a subnet of the network ``subnet.id``. Given values are checked, missing ones chosen. Raises a 400, or
    `Conflict`. Return the network, or the segment that has the subnet.
    """
    row = locked_network(uow, context, subnet.id)
    if row.project_id is not None:
        _check_subnet_quota(uow, conf, row.project_id)
    row = _row_with_room(uow, conf, row, 4 if subnet.subnet6 is None else 6)
    subnet = msgspec.structs.replace(subnet, id=row.id, subnet_id=str(uuid.uuid4()))
    if subnet.subnet6 is not None:
        return _create_subnet6(uow, conf, context, row, subnet)
    if subnet.subnet_pool_id is not None:
        if subnet.subnet_pool_id == DEFAULT_POOL:
            subnet.subnet_pool_id = subnet_pools.default_pool(uow, 4)
        subnet.cidr = subnet_pools.take_prefix(uow, conf, context, row, subnet, subnet.subnet_pool_id)
    pools = [] if subnet.no_pools else subnet.pools or None
    factory.add_subnet(subnet, subnet.cidr, subnet.gateway, subnet.dns, subnet.start, subnet.end)
    factory.set_pools(subnet, pools)
    subnet.host_address = factory.host_address(subnet)
    _check_pools(subnet)
    subnet.host_routes = _host_routes(subnet.subnet_id or "", subnet.host_routes or [])
    if not context.is_admin:
        _check_range(conf, subnet.cidr)
        _check_name_servers(uow, subnet)
    overlaps.check_subnet(uow, context, row, subnet.cidr)
    described = ("subnet_name", "subnet_description", "subnet_tags", "subnet_pool_id", "service_types")
    for name in ("subnet_id", "cidr", "start", "end", "host_address", *described, *SETTINGS):
        setattr(row, name, getattr(subnet, name))
    row.updated_at = uow.now
    uow.session.flush()
    return rows.to_object(NetworkRecord, row)


def _row_with_room(uow: UnitOfWork, conf: cfg.ConfigOpts, row: Network, version: int) -> Network:
    """Return the network, or its first segment, that has no subnet of this version, or a new segment."""
    column = "cidr" if version == 4 else "cidr6"
    of_network = segments_of(uow, [row], lock=True).get(row.id, []) if row.is_segmented else []
    for item in (row, *of_network):
        if not getattr(item, column):
            return item
    if overlaps.is_of_operator(row):
        raise exceptions.Conflict(
            f"Network {row.id} is the operator's bridge {row.bridge}, which has one subnet of each IP version."
        )
    if row.project_id is not None:
        own = quotas.limits_of(uow, conf, row.project_id, None).of_project
        default = own.get(RESOURCE, conf.network.networks_per_project)
        _check_subnet_quota(uow, conf, row.project_id, quotas.UNLIMITED if default < 0 else default)
    for _ in range(MAX_COLLISIONS):
        vni = None
        if row.vni is not None and (vni := _free_vni(uow, conf)) is None:
            raise exceptions.Conflict(
                f"Network {row.id} spans hosts, and [network] project_vnis has no VNIs for further subnets."
            )
        segment = Network(id=str(uuid.uuid4()), parent_id=row.id, vni=vni, created_at=uow.now, **_NO_SUBNET6)
        for name, value in (_NO_SUBNET | {name: getattr(row, name) for name in _COPIED}).items():
            setattr(segment, name, value)
        segment.bridge = _bridge(segment.id)
        try:
            rows.insert(uow, segment, exceptions.NetworkExists(name=row.name))
        except exceptions.NetworkExists:
            continue  # another network has the VNI since
        row.is_segmented, row.updated_at = True, uow.now
        return segment
    raise exceptions.Conflict("No VNI is free for another subnet.")


def _bridge(network_id: str) -> str:
    return overlaps.BRIDGE + network_id.replace("-", "")[:11]


def _create_subnet6(
    uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, row: Network, subnet: NetworkRecord
) -> NetworkRecord:
    """Create the IPv6 subnet ``subnet.subnet6`` of the network, with the range ``subnet.cidr6``.

    Ports without a server get the address that they derive. Raises a 400, or `Conflict` if servers use the network.
    """
    assert subnet.subnet6 is not None
    _require_no_servers(uow, row, "the creation")
    network, settings = rows.to_object(NetworkRecord, row), msgspec.structs.replace(subnet.subnet6)
    if (pool_id := subnet.subnet6_pool_id) is not None:
        pool_id = subnet_pools.default_pool(uow, 6) if pool_id == DEFAULT_POOL else pool_id
        subnet.cidr6 = subnet_pools.take_prefix(uow, conf, context, row, subnet, pool_id)
    factory6.add_subnet(network, subnet.cidr6, settings, subnet.gateway, subnet.no_pools)
    if len(settings.host_routes or ()) > MAX_HOST_ROUTES:
        raise exceptions.HostRoutesExhausted(subnet_id=subnet.subnet_id, quota=MAX_HOST_ROUTES)
    if not context.is_admin:
        _check_range(conf, network.cidr6)
        _check_name_servers(uow, network)
    overlaps.check_subnet(uow, context, row, network.cidr6)
    row.cidr6, row.subnet6, row.subnet6_id = network.cidr6, settings, subnet.subnet_id
    row.subnet6_pool_id, row.service_types6 = pool_id, subnet.service_types6
    if ipv6.is_derived(settings):
        users = sa.select(Port).where(Port.network_id == row.id, ~builtin_networks.OF_ROUTER, further_addresses.IS_PORT)
        if subnet.service_types6:
            users = users.where(Port.device_owner.in_(subnet.service_types6))
        for port in uow.session.scalars(users):
            if port.address is not None:
                port.address6 = ipv6.address_on(network, port.mac_address)
    row.updated_at = uow.now
    uow.session.flush()
    return rows.to_object(NetworkRecord, row)


def _check_range(conf: cfg.ConfigOpts, cidr: str) -> None:
    wanted = ip.parse_network(cidr)
    ranges = ip.within(wanted, conf.network.project_ranges)
    if ranges and not any(ip.is_subnet(wanted, item) for item in ranges):
        raise exceptions.InvalidInput(reason=f"{cidr} is not within {', '.join(map(str, ranges))}, as subnets are here")


def _check_name_servers(uow: UnitOfWork, subnet: NetworkRecord) -> None:
    """Raise an error for a name server on a host: the host would send queries of guests to itself."""
    own, servers = {subnet.gateway, subnet.host_address, *compute_nodes.addresses(uow)}, list(subnet.dns)
    if subnet.subnet6 is not None:
        servers += subnet.subnet6.dns
        own.add(ipv6.host_address(subnet))
    for address in servers:
        if address in own:
            raise exceptions.InvalidInput(reason=f"name server {address} is the address of a host of this cloud")


def _delete_subnet6(uow: UnitOfWork, row: Network) -> None:
    """Delete the IPv6 subnet. Ports lose the address that they derive. Raises `NetworkInUse` while a server or a router
    uses it, or a port has another address of it.
    """
    query = sa.select(Port).where(Port.network_id == row.id, Port.address6.is_not(None))
    used = uow.session.scalars(query.with_for_update()).all()
    of_routers = sa.select(RouterInterface6.port_id).where(RouterInterface6.network_id == row.id)
    is_derived = ipv6.is_derived(row.subnet6)
    if uow.session.scalars(of_routers).first() or any(port.instance_uuid or not is_derived for port in used):
        raise exceptions.NetworkInUse(name=row.name)
    for port in used:
        port.address6 = None
    for name, value in _NO_SUBNET6.items():
        setattr(row, name, value)
    row.updated_at = uow.now
    uow.session.flush()
    _remove_if_empty(uow, row)


def _remove_if_empty(uow: UnitOfWork, row: Network) -> None:
    """Delete a segment without a subnet. Its ports, which have no address, are on the network again."""
    if row.parent_id is None or row.cidr or row.cidr6:
        return
    uow.change(sa.update(Port).where(Port.network_id == row.id).values(network_id=row.parent_id))
    builtin_networks.remove(uow, row)
    uow.session.flush()
    parent = uow.session.get_one(Network, row.parent_id)
    parent.is_segmented, parent.updated_at = bool(segments_of(uow, [parent])), uow.now
    uow.session.flush()


def delete_subnet(uow: UnitOfWork, context: RequestContext, network_id: str) -> None:
    """Delete a subnet. Raises `NetworkInUse` while a port has an address of it. ``network_id``: the subnet's id."""
    row, version = locked_subnet(uow, context, network_id)
    if version == 6:
        _delete_subnet6(uow, row)
        return
    ports = sa.select(Port.id).where(Port.network_id == row.id, Port.address.is_not(None))
    if uow.session.scalars(ports.limit(1)).first() is not None:
        raise exceptions.NetworkInUse(name=row.name)
    for name, value in (_NO_SUBNET | (_NO_SUBNET6 if row.subnet6 is None else {})).items():
        setattr(row, name, value)
    row.subnet_tags = row.subnet_pool_id = None
    row.updated_at = uow.now
    uow.session.flush()
    _remove_if_empty(uow, row)


def locked(uow: UnitOfWork, context: RequestContext, network_id: str) -> Network:
    """Return the row of a network or segment, locked. The network of a segment is locked first.

    Raises `NetworkNotFound`; `Forbidden` for a shared network, except for an admin.
    """
    parent_id = uow.session.scalars(sa.select(Network.parent_id).where(Network.id == network_id)).first()
    row = None
    for each in (parent_id, network_id) if parent_id else (network_id,):
        query = sa.select(Network).where(Network.id == each).with_for_update()
        row = uow.session.scalars(query.execution_options(populate_existing=True)).first()
    if row is None or not (context.is_admin or row.project_id in (None, context.project_id)):
        if row is not None and rbac.is_shared(uow, "network", row.public_id, context.project_id):
            raise exceptions.Forbidden("The network belongs to another project, which may change it.")
        raise exceptions.NetworkNotFound(network_id=network_id)
    if row.project_id is None and not context.is_admin:
        raise exceptions.Forbidden("All projects share this network: an admin may change it.")
    if_match.check(context, row)
    return row


def locked_network(uow: UnitOfWork, context: RequestContext, network_id: str) -> Network:
    """Return the same of a network, which is no segment."""
    row = locked(uow, context, network_id)
    if row.parent_id is not None:
        raise exceptions.NetworkNotFound(network_id=network_id)
    return row


def locked_subnet(uow: UnitOfWork, context: RequestContext, subnet_id: str) -> tuple[Network, int]:
    """Return the row of a subnet's network, locked, and the subnet's IP version. Raises `SubnetNotFound`."""
    network_id, version = subnet_of(uow, subnet_id)
    try:
        row = locked(uow, context, network_id)
    except exceptions.NetworkNotFound as error:
        raise exceptions.SubnetNotFound(subnet_id=subnet_id[:64]) from error
    if not (row.cidr if version == 4 else row.cidr6) or ipv6.subnet_id_of(row, version) != subnet_id:
        raise exceptions.SubnetNotFound(subnet_id=subnet_id[:64])
    if version == 6 and row.subnet6 is None:
        raise exceptions.Forbidden("The operator has made this IPv6 subnet with its network.")
    return row, version


def address_counts(uow: UnitOfWork, context: RequestContext, network_ids: list[str]) -> dict[str, int]:
    """Return the number of used addresses of subnets of networks and pools, by id; nothing unless for an admin."""
    if not context.is_admin:
        return {}
    in_links = Network.id.in_(builtin_networks.with_segments(uow, network_ids))
    links = uow.session.scalars(sa.select(Network).where(in_links)).all()
    found: dict[str, int] = {}
    for version, column in ((4, Port.address), (6, Port.address6)):
        query = sa.select(Port.network_id, sa.func.count(column)).where(Port.network_id.in_([row.id for row in links]))
        used = {row[0]: row[1] for row in uow.session.execute(query.group_by(Port.network_id))}
        found |= {ipv6.subnet_id_of(link, version): used.get(link.id, 0) for link in links}
    subnet_id = sa.func.coalesce(FloatingIpPool.subnet_id, FloatingIpPool.id)
    of_pools = sa.select(subnet_id, sa.func.count(FloatingIp.id)).where(FloatingIpPool.id.in_(network_ids))
    of_pools = of_pools.join(FloatingIp, FloatingIp.pool_id == FloatingIpPool.id).group_by(subnet_id)
    return found | {row[0]: row[1] for row in uow.session.execute(of_pools)}

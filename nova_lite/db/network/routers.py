"""Routers: their rows and their interfaces.

An interface is a port with the gateway's address of a subnet, and a row that says whose interface it is. A network has
one router at most, because each host has one gateway for it. In a network of an operator the IPv4 interface connects
both subnets.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, TypeAlias

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions, ip
from nova_lite.base.context import RequestContext
from nova_lite.db.core import if_match, quotas, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.events import FiltersChanged
from nova_lite.db.core.models import (
    FloatingIp,
    FloatingIpPool,
    Port,
    PortForwarding,
    RbacPolicy,
    RouterInterface,
    RouterInterface6,
)
from nova_lite.db.core.models import Network as NetworkRow
from nova_lite.db.core.models import Router as Row
from nova_lite.db.core.statements import insert_unless_taken
from nova_lite.db.network import builtin_networks, external_addresses, networks, overlaps, port_quota, ports, rbac
from nova_lite.network import factory, local
from nova_lite.objects import Network, Router, RouterAddress, StaticRoute, ipv6
from nova_lite.objects import Port as PortObject
from nova_lite.objects.instance import version_of
from nova_lite.objects.network_api_resources import EXTERNAL

#: Name under which a project's own limit is stored.
RESOURCE = "routers"

_Interface: TypeAlias = type[RouterInterface] | type[RouterInterface6]
_KINDS: dict[int, _Interface] = {4: RouterInterface, 6: RouterInterface6}

_RANDOM = random.SystemRandom()

#: Number of static routes of a router, as in Neutron.
MAX_ROUTES = 30

#: Changes of routes: the whole list, and some of it.
_OF_ROUTES = ("routes", "add_routes", "remove_routes")

#: Fields that `update` may change.
_UPDATABLE = ("name", "description", "pool_id", "enable_snat", "admin_state_up")


def list_(uow: UnitOfWork, context: RequestContext) -> list[Router]:
    """Return the project's routers, oldest first; all routers for an admin."""
    query = sa.select(Row).order_by(Row.created_at, Row.id)
    if not context.is_admin:
        query = query.where(Row.project_id == (context.project_id or ""))
    return _to_objects(uow, uow.session.scalars(query).all())


def get(uow: UnitOfWork, context: RequestContext, router_id: str) -> Router:
    """Return a router. Raises `RouterNotFound`, also for another project's, except for an admin."""
    row = uow.session.get(Row, router_id)
    if row is None or not _visible(context, row):
        raise exceptions.RouterNotFound(router_id=router_id[:64])
    return _to_object(uow, row)


def create(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, router: Router) -> Router:
    """Create a router. The caller chooses its id: a repeated id returns the same router.

    Raises `NetworkNotFound` for a gateway to a missing external network, `QuotaExceeded`, or the errors of
    `external_addresses.settle`.
    """
    if not router.project_id:
        raise exceptions.Forbidden("A router belongs to a project; this token is for none.")
    known = uow.session.get(Row, router.id)
    if known is not None and known.project_id == router.project_id:
        return _to_object(uow, known)
    quotas.lock(uow, router.project_id)
    own = quotas.limits_of(uow, conf, router.project_id, None).of_project
    has, limit = used(uow, router.project_id), own.get(RESOURCE, conf.network.routers_per_project)
    if 0 <= limit <= has:
        raise exceptions.QuotaExceeded(overs="router", requested=1, used=has, allowed=limit)
    _check_pool(uow, context, router.pool_id)
    for route in router.routes:
        shown = {"destination": route.destination, "nexthop": route.nexthop}
        raise exceptions.InvalidRoutes(route=shown, reason="the nexthop is not connected with router")
    row = Row(**(rows.values_of(router, Row) | {"routes": [], "created_at": uow.now, "updated_at": None}))
    uow.session.add(row)
    uow.session.flush()
    if router.addresses:
        external_addresses.settle(uow, row, router.addresses)
    return _to_object(uow, row)


def used(uow: UnitOfWork, project_id: str) -> int:
    return uow.session.scalar(sa.select(sa.func.count(Row.id)).where(Row.project_id == project_id)) or 0


def update(uow: UnitOfWork, context: RequestContext, router_id: str, changes: dict[str, Any]) -> Router:
    """Change some of `_UPDATABLE`, and with ``addresses`` its own, which it loses with its gateway.

    Raises `RouterGatewayInUseByFloatingIp` if floating addresses need the gateway, and the errors of
    `external_addresses.settle`.
    """
    row = locked(uow, context, router_id)
    unknown = changes.keys() - {*_UPDATABLE, *_OF_ROUTES, "addresses"}
    if unknown:
        raise exceptions.InvalidInput(reason=f"{', '.join(sorted(unknown))} of a router cannot be changed")
    pool_id, snat = changes.get("pool_id", row.pool_id), changes.get("enable_snat", row.enable_snat)
    if pool_id != row.pool_id:
        _check_pool(uow, context, pool_id)
        if row.pool_id is not None and _floating(uow, [item.id for item in _connected(uow, row.id, RouterInterface)]):
            raise exceptions.RouterGatewayInUseByFloatingIp(router_id=row.id, network_id=row.pool_id)
    if pool_id is not None and (pool_id, snat) != (row.pool_id, row.enable_snat):
        _check_gateway(uow, context, row, pool_id, snat)
    is_moved = pool_id != row.pool_id
    for name in changes.keys() & set(_UPDATABLE):
        setattr(row, name, changes[name])
    if is_moved or "addresses" in changes:
        external_addresses.settle(uow, row, [RouterAddress(**item) for item in changes.get("addresses", ())])
    if changes.keys() & set(_OF_ROUTES):
        changed = _changed_routes(uow, row, changes)
        row.routes = [route for route in changed if version_of(route["nexthop"]) == 4]
        row.routes6 = [route for route in changed if version_of(route["nexthop"]) == 6] or None
    row.updated_at = uow.now
    uow.session.flush()
    uow.publish(FiltersChanged(row.project_id))
    return _to_object(uow, row)


def _changed_routes(uow: UnitOfWork, row: Row, changes: dict[str, Any]) -> list[dict[str, str]]:
    """Return the routes after a change, checked as Neutron does: a machine on a network of the router is next."""
    wanted = list(changes.get("routes", _routes(row)))
    wanted += [route for route in changes.get("add_routes", ()) if route not in wanted]
    wanted = [route for route in wanted if route not in changes.get("remove_routes", ())]
    if len(wanted) > MAX_ROUTES:
        raise exceptions.RoutesExhausted(router_id=row.id, quota=MAX_ROUTES)
    subnets = _connected_subnets(uow, row.id)
    for route in wanted:
        factory.host_route(route["destination"], route["nexthop"], version_of(route["nexthop"]))
        nexthop = ip.parse(route["nexthop"])
        if not any(ip.is_machine(nexthop, subnet.range) for subnet in subnets):
            raise exceptions.InvalidRoutes(route=route, reason="the nexthop is not connected with router")
        if route["nexthop"] in [subnet.gateway for subnet in subnets]:
            raise exceptions.InvalidRoutes(route=route, reason="the nexthop is used by router")
    return [{"destination": route["destination"], "nexthop": route["nexthop"]} for route in wanted]


class _Subnet(NamedTuple):
    id: str
    range: ip.Network
    gateway: str | None


def _connected_subnets(uow: UnitOfWork, router_id: str) -> list[_Subnet]:
    """Return the subnets of a router's interfaces."""
    return [
        subnet
        for version, kind in _KINDS.items()
        for network in _connected(uow, router_id, kind)
        for subnet in _subnets(network, version)
    ]


def _subnets(network: Network, version: int) -> list[_Subnet]:
    """Return the subnets of a network that an interface of this IP version connects."""
    subnet_id = ipv6.subnet_id_of(network, version)
    if version == 6:
        return [_Subnet(subnet_id, ip.parse_network6(network.cidr6), ipv6.gateway(network))]
    of_operator = _subnets(network, 6) if network.cidr6 and network.subnet6 is None else []
    return [_Subnet(subnet_id, ip.parse_network4(network.cidr), network.gateway), *of_operator]


def _check_gateway(uow: UnitOfWork, context: RequestContext, row: Row, pool_id: str, snat: bool) -> None:
    """Check that the router's networks may have a gateway to an external network, with or without SNAT."""
    subnets = _connected_subnets(uow, row.id)
    _require_apart(_external(uow, pool_id), subnets)
    if not snat:
        overlaps.check_outside(uow, context, [(subnet.id, subnet.range) for subnet in subnets], row.id)


def _external(uow: UnitOfWork, pool_id: str | None) -> list[_Subnet]:
    """Return the subnet of an external network, if it has one. It gets none until the commit."""
    if pool_id is None:
        return []
    pool = uow.session.get(FloatingIpPool, pool_id, with_for_update={"read": True}, populate_existing=True)
    if pool is None or not pool.cidr:
        return []
    return [_Subnet(pool.subnet_id or pool.id, ip.parse_network4(pool.cidr), None)]


def _require_apart(new: Collection[_Subnet], others: Collection[_Subnet]) -> None:
    """Raise `InvalidInput` if a new subnet of a router overlaps another one."""
    for subnet in new:
        for other in others:
            if subnet.range.overlaps(other.range):
                raise exceptions.InvalidInput(
                    reason=f"Cidr {subnet.range} of subnet {subnet.id} overlaps with cidr {other.range} of subnet "
                    f"{other.id}"
                )


def delete(uow: UnitOfWork, context: RequestContext, router_id: str) -> None:
    """Delete a router. Raises `RouterInUse` while it has an interface."""
    row = locked(uow, context, router_id)
    if any(_connected(uow, row.id, kind) for kind in _KINDS.values()):
        raise exceptions.RouterInUse(router_id=row.id)
    external_addresses.settle(uow, row, [])
    uow.session.delete(row)
    uow.session.flush()


def _seen(context: RequestContext) -> sa.ColumnElement[bool]:
    """Build the condition of a network that the caller sees: an operator's, its own or a shared one; admins see all."""
    if context.is_admin:
        return sa.true()
    project_id = context.project_id or ""
    shared = NetworkRow.id.in_(rbac.shared_with("network", [project_id]))
    return sa.or_(NetworkRow.project_id.is_(None), NetworkRow.project_id == project_id, shared)


def _check_pool(uow: UnitOfWork, context: RequestContext, pool_id: str | None) -> None:
    """Raise `NetworkNotFound` unless the caller may use the pool, which stays until the transaction ends."""
    if pool_id is None:
        return
    row = uow.session.get(FloatingIpPool, pool_id, with_for_update={"read": True})
    if row is None:
        if uow.session.scalars(sa.select(NetworkRow.id).where(NetworkRow.id == pool_id, _seen(context))).first():
            raise exceptions.InvalidInput(reason=f"network {pool_id} is not an external network")
        raise exceptions.NetworkNotFound(network_id=pool_id[:64])
    if context.is_admin or row.project_id in (None, context.project_id):
        return
    external = rbac.shared_with("network", [context.project_id or ""], EXTERNAL).where(RbacPolicy.object_id == pool_id)
    if uow.session.scalars(external.limit(1)).first() is None:
        raise exceptions.NetworkNotFound(network_id=pool_id[:64])


# --- interfaces


def add_interface(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    context: RequestContext,
    router_id: str,
    subnet_id: str | None,
    port_id: str | None,
) -> PortObject:
    """Connect a subnet, named by its id or by a free port with the gateway's address. Return the interface's port.

    Raises `SubnetNotFound`, `NoSuchPort`, `PortInUse`, `FixedIpInUse` if another router has the network, `BadRequest`
    for a network that cannot be connected, or `QuotaExceeded`.
    """
    row = locked(uow, context, router_id)
    known = None if port_id is None else _free_port(uow, context, row, port_id)
    if known is not None:
        network_id, version = known.link_id, 6 if known.address6 and not known.address else 4
    else:
        network_id, version = networks.subnet_of(uow, subnet_id or "")
    network = _network(uow, row, network_id, version)
    gateway = _gateway(network, version)
    if known is not None and gateway != (known.address or known.address6):
        has = known.address or known.address6
        raise exceptions.InvalidInput(
            reason=f"port {known.id} has {f'the address {has}' if has else 'no address'}. The interface of a router "
            f"has the address of the subnet's gateway here, {gateway}"
        )
    subnets = _subnets(rows.to_object(Network, network), version)
    _require_apart(subnets, [*_connected_subnets(uow, row.id), *_external(uow, row.pool_id)])
    if row.pool_id is not None and not row.enable_snat:
        overlaps.check_outside(uow, context, [(subnet.id, subnet.range) for subnet in subnets], row.id)
    pools = _floating(uow, [network.id]) if version == 4 else set()
    if pools - {row.pool_id}:
        raise exceptions.Conflict(
            f"Floating addresses lead to ports of subnet {ipv6.subnet_id_of(network)}: give router {row.id} a gateway "
            "to their external network first."
        )
    interface = known.id if known is not None else _add_port(uow, conf, row, network, version)
    uow.session.add(_KINDS[version](port_id=interface, router_id=row.id, network_id=network.id))
    uow.change(sa.update(Port).where(Port.id == interface).values(security_groups=[], updated_at=uow.now))
    uow.session.flush()
    uow.publish(FiltersChanged(row.project_id))
    return ports.get(uow, context, interface)


def _free_port(uow: UnitOfWork, context: RequestContext, row: Row, port_id: str) -> PortObject:
    locked = sa.select(Port.id).where(Port.id == port_id).with_for_update()
    uow.session.execute(locked).all()
    port = ports.get(uow, context, port_id)
    if port.project_id != row.project_id:
        raise exceptions.NoSuchPort(port_id=port_id)
    if port.instance_uuid is not None or port.router_id is not None or port.device_id:
        raise exceptions.PortInUse(port_id=port_id)
    return port


def _gateway(network: NetworkRow, version: int) -> str | None:
    """Return the gateway of a network's subnet of this version, if it has a subnet that a router connects."""
    if version == 4:
        return network.gateway if network.cidr else None
    return network.subnet6.gateway if network.subnet6 is not None else None


def _network(uow: UnitOfWork, row: Row, network_id: str, version: int) -> NetworkRow:
    """Return, locked, a network whose subnet of this version the router may connect."""
    query = sa.select(NetworkRow).where(NetworkRow.id == network_id).with_for_update()
    network = uow.session.scalars(query.execution_options(populate_existing=True)).first()
    subnet = None if network is None else network.cidr if version == 4 else network.cidr6
    if network is None or not subnet or network.project_id not in (None, row.project_id):
        subnet_id = network_id[:64] if network is None else ipv6.subnet_id_of(network, version)
        raise exceptions.SubnetNotFound(subnet_id=subnet_id)
    subnet_id = ipv6.subnet_id_of(network, version)
    if network.project_id is None:
        raise exceptions.InvalidInput(
            reason=f"subnet {subnet_id} is shared by all projects: it has its way out without a router"
        )
    if network.physical_network is not None:
        raise exceptions.InvalidInput(
            reason=f"subnet {subnet_id} is on the physical network {network.physical_network}, which hosts do not route"
        )
    if version == 6 and network.subnet6 is None:
        raise exceptions.InvalidInput(
            reason="the interface of the IPv4 subnet connects this network's IPv6 subnet, too"
        )
    gateway = _gateway(network, version)
    if not gateway:
        raise exceptions.InvalidInput(reason="Subnet for router interface must have a gateway IP")
    routers = {
        item: uow.session.scalars(sa.select(kind.router_id).where(kind.network_id == network.id)).first()
        for item, kind in _KINDS.items()
    }
    if routers[version] == row.id:
        raise exceptions.InvalidInput(reason=f"Router already has a port on subnet {subnet_id}")
    if routers[version] is not None:
        raise exceptions.FixedIpInUse(address=gateway, network_id=network.public_id)
    if not set(routers.values()) <= {None, row.id}:
        raise exceptions.Conflict(f"Another router has the other subnet of network {network.id}: a network has one.")
    return network


def _add_port(uow: UnitOfWork, conf: cfg.ConfigOpts, row: Row, network: NetworkRow, version: int) -> str:
    """Insert a port with the gateway's address."""
    port_quota.check_port(uow, conf, row.project_id)
    values: dict[str, Any] = {
        "id": str(uuid.uuid4()),
        "network_id": network.id,
        "project_id": row.project_id,
        "address": network.gateway if version == 4 else None,
        "security_groups": [],
        "created_at": uow.now,
    }
    for _ in range(local.MAX_COLLISIONS):
        mac_address = local.random_mac_address(_RANDOM)
        address6 = _gateway(network, 6) if version == 6 else None
        if network.subnet6 is None:
            address6 = ipv6.address_on(rows.to_object(Network, network), mac_address)
        if insert_unless_taken(uow, Port, {**values, "mac_address": mac_address, "address6": address6}):
            return str(values["id"])
        if builtin_networks.Store(uow).taken(network.id, [_gateway(network, version) or ""], version):
            break
    raise exceptions.FixedIpInUse(address=_gateway(network, version), network_id=network.public_id)


def _interface(
    uow: UnitOfWork, row: Row, kind: _Interface, which: sa.ColumnElement[bool]
) -> RouterInterface | RouterInterface6 | None:
    query: sa.Select[Any] = sa.select(kind).where(kind.router_id == row.id, which)
    found: RouterInterface | RouterInterface6 | None = uow.session.scalars(query).first()
    return found


def remove_interface(
    uow: UnitOfWork, context: RequestContext, router_id: str, subnet_id: str | None, port_id: str | None
) -> PortObject:
    """Disconnect a subnet, and delete the interface's port. Return what it was.

    Raises `RouterInterfaceNotFound`, `RouterInterfaceNotFoundForSubnet`, or `RouterInterfaceInUseByFloatingIp`.
    """
    row = locked(uow, context, router_id)
    found: RouterInterface | RouterInterface6 | None = None
    if port_id is not None:
        for kind in _KINDS.values():
            found = found or _interface(uow, row, kind, kind.port_id == port_id)
        if found is None:
            raise exceptions.RouterInterfaceNotFound(router_id=row.id, port_id=port_id[:64])
        network = uow.session.get_one(NetworkRow, found.network_id)
        if subnet_id not in (None, ipv6.subnet_id_of(network, 4 if isinstance(found, RouterInterface) else 6)):
            raise exceptions.Conflict(f"Port {port_id} is not on subnet {subnet_id}.")
    else:
        network_id, version = networks.subnet_of(uow, subnet_id or "")
        kind = _KINDS[version]
        found = _interface(uow, row, kind, kind.network_id == network_id)
        if found is None:
            raise exceptions.RouterInterfaceNotFoundForSubnet(router_id=row.id, subnet_id=(subnet_id or "")[:64])
    _require_unneeded(uow, row, found)
    port = ports.get(uow, context, found.port_id)
    uow.session.delete(found)
    uow.session.flush()
    uow.change(sa.delete(Port).where(Port.id == port.id))
    uow.publish(FiltersChanged(row.project_id))
    return port


def _require_unneeded(uow: UnitOfWork, row: Row, found: RouterInterface | RouterInterface6) -> None:
    """Raise an error if a static route or a floating address needs an interface."""
    (network,) = builtin_networks.Store(uow).locked([found.network_id]).values()
    version = 4 if isinstance(found, RouterInterface) else 6
    subnet_id = ipv6.subnet_id_of(network, version)
    nexthops = [ip.parse(route["nexthop"]) for route in _routes(row)]
    if any(nexthop in subnet.range for nexthop in nexthops for subnet in _subnets(network, version)):
        raise exceptions.RouterInterfaceInUseByRoute(router_id=row.id, subnet_id=subnet_id)
    if version == 4 and _floating(uow, [found.network_id]):
        raise exceptions.RouterInterfaceInUseByFloatingIp(router_id=row.id, subnet_id=subnet_id)


def _floating(uow: UnitOfWork, network_ids: Collection[str]) -> set[str]:
    """Return the external networks with floating addresses that lead to ports of these networks, whole or in part."""
    if not network_ids:
        return set()
    whole = sa.select(FloatingIp.pool_id).join(Port, Port.id == FloatingIp.port_id)
    of_ports = sa.select(FloatingIp.pool_id).join(PortForwarding, PortForwarding.floating_ip_id == FloatingIp.id)
    queries = (whole, of_ports.join(Port, Port.id == PortForwarding.port_id))
    return set(uow.session.scalars(sa.union(*(query.where(Port.network_id.in_(network_ids)) for query in queries))))


def check_way_out(uow: UnitOfWork, network_id: str, port_id: str, pool_id: str) -> None:
    """Raise `ExternalGatewayMissing` unless floating addresses of this external network can lead to ports there.

    They need a router with a gateway to it, or a network with a way out of its own. It stays until the commit.
    """
    network = builtin_networks.Store(uow).locked([network_id])[network_id]
    router_id = uow.session.scalars(
        sa.select(RouterInterface.router_id).where(RouterInterface.network_id == network.id)
    ).first()
    if router_id is None and not network.needs_router:
        return
    query = sa.select(Row.pool_id).where(Row.id == router_id).with_for_update(read=True)
    if router_id is None or uow.session.scalars(query).first() != pool_id:
        subnet_id = ipv6.subnet_id_of(network)
        raise exceptions.ExternalGatewayMissing(network_id=pool_id, subnet_id=subnet_id, port_id=port_id)


def _connected(uow: UnitOfWork, router_id: str, kind: _Interface) -> list[Network]:
    """Return the networks of a router's interfaces of this kind."""
    query = sa.select(NetworkRow).join(kind, kind.network_id == NetworkRow.id)
    found = uow.session.scalars(query.where(kind.router_id == router_id).order_by(NetworkRow.id))
    return [rows.to_object(Network, row) for row in found]


# --- rows


def _to_object(uow: UnitOfWork, row: Row) -> Router:
    return _to_objects(uow, [row])[0]


def _to_objects(uow: UnitOfWork, found: Sequence[Row]) -> list[Router]:
    addresses = external_addresses.of_routers(uow, [row.id for row in found if row.pool_id is not None])
    return [
        rows.to_object(
            Router,
            row,
            routes=[StaticRoute(**route) for route in _routes(row)],
            addresses=addresses.get(row.id, []),
        )
        for row in found
    ]


def _routes(row: Row) -> list[dict[str, str]]:
    return [*row.routes, *(row.routes6 or [])]


def _visible(context: RequestContext, row: Row) -> bool:
    return context.is_admin or row.project_id == context.project_id


def locked(uow: UnitOfWork, context: RequestContext, router_id: str) -> Row:
    query = sa.select(Row).where(Row.id == router_id).with_for_update().execution_options(populate_existing=True)
    row = uow.session.scalars(query).first()
    if row is None or not _visible(context, row):
        raise exceptions.RouterNotFound(router_id=router_id[:64])
    if_match.check(context, row)
    return row

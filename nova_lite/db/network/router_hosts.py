"""Routers as hosts carry them out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
import sqlalchemy as sa

from nova_lite.base import ip
from nova_lite.db.core import rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, Port, Router, RouterInterface, RouterInterface6
from nova_lite.db.core.models import Network as NetworkRow
from nova_lite.db.network import external_addresses
from nova_lite.db.servers import interfaces
from nova_lite.objects import HostRouter, Network, StaticRoute

_NETWORK_FIELDS = rows.shared_fields(Network, NetworkRow)
#: Routers that are up, with the networks that they connect, once for each IP version.
_INTERFACES = sa.union_all(
    *(
        sa.select(
            Router.id.label("router_id"),
            Router.pool_id,
            Router.enable_snat,
            Router.routes,
            Router.routes6,
            external_addresses.OF_ROUTER,
            sa.literal(version).label("version"),
            *(getattr(NetworkRow, name) for name in _NETWORK_FIELDS),
        )
        .join(kind, kind.router_id == Router.id)
        .join(NetworkRow, NetworkRow.id == kind.network_id)
        .where(Router.id.in_(sa.bindparam("routers", expanding=True)), Router.admin_state_up == sa.true())
        for version, kind in ((4, RouterInterface), (6, RouterInterface6))
    )
)
_NETWORKS = sa.select(*(getattr(NetworkRow, name) for name in _NETWORK_FIELDS)).where(
    NetworkRow.id.in_(sa.bindparam("ids", expanding=True))
)
#: Hosts with guests or services of routers, those with the oldest ones first.
_GUEST_HOST = sa.func.coalesce(Instance.host, Port.bound_host)
_GUEST_HOSTS = (
    sa.select(RouterInterface.router_id, _GUEST_HOST)
    .join(Port, Port.network_id == RouterInterface.network_id)
    .outerjoin(Instance, Instance.uuid == Port.instance_uuid)
    .where(RouterInterface.router_id.in_(sa.bindparam("routers", expanding=True)), _GUEST_HOST.is_not(None))
    .group_by(RouterInterface.router_id, _GUEST_HOST)
    .order_by(sa.func.min(Port.created_at), sa.func.min(Port.id))
)
#: Guests and services on networks that span hosts.
_NEIGHBOURS = sa.select(Port.network_id, Port.mac_address, Port.address, Port.address6, interfaces.FURTHER).where(
    Port.network_id.in_(sa.bindparam("networks", expanding=True)),
    sa.or_(Port.instance_uuid.is_not(None), Port.bound_host.is_not(None)),
)


def for_hosts(uow: UnitOfWork, here: Mapping[str, Mapping[str, Collection[str]]]) -> dict[str, list[HostRouter]]:
    """Return the routers of each host. ``here``: by host and router, the router's networks with guests there.

    A host with guests on one of a router's networks that span hosts has all of these, so that it can pass packets to
    guests of other hosts. It has others only with guests of its own.
    """
    wanted = {router_id for routers in here.values() for router_id in routers}
    if not wanted:
        return {host: [] for host in here}
    complete: dict[str, HostRouter] = {}
    addresses: dict[str, list[str]] = {}
    connected: dict[str, dict[str, tuple[Network, set[int]]]] = {}
    for router_id, pool_id, snat, routes, routes6, own, version, *values in uow.rows(
        _INTERFACES, {"routers": wanted}
    ).all():
        static = [StaticRoute(**route) for route in (*routes, *(routes6 or ()))]
        complete[router_id] = HostRouter(id=router_id, external=pool_id is not None, snat=snat, routes=static)
        if own:
            addresses[router_id] = sorted(own.split(" "), key=ip.parse4)
        network = _network(values)
        connected.setdefault(router_id, {}).setdefault(network.id, (network, set()))[1].add(version)
    for router_id, router in complete.items():
        found = sorted(connected[router_id].values(), key=lambda item: item[0].id)
        # A network without an IPv4 subnet has no guests. An operator's IPv6 subnet has no interface of its own.
        router.networks = [network for network, _ in found if network.cidr]
        router.only = {
            network.id: min(versions)
            for network, versions in found
            if network.cidr and network.subnet6 is not None and len(versions) == 1
        }
    spanning = {item.id for router in complete.values() for item in router.networks if item.vni is not None}
    neighbours = _neighbours(uow, spanning)
    held = _held(uow, addresses) if addresses else {}
    return {
        host: [
            _on_host(complete[router_id], networks_here, neighbours, held.get((router_id, host), ""))
            for router_id, networks_here in sorted(routers.items())
            if router_id in complete
        ]
        for host, routers in here.items()
    }


def networks(uow: UnitOfWork, ids: Collection[str]) -> dict[str, Network]:
    """Return these networks, by id."""
    return {row.id: row for row in map(_network, uow.rows(_NETWORKS, {"ids": ids}))} if ids else {}


def _network(values: Iterable[Any]) -> Network:
    return Network(**dict(zip(_NETWORK_FIELDS, values, strict=True)))


def _neighbours(uow: UnitOfWork, network_ids: Collection[str]) -> dict[str, dict[str, str]]:
    """Return, by network, the MAC addresses of its guests by address."""
    found: dict[str, dict[str, str]] = {}
    for network_id, mac_address, *addresses in uow.rows(_NEIGHBOURS, {"networks": network_ids}) if network_ids else ():
        found.setdefault(network_id, {}).update(
            {address: mac_address for text in addresses if text for address in text.split(" ")}
        )
    return found


def _held(uow: UnitOfWork, addresses: Mapping[str, list[str]]) -> dict[tuple[str, str], str]:
    """Return the addresses of routers by router and the host that has it: each host has one, oldest guests first.

    So a new guest takes an address from no other host.
    """
    found: dict[tuple[str, str], str] = {}
    left = {router_id: iter(mine) for router_id, mine in addresses.items()}
    for router_id, host in uow.rows(_GUEST_HOSTS, {"routers": left}).all():
        if address := next(left[router_id], ""):
            found[router_id, host] = address
    return found


def _on_host(
    router: HostRouter, here: Collection[str], neighbours: Mapping[str, dict[str, str]], address: str
) -> HostRouter:
    spans = any(item.vni is not None and item.id in here for item in router.networks)
    shown = [item for item in router.networks if item.id in here or (spans and item.vni is not None)]
    known = {item.id: neighbours[item.id] for item in shown if item.id in neighbours}
    connected = _ranges(router, router.networks)
    only = {item.id: router.only[item.id] for item in shown if item.id in router.only}
    through = _ranges(router, shown)
    static: dict[int, list[StaticRoute]] = {4: [], 6: []}
    for route in router.routes:
        nexthop = ip.parse(route.nexthop)
        if any(nexthop in item for item in through) and ip.parse_network(route.destination) not in connected:
            static[nexthop.version].append(route)
    return msgspec.structs.replace(
        router, networks=shown, neighbours=known, routes=static[4], routes6=static[6], only=only, address=address
    )


def _ranges(router: HostRouter, connected: Iterable[Network]) -> set[ip.Network]:
    """Return the subnets of these networks that the router connects."""
    return {
        ip.parse_network(cidr)
        for item in connected
        for version, cidr in ((4, item.cidr), (6, item.cidr6))
        if cidr and router.only.get(item.id, version) == version
    }

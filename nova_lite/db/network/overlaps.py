"""Ranges of networks that may not overlap.

Hosts have the networks of each router in a realm of their own (docs/adr/0053), so two networks may have the same
addresses. The ranges of these differ:

- subnets of one network, and of one router with its external network (`nova_lite.db.network.routers`);
- pools of floating addresses;
- networks whose addresses leave a host untranslated, from each other, from pools, and from machines of the cloud.

While a conductor or a host is of an older version, which has one routing table for all networks, all ranges differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network
from typing import Any

import sqlalchemy as sa

from nova_lite.base import exceptions, ip, version
from nova_lite.base.context import RequestContext
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import (
    ComputeNode,
    FloatingIpPool,
    Network,
    Router,
    RouterInterface,
    RouterInterface6,
    Service,
)
from nova_lite.db.hosts import compute_nodes, services
from nova_lite.hardware import traits
from nova_lite.objects import Network as NetworkObject

#: Beginning of the names of bridges that are ours. The beginning of the network's id follows.
BRIDGE = "nlbr"

#: Lock of checks that compare networks of several projects, as if of a project. Routers, networks and pools are locked
#: before it.
_RANGES = ""

#: Condition of a network on a bridge of the operator's, where hosts translate nothing.
_OF_OPERATOR = sa.and_(
    Network.parent_id.is_(None), sa.func.substr(Network.bridge, 1, 12) != BRIDGE + sa.func.substr(Network.id, 1, 8)
)


def are_allowed(uow: UnitOfWork) -> bool:
    """Check whether all conductors that are up, and all hosts, are of versions with realms."""
    others = sa.select(Service.id).where(
        Service.binary == services.CONDUCTOR, Service.up.is_(True), Service.version != version.VERSION
    )
    known = sa.func.coalesce(ComputeNode.inventory["capabilities"][traits.CAPABILITY].as_string(), "")
    hosts = sa.select(ComputeNode.id).where(~known.contains(traits.REALMS))
    return all(uow.session.scalars(query.limit(1)).first() is None for query in (others, hosts))


def is_of_operator(network: Network | NetworkObject) -> bool:
    """Check whether a network is on a bridge of the operator's."""
    return network.parent_id is None and not network.bridge.startswith(BRIDGE + network.id[:8])


def check_subnet(uow: UnitOfWork, context: RequestContext, network: Network | NetworkObject, cidr: str) -> None:
    """Raise `InvalidInput` or `Conflict` for the range of a new subnet. The network is locked, or new."""
    wanted = ip.parse_network(cidr)
    column = Network.cidr if wanted.version == 4 else Network.cidr6
    same = sa.or_(Network.id == network.public_id, Network.parent_id == network.public_id)
    of_network = uow.session.scalars(sa.select(column).where(same, column != "")).all()
    if theirs := _overlapping(wanted, of_network):
        raise _taken(network, cidr, f"{theirs} of this network")
    if not are_allowed(uow):
        quotas.lock(uow, _RANGES)
        if not context.is_admin:
            _check_machines(uow, wanted)
        _check_all(uow, network, wanted)
    if is_of_operator(network):
        check_outside(uow, context, [(network.subnet_id or network.id, wanted)])


def _overlapping(wanted: ip.Network, others: Iterable[str]) -> str | None:
    return next((text for text in others if text and wanted.overlaps(ip.parse_network(text, strict=False))), None)


def _taken(network: Network | NetworkObject, cidr: str, by: str) -> exceptions.InvalidInput:
    return exceptions.InvalidInput(
        reason=f"Requested subnet with cidr: {cidr} for network: {network.public_id} overlaps with another subnet, {by}"
    )


def _check_all(uow: UnitOfWork, network: Network | NetworkObject, wanted: ip.Network) -> None:
    """Raise `InvalidInput` if any other network or pool has addresses of the range."""
    column = Network.cidr if wanted.version == 4 else Network.cidr6
    others = sa.union_all(sa.select(column).where(Network.id != network.id), sa.select(FloatingIpPool.cidr))
    if _overlapping(wanted, uow.session.scalars(others)):
        raise _taken(network, str(wanted), "and networks have different ranges until this cloud's upgrade is complete")


def _check_machines(uow: UnitOfWork, wanted: ip.Network) -> None:
    """Raise `InvalidInput` for a range that machines of the cloud use: hosts would not reach these any more."""
    if any(ip.is_address(address) and ip.parse(address) in wanted for address in compute_nodes.addresses(uow)):
        raise exceptions.InvalidInput(reason=f"{wanted} overlaps with addresses of this cloud's hosts")
    for network in compute_nodes.networks_in_use(uow, wanted.version):
        if network.overlaps(wanted):
            raise exceptions.InvalidInput(
                reason=f"{wanted} overlaps with a network that machines of this cloud use. Choose another range"
            )


def check_outside(
    uow: UnitOfWork, context: RequestContext, subnets: Sequence[tuple[str, ip.Network]], router_id: str | None = None
) -> None:
    """Raise `Conflict` or `InvalidInput` if others outside have addresses of these subnets, which show theirs there.

    ``subnets``: ids and ranges. ``router_id``: their router. No other range of this kind comes until the commit.
    """
    quotas.lock(uow, _RANGES)
    pools = uow.session.execute(sa.select(FloatingIpPool.name, FloatingIpPool.cidr).where(FloatingIpPool.cidr != ""))
    others = [(f"external network {name}", cidr) for name, cidr in pools]
    for network, cidr in _outside(uow, router_id):
        is_known = context.is_admin or network.project_id in (None, context.project_id)
        others.append((f"network {network.public_id}" if is_known else "a network of another project", cidr))
    for subnet_id, wanted in subnets:
        for whose, cidr in others:
            if _overlapping(wanted, [cidr]):
                raise exceptions.Conflict(
                    f"Addresses of subnet {subnet_id} ({wanted}) would leave this cloud untranslated, and overlap with "
                    f"{cidr} of {whose}."
                )
        if not context.is_admin:
            _check_machines(uow, wanted)


def _outside(uow: UnitOfWork, router_id: str | None = None) -> list[tuple[Network, str]]:
    """Return networks, with ranges of theirs, whose addresses leave hosts untranslated.

    ``router_id``: without those of this router.
    """
    found = [
        (network, cidr)
        for network in uow.session.scalars(sa.select(Network).where(_OF_OPERATOR))
        for cidr in (network.cidr, network.cidr6)
    ]
    for kind in (RouterInterface, RouterInterface6):
        query: sa.Select[Any] = sa.select(Network).join(kind, kind.network_id == Network.id)
        query = query.join(Router, Router.id == kind.router_id).where(
            Router.pool_id.is_not(None), Router.enable_snat == sa.false(), Router.id != (router_id or "")
        )
        for network in uow.session.scalars(query):
            # The IPv4 interface connects the IPv6 subnet of an operator's network, too.
            is_whole = kind is RouterInterface and network.subnet6 is None
            found += [(network, network.cidr)] if kind is RouterInterface else []
            found += [(network, network.cidr6)] if is_whole or kind is RouterInterface6 else []
    return found


def check_pool(uow: UnitOfWork, wanted: IPv4Network, pool_id: str | None = None) -> None:
    """Raise `InvalidInput` if another pool, a network that leads to this one, or one whose addresses leave a host
    untranslated has addresses of the range.
    """
    quotas.lock(uow, _RANGES)
    others = [(row.name, row.cidr) for row in uow.session.scalars(sa.select(FloatingIpPool))]
    others += [(network.name, cidr) for network, cidr in _outside(uow)]
    connected = sa.select(Network).join(RouterInterface, RouterInterface.network_id == Network.id)
    connected = connected.join(Router, Router.id == RouterInterface.router_id).where(Router.pool_id == (pool_id or ""))
    if not are_allowed(uow):
        connected = sa.select(Network)
    others += [(network.name, network.cidr) for network in uow.session.scalars(connected)]
    for name, theirs in others:
        if _overlapping(wanted, [theirs]):
            raise exceptions.InvalidInput(reason=f"{wanted} overlaps with {name} ({theirs})")

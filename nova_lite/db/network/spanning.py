"""Networks that span hosts, and the hosts with guests on each."""

from __future__ import annotations

import types
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Allocation, ComputeNode, Instance, Port, Service, TrunkSubport
from nova_lite.db.core.models import Network as NetworkRow
from nova_lite.db.hosts import services
from nova_lite.objects import HostRouter, Network


def _ends(*columns: Any) -> sa.Select[Any]:
    """Select, for ports on networks with a VNI, the compute nodes with an allocation of their instances: both nodes of
    a moving one.
    """
    query = sa.select(*columns).select_from(Port).join(NetworkRow, NetworkRow.id == Port.network_id)
    query = query.join(Allocation, Allocation.instance_uuid == Port.instance_uuid)
    query = query.join(ComputeNode, ComputeNode.id == Allocation.compute_node_id)
    return query.where(NetworkRow.vni.is_not(None)).distinct()


def _bound_ends(*columns: Any) -> sa.Select[Any]:
    """Select the same for ports that services have on hosts."""
    query = sa.select(*columns).select_from(Port).join(NetworkRow, NetworkRow.id == Port.network_id)
    query = query.join(ComputeNode, ComputeNode.host == Port.bound_host)
    return query.where(NetworkRow.vni.is_not(None)).distinct()


def _arriving_ends(*columns: Any) -> sa.Select[Any]:
    """Select the same for subports of servers that move to hosts."""
    query = sa.select(*columns).select_from(Port).join(NetworkRow, NetworkRow.id == Port.network_id)
    query = query.join(TrunkSubport, TrunkSubport.port_id == Port.id)
    query = query.join(ComputeNode, ComputeNode.host == TrunkSubport.arriving_host)
    return query.where(NetworkRow.vni.is_not(None)).distinct()


_MINE = _ends(Port.network_id, ComputeNode.host).where(ComputeNode.host.in_(sa.bindparam("hosts", expanding=True)))
_ENDS = _ends(Port.network_id, ComputeNode.id, ComputeNode.host).where(
    Port.network_id.in_(sa.bindparam("networks", expanding=True))
)
_BOUND_MINE = _bound_ends(Port.network_id, ComputeNode.host).where(
    Port.bound_host.in_(sa.bindparam("hosts", expanding=True))
)
_BOUND_ENDS = _bound_ends(Port.network_id, ComputeNode.id, ComputeNode.host).where(
    Port.network_id.in_(sa.bindparam("networks", expanding=True))
)
_ARRIVING_MINE = _arriving_ends(Port.network_id, ComputeNode.host).where(
    TrunkSubport.arriving_host.in_(sa.bindparam("hosts", expanding=True))
)
_ARRIVING_ENDS = _arriving_ends(Port.network_id, ComputeNode.id, ComputeNode.host).where(
    Port.network_id.in_(sa.bindparam("networks", expanding=True))
)
#: A query of its own: `_ENDS` would read the same inventory once for each port.
_REACHED = sa.select(ComputeNode.id, ComputeNode.inventory["tunnel_ip"].as_string()).where(
    ComputeNode.id.in_(sa.bindparam("nodes", expanding=True))
)


def peers(
    uow: UnitOfWork, hosts: Collection[str], routed: Mapping[str, Collection[HostRouter]] = types.MappingProxyType({})
) -> dict[str, dict[str, list[str]]]:
    """Return, by host and network on it, the tunnel addresses of the network's other hosts.

    ``routed``: routers by host. Each host of a router has all of its networks that span hosts.
    """
    mine = {
        (network_id, host)
        for query in (_MINE, *([_BOUND_MINE, _ARRIVING_MINE] if uow.conf.wings else []))
        for network_id, host in uow.rows(query, {"hosts": hosts})
    }
    together = _connected(routed)
    mine |= {(network.id, host) for host, routers in routed.items() for network in _spanning(routers)}
    ends = _reached(uow, {end for network_id, _ in mine for end in together.get(network_id, {network_id})})
    found: dict[str, dict[str, list[str]]] = {host: {} for host in hosts}
    for network_id, host in mine:
        every = [end for item in sorted(together.get(network_id, {network_id})) for end in ends.get(item, ())]
        if network_id in ends or every:
            found[host][network_id] = sorted({address for address, at in every if at != host})
    return found


def _spanning(routers: Iterable[HostRouter]) -> list[Network]:
    return [network for router in routers for network in router.networks if network.vni is not None]


def _connected(routed: Mapping[str, Collection[HostRouter]]) -> dict[str, set[str]]:
    """Return, by network that spans hosts, all such networks of its router."""
    groups = [{network.id for network in _spanning([router])} for routers in routed.values() for router in routers]
    return {network_id: group for group in groups for network_id in group}


def _reached(uow: UnitOfWork, networks: Collection[str]) -> dict[str, list[tuple[str, str]]]:
    """Return, by network, tunnel addresses with their hosts, in order. Hosts that reported none are left out."""
    values = {"networks": networks}
    ends = (
        {
            tuple(row)
            for query in (_ENDS, *([_BOUND_ENDS, _ARRIVING_ENDS] if uow.conf.wings else []))
            for row in uow.rows(query, values)
        }
        if networks
        else set()
    )
    nodes = {node_id for _, node_id, _ in ends}
    reached = dict(uow.rows(_REACHED, {"nodes": nodes}).tuples().all()) if nodes else {}
    found: dict[str, list[tuple[str, str]]] = {network_id: [] for network_id, _, _ in ends}
    for network_id, node_id, host in ends:
        if address := reached.get(node_id):
            found[network_id].append((address, host))
    return {network_id: sorted(addresses) for network_id, addresses in found.items()}


def hosts(uow: UnitOfWork, projects: Collection[str], changed: Collection[str]) -> list[str]:
    """Return hosts that are up and share such a network with an instance of ``projects`` or with a ``changed`` one."""
    theirs = (
        sa.select(Port.network_id).join(NetworkRow, NetworkRow.id == Port.network_id).where(NetworkRow.vni.is_not(None))
    )
    of_projects = theirs.join(Instance, Instance.uuid == Port.instance_uuid).where(
        Instance.project_id.in_(projects), Instance.deleted == sa.false()
    )
    of_changed = theirs.where(Port.instance_uuid.in_(changed))
    # Two queries: a condition joined by "or" would read all ports.
    asked = ([of_projects] if projects else []) + ([of_changed] if changed else [])
    networks = {scalar for query in asked for scalar in uow.session.scalars(query.distinct())}
    if not networks:
        return []
    query = _ends(ComputeNode.host).where(Port.network_id.in_(networks))
    down = sa.select(Service.host).where(Service.binary == services.COMPUTE, Service.up.is_(False))
    found = {*uow.session.scalars(query.where(ComputeNode.host.not_in(down)))}
    if not uow.conf.wings:
        return sorted(found)
    bound = _bound_ends(ComputeNode.host).where(Port.network_id.in_(networks), ComputeNode.host.not_in(down))
    return sorted(found.union(uow.session.scalars(bound)))

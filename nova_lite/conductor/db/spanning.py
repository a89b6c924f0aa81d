"""Networks that span hosts: which hosts have guests on one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from nova_lite.conductor.db import services
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Allocation, ComputeNode, Instance, Network, Port, Service


def _ends(*columns: Any) -> sa.Select[Any]:
    """Of the ports on networks with a VNI, the compute nodes at which something is held for their instances: of one
    that moves, both."""
    query = sa.select(*columns).select_from(Port).join(Network, Network.id == Port.network_id)
    query = query.join(Allocation, Allocation.instance_uuid == Port.instance_uuid)
    query = query.join(ComputeNode, ComputeNode.id == Allocation.compute_node_id)
    return query.where(Network.vni.is_not(None)).distinct()


_MINE = _ends(Port.network_id).where(ComputeNode.host == sa.bindparam("host"))


def peers(uow: UnitOfWork, host: str) -> dict[str, list[str]]:
    """Of each such network that something of ``host`` is on, where the other hosts that it spans are reached."""
    mine = uow.rows(_MINE, {"host": host}).scalars().all()
    if not mine:
        return {}
    query = _ends(Port.network_id, ComputeNode.id, ComputeNode.host).where(Port.network_id.in_(mine))
    ends = uow.session.execute(query).all()
    nodes = {node_id for _, node_id, at in ends if at != host}
    inventories = sa.select(ComputeNode.id, ComputeNode.inventory).where(ComputeNode.id.in_(nodes))
    reached = {row.id: row.inventory for row in uow.session.execute(inventories)} if nodes else {}
    found: dict[str, set[str]] = {network_id: set() for network_id, _, _ in ends}
    for network_id, node_id, _ in ends:
        address = reached.get(node_id, {}).get("tunnel_ip")
        if address:
            found[network_id].add(address)
    return {network_id: sorted(addresses) for network_id, addresses in found.items()}


def hosts(uow: UnitOfWork, projects: Collection[str], changed: Collection[str]) -> list[str]:
    """Those that are up, and share such a network with an instance of ``projects``, or with one of ``changed``."""
    theirs = sa.select(Port.network_id).join(Network, Network.id == Port.network_id).where(Network.vni.is_not(None))
    of_projects = theirs.join(Instance, Instance.uuid == Port.instance_uuid).where(
        Instance.project_id.in_(projects), Instance.deleted == sa.false()
    )
    of_changed = theirs.where(Port.instance_uuid.in_(changed))
    # One after the other: joined by "or", they would read all ports.
    asked = ([of_projects] if projects else []) + ([of_changed] if changed else [])
    networks = {each for query in asked for each in uow.session.scalars(query.distinct())}
    if not networks:
        return []
    query = _ends(ComputeNode.host).where(Port.network_id.in_(networks))
    down = sa.select(Service.host).where(Service.binary == services.COMPUTE, Service.up.is_(False))
    return sorted(uow.session.scalars(query.where(ComputeNode.host.not_in(down))))

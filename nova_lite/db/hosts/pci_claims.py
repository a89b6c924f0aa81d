"""Claims of PCI devices, under the lock of the node's row.

Each claimed device has a row. The key of the table admits one, on any database, whatever a transaction has read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import ComputeNode, PCIClaim
from nova_lite.objects import PCIDevice

#: States of a claim.
CLAIMED, LOST, REPORTED = "claimed", "lost", "reported"

_ADDRESSES = (
    sa.select(PCIClaim.address).where(PCIClaim.compute_node_id == sa.bindparam("node_id")).order_by(PCIClaim.address)
)


def used(uow: UnitOfWork, node_id: int) -> list[str]:
    """Return the addresses of claimed devices. The caller holds the lock of the node's row."""
    return list(uow.session.connection().execute(_ADDRESSES, {"node_id": node_id}).scalars())


def insert(uow: UnitOfWork, node_id: int, instance_uuid: str, devices: Iterable[PCIDevice]) -> None:
    """Write the claims of chosen devices. Fails as a whole if one of them has a claim."""
    common = {"compute_node_id": node_id, "instance_uuid": instance_uuid, "state": CLAIMED, "created_at": uow.now}
    rows = [{**common, "address": device.address, "alias": device.alias} for device in devices]
    uow.session.connection().execute(sa.insert(PCIClaim), rows)


def delete(uow: UnitOfWork, node_id: int, released: Iterable[dict[str, Any]]) -> list[str] | None:
    """Delete the claims of these devices of released allocations. Return the node's ``pci_used`` without them."""
    uow.session.execute(sa.select(ComputeNode.id).where(ComputeNode.id == node_id).with_for_update())
    addresses = [device["address"] for device in released]
    uow.change(sa.delete(PCIClaim).where(PCIClaim.compute_node_id == node_id, PCIClaim.address.in_(addresses)))
    return used(uow, node_id) or None


# --- devices that vanish


def compare(uow: UnitOfWork, node_id: int, offered: Sequence[str]) -> None:
    """Record which claimed devices a host does not offer any more, or offers again. ``offered``: addresses."""
    of_node = PCIClaim.compute_node_id == node_id
    is_gone = sa.and_(of_node, PCIClaim.state == CLAIMED, PCIClaim.address.not_in(offered))
    is_back = sa.and_(of_node, PCIClaim.state != CLAIMED, PCIClaim.address.in_(offered))
    uow.change(sa.update(PCIClaim).where(is_gone).values(state=LOST))
    uow.change(sa.update(PCIClaim).where(is_back).values(state=CLAIMED))


def lost(uow: UnitOfWork, limit: int = 100) -> list[str]:
    """Return servers that have lost devices of which nothing has been reported yet."""
    query = sa.select(PCIClaim.instance_uuid).where(PCIClaim.state == LOST).distinct().limit(limit)
    return list(uow.session.scalars(query))


def take_lost(uow: UnitOfWork, instance_uuid: str) -> list[str]:
    """Mark the lost devices of a server as reported, and return their aliases. The caller holds the server's lock."""
    is_lost = sa.and_(PCIClaim.instance_uuid == instance_uuid, PCIClaim.state == LOST)
    aliases = list(uow.session.scalars(sa.select(PCIClaim.alias).where(is_lost).with_for_update()))
    uow.change(sa.update(PCIClaim).where(is_lost).values(state=REPORTED))
    return aliases

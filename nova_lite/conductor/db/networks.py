"""Networks and ports of the built-in network backend."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from nova_lite import exception
from nova_lite.conductor.db import models, rows
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.statements import insert_unless_taken
from nova_lite.context import RequestContext
from nova_lite.objects import VIF, Network
from nova_lite.objects.instance import version_of

_PORT = rows.shared_fields(VIF, models.Port)
_NETWORK = rows.shared_fields(Network, models.Network)

#: The columns that `to_vif` makes an interface of.
VIF_COLUMNS = (
    *(getattr(models.Port, name) for name in _PORT),
    *(getattr(models.Network, name) for name in _NETWORK),
)


def to_vif(values: Sequence[Any]) -> VIF:
    """``values``: of `VIF_COLUMNS`."""
    port = dict(zip(_PORT, values, strict=False))
    network = Network(**dict(zip(_NETWORK, values[len(_PORT) :], strict=True)))
    return VIF(**port, network=network, version=version_of(port["address"]))


class Store:
    """What a network backend keeps, inside one transaction: see `nova_lite.network.driver.NetworkStore`.

    ``new``: uuids of instances that were never given any interface, so that none is looked for.
    """

    def __init__(self, uow: UnitOfWork, new: Collection[str] = ()) -> None:
        self._uow = uow
        self._session = uow.session
        self._new = new

    def networks(self, ids: Collection[str] | None = None) -> list[Network]:
        query = sa.select(models.Network).order_by(models.Network.name)
        if ids is not None:
            query = query.where(models.Network.id.in_(ids))
        return [rows.to_object(Network, row) for row in self._session.scalars(query)]

    def taken(self, network_id: str, addresses: Collection[str] | None = None) -> set[str]:
        query = sa.select(models.Port.address).where(models.Port.network_id == network_id)
        if addresses is not None:
            query = query.where(models.Port.address.in_(addresses))
        return set(self._session.scalars(query))

    def vifs(self, instance_uuid: str) -> list[VIF]:
        if instance_uuid in self._new:
            return []
        query = sa.select(*VIF_COLUMNS).join(models.Network, models.Network.id == models.Port.network_id)
        query = query.where(models.Port.instance_uuid == instance_uuid).order_by(models.Port.position)
        return [to_vif(row) for row in self._session.execute(query)]

    def add_port(
        self, instance_uuid: str, network_id: str, position: int, address: str, mac_address: str, tag: str | None
    ) -> str | None:
        port = {
            "id": str(uuid.uuid4()),
            "network_id": network_id,
            "instance_uuid": instance_uuid,
            "position": position,
            "mac_address": mac_address,
            "address": address,
            "tag": tag,
            "created_at": self._uow.now,
        }
        return str(port["id"]) if insert_unless_taken(self._uow, models.Port, port) else None

    def remove_ports(self, instance_uuid: str) -> None:
        self._uow.change(sa.delete(models.Port).where(models.Port.instance_uuid == instance_uuid))


def list_(uow: UnitOfWork, context: RequestContext) -> list[Network]:
    """What the context's project may use, by name; all for an admin."""
    query = sa.select(models.Network).order_by(models.Network.name)
    if not context.is_admin:
        query = query.where(
            sa.or_(models.Network.project_id.is_(None), models.Network.project_id == context.project_id)
        )
    return [rows.to_object(Network, row) for row in uow.session.scalars(query)]


def create(uow: UnitOfWork, network: Network) -> Network:
    """A new default takes the place of the one before (of the same project, or of the shared ones)."""
    if network.is_default:
        uow.session.execute(
            sa.update(models.Network)
            .where(models.Network.project_id.is_not_distinct_from(network.project_id))
            .values(is_default=False)
        )
    row = models.Network(**rows.values_of(network, models.Network), created_at=uow.now)
    rows.insert(uow, row, exception.NetworkExists(name=network.name))
    return rows.to_object(Network, row)


def delete(uow: UnitOfWork, name_or_id: str) -> Network:
    """`NetworkInUse` while any instance has an address on it."""
    query = sa.select(models.Network).where(sa.or_(models.Network.id == name_or_id, models.Network.name == name_or_id))
    found = uow.session.scalars(query).all()
    if not found:
        raise exception.NetworkNotFound(network_id=name_or_id)
    row = next((row for row in found if row.id == name_or_id), found[0])
    try:
        with uow.session.begin_nested():
            uow.session.delete(row)
    except exc.IntegrityError as error:
        raise exception.NetworkInUse(name=row.name) from error
    return rows.to_object(Network, row)

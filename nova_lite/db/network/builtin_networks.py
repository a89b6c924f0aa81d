"""Networks and ports of the built-in network backend."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Collection
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import exc

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import models, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.events import InterfacesChanged
from nova_lite.db.core.releases import collecting
from nova_lite.db.core.statements import insert_unless_taken
from nova_lite.db.network import rbac
from nova_lite.db.servers import interfaces
from nova_lite.network.driver import Addresses, StoredPort
from nova_lite.objects import VIF, Network

#: Conditions of a port that only a router may have: it is an interface of one, or has the address of the gateway.
OF_ROUTER = sa.or_(
    sa.exists().where(models.RouterInterface.port_id == models.Port.id),
    sa.exists().where(models.RouterInterface6.port_id == models.Port.id),
    sa.exists().where(models.Network.id == models.Port.network_id, models.Network.gateway == models.Port.address),
)

#: Condition of a network, not of a segment, that has an IPv4 subnet, or a segment that perhaps has one.
HAS_SUBNET = sa.and_(
    models.Network.parent_id.is_(None), sa.or_(models.Network.cidr != "", models.Network.is_segmented == sa.true())
)

#: Beginning of the owners of servers' ports, which the zone follows, and the zone of a server without one.
OF_SERVERS, DEFAULT_ZONE = "compute:", "nova"

#: Values of a port without an instance.
FREE: dict[str, Any] = {"instance_uuid": None, "position": 0, "tag": None, "state": None}


class Store:
    """Rows that a network backend keeps, inside one transaction: see `nova_lite.network.driver.NetworkStore`.

    ``new``: uuids of instances without any interface so far, so that no query looks for one. ``own_alone``: uuids of
    instances without user-made ports. ``projects``: projects whose networks this transaction needs, so that one query
    reads them.
    """

    def __init__(
        self,
        uow: UnitOfWork,
        new: Collection[str] = (),
        own_alone: Collection[str] = (),
        projects: Collection[str] = (),
    ) -> None:
        self._uow = uow
        self._session = uow.session
        self._new = new
        self._own_alone = own_alone
        self._projects = frozenset(projects)
        self._locked: dict[str, Network] = {}
        self._segments_of: dict[str, list[Network]] = {}
        #: Service types of IPv4 and IPv6 subnets that have some, by network or segment.
        self._service_types: dict[str, tuple[list[str] | None, list[str] | None]] = {}
        self.free: dict[str, list[str]] = {}

    def networks(self, ids: Collection[str] | None = None) -> list[Network]:
        query = sa.select(models.Network).order_by(models.Network.name)
        if ids is not None:
            query = query.where(models.Network.id.in_(ids))
        return [self._network(row) for row in self._session.scalars(query)]

    def is_external(self, network_id: str) -> bool:
        return self._session.get(models.FloatingIpPool, network_id) is not None

    def is_shared(self, network_id: str, project_id: str | None) -> bool:
        return rbac.is_shared(self._uow, "network", network_id, project_id)

    def usable(self, project_id: str | None) -> list[Network]:
        asked = self._projects | {project_id or ""}
        found = self._uow.once(
            ("usable networks", asked),
            lambda: [rows.to_object(Network, row) for (row,) in self._uow.found(_USABLE, {"projects": asked})],
        )
        return [network for network in found if network.project_id in (None, project_id)]

    def links(self, network: Network, instance_uuid: str | None = None) -> list[Network]:
        found = [network, *self.segments(network)]
        if instance_uuid is not None and any(link.id in self._service_types for link in found):
            zone = sa.select(models.Instance.availability_zone).where(models.Instance.uuid == instance_uuid)
            owner = f"{OF_SERVERS}{self._session.scalars(zone).first() or DEFAULT_ZONE}"
            found = [self.serving(link, owner) for link in found]
        return [link for link in found if link.cidr]

    def serving(self, link: Network, owner: str) -> Network:
        """Return a network or segment without the subnets whose service types do not name this owner of a port."""
        types, types6 = self._service_types.get(link.id, (None, None))
        if types and owner not in types:
            link = msgspec.structs.replace(link, cidr="")
        return msgspec.structs.replace(link, cidr6="", subnet6=None) if types6 and owner not in types6 else link

    def _network(self, row: models.Network) -> Network:
        if row.service_types or row.service_types6:
            self._service_types[row.id] = row.service_types, row.service_types6
        return rows.to_object(Network, row)

    def network_of(self, link_id: str) -> Network:
        """Return, locked, the network that has this id, or this segment."""
        query = sa.select(models.Network.parent_id).where(models.Network.id == link_id)
        network_id = self._session.scalars(query).one() or link_id
        return self.locked([network_id])[network_id]

    def segments(self, network: Network) -> list[Network]:
        """Return the segments of a network, oldest first. They are locked if the network is."""
        if not network.is_segmented:
            return []
        network_id = network.id
        if (known := self._segments_of.get(network_id)) is not None:
            return known
        query = sa.select(models.Network).where(models.Network.parent_id == network_id)
        query = query.order_by(models.Network.created_at, models.Network.id)
        if network_id not in self._locked:
            return [self._network(row) for row in self._session.scalars(query)]
        # The lock of the network keeps them from being added and removed.
        query = query.with_for_update(read=True, key_share=True).execution_options(populate_existing=True)
        found = self._segments_of[network_id] = [self._network(row) for row in self._session.scalars(query)]
        self._locked |= {segment.id: segment for segment in found}
        return found

    def locked(self, ids: Collection[str]) -> dict[str, Network]:
        new = set(ids) - self._locked.keys()
        if new:  # shared, as a port that refers to it locks it
            found = self._uow.found(_NETWORKS_LOCKED, {"ids": new})
            self._locked |= {row.id: self._network(row) for (row,) in found}
        return {item: self._locked[item] for item in ids if item in self._locked}

    def taken(self, network_id: str, addresses: Collection[str] | None = None, version: int = 4) -> set[str]:
        values = {"network_id": network_id} | ({} if addresses is None else {"addresses": addresses})
        found = self._uow.found(_taken(version, addresses is not None), values)
        return {address for (address,) in found if address is not None}

    def port(self, port_id: str) -> StoredPort | None:
        port, instance = models.Port, models.Instance
        owner = sa.func.coalesce(port.project_id, instance.project_id)
        has_address = port.address.is_not(None)
        columns = (port.network_id, owner, port.project_id, port.instance_uuid, OF_ROUTER, has_address, port.device_id)
        link = sa.select(models.Network.physical_network).where(models.Network.id == port.network_id)
        query = sa.select(*columns, port.vnic_type, link.scalar_subquery()).where(port.id == port_id)
        found = self._session.execute(query.outerjoin(instance, instance.uuid == port.instance_uuid)).first()
        return None if found is None else StoredPort(*found)

    def bind_port(self, port_id: str, instance_uuid: str, position: int, tag: str | None) -> bool:
        self._uow.publish(InterfacesChanged(instance_uuid))
        users = (models.Port.project_id.is_not(None), models.Port.address.is_not(None), ~OF_ROUTER)
        free = (models.Port.id == port_id, models.Port.instance_uuid.is_(None), models.Port.device_id == "", *users)
        taken = {"instance_uuid": instance_uuid, "position": position, "tag": tag, "updated_at": self._uow.now}
        taken["device_owner"] = ""  # as Nova: a port that a server has released has no owner
        return self._uow.change(sa.update(models.Port).where(*free).values(**taken)) == 1

    def vifs(self, instance_uuid: str) -> list[VIF]:
        if instance_uuid in self._new:
            return []
        query = sa.select(*interfaces.VIF_COLUMNS).join(models.Network, models.Network.id == models.Port.network_id)
        query = query.where(models.Port.instance_uuid == instance_uuid).order_by(models.Port.position)
        return [interfaces.to_vif(row) for row in self._session.execute(query)]

    def recorded(self, instance_uuid: str) -> list[VIF]:
        query = sa.select(models.Instance.network_info).where(models.Instance.uuid == instance_uuid)
        return msgspec.convert(self._session.scalars(query).one_or_none() or [], list[VIF])

    def record(self, instance_uuid: str, vifs: list[VIF] | None) -> None:
        known = None if vifs is None else msgspec.to_builtins(vifs)
        row = self._session.scalars(sa.select(models.Instance).where(models.Instance.uuid == instance_uuid)).one()
        row.network_info = known
        if vifs:
            row.security_groups = list(dict.fromkeys(name for vif in vifs for name in vif.security_groups or ()))
        self._session.flush()

    def add_port(
        self, instance_uuid: str, network_id: str, position: int, addresses: Addresses, tag: str | None
    ) -> str | None:
        port = {
            "id": str(uuid.uuid4()),
            "network_id": network_id,
            "instance_uuid": instance_uuid,
            "position": position,
            **addresses._asdict(),
            "tag": tag,
            "created_at": self._uow.now,
        }
        network = self._locked.get(network_id)
        if network is not None and not network.port_security_enabled:
            port |= {"port_security_enabled": False, "security_groups": []}
        self._uow.publish(InterfacesChanged(instance_uuid))
        return str(port["id"]) if insert_unless_taken(self._uow, models.Port, port) else None

    def remove_port(self, instance_uuid: str, port_id: str) -> None:
        self._remove(instance_uuid, models.Port.id == port_id)

    def remove_ports(self, instance_uuid: str) -> None:
        self._remove(instance_uuid)

    def _remove(self, instance_uuid: str, *which: sa.ColumnElement[bool]) -> None:
        """Free the ports that a user made, and delete the others."""
        self._uow.publish(InterfacesChanged(instance_uuid))
        is_own_alone = instance_uuid in self._own_alone
        if is_own_alone and not which:
            releases = collecting(self._uow)
            if releases is not None:
                releases.ports.add(instance_uuid)
            else:
                self._uow.change(_DELETE_PORTS, {"instance_uuid": instance_uuid})
            return
        mine = (models.Port.instance_uuid == instance_uuid, *which)
        if not is_own_alone:
            kept = sa.update(models.Port).where(*mine, models.Port.project_id.is_not(None))
            self._uow.change(kept.values(**FREE, updated_at=self._uow.now))
        self._uow.change(sa.delete(models.Port).where(*mine))


_PROJECT = models.Network.project_id
_USABLE = (
    sa.select(models.Network)
    .where(HAS_SUBNET, sa.or_(_PROJECT.is_(None), _PROJECT.in_(sa.bindparam("projects", expanding=True))))
    .order_by(models.Network.name)
)
_NETWORKS_LOCKED = (
    sa.select(models.Network)
    .where(models.Network.id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(models.Network.name)
    .with_for_update(read=True, key_share=True)
    .execution_options(populate_existing=True)
)
_DELETE_PORTS = sa.delete(models.Port).where(models.Port.instance_uuid == sa.bindparam("instance_uuid"))


@functools.cache
def _taken(version: int, is_limited: bool) -> sa.Select[str | None]:
    column = models.Port.address if version == 4 else models.Port.address6
    query = sa.select(column).where(models.Port.network_id == sa.bindparam("network_id"))
    return query.where(column.in_(sa.bindparam("addresses", expanding=True))) if is_limited else query


def with_segments(uow: UnitOfWork, ids: Collection[str]) -> list[str]:
    """Return the ids of these networks and of their segments."""
    network = models.Network
    query = sa.select(network.id).where(network.id.in_(ids), network.is_segmented == sa.true())
    segmented = uow.session.scalars(query).all()
    if not segmented:
        return list(ids)
    return [*ids, *uow.session.scalars(sa.select(network.id).where(network.parent_id.in_(segmented)))]


def set_port_state(uow: UnitOfWork, instance_uuid: str, port_id: str, state: str | None) -> None:
    port = models.Port
    uow.change(sa.update(port).where(port.instance_uuid == instance_uuid, port.id == port_id).values(state=state))


def list_(uow: UnitOfWork, context: RequestContext, network_id: str | None = None) -> list[Network]:
    """Return the networks that servers of the context's project may use, by name; all for an admin. Networks without a
    subnet are left out. ``network_id``: only this one.
    """
    query = sa.select(models.Network).where(HAS_SUBNET).order_by(models.Network.name)
    if network_id is not None:
        query = query.where(models.Network.id == network_id)
    if not context.is_admin:
        mine = [models.Network.project_id.is_(None), models.Network.project_id == context.project_id]
        # Read first: with a subquery in an OR, no database uses the index of either.
        if shared := uow.session.scalars(rbac.shared_with("network", [context.project_id or ""])).all():
            mine.append(models.Network.id.in_(shared))
        query = query.where(sa.or_(*mine))
    found = [rows.to_object(Network, row) for row in uow.session.scalars(query)]
    return [shown for shown in (_with_subnet(uow, network) for network in found) if shown is not None]


def _with_subnet(uow: UnitOfWork, network: Network) -> Network | None:
    """Return a network with the IPv4 subnet of its first segment if it has none of its own; None without any."""
    if network.cidr:
        return network
    links = Store(uow).links(network)
    return msgspec.structs.replace(links[0], id=network.id, parent_id=None) if links else None


def create(uow: UnitOfWork, network: Network) -> Network:
    """Create a network. A new default replaces the previous one of the same project, or of the shared networks."""
    if network.is_default:
        uow.session.execute(
            sa.update(models.Network)
            .where(models.Network.project_id.is_not_distinct_from(network.project_id))
            .values(is_default=False)
        )
    of_subnets = {"subnet_id": str(uuid.uuid4()), "subnet6_id": str(uuid.uuid4())}
    row = models.Network(**(rows.values_of(network, models.Network) | of_subnets), created_at=uow.now)
    uow.session.add(row)
    uow.session.flush()
    return rows.to_object(Network, row)


def delete(uow: UnitOfWork, name_or_id: str) -> Network:
    """Delete a network. Raises `NetworkInUse` while a port is on it."""
    query = sa.select(models.Network).where(sa.or_(models.Network.id == name_or_id, models.Network.name == name_or_id))
    query = query.where(models.Network.parent_id.is_(None))
    found = uow.session.scalars(query).all()
    if not found:
        raise exceptions.NetworkNotFound(network_id=name_or_id)
    row = next((row for row in found if row.id == name_or_id), found[0])
    if row.id != name_or_id and len(found) > 1:
        raise exceptions.Conflict(f"{len(found)} networks have the name {name_or_id}: say which by its id.")
    remove(uow, row)
    return rows.to_object(Network, row)


def remove(uow: UnitOfWork, row: models.Network) -> None:
    """Delete a network with its segments. Raises `NetworkInUse` while a port is on them."""
    try:
        with uow.session.begin_nested():
            if row.is_segmented:
                uow.change(sa.delete(models.Network).where(models.Network.parent_id == row.id))
            uow.session.delete(row)
    except exc.IntegrityError as error:
        raise exceptions.NetworkInUse(name=row.name) from error

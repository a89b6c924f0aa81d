"""Floating addresses: the operator's pools, the projects' addresses, and the ports that they lead to."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy import orm

from nova_lite.base import exceptions, ip
from nova_lite.base.context import RequestContext
from nova_lite.db.core import if_match, paging, quotas, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.events import FiltersChanged
from nova_lite.db.core.models import FloatingIp as Row
from nova_lite.db.core.models import FloatingIpPool as PoolRow
from nova_lite.db.core.models import Instance, Port, PortForwarding, Router, RouterInterface
from nova_lite.db.network import builtin_networks, external_addresses, further_addresses, overlaps, qos, rbac, routers
from nova_lite.db.servers import instances
from nova_lite.network import factory
from nova_lite.objects import FloatingIp, FloatingIpPool, ListQuery
from nova_lite.objects import PortForwarding as Forwarding
from nova_lite.objects.instance import version_of
from nova_lite.objects.network_api_resources import EXTERNAL

# --- pools


def pools(uow: UnitOfWork, context: RequestContext | None = None) -> list[FloatingIpPool]:
    """Return the pools that the caller may use, by name; without a context, all.

    All users may use the operator's pools. A policy names the projects that may use another one.
    """
    query = sa.select(PoolRow).order_by(PoolRow.name)
    if context is not None and not context.is_admin:
        project_id = context.project_id or ""
        external = rbac.shared_with("network", [project_id], EXTERNAL)
        mine = sa.or_(PoolRow.project_id.is_(None), PoolRow.project_id == project_id, PoolRow.id.in_(external))
        query = query.where(mine)
    return [rows.to_object(FloatingIpPool, row) for row in uow.session.scalars(query)]


def create_pool(uow: UnitOfWork, name: str, cidr: str) -> FloatingIpPool:
    """Create a pool. Raises `InvalidInput` for anything but an IPv4 network, and for a range that others have
    outside.
    """
    wanted = factory.pool_range(cidr)
    overlaps.check_pool(uow, wanted)
    ids = {"id": str(uuid.uuid4()), "subnet_id": str(uuid.uuid4())}
    row = PoolRow(**ids, name=name, cidr=str(wanted), created_at=uow.now)
    rows.insert(uow, row, exceptions.InvalidInput(reason=f"there is a pool {name} already"))
    return rows.to_object(FloatingIpPool, row)


def delete_pool(uow: UnitOfWork, name: str) -> None:
    """Delete a pool. Raises `Conflict` while a project has an address of it."""
    row = uow.session.scalars(sa.select(PoolRow).where(PoolRow.name == name).with_for_update()).first()
    if row is None:
        raise exceptions.NotFound(f"There is no pool {name}.")
    if uow.session.scalars(sa.select(Row.id).where(Row.pool_id == row.id)).first() is not None:
        raise exceptions.Conflict(f"Addresses of pool {name} are in use.")
    if uow.session.scalars(sa.select(Router.id).where(Router.pool_id == row.id)).first() is not None:
        raise exceptions.Conflict(f"Routers have their gateway to pool {name}.")
    uow.session.delete(row)


# --- addresses of projects


#: Filters of a list.
_FILTERS: dict[str, Any] = {
    "id": Row.id,
    "address": Row.address,
    "pool_id": Row.pool_id,
    "project_id": Row.project_id,
}


def list_(
    uow: UnitOfWork, context: RequestContext, all_projects: bool = False, query: ListQuery | None = None
) -> list[FloatingIp]:
    """Return the project's addresses; with ``all_projects`` and for an admin, all addresses.

    ``query``: a page of them, by id, with keys of `_FILTERS` and ``port_id``; None: all, in the order of addresses.
    """
    mine = sa.true() if all_projects and context.is_admin else Row.project_id == (context.project_id or "")
    if query is None:
        return sorted(_all(uow, _QUERY.where(mine)), key=lambda item: int(ip.parse(item.address)))
    filters = dict(query.filters)
    conditions = [_leads_to(filters.pop("port_id"))] if "port_id" in filters else []
    conditions += [_FILTERS[name].in_(values) for name, values in filters.items()]
    return _all(uow, paging.by_id(_QUERY, Row.id, [sa.and_(mine, *conditions)], query))


def _leads_to(port_ids: Collection[str]) -> sa.ColumnElement[bool]:
    """Build the condition that an address leads to one of these ports: to its first address, or to a further one."""
    return sa.or_(Row.port_id.in_(port_ids), Row.port_id.in_(sa.select(Port.id).where(Port.primary_id.in_(port_ids))))


def get(uow: UnitOfWork, context: RequestContext, reference: str) -> FloatingIp:
    """Return an address by its id or its text. Raises `FloatingIpNotFound`, also for another project's, except for an
    admin.
    """
    for found in _all(uow, _QUERY.where(sa.or_(Row.id == reference, Row.address == reference))):
        if context.is_admin or found.project_id == context.project_id:
            return found
    raise exceptions.FloatingIpNotFound(reference=reference[:64])


def allocate(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    context: RequestContext,
    pool: str | None,
    request: FloatingIp | None = None,
) -> FloatingIp:
    """Allocate an address from the pool with this name or id, or from the first pool.

    ``request`` may name the pool by ``pool_id``, an ``address`` ("" for any), a ``description``, and the target port.
    Raises `FloatingIpPoolNotFound`, `NoMoreFloatingIps` or `QuotaExceeded`; for an ``address``, `InvalidInput` or
    `Conflict`.
    """
    project_id = (request and request.project_id) or context.project_id
    if not project_id:
        raise exceptions.Forbidden("A floating address belongs to a project; this token is for none.")
    pool_id = request.pool_id if request is not None else ""
    found = [item for item in pools(uow, context) if pool in (None, item.name, item.id) and pool_id in ("", item.id)]
    if not found:
        raise exceptions.FloatingIpPoolNotFound(pool=(pool or pool_id)[:64])
    qos.check(uow, context, None if request is None else request.qos_policy_id)
    quotas.take(uow, conf, project_id, {"floating_ips": 1}, context.user_id)
    floating_id = str(uuid.uuid4())
    values = {
        "id": floating_id,
        "project_id": project_id,
        "user_id": context.user_id or "",
        "description": request and request.description,
        "tags": request and request.tags,
        "dns_name": request.dns_name if request is not None else "",
        "dns_domain": request.dns_domain if request is not None else "",
        "qos_policy_id": request and request.qos_policy_id,
    }
    address = request.address if request is not None else ""
    if not external_addresses.take(uow, found[0], values, address):
        raise exceptions.Conflict(f"Floating IP {address} is in use.")
    if request is not None and request.port_id:
        return lead(uow, context, floating_id, request.port_id, request.fixed_address)
    return get(uow, context, floating_id)


def update(uow: UnitOfWork, context: RequestContext, reference: str, changes: dict[str, Any]) -> FloatingIp:
    """Change ``description``, ``qos_policy_id``, or ``port_id`` (None: no target) with ``fixed_address`` (None: the
    port's own). Raises the errors of `lead` and `qos.check`.
    """
    found = _expected(uow, context, reference)
    values = {name: changes[name] for name in ("description", "qos_policy_id") if name in changes}
    if values:
        qos.check(uow, context, values.get("qos_policy_id", found.qos_policy_id), found.qos_policy_id)
        uow.change(sa.update(Row).where(Row.id == found.id).values(**values, updated_at=uow.now))
    if "qos_policy_id" in changes:
        _changed(uow, found.instance_uuid)
    if "port_id" not in changes:
        return get(uow, context, found.id)
    if changes["port_id"] is not None:
        return lead(uow, context, found.id, changes["port_id"], changes.get("fixed_address"))
    uow.change(sa.update(Row).where(Row.id == found.id).values(port_id=None, updated_at=uow.now))
    _changed(uow, found.instance_uuid)
    return get(uow, context, found.id)


def lead(
    uow: UnitOfWork, context: RequestContext, reference: str, port_id: str, fixed_address: str | None
) -> FloatingIp:
    """Lead the address to a port of its project, with or without a server. Its former target loses it.

    Raises `NoSuchPort`, `InvalidInput` for an address that the port does not have, `FloatingIpPortTaken` if another
    address leads there, `ExternalGatewayMissing`, or the errors of `require_unforwarded`.
    """
    found = get(uow, context, reference)
    port = uow.session.scalars(sa.select(Port).where(Port.id == port_id).with_for_update()).first()
    owner = None if port is None else port.project_id or project_of(uow, port.instance_uuid)
    if port is None or owner != found.project_id:
        raise exceptions.NoSuchPort(port_id=port_id)
    target_id = _target(uow, port, fixed_address)
    require_unforwarded(uow, found.id, port_id)
    other = uow.session.scalars(sa.select(Row.address).where(Row.port_id == target_id, Row.id != found.id)).first()
    if other is not None:
        raise exceptions.FloatingIpPortTaken(address=found.address, port_id=port_id, other=other)
    routers.check_way_out(uow, port.network_id, port.id, found.pool_id)
    uow.change(sa.update(Row).where(Row.id == found.id).values(port_id=target_id, updated_at=uow.now))
    _changed(uow, found.instance_uuid)
    _changed(uow, port.instance_uuid)
    if port.bound_host is not None:
        uow.publish(FiltersChanged(found.project_id))
    return get(uow, context, found.id)


def _target(uow: UnitOfWork, port: Port, fixed_address: str | None) -> str:
    """Return the id of a port's row that has an IPv4 address. None: its first one. Raises `InvalidInput`."""
    if port.address is None:
        raise exceptions.InvalidInput(reason=f"port {port.id} has no fixed address")
    if fixed_address in (None, port.address):
        return port.id
    row_id = further_addresses.rows_of(uow, port.id).get(fixed_address or "")
    if row_id is None or version_of(fixed_address or "") != 4:
        raise exceptions.InvalidInput(reason=f"port {port.id} does not have the fixed address {fixed_address}")
    return row_id


def require_unforwarded(uow: UnitOfWork, floating_id: str, port_id: str | None = None) -> None:
    """Lock the port and the address. Raises `FipInUseByPortForwarding` if the address has port forwardings, or
    `PortHasPortForwarding` if one leads to the port.
    """
    uow.session.execute(sa.select(Port.id).where(Port.id == port_id).with_for_update())
    uow.session.execute(sa.select(Row.id).where(Row.id == floating_id).with_for_update())
    of_address = sa.select(PortForwarding.id).where(PortForwarding.floating_ip_id == floating_id)
    if uow.session.scalars(of_address.limit(1)).first() is not None:
        raise exceptions.FipInUseByPortForwarding(id=floating_id)
    of_port = sa.select(PortForwarding.id).where(PortForwarding.port_id == port_id)
    if uow.session.scalars(of_port.limit(1)).first() is not None:
        raise exceptions.PortHasPortForwarding(port_id=port_id)


def project_of(uow: UnitOfWork, instance_uuid: str | None) -> str | None:
    return uow.session.scalars(sa.select(Instance.project_id).where(Instance.uuid == instance_uuid)).first()


def locked(uow: UnitOfWork, context: RequestContext, reference: str) -> Row:
    """Return the row of an address, locked. Raises `FloatingIpNotFound`."""
    found = get(uow, context, reference)
    row = uow.session.get(Row, found.id, with_for_update=True, populate_existing=True)
    if row is None:
        raise exceptions.FloatingIpNotFound(reference=reference[:64])
    if_match.check(context, row)
    return row


def _expected(uow: UnitOfWork, context: RequestContext, reference: str) -> FloatingIp:
    """Return an address. It is locked, and its revision is compared, if the request names one."""
    if context.revision is not None:
        locked(uow, context, reference)
    return get(uow, context, reference)


def release(uow: UnitOfWork, context: RequestContext, reference: str) -> None:
    """Release the address: it loses its target and returns to the pool. Raises `FipInUseByPortForwarding`."""
    found = _expected(uow, context, reference)
    require_unforwarded(uow, found.id)
    if uow.change(sa.delete(Row).where(Row.id == found.id)):
        quotas.give_back(uow, found.project_id, {"floating_ips": 1})
        _changed(uow, found.instance_uuid)


def associate(
    uow: UnitOfWork, context: RequestContext, instance_uuid: str, address: str, fixed_address: str | None
) -> None:
    """Lead the address to the instance's interface with ``fixed_address``, or to its first interface. Its former target
    loses it. An interface has at most one floating address.
    """
    instance = instances.get_row(uow, context, instance_uuid, lock=True)
    found = get(uow, context, address)
    if found.project_id != instance.project_id:
        raise exceptions.FloatingIpNotFound(reference=address)
    if instance.locked and not context.is_admin:
        raise exceptions.InstanceIsLocked(instance_id=instance_uuid)
    ports = builtin_networks.Store(uow).vifs(instance_uuid)
    port = next((vif for vif in ports if fixed_address in (None, vif.address)), None)
    if port is None:
        what = (
            f"Specified fixed address {fixed_address} is not assigned" if fixed_address else "No fixed IPs associated"
        )
        raise exceptions.Invalid(f"{what} to instance {instance_uuid}")
    if port.floating_address not in (None, found.address):
        raise exceptions.Invalid(f"Floating IP {port.floating_address} leads to {port.address} already.")
    require_unforwarded(uow, found.id, port.id)
    routers.check_way_out(uow, port.network.id, port.id, found.pool_id)
    uow.change(sa.update(Row).where(Row.id == found.id).values(port_id=port.id, updated_at=uow.now))
    _changed(uow, found.instance_uuid)
    instance.updated_at = uow.now
    uow.publish(FiltersChanged(instance.project_id))


def disassociate(uow: UnitOfWork, context: RequestContext, instance_uuid: str, address: str) -> None:
    """Remove the target. Raises `FloatingIpNotAssociated` unless the address leads to this instance."""
    instance = instances.get_row(uow, context, instance_uuid, lock=True)
    found = get(uow, context, address)
    if found.instance_uuid != instance.uuid:
        raise exceptions.FloatingIpNotAssociated(address=address, instance_id=instance_uuid)
    if instance.locked and not context.is_admin:
        raise exceptions.InstanceIsLocked(instance_id=instance_uuid)
    mine = (Row.id == found.id, _leads_to([found.port_id or ""]))
    uow.change(sa.update(Row).where(*mine).values(port_id=None, updated_at=uow.now))
    instance.updated_at = uow.now
    uow.publish(FiltersChanged(instance.project_id))


def _changed(uow: UnitOfWork, instance_uuid: str | None) -> None:
    if instance_uuid is not None:
        query = sa.select(Instance.project_id).where(Instance.uuid == instance_uuid)
        uow.publish(*map(FiltersChanged, uow.session.scalars(query)))


#: Each address has a pool. An inner join would let MariaDB begin with the pools, and read all their addresses.
_OF_ROUTER = sa.select(RouterInterface.router_id).where(RouterInterface.network_id == Port.network_id)
_PRIMARY = orm.aliased(Port)
_QUERY: Any = (
    sa.select(
        Row,
        PoolRow.name,
        Port.address,
        sa.func.coalesce(_PRIMARY.id, Port.id),
        sa.func.coalesce(_PRIMARY.instance_uuid, Port.instance_uuid),
        _OF_ROUTER.scalar_subquery(),
        sa.exists().where(PortForwarding.floating_ip_id == Row.id),
    )
    .outerjoin(PoolRow, PoolRow.id == Row.pool_id)
    .outerjoin(Port, Port.id == Row.port_id)
    .outerjoin(_PRIMARY, _PRIMARY.id == Port.primary_id)
    .where(Row.gateway_router_id.is_(None))
    .execution_options(populate_existing=True)
)
_FORWARDINGS = (
    sa.select(PortForwarding, Row.project_id, Port.address, RouterInterface.router_id)
    .join(Row, Row.id == PortForwarding.floating_ip_id)
    .join(Port, Port.id == PortForwarding.port_id)
    .outerjoin(RouterInterface, RouterInterface.network_id == Port.network_id)
    .order_by(PortForwarding.id)
)


def _all(uow: UnitOfWork, query: sa.Select[Any]) -> list[FloatingIp]:
    found, with_forwardings = {}, []
    for row, pool, *of_port, has_forwardings in uow.session.execute(query):
        values = dict(zip(("fixed_address", "port_id", "instance_uuid", "router_id"), of_port, strict=True))
        found[row.id] = rows.to_object(FloatingIp, row, pool=pool, **values)
        with_forwardings += [row.id] if has_forwardings else []
    which = PortForwarding.floating_ip_id.in_(with_forwardings)
    for forwarding, router_id in forwardings(uow, which) if with_forwardings else ():
        found[forwarding.floating_ip_id].port_forwardings.append(forwarding)
        found[forwarding.floating_ip_id].router_id = router_id
    return list(found.values())


def forwardings(uow: UnitOfWork, *which: sa.ColumnElement[bool]) -> list[tuple[Forwarding, str | None]]:
    """Return port forwardings by id, each with its router."""
    query = _FORWARDINGS.where(*which).execution_options(populate_existing=True)
    return [
        (rows.to_object(Forwarding, row, project_id=project_id, address=address or ""), router_id)
        for row, project_id, address, router_id in uow.session.execute(query)
    ]

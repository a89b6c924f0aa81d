"""Trunks and their subports, as users make them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy import orm

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import if_match, paging, quotas, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.events import FiltersChanged
from nova_lite.db.core.models import Instance, Network, Port, TrunkSubport
from nova_lite.db.core.models import Trunk as Row
from nova_lite.db.core.statements import insert_unless_taken
from nova_lite.db.network import builtin_networks, network_quotas, network_tags, ports
from nova_lite.network.trunks import ACTIVE, BUILD, DEGRADED, DOWN, FAILED, SUBPORT, UP, PortDetails, Subport, Trunk
from nova_lite.objects import ListQuery
from nova_lite.objects.pci import NORMAL
from nova_lite.operations.states import PowerState

_FILTERS = {"id": Row.id, "port_id": Row.port_id, "name": Row.name}
_PARENT = orm.aliased(Port)
_FIELDS = rows.shared_fields(Trunk, Row)
_QUERY = (
    sa.select(*(getattr(Row, name) for name in _FIELDS), Instance.power_state)
    .join(_PARENT, _PARENT.id == Row.port_id)
    .outerjoin(Instance, Instance.uuid == _PARENT.instance_uuid)
)


class TrunkChanged(NamedTuple):
    """A host has to look at its subports. The transaction publishes it."""

    host: str


# --- reads


def list_(
    uow: UnitOfWork, context: RequestContext, filters: dict[str, list[str]], query: ListQuery | None = None
) -> list[Trunk]:
    """Return the project's trunks, or for an admin all. ``filters``: keys of `_FILTERS` and ``project_id``; a trunk
    matches one value of each. ``query``: a page of them, by id.
    """
    filters = filters | (query.filters if query is not None else {})
    projects = set(filters.pop("project_id")) if "project_id" in filters else None
    if not context.is_admin:
        own = {context.project_id or ""}
        projects = own if projects is None else projects & own
    mine = sa.true() if projects is None else Row.project_id.in_(projects)
    case = sa.and_(mine, *(_FILTERS[name].in_(values) for name, values in filters.items()))
    selected = paging.by_id(_QUERY, Row.id, [case], query or ListQuery())
    found = uow.session.execute(selected).all()
    subports = _subports(uow, [values[0] for values in found])
    return [_shown(values, subports.get(values[0], [])) for values in found]


def _subports(uow: UnitOfWork, trunk_ids: Collection[str]) -> dict[str, list[Subport]]:
    """Return the subports by trunk."""
    columns = (TrunkSubport.trunk_id, TrunkSubport.port_id, TrunkSubport.segmentation_id, Port.mac_address)
    query = sa.select(*columns, TrunkSubport.state).join(Port, Port.id == TrunkSubport.port_id)
    query = query.where(TrunkSubport.trunk_id.in_(trunk_ids)).order_by(TrunkSubport.segmentation_id)
    found: dict[str, list[Subport]] = {}
    for trunk_id, port_id, number, mac_address, state in uow.session.execute(query) if trunk_ids else ():
        made = Subport(port_id=port_id, segmentation_id=number, mac_address=mac_address, state=state)
        found.setdefault(trunk_id, []).append(made)
    return found


def _shown(values: Any, subports: list[Subport]) -> Trunk:
    fields = dict(zip(_FIELDS, values, strict=False))
    return Trunk(**fields, sub_ports=subports, status=_status(values[-1], {item.state for item in subports}))


def _status(power_state: int | None, states: set[str]) -> str:
    """Return the status of a trunk. ``power_state``: of the server with its parent port, None without one."""
    if power_state != PowerState.RUNNING:
        return DOWN
    if FAILED in states:
        return DEGRADED
    return ACTIVE if states <= {UP} else BUILD


def get(uow: UnitOfWork, context: RequestContext, trunk_id: str) -> Trunk:
    """Return a trunk. Raises `TrunkNotFound`, also for another project's, except for an admin."""
    for found in list_(uow, context, {"id": [trunk_id]}):
        return found
    raise exceptions.TrunkNotFound(trunk_id=trunk_id[:64])


def of_ports(uow: UnitOfWork, context: RequestContext, ids: list[str]) -> PortDetails:
    """Return the trunks of those of these ports that the caller may see."""
    query = sa.select(TrunkSubport.port_id).join(Port, Port.id == TrunkSubport.port_id)
    mine = sa.true() if context.is_admin else Port.project_id == (context.project_id or "")
    working = (TrunkSubport.port_id.in_(ids), TrunkSubport.state == UP, Port.bound_host.is_not(None), mine)
    active = uow.session.scalars(query.where(*working)).all() if ids else ()
    parents = list_(uow, context, {"port_id": ids}) if ids else []
    return PortDetails(parents={trunk.port_id: trunk for trunk in parents}, active=sorted(active))


# --- changes


def create(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, trunk: Trunk) -> Trunk:
    """Create a trunk. The caller chooses its id: a repeated id returns the same trunk.

    Raises `NoSuchPort`, `ParentPortInUse`, `TrunkPortInUse`, `QuotaExceeded`, or the errors of `add_subports`.
    """
    known = uow.session.get(Row, trunk.id)
    if known is not None and known.project_id == trunk.project_id:
        return get(uow, context, trunk.id)
    _require_room(uow, conf, trunk.project_id)
    parent = _locked_port(uow, context, trunk.port_id, trunk.project_id)
    _check_parent(uow, parent)
    values = {name: getattr(trunk, name) for name in _FIELDS} | {"created_at": uow.now, "updated_at": None}
    if not insert_unless_taken(uow, Row, values):
        raise exceptions.ParentPortInUse(port_id=parent.id)
    _add(uow, context, uow.session.get_one(Row, trunk.id), trunk.sub_ports)
    return get(uow, context, trunk.id)


def _require_room(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str) -> None:
    quotas.lock(uow, project_id)
    own = quotas.limits_of(uow, conf, project_id, None).of_project
    limit, has = own.get(network_quotas.TRUNKS, network_quotas.TRUNK_LIMIT), network_quotas.trunks(uow, project_id)
    if 0 <= limit <= has:
        raise exceptions.QuotaExceeded(overs="trunk", requested=1, used=has, allowed=limit)


def _locked_port(uow: UnitOfWork, context: RequestContext, port_id: str, project_id: str) -> Port:
    """Return the locked row of a port of a project, for an admin of any. Raises `NoSuchPort`."""
    found = ports.get(uow, context, port_id)
    row = uow.session.get(Port, port_id, with_for_update=True, populate_existing=True)
    if row is None or (found.project_id != project_id and not context.is_admin):
        raise exceptions.NoSuchPort(port_id=port_id[:64])
    return row


def _is_parent(uow: UnitOfWork, port_id: str) -> bool:
    return uow.session.scalars(sa.select(Row.id).where(Row.port_id == port_id)).first() is not None


def _is_of_router(uow: UnitOfWork, port_id: str) -> bool:
    return (
        uow.session.scalars(sa.select(Port.id).where(Port.id == port_id, builtin_networks.OF_ROUTER)).first()
        is not None
    )


def _check_parent(uow: UnitOfWork, port: Port) -> None:
    """Check that a port may be a parent: a user's, of a server or free, whose packets the host sees."""
    if port.device_owner == SUBPORT:
        raise exceptions.TrunkPortInUse(port_id=port.id)
    is_free = port.project_id is not None and not port.device_id and port.bound_host is None
    is_free = is_free and not _is_of_router(uow, port.id)
    if not is_free or port.vnic_type != NORMAL or _is_parent(uow, port.id):
        raise exceptions.ParentPortInUse(port_id=port.id)


def update(uow: UnitOfWork, context: RequestContext, trunk_id: str, changes: dict[str, Any]) -> Trunk:
    """Set ``name``, ``description`` and ``admin_state_up``."""
    row = locked(uow, context, trunk_id)
    for name in changes.keys() & {"name", "description", "admin_state_up"}:
        setattr(row, name, changes[name])
    return _changed(uow, context, row)


def _changed(uow: UnitOfWork, context: RequestContext, row: Row) -> Trunk:
    row.updated_at = uow.now
    uow.session.flush()
    return get(uow, context, row.id)


def set_tags(
    uow: UnitOfWork, context: RequestContext, trunk_id: str, add: list[str], remove: list[str] | None
) -> list[str]:
    """Change tags as `nova_lite.db.network.network_tags.change` does."""
    row = locked(uow, context, trunk_id)
    row.tags = tags = network_tags.changed(row.tags, add, remove)
    row.updated_at = uow.now
    uow.session.flush()
    return tags


def add_subports(uow: UnitOfWork, context: RequestContext, trunk_id: str, sub_ports: list[Subport]) -> Trunk:
    """Add subports. Raises `TrunkDisabled`, `NoSuchPort`, `PortInUse`, `ParentPortInUse`, `TrunkPortInUse`,
    `DuplicateSubPort`, `SubPortMtuGreaterThanTrunkPortMtu`, or `InvalidInput` for a port that cannot be a subport.
    """
    row = _manageable(uow, context, trunk_id)
    _add(uow, context, row, sub_ports)
    return _changed(uow, context, row)


def _manageable(uow: UnitOfWork, context: RequestContext, trunk_id: str) -> Row:
    row = locked(uow, context, trunk_id)
    if not row.admin_state_up:
        raise exceptions.TrunkDisabled(trunk_id=row.id)
    return row


def _add(uow: UnitOfWork, context: RequestContext, row: Row, wanted: Iterable[Subport]) -> None:
    """Add subports in the order of their ids, in which concurrent requests lock them."""
    highest = _mtu(uow, row.port_id)
    for item in sorted(wanted, key=lambda item: item.port_id):
        port = _locked_port(uow, context, item.port_id, row.project_id)
        _check_subport(uow, port)
        if (mtu := _mtu(uow, port.id)) > highest:
            raise exceptions.SubPortMtuGreaterThanTrunkPortMtu(
                port_mtu=mtu, port_id=port.id, trunk_mtu=highest, trunk_id=row.id
            )
        values = {"port_id": port.id, "trunk_id": row.id, "segmentation_id": item.segmentation_id, "state": ""}
        if not insert_unless_taken(uow, TrunkSubport, values):
            raise exceptions.DuplicateSubPort(segmentation_id=item.segmentation_id, trunk_id=row.id)
        port.device_id, port.device_owner, port.updated_at = row.id, SUBPORT, uow.now
    uow.session.flush()
    _notify(uow, row)


def _mtu(uow: UnitOfWork, port_id: str) -> int:
    query = sa.select(Network.mtu).join(Port, Port.network_id == Network.id).where(Port.id == port_id)
    return uow.session.scalars(query).one()


def _check_subport(uow: UnitOfWork, port: Port) -> None:
    """Check that a port may be a subport: a user's free one, with an address, whose packets the host sees."""
    if port.device_owner == SUBPORT:
        raise exceptions.TrunkPortInUse(port_id=port.id)
    if _is_parent(uow, port.id):
        raise exceptions.ParentPortInUse(port_id=port.id)
    is_used = port.project_id is None or port.instance_uuid or port.bound_host or port.device_id
    if is_used or _is_of_router(uow, port.id):
        raise exceptions.PortInUse(port_id=port.id)
    if port.vnic_type != NORMAL:
        raise exceptions.InvalidInput(reason=f"port {port.id} bypasses its host, so it cannot be a subport")
    if port.address is None:
        raise exceptions.PortRequiresFixedIP(port_id=port.id)


def remove_subports(uow: UnitOfWork, context: RequestContext, trunk_id: str, port_ids: list[str]) -> Trunk:
    """Remove subports. Raises `TrunkDisabled` or `SubPortNotFound`."""
    row = _manageable(uow, context, trunk_id)
    mine = set(uow.session.scalars(sa.select(TrunkSubport.port_id).where(TrunkSubport.trunk_id == row.id)))
    for port_id in port_ids:
        if port_id not in mine:
            raise exceptions.SubPortNotFound(port_id=port_id[:64], trunk_id=row.id)
    _remove(uow, row, port_ids)
    return _changed(uow, context, row)


def _remove(uow: UnitOfWork, row: Row, port_ids: Collection[str]) -> None:
    _notify(uow, row, port_ids)
    uow.change(sa.delete(TrunkSubport).where(TrunkSubport.port_id.in_(port_ids)))
    freed = {"device_id": "", "device_owner": "", "bound_host": None, "updated_at": uow.now}
    uow.change(sa.update(Port).where(Port.id.in_(port_ids)).values(**freed))


def _notify(uow: UnitOfWork, row: Row, port_ids: Collection[str] = ()) -> None:
    """Let the host of the trunk's server, and the hosts of these subports, look at them."""
    server = sa.select(Instance.host).join(Port, Port.instance_uuid == Instance.uuid).where(Port.id == row.port_id)
    hosts = set(uow.session.scalars(server))
    if port_ids:
        hosts |= set(uow.session.scalars(sa.select(Port.bound_host).where(Port.id.in_(port_ids))))
    uow.publish(*(TrunkChanged(host) for host in hosts if host), FiltersChanged(row.project_id))


def delete(uow: UnitOfWork, context: RequestContext, trunk_id: str) -> None:
    """Delete a trunk. Its ports stay, and its server loses the VLANs. Raises `TrunkDisabled`."""
    row = _manageable(uow, context, trunk_id)
    _remove(uow, row, list(uow.session.scalars(sa.select(TrunkSubport.port_id).where(TrunkSubport.trunk_id == row.id))))
    uow.session.delete(row)
    uow.session.flush()


def locked(uow: UnitOfWork, context: RequestContext, trunk_id: str) -> Row:
    """Return the row of a trunk, locked. Raises `TrunkNotFound`."""
    row = uow.session.get(Row, trunk_id, with_for_update=True, populate_existing=True)
    if row is None or not (context.is_admin or row.project_id == context.project_id):
        raise exceptions.TrunkNotFound(trunk_id=trunk_id[:64])
    if_match.check(context, row)
    return row

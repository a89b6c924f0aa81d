"""Subports of each host, and what hosts report about them.

A subport is at the host of the server that has its trunk's parent port. While the server moves, the other host has the
subport, too: so it lets packets in and out as soon as the guest runs there.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.events import FiltersChanged
from nova_lite.db.core.models import Instance, Network, Port, Trunk, TrunkSubport
from nova_lite.db.servers import instances, interfaces
from nova_lite.network.trunks import SUBPORT, Assignment, Assignments, HostReport

_PARENT = orm.aliased(Port)
_OWN = (
    TrunkSubport.segmentation_id,
    TrunkSubport.state,
    TrunkSubport.arriving_host,
    Trunk.port_id,
    Port.project_id,
    Port.bound_host,
    Instance.host,
    Instance.task_state,
)
_CONCERNED = (
    sa.select(*_OWN, *interfaces.VIF_COLUMNS)
    .select_from(TrunkSubport)
    .join(Trunk, Trunk.id == TrunkSubport.trunk_id)
    .join(_PARENT, _PARENT.id == Trunk.port_id)
    .join(Instance, Instance.uuid == _PARENT.instance_uuid)
    .join(instances.CONCERNED, instances.CONCERNED.c.uuid == Instance.uuid)
    .join(Port, Port.id == TrunkSubport.port_id)
    .join(Network, Network.id == Port.network_id)
    .order_by(TrunkSubport.port_id)
)
_AT = sa.select(Port.id, Port.project_id).where(Port.bound_host == sa.bindparam("host"), Port.device_owner == SUBPORT)
_ARRIVING = (
    sa.select(Port.id, Port.project_id)
    .join(TrunkSubport, TrunkSubport.port_id == Port.id)
    .where(TrunkSubport.arriving_host == sa.bindparam("host"))
)


def sync(uow: UnitOfWork, host: str, report: HostReport) -> Assignments:
    """Record the report of a host, and return the subports that it connects."""
    found, here, arriving, changed = Assignments(), set[str](), set[str](), set[str]()
    for row in uow.rows(_CONCERNED, {"hosts": [host]}).all():
        number, state, arriving_host, parent_id, project_id, bound_host, at, task_state, *columns = row
        vif = interfaces.to_vif(columns)
        item = Assignment(vif=vif, project_id=project_id, parent_id=parent_id, segmentation_id=number)
        found.subports.append(item)
        found.is_moving |= at != host and task_state is not None
        (here if at == host else arriving).add(vif.id)
        if at == host and bound_host != host:
            _set(uow, Port, vif.id, bound_host=host)
        elif at != host and arriving_host != host:
            _set(uow, TrunkSubport, vif.id, arriving_host=host)
        if (bound_host if at == host else arriving_host) != host:
            changed.add(project_id)
        reported = report.states.get(vif.id, "")
        if at == host and state != reported:
            _set(uow, TrunkSubport, vif.id, state=reported)
    for port_id, project_id in uow.rows(_AT, {"host": host}).all():
        if port_id not in here:
            _set(uow, Port, port_id, bound_host=None)
            changed.add(project_id)
    for port_id, project_id in uow.rows(_ARRIVING, {"host": host}).all():
        if port_id not in arriving:
            _set(uow, TrunkSubport, port_id, arriving_host=None)
            changed.add(project_id)
    uow.publish(*map(FiltersChanged, sorted(changed)))
    return found


def _set(uow: UnitOfWork, model: Any, port_id: str, **values: Any) -> None:
    key = Port.id if model is Port else TrunkSubport.port_id
    uow.change(sa.update(model).where(key == port_id).values(**values))

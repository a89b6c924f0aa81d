"""Quota of ports on the built-in networks.

Ports of users and routers count, and interfaces of servers. Servers that are not scheduled yet count, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, Port
from nova_lite.operations import states

RESOURCE = "fixed_ips"


def limit_of(conf: cfg.ConfigOpts, limits: Mapping[str, int]) -> int:
    """Return the limit of ports among a project's limits; -1: none."""
    return limits.get(RESOURCE, conf.network.fixed_ips_per_project)


def check_port(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str) -> None:
    """Raise `QuotaExceeded` if one more port of a user or router exceeds the quota."""
    quotas.lock(uow, project_id)
    limit = limit_of(conf, quotas.limits_of(uow, conf, project_id, None).of_project)
    if 0 <= limit <= (has := used(uow, project_id)):
        raise exceptions.QuotaExceeded(overs="port", requested=1, used=has, allowed=limit)


def check_attached(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str) -> None:
    """Raise `PortLimitExceeded` if the interface that this transaction has added to a server exceeds the quota."""
    quotas.lock(uow, project_id)
    limit = limit_of(conf, quotas.limits_of(uow, conf, project_id, None).of_project)
    if 0 <= limit < (has := used(uow, project_id)):
        raise exceptions.PortLimitExceeded(requested=1, used=has - 1, allowed=limit)


def used(uow: UnitOfWork, project_id: str) -> int:
    """Return the number of ports that the project and its servers have, or will have once they are scheduled."""
    return used_of(uow, [project_id])[project_id]


def used_of(uow: UnitOfWork, project_ids: Collection[str]) -> dict[str, int]:
    """Return the same for several projects."""
    found = dict.fromkeys(project_ids, 0)
    values = {"projects": sorted(found), "state": states.BUILDING}
    for project_id, ports, request in uow.run(_USED, values):
        waiting = [item for item in (request or {}).get("networks") or () if not item.get("port_id")]
        found[project_id] += ports + len(waiting)
    return found


def _statement() -> sa.CompoundSelect[Any]:
    """Build the query of projects, numbers of ports, and requests of servers whose ports are not made yet."""
    projects: sa.BindParameter[Any] = sa.bindparam("projects", expanding=True)
    has_port = sa.exists().where(Port.instance_uuid == Instance.uuid, Port.project_id.is_(None))
    waiting = sa.select(Instance.project_id, sa.literal(0).label("ports"), Instance.request)
    waiting = waiting.where(Instance.project_id.in_(projects), Instance.deleted == sa.false(), ~has_port)
    waiting = waiting.where(Instance.vm_state == sa.bindparam("state"))
    of_users = sa.select(Port.project_id, sa.func.count(), sa.null()).where(Port.project_id.in_(projects))
    of_servers = sa.select(Instance.project_id, sa.func.count(), sa.null()).select_from(Port)
    of_servers = of_servers.join(Instance, Port.instance_uuid == Instance.uuid)
    of_servers = of_servers.where(Instance.project_id.in_(projects), Port.project_id.is_(None))
    made = of_servers.group_by(Instance.project_id)
    return sa.union_all(waiting, of_users.group_by(Port.project_id), made)


_USED = _statement()

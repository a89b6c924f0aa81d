"""Quota of addresses on the built-in networks.

A server with one interface is always within its quota of servers. Further interfaces are counted here, so that a few
servers do not use up a shared network.
"""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db import quotas
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance, Port
from nova_lite.operations import states

RESOURCE = "fixed_ips"


def check(
    uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, limits: Mapping[str, int], servers: int, interfaces: int
) -> None:
    """Raise `QuotaExceeded` if ``servers`` more servers with ``interfaces`` interfaces each exceed the quota.

    Callers first take the project's quota of servers. That locks its counters until the commit.
    """
    limit = limits.get(RESOURCE, conf.network.fixed_ips_per_project)
    if interfaces < 2 or limit < 0:
        return
    _check(uow, project_id, limit, servers * interfaces)


def check_port(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str) -> None:
    """Raise `QuotaExceeded` if one more port of a user exceeds the quota."""
    quotas.lock(uow, project_id)
    limit = quotas.limits_of(uow, conf, project_id, None).of_project.get(RESOURCE, conf.network.fixed_ips_per_project)
    if limit >= 0:
        _check(uow, project_id, limit, 1)


def _check(uow: UnitOfWork, project_id: str, limit: int, wanted: int) -> None:
    has = used(uow, project_id)
    if has + wanted > limit:
        raise exceptions.QuotaExceeded(overs=RESOURCE, requested=wanted, used=has, allowed=limit)


def used(uow: UnitOfWork, project_id: str) -> int:
    """Return the number of addresses that the project and its servers have, or will have once they are scheduled."""
    mine = (Instance.project_id == project_id, Instance.deleted == sa.false())
    of_servers = sa.select(sa.func.count()).select_from(Port).join(Instance, Port.instance_uuid == Instance.uuid)
    of_servers = of_servers.where(Instance.project_id == project_id, Port.project_id.is_(None))
    kept = sa.select(sa.func.count()).select_from(Port).where(Port.project_id == project_id)
    ports = (uow.session.scalar(of_servers) or 0) + (uow.session.scalar(kept) or 0)
    has_port = sa.exists().where(Port.instance_uuid == Instance.uuid, Port.project_id.is_(None))
    waiting = sa.select(Instance.request).where(*mine, Instance.vm_state == states.BUILDING, ~has_port)
    wanted = [item for request in uow.session.scalars(waiting) for item in (request or {}).get("networks") or ()]
    return ports + sum(not item.get("port_id") for item in wanted)

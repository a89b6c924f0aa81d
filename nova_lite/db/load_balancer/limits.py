"""Quotas of load balancers and their parts, under Octavia's names."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import QuotaLimit
from nova_lite.load_balancer.objects import Kind, LoadBalancer

#: Limits of projects without own ones. They bound the documents of load balancers, too.
DEFAULTS = {
    Kind.LOAD_BALANCER: 20,
    Kind.LISTENER: 200,
    Kind.POOL: 200,
    Kind.MEMBER: 1000,
    Kind.MONITOR: 200,
}
_RESOURCES = {kind: f"lb_{kind}" for kind in DEFAULTS}


def get(uow: UnitOfWork, project_id: str) -> dict[str, int]:
    """Return the limits of a project by kind; -1: unlimited."""
    query = sa.select(QuotaLimit.resource, QuotaLimit.limit).where(QuotaLimit.project_id == project_id)
    own = dict(uow.session.execute(query.where(QuotaLimit.resource.in_(_RESOURCES.values()))).tuples().all())
    return {kind: own.get(_RESOURCES[kind], default) for kind, default in DEFAULTS.items()}


def set_limits(uow: UnitOfWork, project_id: str, limits: dict[Kind, int | None]) -> dict[str, int]:
    """Set limits; None: the default again."""
    for kind, limit in sorted(limits.items()):
        mine = (QuotaLimit.project_id == project_id, QuotaLimit.resource == _RESOURCES[kind])
        uow.change(sa.delete(QuotaLimit).where(*mine))
        if limit is not None:
            uow.session.add(QuotaLimit(project_id=project_id, resource=_RESOURCES[kind], limit=limit))
            uow.session.flush()
    return get(uow, project_id)


def check(uow: UnitOfWork, project_id: str, kind: Kind, present: Iterable[LoadBalancer], more: int = 1) -> None:
    """Raise a 403 if ``more`` of a kind exceed the quota. The caller has locked the project's quota (`lock`)."""
    limit = get(uow, project_id)[kind]
    if kind is Kind.LOAD_BALANCER:
        used = sum(1 for _ in present)
    else:
        used = sum(one is kind for balancer in present for one, _, _ in balancer.parts())
    if 0 <= limit < used + more:
        raise exceptions.Forbidden(f"Quota has been met for resources: {kind} ({used} of {limit} are used).")


def lock(uow: UnitOfWork, project_id: str) -> None:
    """Lock the project's quota until the transaction ends."""
    quotas.lock(uow, project_id)

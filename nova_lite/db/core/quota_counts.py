"""Counts of quota: rows, by project or by user."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import FloatingIp, Instance, InstanceGroup, KeyPair, SecurityGroup
from nova_lite.objects import security_group


class Counted(NamedTuple):
    """Rule of counting a resource. ``project`` is None for resources that a user has across projects; ``counts``
    selects the rows.
    """

    amount: sa.ColumnElement[Any]
    project: sa.SQLColumnExpression[str] | None
    user: sa.SQLColumnExpression[str]
    counts: sa.ColumnElement[bool]

    @property
    def owner(self) -> sa.SQLColumnExpression[str]:
        """Owner of the counter in `models.QuotaUsage`."""
        return self.user if self.project is None else self.project


_COUNTS = sa.and_(Instance.deleted == sa.false(), Instance.soft_deleted_at.is_(None))
_LIVE = (Instance.project_id, Instance.user_id, _COUNTS)

COUNTED: dict[str, Counted] = {
    "instances": Counted(sa.func.count(Instance.id), *_LIVE),
    "cores": Counted(sa.func.sum(Instance.vcpus + Instance.extra_vcpus), *_LIVE),
    "ram": Counted(sa.func.sum(Instance.memory_mb + Instance.extra_memory_mb), *_LIVE),
    "server_groups": Counted(
        sa.func.count(InstanceGroup.id), InstanceGroup.project_id, InstanceGroup.user_id, sa.true()
    ),
    "floating_ips": Counted(
        sa.func.count(FloatingIp.id),
        FloatingIp.project_id,
        FloatingIp.user_id,
        FloatingIp.gateway_router_id.is_(None),
    ),
    "security_groups": Counted(
        sa.func.count(SecurityGroup.id),
        SecurityGroup.project_id,
        SecurityGroup.user_id,
        SecurityGroup.name != security_group.DEFAULT,
    ),
    "key_pairs": Counted(sa.func.count(KeyPair.id), None, KeyPair.user_id, sa.true()),
}


def of_user(uow: UnitOfWork, project_id: str, user_id: str, resources: Iterable[str]) -> dict[str, int]:
    """Return the user's usage of each resource in the project, counted from the rows."""
    used = {}
    for resource in resources:
        amount, project, user, counts = COUNTED[resource]
        query = sa.select(amount).where(counts, user == user_id)
        if project is not None:
            query = query.where(project == project_id)
        used[resource] = int(uow.session.scalar(query) or 0)
    return used

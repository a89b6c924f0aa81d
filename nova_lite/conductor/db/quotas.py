"""Quotas: limits per project, and how much of them is used.

`take` and `give_back` run in the transaction that makes or ends the use. A conditional update decides, so that any
number of conductors together grant exactly the limit.
"""

from __future__ import annotations

import logging

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite import exception
from nova_lite.conductor.db import models
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.statements import insert_if_missing
from nova_lite.conf import quota as quota_conf
from nova_lite.objects import Limits, QuotaUsage

LOG = logging.getLogger(__name__)

UNLIMITED = -1

#: Every resource that has a limit; the first three are counted in `models.QuotaUsage` per project, ``key_pairs`` is
#: counted per user, the others bound the size of one request or thing.
RESOURCES = tuple(opt.name for opt in quota_conf.OPTS)

#: Limits that are kept for clients that set them; who gives such things out has limits of its own.
NETWORK_RESOURCES = ("fixed_ips", "floating_ips", "security_groups", "security_group_rules")

#: The project whose limits are everybody's defaults.
_DEFAULTS = ""


def take(
    uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, amounts: dict[str, int], owner: str | None = None
) -> None:
    """Use ``amounts`` (resource to count) of the project's quota: all of them, or none and `QuotaExceeded`, which
    names each resource that is short.

    ``owner``: whose use is counted, where that is not the project (the user, for key pairs).
    """
    limits = _limits(uow, conf, project_id)
    counted = owner or project_id
    wanted = {resource: amounts[resource] for resource in sorted(amounts) if amounts[resource] > 0}
    with uow.session.begin_nested():
        over = [
            resource for resource, amount in wanted.items() if not _take_one(uow, counted, resource, amount, limits)
        ]
        if over:
            raise _exceeded(over, wanted, _used(uow, counted), limits)


def give_back(uow: UnitOfWork, project_id: str, amounts: dict[str, int]) -> None:
    """End the use of ``amounts``. A counter never falls below zero; `audit` would have found it wrong before."""
    table = models.QuotaUsage
    for resource in sorted(amounts):
        amount = amounts[resource]
        found = uow.change(
            sa.update(table)
            .where(table.project_id == project_id, table.resource == resource)
            .values(used=sa.case((table.used > amount, table.used - amount), else_=0))
        )
        if amount and not found:
            LOG.error("Quota of %s in %s is given back but was never taken", resource, project_id)


def limits(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str) -> Limits:
    """Every resource's limit and use in the project; nothing is reserved, ever: taking is final."""
    used = _used(uow, project_id)
    return Limits(
        project_id=project_id,
        quotas={
            resource: QuotaUsage(limit=limit, used=used.get(resource, 0))
            for resource, limit in _limits(uow, conf, project_id).items()
        },
    )


def defaults(uow: UnitOfWork, conf: cfg.ConfigOpts) -> Limits:
    """What a project without limits of its own may use."""
    return limits(uow, conf, _DEFAULTS)


def set_defaults(uow: UnitOfWork, conf: cfg.ConfigOpts, wanted: dict[str, int]) -> Limits:
    for resource in sorted(wanted):
        set_limit(uow, _DEFAULTS, resource, wanted[resource])
    return defaults(uow, conf)


def set_limits(
    uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, wanted: dict[str, int], force: bool = False
) -> Limits:
    """Limits of one project, all or none of them; `QuotaBelowUse` unless ``force``."""
    used = _used(uow, project_id)
    for resource in sorted(wanted):
        limit = wanted[resource]
        if not force and UNLIMITED != limit < used.get(resource, 0):
            raise exception.QuotaBelowUse(limit=limit, resource=resource, used=used[resource])
        set_limit(uow, project_id, resource, limit)
    return limits(uow, conf, project_id)


def reset(uow: UnitOfWork, project_id: str) -> None:
    """Back to the defaults."""
    uow.change(sa.delete(models.QuotaLimit).where(models.QuotaLimit.project_id == project_id))


def set_limit(uow: UnitOfWork, project_id: str, resource: str, limit: int | None) -> None:
    """The project's own limit of a resource, -1 for none; None goes back to the default."""
    if resource not in (*RESOURCES, *NETWORK_RESOURCES):
        raise exception.InvalidInput(reason=f"{resource} has no quota; resources are {', '.join(RESOURCES)}.")
    if limit is not None and not UNLIMITED <= limit < 2**31:
        raise exception.InvalidInput(reason=f"the limit of {resource} must be between -1 and {2**31 - 1}.")
    table = models.QuotaLimit
    mine = (table.project_id == project_id, table.resource == resource)
    if limit is None:
        uow.session.execute(sa.delete(table).where(*mine))
        return
    insert_if_missing(uow, table, {"project_id": project_id, "resource": resource, "limit": limit})
    uow.session.execute(sa.update(table).where(*mine).values(limit=limit))


def _take_one(uow: UnitOfWork, owner: str, resource: str, amount: int, limits: dict[str, int]) -> bool:
    limit = limits.get(resource, UNLIMITED)
    if limit != UNLIMITED and amount > limit:
        return False
    if _add(uow, owner, resource, amount, limit):
        return True
    if uow.session.get(models.QuotaUsage, (owner, resource), populate_existing=True) is not None:
        return False
    insert_if_missing(uow, models.QuotaUsage, {"project_id": owner, "resource": resource, "used": 0})
    return _add(uow, owner, resource, amount, limit)


def _add(uow: UnitOfWork, owner: str, resource: str, amount: int, limit: int) -> bool:
    table = models.QuotaUsage
    statement = sa.update(table).where(table.project_id == owner, table.resource == resource)
    if limit != UNLIMITED:
        statement = statement.where(table.used + amount <= limit)
    return uow.change(statement.values(used=table.used + amount)) > 0


def _limits(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str) -> dict[str, int]:
    table = models.QuotaLimit
    limits: dict[str, int] = {resource: conf.quota[resource] for resource in RESOURCES}
    rows = uow.session.execute(
        sa.select(table.resource, table.limit)
        .where(table.project_id.in_({_DEFAULTS, project_id}))
        .order_by(sa.case((table.project_id == _DEFAULTS, 0), else_=1))
    )
    limits.update((resource, limit) for resource, limit in rows)
    return limits


def _used(uow: UnitOfWork, owner: str) -> dict[str, int]:
    table = models.QuotaUsage
    rows = uow.session.execute(sa.select(table.resource, table.used).where(table.project_id == owner))
    return {row.resource: row.used for row in rows}


def _exceeded(
    over: list[str], wanted: dict[str, int], used: dict[str, int], limits: dict[str, int]
) -> exception.QuotaExceeded:
    def column(values: dict[str, int]) -> str:
        return ", ".join(str(values.get(resource, 0)) for resource in over)

    return exception.QuotaExceeded(
        overs=", ".join(over), requested=column(wanted), used=column(used), allowed=column(limits)
    )

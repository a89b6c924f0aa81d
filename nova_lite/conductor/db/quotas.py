"""Quotas: limits per project and of single users in it, and how much of them is used.

`take` and `give_back` run in the transaction that makes or ends the use. A conditional update decides, so that any
number of conductors together grant exactly the limit.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite import exception
from nova_lite.conductor.db import models, quota_counts
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
    uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, amounts: dict[str, int], user_id: str | None = None
) -> None:
    """Use ``amounts`` (resource to count) of the project's quota: all of them, or none and `QuotaExceeded`, which
    names each resource that is short.

    ``user_id``: who uses them, within the limits of this user alone, too. What the user has already is counted from
    the rows, so this comes before new ones are written. The project's counters are locked from here to the commit:
    nobody else adds such rows until then.
    """
    wanted = _positive(amounts)
    with uow.session.begin_nested():
        _take(uow, project_id, wanted, bounds(uow, conf, project_id))
        if user_id:
            own, used = _own(uow, project_id, user_id, wanted)
            over = [resource for resource, limit in own.items() if used[resource] + wanted[resource] > limit]
            if over:
                raise _exceeded(over, wanted, used, own)


def take_by_user(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, user_id: str, amounts: dict[str, int]) -> None:
    """As `take`, of what is counted by user and not by project: key pairs."""
    with uow.session.begin_nested():
        _take(uow, user_id, _positive(amounts), bounds(uow, conf, project_id, user_id))


def room(
    uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, user_id: str | None, each: dict[str, int], most: int
) -> int:
    """How many times ``each`` could be taken, at most ``most``, as it looks now; `take` decides."""
    wanted = _positive(each)
    views = [(bounds(uow, conf, project_id), _used(uow, project_id))]
    if user_id:
        views.append(_own(uow, project_id, user_id, wanted))
    rooms = (
        (limits[resource] - used.get(resource, 0)) // amount
        for limits, used in views
        for resource, amount in wanted.items()
        if limits.get(resource, UNLIMITED) != UNLIMITED
    )
    return min([most, *rooms])


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


def get(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, user_id: str | None = None) -> Limits:
    """Every resource's limit and use in the project, or of one user in it; nothing is reserved, ever: taking is
    final."""
    used = _used_by(uow, project_id, user_id)
    return Limits(
        project_id=project_id,
        quotas={
            resource: QuotaUsage(limit=limit, used=used.get(resource, 0))
            for resource, limit in bounds(uow, conf, project_id, user_id).items()
        },
    )


def bounds(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, user_id: str | None = None) -> dict[str, int]:
    """Every resource's limit in the project; with ``user_id``, a limit of this user's own in place of it."""
    table = models.QuotaLimit
    limits: dict[str, int] = {resource: conf.quota[resource] for resource in RESOURCES}
    rows = uow.session.execute(
        sa.select(table.resource, table.limit)
        .where(table.project_id.in_({_DEFAULTS, project_id}))
        .order_by(sa.case((table.project_id == _DEFAULTS, 0), else_=1))
    )
    limits.update((resource, limit) for resource, limit in rows)
    return limits | _limits_of_user(uow, project_id, user_id) if user_id else limits


def defaults(uow: UnitOfWork, conf: cfg.ConfigOpts) -> Limits:
    """What a project without limits of its own may use."""
    return get(uow, conf, _DEFAULTS)


def set_defaults(uow: UnitOfWork, conf: cfg.ConfigOpts, limits: dict[str, int]) -> Limits:
    return set_limits(uow, conf, _DEFAULTS, limits, force=True)


def set_limits(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    project_id: str,
    limits: dict[str, int],
    force: bool = False,
    user_id: str | None = None,
) -> Limits:
    """Limits of one project, or of one user in it, all or none of them; returns every limit.

    Unless ``force``: `QuotaBelowUse`, and `QuotaAboveProject` for a user's limit.
    """
    if not force:
        _check_settable(uow, conf, project_id, limits, user_id)
    for resource in sorted(limits):
        set_limit(uow, project_id, resource, limits[resource], user_id)
    return get(uow, conf, project_id, user_id)


def reset(uow: UnitOfWork, project_id: str, user_id: str | None = None) -> None:
    """Back to the defaults, for the project and all users in it; with ``user_id``, to the project's for this one."""
    of_users = models.UserQuotaLimit
    if user_id:
        uow.change(sa.delete(of_users).where(of_users.project_id == project_id, of_users.user_id == user_id))
        return
    for table in (models.QuotaLimit, of_users):
        uow.change(sa.delete(table).where(table.project_id == project_id))


def set_limit(uow: UnitOfWork, project_id: str, resource: str, limit: int | None, user_id: str | None = None) -> None:
    """The limit of a resource that a project, or one user in it, has of its own, -1 for none; None: not any more."""
    if resource not in (*RESOURCES, *NETWORK_RESOURCES):
        raise exception.InvalidInput(reason=f"{resource} has no quota; resources are {', '.join(RESOURCES)}.")
    if limit is not None and not UNLIMITED <= limit < 2**31:
        raise exception.InvalidInput(reason=f"the limit of {resource} must be between -1 and {2**31 - 1}.")
    key = {"project_id": project_id, "resource": resource}
    table: type[models.QuotaLimit | models.UserQuotaLimit] = models.QuotaLimit
    if user_id:
        table, key["user_id"] = models.UserQuotaLimit, user_id
    mine = [getattr(table, name) == value for name, value in key.items()]
    if limit is None:
        uow.change(sa.delete(table).where(*mine))
        return
    insert_if_missing(uow, table, {**key, "limit": limit})
    uow.change(sa.update(table).where(*mine).values(limit=limit))


def _check_settable(
    uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, wanted: dict[str, int], user_id: str | None
) -> None:
    used = _used_by(uow, project_id, user_id)
    most = bounds(uow, conf, project_id) if user_id else {}
    for resource in sorted(wanted):
        limit, maximum = wanted[resource], most.get(resource, UNLIMITED)
        if _number(limit) < used.get(resource, 0):
            raise exception.QuotaBelowUse(limit=limit, resource=resource, used=used[resource])
        if _number(limit) > _number(maximum):
            raise exception.QuotaAboveProject(limit=limit, resource=resource, maximum=maximum)


def _number(limit: int) -> float:
    return math.inf if limit == UNLIMITED else limit


def _positive(amounts: dict[str, int]) -> dict[str, int]:
    return {resource: amounts[resource] for resource in sorted(amounts) if amounts[resource] > 0}


def _take(uow: UnitOfWork, owner: str, wanted: dict[str, int], limits: dict[str, int]) -> None:
    """``owner``: by whom it is counted."""
    over = [resource for resource, amount in wanted.items() if not _take_one(uow, owner, resource, amount, limits)]
    if over:
        raise _exceeded(over, wanted, _used(uow, owner), limits)


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


def _limits_of_user(uow: UnitOfWork, project_id: str, user_id: str) -> dict[str, int]:
    table = models.UserQuotaLimit
    mine = (table.project_id == project_id, table.user_id == user_id)
    rows = uow.session.execute(sa.select(table.resource, table.limit).where(*mine))
    return {row.resource: row.limit for row in rows}


def _own(
    uow: UnitOfWork, project_id: str, user_id: str, resources: Iterable[str]
) -> tuple[dict[str, int], dict[str, int]]:
    """Those of ``resources`` of which the user has a limit: their limits, and the user's use of them."""
    found = _limits_of_user(uow, project_id, user_id)
    limits = {resource: found[resource] for resource in resources if found.get(resource, UNLIMITED) != UNLIMITED}
    return limits, quota_counts.of_user(uow, project_id, user_id, limits)


def _used_by(uow: UnitOfWork, project_id: str, user_id: str | None) -> dict[str, int]:
    if not user_id:
        return _used(uow, project_id)
    return quota_counts.of_user(uow, project_id, user_id, quota_counts.COUNTED)


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

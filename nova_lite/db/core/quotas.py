"""Quotas: limits per project and per user in it, and their usage.

`take` and `give_back` run in the transaction that starts or ends the usage. A conditional update decides, so that any
number of conductors together grant exactly the limit.
"""

from __future__ import annotations

import collections
import functools
import logging
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.conf import quota as quota_conf
from nova_lite.db.core import models, quota_counts
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.releases import collecting
from nova_lite.db.core.statements import insert_if_missing
from nova_lite.objects import ProjectLimits, QuotaUsage

LOG = logging.getLogger(__name__)

UNLIMITED = -1

#: Every limited resource. The first three are counted per project in `models.QuotaUsage`, ``key_pairs`` per user.
#: Server groups, floating addresses, security groups and their rules are counted by their rows. The others limit the
#: size of one request or object.
RESOURCES = tuple(opt.name for opt in quota_conf.OPTS)

#: Further limits, which the network API sets. The functions in ``db/network`` that make these resources apply them.
NETWORK_RESOURCES = ("fixed_ips", "networks", "subnets", "routers", "subnet_pools", "rbac_policies", "trunks")

#: The project whose limits are the defaults of all projects.
_DEFAULTS = ""


class QuotaBounds(NamedTuple):
    """Limits of every resource in a project, and the user's own limits in it."""

    of_project: dict[str, int]
    of_user: dict[str, int]

    @property
    def both(self) -> dict[str, int]:
        return self.of_project | self.of_user


#: Amounts and limits that several requests have in common.
_Alike = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]


class QuotaRequest(NamedTuple):
    """A request for quota. ``amounts``: by resource, of the project's quota. ``user_id``: the user whose own limits
    apply, too. ``limits``: as read in this transaction.
    """

    project_id: str
    user_id: str | None
    amounts: Mapping[str, int]
    limits: QuotaBounds


def take(
    uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, amounts: dict[str, int], user_id: str | None = None
) -> None:
    """Take quota for one request, as `take_together` does."""
    take_together(uow, [QuotaRequest(project_id, user_id, amounts, limits_of(uow, conf, project_id, user_id))])


def take_together(uow: UnitOfWork, takings: Iterable[QuotaRequest]) -> None:
    """Take quota for all requests, or none and raise `QuotaExceeded` with the names of all exceeded resources.

    A user's usage is counted from rows, so this runs before new rows are written, and once per user and transaction.
    The projects' counters stay locked until the commit.
    """
    asked = [(taking, _positive(taking.amounts)) for taking in takings]
    used = _locked(uow, {item.project_id for item, _ in asked}, {name for _, wanted in asked for name in wanted})
    alike: dict[_Alike, collections.Counter[str]] = {}
    for item, wanted in asked:
        has, limits = used[item.project_id], item.limits.of_project
        _check(wanted, has, limits)
        if item.user_id and item.limits.of_user:
            own, mine = _own(uow, item.project_id, item.user_id, item.limits.of_user, wanted)
            _check(wanted, mine, own)
        has.update({name: has.get(name, 0) + amount for name, amount in wanted.items()})
        limited = {name: limits[name] for name in wanted if limits.get(name, UNLIMITED) != UNLIMITED}
        alike.setdefault((tuple(wanted.items()), tuple(limited.items())), collections.Counter())[item.project_id] += 1
    for what, owners in alike.items():
        while owners:  # an update matches each owner once, even if it takes twice
            _add(uow, list(owners), *map(dict, what))
            owners -= collections.Counter(list(owners))


def take_by_user(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, user_id: str, amounts: dict[str, int]) -> None:
    """Take quota that is counted by user and not by project: key pairs."""
    # The counter's owner is the user, not a project.
    take_together(uow, [QuotaRequest(user_id, None, amounts, QuotaBounds(bounds(uow, conf, project_id, user_id), {}))])


def room(
    uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, user_id: str | None, each: dict[str, int], most: int
) -> int:
    """Return how many times ``each`` would fit now, at most ``most``. `take` decides."""
    wanted = _positive(each)
    of_project, of_user = limits_of(uow, conf, project_id, user_id)
    views = [(of_project, _used(uow, project_id))]
    if user_id:
        views.append(_own(uow, project_id, user_id, of_user, wanted))
    rooms = (
        (limits[resource] - used.get(resource, 0)) // amount
        for limits, used in views
        for resource, amount in wanted.items()
        if limits.get(resource, UNLIMITED) != UNLIMITED
    )
    return min([most, *rooms])


def give_back(uow: UnitOfWork, project_id: str, amounts: dict[str, int]) -> None:
    """End the usage of ``amounts``. A counter never falls below zero."""
    given = _positive(amounts)
    if not given:
        return
    releases = collecting(uow)
    if releases is not None:
        releases.quotas.setdefault(project_id, collections.Counter()).update(given)
        return
    values: dict[str, Any] = {"owner": project_id, "resources": list(given)}
    values |= {f"amount_{item}": amount for item, amount in given.items()}
    if uow.change(_subtracting(tuple(given), uow.connection.dialect.name), values) < len(given):
        for resource in given.keys() - _used(uow, project_id).keys():
            LOG.error("Quota of %s in %s is given back but was never taken", resource, project_id)


@functools.cache
def _subtracting(resources: tuple[str, ...], dialect: str) -> sa.Update:
    """Prepare the update of `give_back`. All transactions lock the rows in one order: PostgreSQL by a subquery, and
    MariaDB follows the key.
    """
    table = models.QuotaUsage
    amount = sa.case(_amounts(resources), value=table.resource)
    left = sa.case((table.used > amount, table.used - amount), else_=0)
    of_owner = table.project_id == sa.bindparam("owner")
    given: Any = sa.bindparam("resources", expanding=True)
    if dialect == "postgresql":
        query = sa.select(table.resource).where(of_owner, table.resource.in_(given))
        given = query.order_by(table.resource).with_for_update()
    return sa.update(table).where(of_owner, table.resource.in_(given)).values(used=left)


def _amounts(resources: Iterable[str]) -> dict[str, Any]:
    return {resource: sa.bindparam(f"amount_{resource}", type_=sa.BigInteger) for resource in resources}


def get(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, user_id: str | None = None) -> ProjectLimits:
    """Return every resource's limit and usage in the project, or of one user in it. Nothing is ever reserved: taking is
    final.
    """
    used = _used_by(uow, project_id, user_id)
    return ProjectLimits(
        project_id=project_id,
        quotas={
            resource: QuotaUsage(limit=limit, used=used.get(resource, 0))
            for resource, limit in bounds(uow, conf, project_id, user_id).items()
        },
    )


def bounds(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, user_id: str | None = None) -> dict[str, int]:
    """Return every resource's limit in the project; with ``user_id``, the user's own limits replace them."""
    return limits_of(uow, conf, project_id, user_id).both


# Prepared statements: building one again takes longer than running it.


@functools.cache
def _limits(with_users: bool) -> Any:
    of_all, of_users = models.QuotaLimit, models.UserQuotaLimit
    owners: sa.BindParameter[Any] = sa.bindparam("owners", expanding=True)
    users: sa.BindParameter[Any] = sa.bindparam("users", expanding=True)
    query = sa.select(of_all.project_id, sa.literal("").label("user_id"), of_all.resource, of_all.limit)
    query = query.where(of_all.project_id.in_(owners))
    if not with_users:
        return query
    own = sa.select(of_users.project_id, of_users.user_id, of_users.resource, of_users.limit)
    return sa.union_all(query, own.where(of_users.project_id.in_(owners), of_users.user_id.in_(users)))


def limits_of(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, user_id: str | None) -> QuotaBounds:
    return limits_of_several(uow, conf, [(project_id, user_id)])[project_id, user_id]


def limits_of_several(
    uow: UnitOfWork, conf: cfg.ConfigOpts, askers: Collection[tuple[str, str | None]]
) -> dict[tuple[str, str | None], QuotaBounds]:
    """Return the limits by project and user."""
    projects = sorted({project_id for project_id, _ in askers})
    users = sorted({user_id for _, user_id in askers if user_id})
    values: dict[str, Any] = {"owners": [_DEFAULTS, *projects]} | ({"users": users} if users else {})
    found: dict[tuple[str, str], dict[str, int]] = {}
    for owner, user, resource, limit in uow.run(_limits(bool(users)), values):
        found.setdefault((owner, user), {})[resource] = limit
    ours: dict[str, int] = {resource: conf.quota[resource] for resource in RESOURCES}
    ours |= found.get((_DEFAULTS, ""), {})
    return {
        (project_id, user_id): QuotaBounds(
            ours | found.get((project_id, ""), {}), found.get((project_id, user_id), {}) if user_id else {}
        )
        for project_id, user_id in askers
    }


def defaults(uow: UnitOfWork, conf: cfg.ConfigOpts) -> ProjectLimits:
    """Return the limits of a project without limits of its own."""
    return get(uow, conf, _DEFAULTS)


def set_defaults(uow: UnitOfWork, conf: cfg.ConfigOpts, limits: dict[str, int]) -> ProjectLimits:
    return set_limits(uow, conf, _DEFAULTS, limits, force=True)


def set_limits(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    project_id: str,
    limits: dict[str, int],
    force: bool = False,
    user_id: str | None = None,
) -> ProjectLimits:
    """Set limits of a project, or of a user in it, all or none; return every limit.

    Unless ``force``, raises `QuotaBelowUse`, and `QuotaAboveProject` for a user's limit.
    """
    if not force:
        _check_settable(uow, conf, project_id, limits, user_id)
    for resource in sorted(limits):
        set_limit(uow, project_id, resource, limits[resource], user_id)
    return get(uow, conf, project_id, user_id)


def reset(uow: UnitOfWork, project_id: str, user_id: str | None = None) -> None:
    """Delete the limits of the project and all its users, or only of one user."""
    of_users = models.UserQuotaLimit
    if user_id:
        uow.change(sa.delete(of_users).where(of_users.project_id == project_id, of_users.user_id == user_id))
        return
    for table in (models.QuotaLimit, of_users):
        uow.change(sa.delete(table).where(table.project_id == project_id))


def set_limit(uow: UnitOfWork, project_id: str, resource: str, limit: int | None, user_id: str | None = None) -> None:
    """Set the own limit of a project, or of one user in it. -1: unlimited; None: delete it."""
    if resource not in (*RESOURCES, *NETWORK_RESOURCES):
        raise exceptions.InvalidInput(reason=f"{resource} has no quota; resources are {', '.join(RESOURCES)}.")
    if limit is not None and not UNLIMITED <= limit < 2**31:
        raise exceptions.InvalidInput(reason=f"the limit of {resource} must be between -1 and {2**31 - 1}.")
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
            raise exceptions.QuotaBelowUse(limit=limit, resource=resource, used=used[resource])
        if _number(limit) > _number(maximum):
            raise exceptions.QuotaAboveProject(limit=limit, resource=resource, maximum=maximum)


def _number(limit: int) -> float:
    return math.inf if limit == UNLIMITED else limit


def _positive(amounts: Mapping[str, int]) -> dict[str, int]:
    return {resource: amounts[resource] for resource in sorted(amounts) if amounts[resource] > 0}


def _check(wanted: dict[str, int], used: dict[str, int], limits: dict[str, int]) -> None:
    """Raise `QuotaExceeded` unless every limited resource of ``wanted`` fits."""
    over = [
        resource
        for resource, amount in wanted.items()
        if 0 <= limits.get(resource, UNLIMITED) < used.get(resource, 0) + amount
    ]
    if over:
        raise _exceeded(over, wanted, used, limits)


def _locked(uow: UnitOfWork, owners: Collection[str], resources: Collection[str]) -> dict[str, dict[str, int]]:
    """Return the usage by owner and resource, locked until the transaction ends."""
    used = _read_locked(uow, owners, resources)
    missing = [(owner, item) for owner in sorted(owners) for item in sorted(resources) if item not in used[owner]]
    if not missing:
        return used
    new = [{"project_id": owner, "resource": resource, "used": 0} for owner, resource in missing]
    insert_if_missing(uow, models.QuotaUsage, *new)
    return _read_locked(uow, owners, resources)


def lock(uow: UnitOfWork, project_id: str) -> None:
    """Lock the project's quota until the transaction ends: no other transaction takes any, or adds rows that are
    counted."""
    _locked(uow, [project_id], ["instances"])


def lock_all(uow: UnitOfWork, project_ids: Collection[str]) -> None:
    """Lock the quota of these projects, in the order of `take_together`, which may follow."""
    _locked(uow, project_ids, ["instances", "cores", "ram"])


def _read_locked(uow: UnitOfWork, owners: Collection[str], resources: Collection[str]) -> dict[str, dict[str, int]]:
    """Return the existing counters, locked in the common order."""
    used: dict[str, dict[str, int]] = {owner: {} for owner in owners}
    values = {"owners": sorted(owners), "resources": sorted(resources)}
    for owner, resource, amount in uow.run(_USED_LOCKED, values):
        used[owner][resource] = amount
    return used


def _add(uow: UnitOfWork, owners: Collection[str], wanted: dict[str, int], limited: dict[str, int]) -> None:
    """Add to the locked counters in one conditional update. They were found to have room, so all rows match."""
    if not wanted:
        return
    values: dict[str, Any] = {"owners": list(owners)}
    values |= {f"amount_{item}": amount for item, amount in wanted.items()}
    values |= {f"limit_{item}": limit for item, limit in limited.items()}
    met = uow.change(_adding(tuple(wanted), frozenset(limited)), values)
    if met != len(wanted) * len(owners):
        raise RuntimeError(f"{met} of {len(wanted)} counters of each of {len(owners)} owners had room")


@functools.cache
def _adding(resources: tuple[str, ...], limited: frozenset[str]) -> sa.Update:
    table = models.QuotaUsage
    amounts = _amounts(resources)
    fits = [
        sa.and_(
            table.resource == item,
            table.used + amount <= sa.bindparam(f"limit_{item}", type_=sa.BigInteger) if item in limited else sa.true(),
        )
        for item, amount in amounts.items()
    ]
    mine = (table.project_id.in_(sa.bindparam("owners", expanding=True)), sa.or_(*fits))
    return sa.update(table).where(*mine).values(used=table.used + sa.case(amounts, value=table.resource))


_USED_LOCKED = (
    sa.select(models.QuotaUsage.project_id, models.QuotaUsage.resource, models.QuotaUsage.used)
    .where(
        models.QuotaUsage.project_id.in_(sa.bindparam("owners", expanding=True)),
        models.QuotaUsage.resource.in_(sa.bindparam("resources", expanding=True)),
    )
    .order_by(models.QuotaUsage.project_id, models.QuotaUsage.resource)
    .with_for_update()
)


def _own(
    uow: UnitOfWork, project_id: str, user_id: str, found: dict[str, int], resources: Iterable[str]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the user's own limits of ``resources``, as ``found``, and the user's usage of them."""
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
) -> exceptions.QuotaExceeded:
    def column(values: dict[str, int]) -> str:
        return ", ".join(str(values.get(resource, 0)) for resource in over)

    return exceptions.QuotaExceeded(
        overs=", ".join(over), requested=column(wanted), used=column(used), allowed=column(limits)
    )

"""Purging: rows that are over, and old enough, go for good.

What is open stays, and so does a deleted instance that a host has not confirmed to have nothing of: its delete is open
until then, or it holds an allocation. Of an instance only the uuid is kept (`PurgedInstance`), so that a domain that
turns up after all is known to belong nowhere.

Each batch is one transaction over a few rows that nobody else changes any more. Rows that another purge has locked are
passed over, so several may run.
"""

from __future__ import annotations

import datetime
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa

from nova_lite.db.engine import Database, UnitOfWork
from nova_lite.db.models import (
    Allocation,
    Base,
    Instance,
    InstanceAction,
    InstanceActionEvent,
    InstanceGroupMember,
    InstanceTag,
    Migration,
    Port,
    PurgedInstance,
)
from nova_lite.db.server_migrations import CLOSED, OPEN

#: How many rows of each table, by its name.
Rows = Counter[str]


#: How many ids one statement names.
IDS = 500


class Batch(NamedTuple):
    """``rows``: what went. ``last``: the time and id of the last one that was looked at; None when that was all."""

    rows: Rows
    last: tuple[datetime.datetime, int] | None


#: Takes one batch of at most so many rows (and what belongs to them) that were over before then, from the row after
#: ``last`` on. With ``dry_run`` they are only counted.
Take = Callable[[UnitOfWork, datetime.datetime, int, "tuple[datetime.datetime, int] | None", bool], Batch]


def run(
    db: Database,
    before: datetime.datetime,
    batch_size: int,
    max_rows: int | None = None,
    dry_run: bool = False,
    tell: Callable[[Rows], object] = lambda rows: None,
    wanted: Callable[[], bool] = lambda: True,
) -> Rows:
    """Purge what was over before ``before`` (naive UTC); how many rows went, by table.

    It ends with the batch that makes them ``max_rows`` or more, or when it is not ``wanted`` any more. After each batch
    it is idle for as long as that took, and ``tell`` hears how many have gone so far.
    """
    gone: Rows = Counter()
    for take in TAKES:
        last = None
        while wanted() and (max_rows is None or gone.total() < max_rows):
            began = time.monotonic()
            asked = (before, batch_size, last, dry_run)
            batch = db.read(take, *asked) if dry_run else db.write(take, *asked)
            gone += batch.rows
            if batch.rows.total():
                tell(gone)
            if batch.last is None:
                break
            last = batch.last
            if not dry_run:
                time.sleep(time.monotonic() - began)
    return gone


def told(rows: Rows) -> str:
    """For logs and operators."""
    return ", ".join(f"{number} {table}" for table, number in sorted(rows.items()) if number) or "nothing"


def days_ago(uow: UnitOfWork, days: int) -> datetime.datetime:
    """By the database's clock."""
    return uow.now - datetime.timedelta(days=days)


def purged(uow: UnitOfWork, instance_uuids: Iterable[str]) -> set[str]:
    """Those of these uuids that are of instances whose row was purged."""
    asked = list(instance_uuids)
    if not asked:
        return set()
    return set(uow.session.scalars(sa.select(PurgedInstance.uuid).where(PurgedInstance.uuid.in_(asked))))


def forget(db: Database, before: datetime.datetime, batch_size: int, dry_run: bool = False) -> int:
    """Drop the uuids of what was purged before then; how many. No host may have a domain of them any more."""
    if dry_run:
        return db.read(_count_forgotten, before)
    gone = 0
    while dropped := db.write(_forget, before, batch_size):
        gone += dropped
    return gone


def _count_forgotten(uow: UnitOfWork, before: datetime.datetime) -> int:
    old = PurgedInstance.purged_at < before
    return uow.session.scalar(sa.select(sa.func.count()).select_from(PurgedInstance).where(old)) or 0


def _forget(uow: UnitOfWork, before: datetime.datetime, size: int) -> int:
    uuids = list(
        uow.session.scalars(sa.select(PurgedInstance.uuid).where(PurgedInstance.purged_at < before).limit(size))
    )
    return uow.change(sa.delete(PurgedInstance).where(PurgedInstance.uuid.in_(uuids))) if uuids else 0


# --- what is taken


def _instances(
    uow: UnitOfWork, before: datetime.datetime, size: int, last: tuple[datetime.datetime, int] | None, dry_run: bool
) -> Batch:
    """Deleted instances with all that belongs to them."""
    of_it = {
        InstanceAction: sa.and_(InstanceAction.instance_uuid == Instance.uuid, InstanceAction.finish_time.is_(None)),
        Migration: sa.and_(Migration.instance_uuid == Instance.uuid, Migration.status.in_(OPEN)),
        Allocation: Allocation.instance_uuid == Instance.uuid,
        Port: Port.instance_uuid == Instance.uuid,
    }
    query = sa.select(Instance.terminated_at, Instance.id, Instance.uuid).where(
        Instance.deleted == sa.true(),
        Instance.terminated_at < before,
        sa.or_(Instance.network_call_until.is_(None), Instance.network_call_until < before),
        *(~sa.exists().where(belongs) for belongs in of_it.values()),
    )
    found = _page(uow, query, Instance.terminated_at, Instance.id, size, last, dry_run)
    ids, uuids = [row[1] for row in found], [row[2] for row in found]
    rows: Rows = Counter()
    if found:
        actions = sa.select(InstanceAction.id).where(InstanceAction.instance_uuid.in_(uuids))
        rows += _remove_actions(uow, list(uow.session.scalars(actions)), dry_run)
        rows += _remove(uow, Migration, Migration.instance_uuid.in_(uuids), dry_run)
        rows += _remove(uow, InstanceTag, InstanceTag.instance_id.in_(ids), dry_run)
        rows += _remove(uow, InstanceGroupMember, InstanceGroupMember.instance_uuid.in_(uuids), dry_run)
        rows += _remove(uow, Instance, Instance.id.in_(ids), dry_run)
        if not dry_run:
            kept = [{"uuid": uuid, "purged_at": uow.now} for uuid in uuids]
            uow.session.connection().execute(sa.insert(PurgedInstance), kept)
    return _batch(rows, found, size)


def _actions(
    uow: UnitOfWork, before: datetime.datetime, size: int, last: tuple[datetime.datetime, int] | None, dry_run: bool
) -> Batch:
    """Closed actions of instances that live; those of others go with their instance."""
    lives = sa.exists().where(Instance.uuid == InstanceAction.instance_uuid, Instance.deleted == sa.false())
    query = sa.select(InstanceAction.finish_time, InstanceAction.id).where(InstanceAction.finish_time < before, lives)
    found = _page(uow, query, InstanceAction.finish_time, InstanceAction.id, size, last, dry_run)
    return _batch(_remove_actions(uow, [row[1] for row in found], dry_run), found, size)


def _migrations(
    uow: UnitOfWork, before: datetime.datetime, size: int, last: tuple[datetime.datetime, int] | None, dry_run: bool
) -> Batch:
    """Those of instances that live, and are over."""
    lives = sa.exists().where(Instance.uuid == Migration.instance_uuid, Instance.deleted == sa.false())
    query = sa.select(Migration.updated_at, Migration.id).where(
        Migration.status.in_(CLOSED), Migration.updated_at < before, lives
    )
    found = _page(uow, query, Migration.updated_at, Migration.id, size, last, dry_run)
    ids = [row[1] for row in found]
    return _batch(_remove(uow, Migration, Migration.id.in_(ids), dry_run) if found else Counter(), found, size)


#: In this order.
TAKES: tuple[Take, ...] = (_instances, _actions, _migrations)


def _page(
    uow: UnitOfWork,
    query: sa.Select[*tuple[Any, ...]],
    ended: Any,
    number: Any,
    size: int,
    last: tuple[datetime.datetime, int] | None,
    dry_run: bool,
) -> list[Any]:
    """The oldest of ``query`` after ``last``, locked unless somebody else has."""
    if last is not None:
        query = query.where(ended >= last[0], sa.or_(ended > last[0], number > last[1]))
    query = query.order_by(ended, number).limit(size)
    if not dry_run:
        query = query.with_for_update(of=number.class_, skip_locked=True)
    return list(uow.session.execute(query).all())


def _remove_actions(uow: UnitOfWork, ids: list[int], dry_run: bool) -> Rows:
    """With their events. By id, so many at a time: not every database looks into a subquery once only."""
    rows: Rows = Counter()
    for start in range(0, len(ids), IDS):
        some = ids[start : start + IDS]
        rows += _remove(uow, InstanceActionEvent, InstanceActionEvent.action_id.in_(some), dry_run)
        rows += _remove(uow, InstanceAction, InstanceAction.id.in_(some), dry_run)
    return rows


def _remove(uow: UnitOfWork, model: type[Base], condition: sa.ColumnElement[bool], dry_run: bool) -> Rows:
    table = sa.inspect(model).local_table
    if dry_run:
        number = uow.session.scalar(sa.select(sa.func.count()).select_from(model).where(condition)) or 0
    else:
        number = uow.change(sa.delete(model).where(condition))
    return Counter({str(table): number})


def _batch(rows: Rows, found: list[Any], size: int) -> Batch:
    return Batch(rows, (found[-1][0], found[-1][1]) if len(found) == size else None)

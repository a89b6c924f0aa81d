"""Purges old rows: deleted instances, closed actions, and finished migrations.

Open rows stay. So does a deleted instance whose host has not confirmed that it holds nothing: its delete is open, or it
has an allocation. The uuid of a purged instance is kept (`PurgedInstance`), so that a late domain is known to belong
nowhere.

Each batch is one transaction over a few rows that no daemon changes any more. Rows that another purge has locked are
skipped, so several purges may run.
"""

from __future__ import annotations

import datetime
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa

from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import (
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
from nova_lite.operations.migration_states import CLOSED, OPEN

#: Number of rows by table name.
Rows = Counter[str]


#: Largest number of ids in one statement.
IDS = 500


class Batch(NamedTuple):
    """Result of one batch. ``rows``: the purged rows. ``last``: time and id of the last examined row; None at the
    end.
    """

    rows: Rows
    last: tuple[datetime.datetime, int] | None


#: Purges one batch of at most so many rows (and their parts) that ended before then, starting after ``last``.
#: ``dry_run`` only counts them.
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
    """Purge rows that ended before ``before`` (naive UTC) and return their number by table.

    It stops after the batch that reaches ``max_rows``, or when ``wanted`` returns False. After each batch it idles as
    long as the batch took, and calls ``tell`` with the numbers so far.
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
    """Format the numbers for logs and operators."""
    return ", ".join(f"{number} {table}" for table, number in sorted(rows.items()) if number) or "nothing"


def days_ago(uow: UnitOfWork, days: int) -> datetime.datetime:
    """Return the time so many days ago, by the database's clock."""
    return uow.now - datetime.timedelta(days=days)


def purged(uow: UnitOfWork, instance_uuids: Iterable[str]) -> set[str]:
    """Return the uuids among these that belong to purged instances."""
    asked = list(instance_uuids)
    if not asked:
        return set()
    return set(uow.session.scalars(sa.select(PurgedInstance.uuid).where(PurgedInstance.uuid.in_(asked))))


def forget(db: Database, before: datetime.datetime, batch_size: int, dry_run: bool = False) -> int:
    """Drop the uuids of instances purged before then and return their number. No host may have a domain of them any
    more.
    """
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
    """Purge deleted instances with all their parts."""
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
    """Purge closed actions of existing instances. Actions of other instances go with them."""
    lives = sa.exists().where(Instance.uuid == InstanceAction.instance_uuid, Instance.deleted == sa.false())
    query = sa.select(InstanceAction.finish_time, InstanceAction.id).where(InstanceAction.finish_time < before, lives)
    found = _page(uow, query, InstanceAction.finish_time, InstanceAction.id, size, last, dry_run)
    return _batch(_remove_actions(uow, [row[1] for row in found], dry_run), found, size)


def _migrations(
    uow: UnitOfWork, before: datetime.datetime, size: int, last: tuple[datetime.datetime, int] | None, dry_run: bool
) -> Batch:
    """Purge finished migrations of existing instances."""
    lives = sa.exists().where(Instance.uuid == Migration.instance_uuid, Instance.deleted == sa.false())
    query = sa.select(Migration.updated_at, Migration.id).where(
        Migration.status.in_(CLOSED), Migration.updated_at < before, lives
    )
    found = _page(uow, query, Migration.updated_at, Migration.id, size, last, dry_run)
    ids = [row[1] for row in found]
    return _batch(_remove(uow, Migration, Migration.id.in_(ids), dry_run) if found else Counter(), found, size)


#: Purges in their order.
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
    """Return the oldest rows of ``query`` after ``last``, locked. Rows that another transaction has locked are
    skipped."""
    if last is not None:
        query = query.where(ended >= last[0], sa.or_(ended > last[0], number > last[1]))
    query = query.order_by(ended, number).limit(size)
    if not dry_run:
        query = query.with_for_update(of=number.class_, skip_locked=True)
    return list(uow.session.execute(query).all())


def _remove_actions(uow: UnitOfWork, ids: list[int], dry_run: bool) -> Rows:
    """Delete actions with their events, in chunks of ids: not every database evaluates a subquery only once."""
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

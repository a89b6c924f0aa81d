"""The audit log: rows of events, lists of them, and their purge.

An API process repeats a batch whose reply was lost, so the uuid decides whether an event is new.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable

import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.db.core import paging
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import AuditEvent as Row
from nova_lite.db.core.rows import to_object, values_of
from nova_lite.db.core.statements import insert_if_missing
from nova_lite.objects import AuditEvent, AuditQuery
from nova_lite.objects.audit import FILTERS

#: Rows that one transaction of a purge deletes.
PURGE_BATCH = 500

_ORDER = paging.Order({"event_time": Row.event_time}, ["event_time"], ["desc"], tie_breaker=Row.id)


def record_events(uow: UnitOfWork, events: list[AuditEvent]) -> None:
    """Store the events that are not stored yet."""
    if events:
        insert_if_missing(uow, Row, *(values_of(event, Row) for event in events))


def list_(uow: UnitOfWork, query: AuditQuery) -> list[AuditEvent]:
    """Return a page of events, the newest first. Raises `MarkerNotFound`."""
    found = sa.select(Row)
    for name in query.filters:
        if name not in FILTERS:
            raise exceptions.InvalidInput(reason=f"the audit log has no filter {name[:64]}.")
    columns = [getattr(Row, name) for name in query.filters]
    fixed = columns if len(columns) == 1 else []  # an index begins with one of them
    for column, value in zip(columns, query.filters.values(), strict=True):
        found = found.where(paging.Equal(column, value) if fixed else column == value)
    if query.since is not None:
        found = found.where(Row.event_time >= query.since)
    if query.until is not None:
        found = found.where(Row.event_time < query.until)
    start = paging.start(query.marker, lambda uuid: _by_uuid(uow, uuid))
    return [to_object(AuditEvent, row) for row in uow.session.scalars(_ORDER.page(found, start, query.limit, fixed))]


def _by_uuid(uow: UnitOfWork, uuid: str) -> Row | None:
    return uow.session.scalars(sa.select(Row).where(Row.uuid == uuid)).first()


def count(uow: UnitOfWork, before: datetime.datetime) -> int:
    """Return the number of events from before then."""
    old = sa.select(sa.func.count()).select_from(Row).where(Row.event_time < before)
    return uow.session.scalar(old) or 0


def purge(
    db: Database, before: datetime.datetime, batch: int = PURGE_BATCH, wanted: Callable[[], bool] = lambda: True
) -> int:
    """Delete events from before then, the oldest first, and return their number.

    Each batch is a transaction. After it, the function idles as long as the batch took. It stops when ``wanted``
    returns False.
    """
    gone = 0
    while wanted():
        began = time.monotonic()
        deleted = db.write(_purge, before, batch)
        gone += deleted
        if deleted < batch:
            break
        time.sleep(time.monotonic() - began)
    return gone


def _purge(uow: UnitOfWork, before: datetime.datetime, batch: int) -> int:
    oldest = sa.select(Row.id).where(Row.event_time < before).order_by(Row.event_time, Row.id).limit(batch)
    ids = list(uow.session.scalars(oldest.with_for_update(skip_locked=True)))
    return uow.change(sa.delete(Row).where(Row.id.in_(ids))) if ids else 0

"""Interfaces that were ordered from another network service for running servers, until the result is known.

The row is written before the service is called. After its time the interface may exist without an owner.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import sqlalchemy as sa

from nova_lite.db.core.engine import Time, UnitOfWork
from nova_lite.db.core.models import PendingAttach

#: Number of rows that one call of `overdue` returns.
BATCH = 100


def add(uow: UnitOfWork, instance_uuid: str, request_id: str, port_id: str | None, seconds: float) -> PendingAttach:
    """Write a row. ``port_id``: the user's own port. ``seconds``: afterwards no conductor works on it."""
    row = uow.session.get(PendingAttach, (instance_uuid, request_id))
    if row is None:
        row = PendingAttach(instance_uuid=instance_uuid, request_id=request_id)
        uow.session.add(row)
    row.port_id, row.until = port_id, uow.now + datetime.timedelta(seconds=seconds)
    uow.session.flush()
    return row


def of(uow: UnitOfWork, instance_uuid: str) -> Sequence[PendingAttach]:
    query = sa.select(PendingAttach).where(PendingAttach.instance_uuid == instance_uuid)
    return uow.session.scalars(query.execution_options(populate_existing=True)).all()


def overdue(uow: UnitOfWork) -> list[tuple[str, str]]:
    """Return instance and request of at most `BATCH` overdue rows."""
    row = PendingAttach
    query = sa.select(row.instance_uuid, row.request_id).where(*is_overdue(uow.now)).order_by(row.until).limit(BATCH)
    return [(instance_uuid, request_id) for instance_uuid, request_id in uow.session.execute(query)]


def is_overdue(now: Time) -> tuple[sa.ColumnElement[bool], ...]:
    return (PendingAttach.until < now,)


def put_off(uow: UnitOfWork, instance_uuid: str, request_id: str, seconds: float) -> None:
    row = PendingAttach
    this = sa.and_(row.instance_uuid == instance_uuid, row.request_id == request_id)
    uow.change(sa.update(row).where(this).values(until=uow.now + datetime.timedelta(seconds=seconds)))


def drop(uow: UnitOfWork, instance_uuid: str, request_id: str | None = None) -> None:
    """Delete the row of the request, or all rows of the instance. Missing rows are ignored."""
    query = sa.delete(PendingAttach).where(PendingAttach.instance_uuid == instance_uuid)
    uow.change(query if request_id is None else query.where(PendingAttach.request_id == request_id))

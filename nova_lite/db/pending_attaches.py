"""Interfaces that another network service was asked for, for servers that run, until it is known what came of it.

A row is there before the service is asked. What has a row that is past its time may be there, and is nobody's.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import sqlalchemy as sa

from nova_lite.db.engine import Time, UnitOfWork
from nova_lite.db.models import PendingAttach

#: Rows that one call of `overdue` finds.
BATCH = 100


def add(uow: UnitOfWork, instance_uuid: str, request_id: str, port_id: str | None, seconds: float) -> PendingAttach:
    """``port_id``: of a port that the user brings. ``seconds``: after them nobody is at it any more."""
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
    """Instance and request of each, at most `BATCH`."""
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
    """That of the request, or all of the instance's; quiet when there is none."""
    query = sa.delete(PendingAttach).where(PendingAttach.instance_uuid == instance_uuid)
    uow.change(query if request_id is None else query.where(PendingAttach.request_id == request_id))

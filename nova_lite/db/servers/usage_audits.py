"""Progress of the audits that send ``instance.exists`` for each server of a period."""

from __future__ import annotations

import datetime

import sqlalchemy as sa

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.core.models import UsageAudit as Row
from nova_lite.db.core.statements import insert_unless_taken

#: Days for which finished audits are kept.
KEPT_DAYS = 400


def next_servers(uow: UnitOfWork, beginning: datetime.datetime, ending: datetime.datetime, limit: int) -> list[str]:
    """Return the uuids of the next servers that ran in the period. Fewer than ``limit``: the audit has ended.

    Conductors share an audit: each takes other servers, because the row is locked.
    """
    period = (Row.beginning == beginning, Row.ending == ending)
    query = sa.select(Row).where(*period).with_for_update().execution_options(populate_existing=True)
    row = uow.session.scalars(query).first()
    if row is None:
        insert_unless_taken(uow, Row, {"beginning": beginning, "ending": ending, "position": 0, "servers": 0})
        uow.change(sa.delete(Row).where(Row.ending < ending - datetime.timedelta(days=KEPT_DAYS)))
        row = uow.session.scalars(query).one()
    if row.finished_at is not None:
        return []
    there = (
        Instance.id > row.position,
        Instance.launched_at < ending,
        sa.or_(Instance.terminated_at.is_(None), Instance.terminated_at > beginning),
    )
    found = uow.rows(sa.select(Instance.id, Instance.uuid).where(*there).order_by(Instance.id).limit(limit)).all()
    if found:
        row.position, row.servers = found[-1].id, row.servers + len(found)
    if len(found) < limit:
        row.finished_at = uow.now
    uow.session.flush()
    return [item.uuid for item in found]

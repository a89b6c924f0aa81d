"""Ids of messages that changed something, so that none is taken again by another conductor, or by one that has started
since."""

from __future__ import annotations

import datetime

import sqlalchemy as sa

from nova_lite.db.engine import UnitOfWork, utcnow
from nova_lite.db.models import SeenMessage
from nova_lite.db.statements import insert_unless_taken

#: Rows that one call of `expire` removes.
BATCH = 5000


def message_taken(uow: UnitOfWork, message_id: str) -> bool:
    """False if it was taken before."""
    return insert_unless_taken(uow, SeenMessage, {"id": message_id, "taken_at": utcnow()})


def messages_taken(uow: UnitOfWork, message_ids: list[str]) -> list[bool]:
    """`message_taken`, of each."""
    return [message_taken(uow, message_id) for message_id in message_ids]


def expire(uow: UnitOfWork, seconds: float) -> int:
    """Forget those that are older, which nobody takes any more by their time; returns how many, at most `BATCH`."""
    row, before = SeenMessage, uow.now - datetime.timedelta(seconds=seconds)
    old = uow.session.scalars(sa.select(row.id).where(row.taken_at < before).limit(BATCH)).all()
    if old:
        uow.change(sa.delete(row).where(row.id.in_(old)))
    return len(old)

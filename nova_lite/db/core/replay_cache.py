"""Ids of messages that changed something, shared by all conductors and kept over restarts. No message is accepted
twice.
"""

from __future__ import annotations

import datetime

import sqlalchemy as sa

from nova_lite.db.core.engine import UnitOfWork, utcnow
from nova_lite.db.core.models import SeenMessage
from nova_lite.db.core.statements import insert_unless_taken

#: Number of rows that one call of `expire` removes.
BATCH = 5000


def message_taken(uow: UnitOfWork, message_id: str) -> bool:
    """Store a message id; return False if it was stored before."""
    return insert_unless_taken(uow, SeenMessage, {"id": message_id, "taken_at": utcnow()})


def messages_taken(uow: UnitOfWork, message_ids: list[str]) -> list[bool]:
    """Store message ids; return one flag for each, as `message_taken` does."""
    return [message_taken(uow, message_id) for message_id in message_ids]


def expire(uow: UnitOfWork, before: datetime.datetime) -> int:
    """Delete ids that were stored before then, whose messages are too old to be accepted. Returns their number, at most
    `BATCH`.
    """
    row = SeenMessage
    old = uow.session.scalars(sa.select(row.id).where(row.taken_at < before).limit(BATCH)).all()
    if old:
        uow.change(sa.delete(row).where(row.id.in_(old)))
    return len(old)

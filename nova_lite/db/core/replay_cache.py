"""Ids of messages that changed something, shared by all conductors and kept over restarts. No message is accepted
twice.
"""

from __future__ import annotations

import datetime
import operator

import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import UnitOfWork, utcnow
from nova_lite.db.core.models import SeenMessage
from nova_lite.db.core.statements import insert_all_unless_taken

#: Number of rows that one call of `expire` removes.
BATCH = 5000

_NOW = utcnow()


def message_taken(uow: UnitOfWork, message_id: str) -> bool:
    """Store a message id; return False if it was stored before."""
    return insert_all_unless_taken(uow, SeenMessage, [{"id": message_id}], taken_at=_NOW)


def messages_taken(uow: UnitOfWork, message_ids: list[str]) -> list[bool]:
    """Store message ids; return one flag for each, as `message_taken` does."""
    return [message_taken(uow, message_id) for message_id in message_ids]


def record(uow: UnitOfWork, *contexts: RequestContext, is_recognised: bool = True) -> None:
    """Store the messages of these contexts, unless their handlers have stored them, before or in this transaction.

    Raises `MessageRefused` if one of them was taken before. To be called before anything is read or locked: a message
    that comes twice waits here for the transaction of the first one.

    ``is_recognised``: the handler recognises work that it has done before. If the connection is lost during a COMMIT,
    this conductor itself may have taken the messages, and the handler has to return the same again.
    """
    found = {context.message for context in contexts if context.message is not None}
    stored: set[str] = uow.once(record, set)  # a clone accepts an operation of its source, too
    new = (message for message in found if not message.is_recorded and message.id not in stored)
    messages = sorted(new, key=operator.attrgetter("id"))
    if not messages:
        return
    stored.update(message.id for message in messages)
    may_be_own = is_recognised and uow.may_be_done and all(message.was_stored for message in messages)
    rows = [{"id": message.id} for message in messages]
    if not insert_all_unless_taken(uow, SeenMessage, rows, taken_at=_NOW) and not may_be_own:
        raise exceptions.MessageRefused(
            topic="conductor", server=uow.conf.host, method=messages[0].id, why=exceptions.MessageRefused.REPLAYED
        )
    for message in messages:
        message.was_stored = True

    def note() -> None:
        for message in messages:
            message.is_recorded = True

    uow.after_commit(note)


def expire(uow: UnitOfWork, before: datetime.datetime) -> int:
    """Delete ids that were stored before then, whose messages are too old to be accepted. Returns their number, at most
    `BATCH`.
    """
    row = SeenMessage
    old = uow.session.scalars(sa.select(row.id).where(row.taken_at < before).limit(BATCH)).all()
    if old:
        uow.change(sa.delete(row).where(row.id.in_(old)))
    return len(old)

"""The outbox: notifications that other systems have not received yet.

A notification is written in the transaction of the change that it is about, once for each channel. A conductor leases
the oldest ones of a channel, delivers them, and deletes them. So each is delivered at least once, and in order as long
as a lease holds.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Notification


class Waiting(NamedTuple):
    """A notification in the outbox. ``attempts``: how often its delivery has failed."""

    id: int
    channel: str
    message_id: str
    event_type: str
    publisher_id: str
    priority: str
    context: dict[str, Any]
    payload: dict[str, Any]
    created_at: datetime.datetime
    attempts: int = 0


class LeaseTakenError(Exception):
    """Another conductor has leased the same notifications just now."""


_WAITING = sa.select(*(getattr(Notification, name) for name in Waiting._fields), Notification.due_at)
_HEAD = sa.select(Notification.due_at).order_by(Notification.id).limit(1)


def add(uow: UnitOfWork, waiting: Iterable[dict[str, Any]]) -> None:
    """Write notifications, in this order. Each has the fields of `Waiting` except its id, time and attempts."""
    times = {"created_at": uow.now, "due_at": uow.now, "attempts": 0}
    uow.session.execute(sa.insert(Notification), [{**fields, **times} for fields in waiting])


def seconds_until_due(uow: UnitOfWork, channel: str) -> float | None:
    """Return the time until the oldest notification of a channel may be delivered; None: there is none."""
    due_at = uow.rows(_HEAD.where(Notification.channel == channel)).scalar()
    return None if due_at is None else max(0.0, (due_at - uow.now).total_seconds())


def lease_notifications(uow: UnitOfWork, channel: str, owner: str, limit: int, seconds: float) -> list[Waiting]:
    """Lease the oldest notifications of a channel. Returns none while another conductor holds the oldest one.

    Raises `LeaseTakenError` if another conductor leases some of them at the same time.
    """
    query = _WAITING.where(Notification.channel == channel).order_by(Notification.id).limit(limit)
    found = [
        Waiting(*row[:-1]) for row in itertools.takewhile(lambda row: row.due_at <= uow.now, uow.rows(query).all())
    ]
    if found:
        mine = (Notification.id.in_([item.id for item in found]), Notification.due_at <= uow.now)
        until = uow.now + datetime.timedelta(seconds=seconds)
        if uow.change(sa.update(Notification).where(*mine).values(lease_owner=owner, due_at=until)) != len(found):
            raise LeaseTakenError
    return found


def settle_notifications(
    uow: UnitOfWork, owner: str, finished: Collection[int], failed: int | None, retry_after: float
) -> None:
    """Delete the finished ones, and release the lease on the others. Notifications that another conductor has leased
    meanwhile stay as they are, and it delivers them again.

    ``failed``: the notification whose delivery failed. It is due again after ``retry_after`` seconds.
    """
    mine = Notification.lease_owner == owner
    if finished:
        uow.change(sa.delete(Notification).where(Notification.id.in_(finished), mine))
    if failed is not None:
        due_at = uow.now + datetime.timedelta(seconds=retry_after)
        values = {"lease_owner": None, "due_at": due_at, "attempts": Notification.attempts + 1}
        uow.change(sa.update(Notification).where(Notification.id == failed, mine).values(values))
    uow.change(sa.update(Notification).where(mine).values(lease_owner=None, due_at=uow.now))


def drop_old(uow: UnitOfWork, seconds: float) -> int:
    """Drop notifications of any channel that are older. Returns their number."""
    before = uow.now - datetime.timedelta(seconds=seconds)
    return uow.change(sa.delete(Notification).where(Notification.created_at < before))


def drop_excess(uow: UnitOfWork, channel: str, most: int) -> int:
    """Drop the oldest notifications of a channel beyond a number. Returns how many."""
    of_channel = Notification.channel == channel
    newest = sa.select(Notification.id).where(of_channel).order_by(Notification.id.desc())
    last_dropped = uow.rows(newest.offset(most).limit(1)).scalar()
    if last_dropped is None:
        return 0
    return uow.change(sa.delete(Notification).where(of_channel, Notification.id <= last_dropped))


def count(uow: UnitOfWork) -> dict[str, int]:
    """Return the number of notifications by channel."""
    query = sa.select(Notification.channel, sa.func.count()).group_by(Notification.channel)
    return dict(uow.rows(query).all())

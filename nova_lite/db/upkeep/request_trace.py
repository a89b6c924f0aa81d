"""Entries of the database about one request: events of the audit log, operations and their steps, other work.

Operations are found by an index. Events of the audit log and notifications are searched within a span of time.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy import orm

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import AuditEvent, InstanceAction, Notification, VolumeTask
from nova_lite.db.core.rows import to_object
from nova_lite.objects import InstanceActionEvent

#: Entries of each kind at most. A request has few; a client that sets the same id for all of its requests has many.
MOST = 1000


class Entry(NamedTuple):
    """Something that happened for a request. ``machine``: where, if that is known. ``seconds``: how long it took, or
    None while it continues. ``about``: id of the resource.
    """

    time: datetime.datetime
    machine: str | None
    source: str
    event: str
    result: str
    seconds: float | None = None
    about: str = ""


def read(uow: UnitOfWork, request_id: str, since: datetime.datetime) -> list[Entry]:
    """Return the entries of a request in the order of time. ``since``: when to begin in logs without an index."""
    found = [*_operations(uow, request_id), *_volume_tasks(uow, request_id)]
    first = min([since, *(entry.time for entry in found)])
    found += [*_audit_events(uow, request_id, first), *_notifications(uow, request_id, first)]
    return sorted(found, key=lambda entry: entry.time)


def _operations(uow: UnitOfWork, request_id: str) -> list[Entry]:
    query = (
        sa.select(InstanceAction)
        .where(InstanceAction.request_id == request_id)
        .options(orm.selectinload(InstanceAction.earlier_events))
    )
    found = []
    for action in uow.session.scalars(query.order_by(InstanceAction.id).limit(MOST)):
        found.append(_operation(action))
        events = [to_object(InstanceActionEvent, event) for event in action.earlier_events]
        events += msgspec.convert(action.events or [], list[InstanceActionEvent])
        found += [_step(event, action.instance_uuid) for event in events]
    return found


def _operation(action: InstanceAction) -> Entry:
    if action.finish_time is not None:
        result = action.message or "Success"
    else:
        result = f"at step {action.step}"
        if action.lease_owner:
            result += f", by the conductor {action.lease_owner} until {action.lease_expires_at:%H:%M:%S}"
        if action.attempts:
            result += f", {action.attempts} retries"
        result += f", deadline {action.deadline:%Y-%m-%d %H:%M:%S}"
    took = _seconds(action.start_time, action.finish_time)
    return Entry(action.start_time, None, "operation", action.action, result, took, action.instance_uuid)


def _step(event: InstanceActionEvent, instance_uuid: str) -> Entry:
    start, end = naive(event.start_time), None if event.finish_time is None else naive(event.finish_time)
    result = ": ".join(text for text in (event.result or "runs", event.details) if text)
    return Entry(start, event.host, "step", event.event, result, _seconds(start, end), instance_uuid)


def _volume_tasks(uow: UnitOfWork, request_id: str) -> list[Entry]:
    query = sa.select(VolumeTask).where(VolumeTask.request_id == request_id).order_by(VolumeTask.id).limit(MOST)
    return [
        Entry(uow.now, task.host, "volume task", task.verb, f"deadline {task.deadline:%H:%M:%S}", about=task.volume_id)
        for task in uow.session.scalars(query)
    ]


def _audit_events(uow: UnitOfWork, request_id: str, since: datetime.datetime) -> list[Entry]:
    query = sa.select(AuditEvent).where(AuditEvent.event_time >= since, AuditEvent.request_id == request_id)
    return [
        Entry(
            event.event_time,
            event.observer or None,
            f"{event.service} API",
            f"{event.action} {event.path}".strip(),
            f"{event.outcome} {event.reason_code or ''}".strip(),
            None,
            event.target_id,
        )
        for event in uow.session.scalars(query.order_by(AuditEvent.event_time, AuditEvent.id).limit(MOST))
    ]


def _notifications(uow: UnitOfWork, request_id: str, since: datetime.datetime) -> list[Entry]:
    """Return the notifications that were not delivered yet."""
    query = sa.select(Notification).where(
        Notification.created_at >= since, Notification.context["request_id"].as_string() == request_id
    )
    return [
        Entry(row.created_at, None, "notification", row.event_type, f"waits for the {row.channel}")
        for row in uow.session.scalars(query.order_by(Notification.id).limit(MOST))
    ]


def _seconds(start: datetime.datetime, end: datetime.datetime | None) -> float | None:
    return None if end is None else round((end - start).total_seconds(), 3)


def naive(time: datetime.datetime) -> datetime.datetime:
    """Return a time of an event as rows have it, in UTC."""
    return time if time.tzinfo is None else time.astimezone(datetime.UTC).replace(tzinfo=None)

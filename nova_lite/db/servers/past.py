"""Servers as they were: the row of now, with its later changes undone (`nova_lite.db.core.server_changes`).

A row has the time of its newest change. So a change that was not recorded is noticed: nothing before it is known.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeAlias

import msgspec
import sqlalchemy as sa

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Allocation, ComputeNode, Instance, InstanceAction, Migration
from nova_lite.db.core.server_changes import RECORDED, ServerChange

_TIMES = frozenset(column.key for column in sa.inspect(Instance).columns if isinstance(column.type, sa.DateTime))

#: Columns that never change.
FIXED = (
    "uuid", "project_id", "user_id", "reservation_id", "launch_index", "created_at", "requested_availability_zone",
    "scheduler_hints",
)  # fmt: skip

#: Changes of a server, first to last.
Changes: TypeAlias = Sequence[ServerChange]


def changes(uow: UnitOfWork, uuids: Collection[str], since: datetime.datetime) -> dict[str, list[ServerChange]]:
    """Return the recorded changes of these servers later than ``since``, first to last."""
    found: dict[str, list[ServerChange]] = {uuid: [] for uuid in uuids}
    query = sa.select(InstanceAction.instance_uuid, InstanceAction.changes)
    query = query.where(InstanceAction.instance_uuid.in_(sorted(uuids)), InstanceAction.changes.is_not(None))
    for uuid, kept in uow.rows(query.order_by(InstanceAction.id)):
        found[uuid] += [item for item in msgspec.convert(kept, list[ServerChange]) if item.at > since]
    for listed in found.values():
        listed.sort(key=lambda change: change.at)  # changes of one time stay in the order of their actions
    return found


def actions(uow: UnitOfWork, uuid: str) -> list[InstanceAction]:
    """Return the actions of a server, oldest first."""
    query = sa.select(InstanceAction).where(InstanceAction.instance_uuid == uuid)
    return list(uow.session.scalars(query.order_by(InstanceAction.id)))


def at(uow: UnitOfWork, row: Instance, time: datetime.datetime) -> Instance:
    """Return a server as far as is recorded how it was at ``time``. See `is_known`."""
    return then(row, changes(uow, [row.uuid], time)[row.uuid])


def then(row: Instance, later: Changes) -> Instance:
    """Return a server before these changes, as a row of no session. What is not recorded is left out.

    ``request`` is that of now: it is emptied when a build ends.
    """
    values: dict[str, Any] = {name: getattr(row, name) for name in (*RECORDED, "request")}
    for change in reversed(later):
        if values["updated_at"] is not None and values["updated_at"] > change.at:
            break  # a later change was not recorded
        values |= {name: _value(name, value) for name, value in change.was.items()}
    return Instance(**values)


def is_known(then_row: Instance, time: datetime.datetime) -> bool:
    """Check whether this is how the server was at ``time``: nothing has changed it since."""
    return (then_row.updated_at or then_row.created_at) <= time


def changed_since(uow: UnitOfWork, time: datetime.datetime) -> dict[str, Instance]:
    """Return the servers that were created or changed after ``time``, or had an open action then or later, by uuid.

    The end of an action may release a claim and leave the time of the row as it is.
    """
    later = sa.or_(InstanceAction.finish_time > time, InstanceAction.finish_time.is_(None))
    busy = Instance.uuid.in_(sa.select(InstanceAction.instance_uuid).where(later))
    query = sa.select(Instance).where(sa.or_(Instance.updated_at > time, Instance.created_at > time, busy))
    return {row.uuid: row for row in uow.session.scalars(query)}


def claims(uow: UnitOfWork, uuids: Iterable[str]) -> Sequence[tuple[str, datetime.datetime, str, str]]:
    """Return the claims of these servers: the server, the time since when, host and node."""
    columns = (Allocation.instance_uuid, Allocation.created_at, ComputeNode.host, ComputeNode.node)
    query = sa.select(*columns).join(ComputeNode, ComputeNode.id == Allocation.compute_node_id)
    found = uow.rows(query.where(Allocation.instance_uuid.in_(sorted(uuids))))
    return [tuple(row) for row in found]


def with_two_places(uow: UnitOfWork, time: datetime.datetime) -> set[str]:
    """Return servers that may have had a second place at ``time``, which is not recorded.

    They were in a move, or their deletion waited for a host.
    """
    moves = sa.select(Migration.instance_uuid).where(Migration.created_at <= time, Migration.updated_at > time)
    deletions = sa.select(Instance.uuid).join(InstanceAction, InstanceAction.instance_uuid == Instance.uuid)
    waited = (InstanceAction.start_time <= time, InstanceAction.finish_time > time)
    return set(uow.session.scalars(sa.union(moves, deletions.where(Instance.terminated_at <= time, *waited))))


def new_hosts(uow: UnitOfWork, time: datetime.datetime) -> set[str]:
    """Return the hosts that have come after ``time``."""
    return set(uow.session.scalars(sa.select(ComputeNode.host).where(ComputeNode.created_at > time)))


def _value(name: str, value: Any) -> Any:
    return datetime.datetime.fromisoformat(value) if name in _TIMES and isinstance(value, str) else value

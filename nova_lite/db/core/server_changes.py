"""Changes of servers, recorded in the rows of actions: what a server was before, by which its past can be read.

A change is in the row of an action of its server that the transaction has at hand. A change without an action, such as
another name, is in the row of the server's newest action. `nova_lite.db.servers.past` reads what is recorded here.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import orm

from nova_lite.db.core.engine import Database, utcnow
from nova_lite.db.core.models import Instance, InstanceAction

#: Columns whose changes are recorded. The others are secret or large, or have a meaning for hosts only.
RECORDED = frozenset(sa.inspect(Instance).columns.keys()) - {
    "request", "user_data", "key_data", "system_metadata", "network_info", "points", "guest_devices", "progress",
    "last_generation", "network_call_until",
}  # fmt: skip

#: Changes that the row of an action keeps, the newest ones. A guest that stops and starts all day makes so many.
MOST = 200

#: Key of a session's note: the time of its transaction.
_TIME = "nova_lite.server_changes"


class ServerChange(msgspec.Struct):
    """A change of a server's row. ``was``: the earlier values of the columns that have changed."""

    at: datetime.datetime
    was: dict[str, Any]


def watch(db: Database) -> None:
    """Record changes of servers in all transactions from now on."""
    sa.event.listen(db.sessions, "before_flush", _record)


def _record(session: orm.Session, *_arguments: Any) -> None:
    changed = [(row, was) for row in session.dirty if isinstance(row, Instance) and (was := _was(row))]
    if not changed:
        return
    at = session.info[_TIME] = session.info.get(_TIME) or _time(session, changed)
    at_hand = _actions((*session.dirty, *session.new))
    for row, was in changed:
        action = at_hand.get(row.uuid) or _newest(session, row.uuid)
        if action is not None:
            change = msgspec.to_builtins(ServerChange(at, was))
            action.changes = [*(action.changes or []), change][-MOST:]


def _was(row: Instance) -> dict[str, Any]:
    """Return the earlier values of the recorded columns that have changed; nothing if one of them was not loaded.

    A change that is not recorded leaves the row's past before it unknown.
    """
    earlier = {name: value for name, value in sa.inspect(row).committed_state.items() if name in RECORDED}
    if orm.LoaderCallableStatus.NO_VALUE in earlier.values():
        return {}
    return {name: value for name, value in earlier.items() if value != getattr(row, name)}


def _time(session: orm.Session, changed: Iterable[tuple[Instance, dict[str, Any]]]) -> datetime.datetime:
    """Return the time of the transaction, which nearly every change of a server sets in its row."""
    for row, was in changed:
        if "updated_at" in was and row.updated_at is not None:
            return row.updated_at
    now: datetime.datetime = session.connection().execute(sa.select(utcnow())).scalar_one()
    return now


def _actions(rows: Iterable[object]) -> dict[str, InstanceAction]:
    """Return an action of each server, if possible a new one, whose row is written anyway."""
    return {row.instance_uuid: row for row in rows if isinstance(row, InstanceAction)}


def _newest(session: orm.Session, uuid: str) -> InstanceAction | None:
    """Lock and return the newest action of a server, as it is in the database now."""
    query = sa.select(InstanceAction).where(InstanceAction.instance_uuid == uuid).order_by(InstanceAction.id.desc())
    with session.no_autoflush:
        fresh = query.limit(1).with_for_update().execution_options(populate_existing=True)
        return session.scalars(fresh).first()

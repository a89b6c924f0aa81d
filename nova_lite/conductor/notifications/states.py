"""Changes of a server's states, noted while a transaction runs, for ``instance.update``."""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import orm

from nova_lite.conf.notifications import VM_AND_TASK_STATE
from nova_lite.db import models
from nova_lite.db.engine import Database, UnitOfWork
from nova_lite.objects import Instance

#: Key of a session's notes: states by uuid, as they were when the transaction began.
_NOTES = "nova_lite.states"


class States(NamedTuple):
    """States of a server. None in place of both: it is new."""

    vm_state: str | None
    task_state: str | None


class StateChange(NamedTuple):
    """A server whose states a transaction has changed, as it is now."""

    instance: Instance
    before: States


def watch(db: Database) -> None:
    """Note changes of states in all transactions from now on."""
    sa.event.listen(db.sessions, "before_flush", _note)


def _note(session: orm.Session, *_arguments: Any) -> None:
    for row in session.dirty:
        if isinstance(row, models.Instance):
            before = States(_before(row, "vm_state"), _before(row, "task_state"))
            session.info.setdefault(_NOTES, {}).setdefault(row.uuid, before)
    for row in session.new:
        if isinstance(row, models.Instance):
            session.info.setdefault(_NOTES, {}).setdefault(row.uuid, States(None, None))


def _before(row: models.Instance, name: str) -> str | None:
    history = sa.inspect(row).attrs[name].history
    value: str | None = history.deleted[0] if history.deleted else getattr(row, name)
    return value


def noted(uow: UnitOfWork) -> dict[str, States]:
    """Return and forget what was noted: by uuid, the states before the transaction."""
    found: dict[str, States] = uow.session.info.pop(_NOTES, {})
    return found


def is_changed(change: StateChange, which: str) -> bool:
    """Check whether the option ``notify_on_state_change``, which is ``which``, asks for this change."""
    now = States(change.instance.vm_state, change.instance.task_state)
    if now.vm_state != change.before.vm_state:
        return True
    return which == VM_AND_TASK_STATE and now.task_state != change.before.task_state


def fields(change: StateChange) -> dict[str, str | None]:
    """Return the states as Nova names them. A server that is new was in its present states."""
    now, before = change.instance, change.before
    return {
        "old_state": before.vm_state or now.vm_state,
        "state": now.vm_state,
        "old_task_state": now.task_state if before.vm_state is None else before.task_state,
        "new_task_state": now.task_state,
    }

"""Changes of a server's states, noted while a transaction runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import orm

from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork

#: Key of a session's notes: states by uuid, as they were when the transaction began.
_NOTES = "nova_lite.states"


class States(NamedTuple):
    """States of a server. None in place of both: it is new."""

    vm_state: str | None
    task_state: str | None


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

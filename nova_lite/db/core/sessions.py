"""Sessions that write a server and its action by plans. SQLAlchemy writes everything else.

A plan writes the columns that SQLAlchemy would write, and leaves the rows in the session in the same state. Several
rows of one kind are SQLAlchemy's, because it writes them by one statement. Values of these rows are never SQL.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from nova_lite.db.core import plans
from nova_lite.db.core.models import Instance, InstanceAction

#: Models with plans, in the order in which their rows are written.
_MODELS = (Instance, InstanceAction)

#: Statements by their columns. Most operations change the same ones each time.
_MOST = 128


class Session(orm.Session):
    """A session of the ORM with faster writes of the rows that most transactions change."""

    def flush(self, objects: Sequence[Any] | None = None) -> None:
        if self._flushing or objects is not None or not self._is_planned():
            super().flush(objects)
        elif not self._is_clean():
            self._flushing = True
            try:
                self._write()
            finally:
                self._flushing = False

    def _is_planned(self) -> bool:
        """Check whether at most one row of each model has changed, and no part of it in other tables."""
        states = [*self._new, *self._dirty_states]
        models = {state.class_ for state in states}
        if self._deleted or len(models) < len(states) or not models.issubset(_MODELS):
            return False
        for state in states:
            parts = state.mapper.relationships.keys()
            for name in parts:
                if state.dict.get(name) if state.key is None else name in state.committed_state:
                    return False
        return True

    def _write(self) -> None:
        self.dispatch.before_flush(self, None, None)  # may change an action
        connection, states = self.connection(), [*self._new, *self._dirty_states]
        for state in sorted(states, key=lambda state: _MODELS.index(state.class_)):
            if state.key is None:
                _insert(connection, state)
            else:
                _update(connection, state)
        self._register_persistent(set(states))


def _insert(connection: sa.Connection, state: orm.InstanceState[Any]) -> None:
    row, columns = state.dict, state.mapper.columns
    for name, column in columns.items():
        default: Any = column.default
        if name not in row and default is not None:
            row[name] = default.arg(None) if default.is_callable else default.arg
    values = {name: row[name] for name in columns.keys() if name in row}  # noqa: SIM118 a collection of columns
    statement = _statement(state.mapper, tuple(values), is_new=True)
    row["id"] = plans.plan(statement, connection.dialect).run(connection, values).scalar_one()


def _update(connection: sa.Connection, state: orm.InstanceState[Any]) -> None:
    row, earlier, names = state.dict, state.committed_state, state.mapper.columns.keys()
    changed = [
        name
        for name in names
        if name in earlier and state.manager[name].impl.is_equal(row[name], earlier[name]) is not True
    ]
    if not changed:
        return
    values = {"key": row["id"], **{f"new_{name}": row[name] for name in changed}}
    statement = _statement(state.mapper, tuple(changed), is_new=False)
    if plans.plan(statement, connection.dialect).change(connection, values) != 1:
        raise orm.exc.StaleDataError(f"A row of {state.class_.__name__} is gone.")


@functools.lru_cache(_MOST)
def _statement(mapper: orm.Mapper[Any], names: tuple[str, ...], is_new: bool) -> Any:
    """Prepare the insert or update of these columns."""
    table, columns = mapper.local_table, mapper.columns
    if is_new:
        return sa.insert(table).values({columns[name]: sa.bindparam(name) for name in names}).returning(columns["id"])  # type: ignore[arg-type]
    values: dict[Any, Any] = {columns[name]: sa.bindparam(f"new_{name}") for name in names}
    return sa.update(table).where(columns["id"] == sa.bindparam("key")).values(values)  # type: ignore[arg-type]

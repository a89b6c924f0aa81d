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
        if self._flushing or objects is not None or not self._are_planned(states := self._changed()):
            super().flush(objects)
        elif states:
            self._flushing = True
            try:
                self._write()
            finally:
                self._flushing = False

    def _changed(self) -> list[orm.InstanceState[Any]]:
        return [*self._new, *self._dirty_states]

    def _are_planned(self, states: list[orm.InstanceState[Any]]) -> bool:
        """Check whether there is at most one row of each model, and nothing that only SQLAlchemy can write."""
        models = {state.class_ for state in states}
        is_alone = len(models) == len(states) and not self._deleted
        return is_alone and models.issubset(_MODELS) and all(map(_is_plain, states))

    def _write(self) -> None:
        self.dispatch.before_flush(self, None, None)  # may change an action
        connection, written = self.connection(), self._changed()
        for state in sorted(written, key=lambda state: _MODELS.index(state.class_)):
            if state.key is None:
                _insert(connection, state)
            else:
                _update(connection, state)
        self._register_persistent(set(written))


def _is_plain(state: orm.InstanceState[Any]) -> bool:
    """Check that a row has no changed parts in other tables."""
    parts = state.mapper.relationships.keys()
    return not any(state.dict.get(name) if state.key is None else name in state.committed_state for name in parts)


def _insert(connection: sa.Connection, state: orm.InstanceState[Any]) -> None:
    model: Any = state.class_
    row = state.dict
    for name, default in _defaults(model).items():
        if name not in row:
            row[name] = default.arg(None) if default.is_callable else default.arg
    names = tuple(name for name in _columns(model) if name in row)
    statement = _inserting(model, names)
    inserted = plans.plan(statement, connection.dialect).run(connection, {name: row[name] for name in names})
    row["id"] = inserted.scalar_one()


def _update(connection: sa.Connection, state: orm.InstanceState[Any]) -> None:
    model: Any = state.class_
    changed = {
        name: state.dict[name]
        for name in _columns(model)
        if name in state.committed_state
        and state.manager[name].impl.is_equal(state.dict[name], state.committed_state[name]) is not True
    }
    if not changed:
        return
    values = {"key": state.dict["id"], **{f"new_{name}": value for name, value in changed.items()}}
    statement = _updating(model, tuple(changed))
    if plans.plan(statement, connection.dialect).change(connection, values) != 1:
        raise orm.exc.StaleDataError(f"A row of {model.__name__} is gone.")


@functools.cache
def _columns(model: type[Any]) -> list[str]:
    """Return the names of the model's columns."""
    return list(sa.inspect(model).columns.keys())


@functools.cache
def _defaults(model: type[Any]) -> dict[str, Any]:
    columns = sa.inspect(model).columns.items()
    return {name: column.default for name, column in columns if column.default is not None}


@functools.lru_cache(_MOST)
def _inserting(model: type[Any], names: tuple[str, ...]) -> sa.Insert:
    columns = sa.inspect(model).columns
    values: dict[Any, Any] = {columns[name]: sa.bindparam(name) for name in names}
    return sa.insert(model.__table__).values(values).returning(columns["id"])


@functools.lru_cache(_MOST)
def _updating(model: type[Any], names: tuple[str, ...]) -> sa.Update:
    columns = sa.inspect(model).columns
    values: dict[Any, Any] = {columns[name]: sa.bindparam(f"new_{name}") for name in names}
    return sa.update(model.__table__).where(columns["id"] == sa.bindparam("key")).values(values)

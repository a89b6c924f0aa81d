"""Plans of prepared statements: SQLAlchemy compiles the statement once, and its text then runs on the driver's cursor.

Text, parameters and values are SQLAlchemy's own. Only its way from Python to the driver is shorter. A plan for rows of
the ORM puts them into the session, as a query of the ORM does.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.engine import result

#: Plans of each kind, for all databases in this process.
_MOST = 256
#: Longest lists whose texts are kept.
_SHORT = 3


class Plan:
    """A statement, compiled for one kind of database. Any thread may run it."""

    def __init__(self, statement: Any, dialect: sa.Dialect) -> None:
        self._dialect = dialect
        self._compiled = statement.compile(dialect=dialect)
        self._lists = [name for name, bind in self._compiled.binds.items() if bind.expanding and bind.required]
        self._processors = {
            name: process
            for bind, name in self._compiled.bind_names.items()
            if (process := bind.type.dialect_impl(dialect).bind_processor(dialect)) is not None
        }
        self._types = [column.type for column in self._compiled._result_columns]
        self._defaults = {column.key: column.default for column in self._compiled.insert_prefetch}
        self._texts: dict[tuple[int, ...], _Text] = {}
        self._shape: _Shape | None = None

    def run(self, connection: sa.Connection, values: Mapping[str, Any]) -> sa.Result[Any]:
        """Return the rows of a query, or of a change that returns columns."""
        description, found, _ = self._execute(connection, values)
        shape = self._shape = self._shape or _Shape(self._types, description, self._dialect)
        return result.IteratorResult(shape.metadata, shape.rows(found))

    def change(self, connection: sa.Connection, values: Mapping[str, Any]) -> int:
        """Run an insert, update or delete and return the number of its rows."""
        return self._execute(connection, values)[-1]

    def _execute(self, connection: sa.Connection, values: Mapping[str, Any]) -> tuple[Any, Any, int]:
        """Return columns, rows, and the number of rows that a change has matched, as the driver has them."""
        if not connection.in_transaction():
            connection.begin()
        text, parameters = self._text(values)
        cursor: Any = None
        try:
            cursor = connection.connection.cursor()  # psycopg notices here that the connection is closed
            for listener in connection.dispatch.before_cursor_execute:  # the time limit, and tests that count
                text, parameters = listener(connection, cursor, text, parameters, None, False)
            cursor.execute(text, parameters)
            found = cursor.description, cursor.fetchall() if cursor.description else (), cursor.rowcount
            cursor.close()
        except BaseException as error:
            # Other errors are of values: SQLAlchemy does not wrap them either.
            if isinstance(error, self._dialect.loaded_dbapi.Error) or not isinstance(error, Exception):
                connection._handle_dbapi_exception(error, text, parameters, cursor, None)
            raise
        return found

    def _text(self, values: Mapping[str, Any]) -> tuple[str, Any]:
        """Return text and parameters for the driver. Texts for short lists are kept."""
        made = {name: item.arg(None) if item.is_callable else item.arg for name, item in self._defaults.items()}
        values = {**made, **values, **{name: list(values[name]) for name in self._lists}}
        lengths = tuple(len(values[name]) for name in self._lists)
        text = self._texts.get(lengths)
        if text is None:
            text = _Text(self._compiled, self._processors, self._lists, values)
            if max(lengths, default=0) <= _SHORT:
                self._texts[lengths] = text
        return text.text, text.parameters(values)


class _Text:
    """The text of a statement for lists of certain lengths, and how its parameters follow from values."""

    def __init__(
        self, compiled: Any, processors: Mapping[str, Any], lists: Collection[str], values: Mapping[str, Any]
    ) -> None:
        state = compiled.construct_expanded_state(values)
        self.text: str = state.statement
        sources: dict[str, tuple[str, int | None]] = {name: (name, None) for name in values if name not in lists}
        for name in lists:
            sources |= {item: (name, position) for position, item in enumerate(state.parameter_expansion[name])}
        processors = {**processors, **state.processors}
        self._names = None if compiled.positional else list(state.parameters)
        self._steps = [
            (*sources.get(name, (None, None)), state.parameters[name], processors.get(name))
            for name in (state.positiontup if self._names is None else self._names)
        ]

    def parameters(self, values: Mapping[str, Any]) -> Any:
        found = []
        for source, position, constant, process in self._steps:
            value = constant if source is None else values[source] if position is None else values[source][position]
            found.append(value if process is None else process(value))
        return tuple(found) if self._names is None else dict(zip(self._names, found, strict=True))


class _Shape:
    """The columns of a query's result: their names, and what SQLAlchemy makes of the driver's values."""

    def __init__(self, types: list[Any], description: Any, dialect: sa.Dialect) -> None:
        self.metadata = result.SimpleResultMetaData([column[0] for column in description])
        made = [
            kind.dialect_impl(dialect).result_processor(dialect, column[1])
            for kind, column in zip(types, description, strict=True)
        ]
        self._converters = [(position, convert) for position, convert in enumerate(made) if convert is not None]

    def rows(self, found: Iterable[Iterable[Any]]) -> Iterator[tuple[Any, ...]]:
        for row in found:
            values = list(row)
            for position, convert in self._converters:
                values[position] = convert(values[position])
            yield tuple(values)


class RowPlan:
    """A plan of a query for rows of the ORM and columns."""

    def __init__(self, query: Any, dialect: sa.Dialect) -> None:
        self._refreshes = query.get_execution_options().get("populate_existing", False)
        self._parts: list[tuple[_Model | None, int, int]] = []
        columns: list[Any] = []
        for part in query.column_descriptions:
            model = _Model(part["entity"]) if part["expr"] is part["entity"] is not None else None
            first = len(columns)
            columns += [part["expr"]] if model is None else model.columns
            self._parts.append((model, first, len(columns)))
        self._plan = Plan(query.with_only_columns(*columns, maintain_column_froms=True), dialect)

    def run(self, session: orm.Session, connection: sa.Connection, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return [
            tuple(
                row[first] if model is None else model.row(session, row[first:end], self._refreshes)
                for model, first, end in self._parts
            )
            for row in self._plan.run(connection, values)
        ]


class _Model:
    """A model, and how its rows get into a session."""

    def __init__(self, model: Any) -> None:
        self._mapper: orm.Mapper[Any] = sa.inspect(model)
        self._parts = self._mapper.relationships.keys()
        if any(part.lazy not in ("select", "raise") for part in self._mapper.relationships):
            raise TypeError(f"{model.__name__} has parts that its query joins")
        self._names = self._mapper.column_attrs.keys()
        self.columns = [getattr(model, name) for name in self._names]
        keys = (self._mapper.get_property_by_column(column).key for column in self._mapper.primary_key)
        self._keys = [self._names.index(key) for key in keys]

    def row(self, session: orm.Session, values: Sequence[Any], refreshes: bool) -> Any:
        """Return the session's row with these values. A row that it has already keeps its own, unless ``refreshes``."""
        key = self._mapper.identity_key_from_primary_key(tuple(values[position] for position in self._keys))
        if key[1][0] is None:  # of an outer join
            return None
        row = session.identity_map.get(key)
        if row is not None and not refreshes:
            return row
        if row is None:
            row = self._mapper.class_manager.new_instance()
            state: Any = orm.attributes.instance_state(row)
            state.key, state.session_id = key, session.hash_key
            session.identity_map.add(state)
        else:
            state = orm.attributes.instance_state(row)
        own = orm.attributes.instance_dict(row)
        for name in self._parts:  # they are read again
            own.pop(name, None)
        own.update(zip(self._names, values, strict=True))
        state._commit_all(own, session.identity_map)
        return row


@functools.lru_cache(_MOST)
def plan(statement: Any, dialect: sa.Dialect) -> Plan:
    return Plan(statement, dialect)


@functools.lru_cache(_MOST)
def row_plan(query: Any, dialect: sa.Dialect) -> RowPlan:
    return RowPlan(query, dialect)

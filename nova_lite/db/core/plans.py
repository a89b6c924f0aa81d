"""Plans of prepared queries: SQLAlchemy compiles the query once, and its text then runs on the driver's cursor.

Text, parameters and values are SQLAlchemy's own. Only its way from Python to the driver is shorter.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import result

#: Plans of all databases in this process.
_MOST = 256


class Plan:
    """A query, compiled for one kind of database. Any thread may run it."""

    def __init__(self, query: Any, dialect: sa.Dialect) -> None:
        self._dialect = dialect
        self._compiled = query.compile(dialect=dialect)
        self._lists = [name for name, bind in self._compiled.binds.items() if bind.expanding]
        self._processors = {
            name: process
            for bind, name in self._compiled.bind_names.items()
            if (process := bind.type.dialect_impl(dialect).bind_processor(dialect)) is not None
        }
        self._types = [column.type for column in query.selected_columns]
        self._short: tuple[str, Callable[[Mapping[str, Any]], Any]] | None = None
        self._shape: _Shape | None = None

    def run(self, connection: sa.Connection, values: Mapping[str, Any]) -> sa.Result[Any]:
        if not connection.in_transaction():
            connection.begin()
        text, parameters = self._text(values)
        cursor = connection.connection.cursor()
        try:
            for listener in connection.dispatch.before_cursor_execute:  # the time limit, and tests that count
                text, parameters = listener(connection, cursor, text, parameters, None, False)
            cursor.execute(text, parameters)
            found = cursor.fetchall()
            shape = self._shape = self._shape or _Shape(self._types, cursor.description, self._dialect)
            cursor.close()
        except Exception as error:
            connection._handle_dbapi_exception(error, text, parameters, cursor, None)  # raises
        return result.IteratorResult(shape.metadata, shape.rows(found))

    def _text(self, values: Mapping[str, Any]) -> tuple[str, Any]:
        """Return text and parameters for the driver. The text for lists of one entry is kept, as for no lists."""
        values = {**values, **{name: list(values[name]) for name in self._lists}}
        is_short = all(len(values[name]) == 1 for name in self._lists)
        if is_short and self._short is not None:
            text, fill = self._short
            return text, fill(values)
        state = self._compiled.construct_expanded_state(values)
        fill = functools.partial(self._fill, state, self._sources(state, values))
        if is_short:
            self._short = state.statement, fill
        return state.statement, fill(values)

    def _sources(self, state: Any, values: Mapping[str, Any]) -> dict[str, tuple[str, int | None]]:
        """Return, by name of a parameter, the name of its value, and its position in a list."""
        found: dict[str, tuple[str, int | None]] = {name: (name, None) for name in values if name not in self._lists}
        for name, expanded in state.parameter_expansion.items():
            found |= {parameter: (name, position) for position, parameter in enumerate(expanded)}
        return found

    def _fill(self, state: Any, sources: Mapping[str, tuple[str, int | None]], values: Mapping[str, Any]) -> Any:
        filled, processors = {}, self._processors | state.processors
        for name, value in state.parameters.items():
            if name in sources:
                source, position = sources[name]
                value = values[source] if position is None else values[source][position]
            process = processors.get(name)
            filled[name] = value if process is None else process(value)
        return tuple(filled[name] for name in state.positiontup) if self._compiled.positional else filled


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


@functools.lru_cache(_MOST)
def plan(query: Any, dialect: sa.Dialect) -> Plan:
    return Plan(query, dialect)

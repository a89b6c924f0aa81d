"""The whole database as text, independent of its kind: for backups, and for a move to another kind of database.

A table is lines of JSON. The first line lists the columns, and each other line is a row. A value of a JSON column is in
a list of its own, so that JSON's null differs from no value. A time is ISO 8601.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy import exc

from nova_lite.base import exceptions
from nova_lite.db.core import engine
from nova_lite.db.core.models import Base

#: The last migration before version 1.0. It has the tables and columns of the first migration. A dump of it lacks what
#: later ones add: these tables begin empty, and columns have their defaults.
LAST_BEFORE_1_0 = "0097"

#: Rows that are fetched, or inserted, together.
BATCH = 500


def tables() -> list[sa.Table]:
    """Return all tables in an order in which each refers only to earlier ones."""
    return list(Base.metadata.sorted_tables)


@contextlib.contextmanager
def snapshot(conf: cfg.ConfigOpts) -> Iterator[sa.Connection]:
    """Provide a connection that sees all tables as of one moment. Writers do not wait for it."""
    database = engine.create_engine(conf)
    options: dict[str, Any] = {"nova_lite_readonly": True, "stream_results": True, "max_row_buffer": BATCH}
    if database.dialect.name != "sqlite":
        options["isolation_level"] = "REPEATABLE READ"
    try:
        with database.connect() as connection:
            yield connection.execution_options(**options)
    except exc.OperationalError as error:
        raise engine.unavailable(error) from error
    finally:
        database.dispose()


def lines(connection: sa.Connection, table: sa.Table) -> Iterator[str]:
    """Return the lines of a table."""
    yield json.dumps([column.name for column in table.columns])
    wanted = [sa.cast(column, sa.Text) if _is_json(column) else column for column in table.columns]
    is_json = [_is_json(column) for column in table.columns]
    for row in connection.execute(sa.select(*wanted).order_by(*_own_references(table), *table.primary_key.columns)):
        yield json.dumps([_plain(value, parse) for value, parse in zip(row, is_json, strict=True)])


def _own_references(table: sa.Table) -> list[sa.ColumnElement[bool]]:
    """Return the order in which rows that others of the table refer to come first."""
    own = [key.parent for key in table.foreign_keys if key.column.table is table]
    return [column.is_not(None) for column in own]


def load(connection: sa.Connection, table: sa.Table, text: Iterable[str], is_older: bool = False) -> int:
    """Insert the lines of a table and return their number. Raises `ValueError` for columns that it does not have.

    ``is_older``: the dump may lack columns.
    """
    rest = iter(text)
    names = json.loads(next(rest))
    known = {column.name for column in table.columns}
    if known.symmetric_difference(names) and not (is_older and known.issuperset(names)):
        raise ValueError(f"the columns of {table.name} differ")
    columns = [table.columns[name] for name in names]
    insert = sa.insert(_without_defaults(columns, table.name))
    count = 0
    while batch := list(itertools.islice(rest, BATCH)):
        rows = [
            {column.name: _value(column, value) for column, value in zip(columns, json.loads(line), strict=True)}
            for line in batch
        ]
        connection.execute(insert, rows)
        count += len(rows)
    return count


def is_empty(connection: sa.Connection) -> bool:
    """Check whether no table has a row."""
    return not any(connection.execute(sa.select(sa.exists().select_from(table))).scalar() for table in tables())


def clear(connection: sa.Connection) -> None:
    """Delete all rows."""
    for table in reversed(tables()):
        connection.execute(sa.delete(table))


@contextlib.contextmanager
def writing(conf: cfg.ConfigOpts) -> Iterator[sa.Connection]:
    """Provide one transaction, which is committed unless the block raises an error."""
    database = engine.create_engine(conf)
    try:
        with database.connect() as connection, connection.begin():
            yield connection
    except exc.OperationalError as error:
        raise engine.unavailable(error) from error
    finally:
        database.dispose()


def counters(connection: sa.Connection) -> dict[str, int]:
    """Return the largest id that each table has given out, also to rows that are gone. Ids must not return."""
    return {table.name: _counter(connection, table) for table in tables() if _gives_ids(table)}


def set_counters(connection: sa.Connection, found: Mapping[str, int]) -> None:
    """Let the tables count on from these ids, or from their largest one. With MariaDB this ends the transaction."""
    kind = connection.dialect.name
    for table in tables():
        if not _gives_ids(table):
            continue
        (column,) = table.primary_key.columns
        last = max(found.get(table.name, 0), connection.scalar(sa.select(sa.func.max(column))) or 0)
        if kind == "postgresql":
            sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
            connection.execute(sa.select(sa.func.setval(sequence, max(last, 1), last > 0)))
        elif kind != "sqlite":
            connection.exec_driver_sql(f"ALTER TABLE {table.name} AUTO_INCREMENT = {last + 1}")
        elif table.name in _sqlite_counted(connection):
            connection.execute(_SQLITE_SEQUENCE.delete().where(_SQLITE_SEQUENCE.c.name == table.name))
            connection.execute(_SQLITE_SEQUENCE.insert().values(name=table.name, seq=last))


def _counter(connection: sa.Connection, table: sa.Table) -> int:
    (column,) = table.primary_key.columns
    largest = connection.scalar(sa.select(sa.func.max(column))) or 0
    kind = connection.dialect.name
    if kind == "postgresql":
        sequence = connection.scalar(sa.select(sa.func.pg_get_serial_sequence(table.name, column.name)))
        values = sa.table(str(sequence).rpartition(".")[2], sa.column("last_value"), sa.column("is_called"))
        given = connection.execute(sa.select(values)).one()
        return max(largest, given.last_value if given.is_called else 0)
    if kind == "sqlite":
        query = sa.select(_SQLITE_SEQUENCE.c.seq).where(_SQLITE_SEQUENCE.c.name == table.name)
        return max(largest, (connection.scalar(query) or 0) if _sqlite_counted(connection) else 0)
    status = sa.text(
        "SELECT auto_increment FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = :t"
    )
    return max(largest, (connection.scalar(status, {"t": table.name}) or 1) - 1)


#: SQLite's own table of the ids of tables with AUTOINCREMENT. It exists once there is such a table.
_SQLITE_SEQUENCE = sa.table("sqlite_sequence", sa.column("name"), sa.column("seq"))


def _sqlite_counted(connection: sa.Connection) -> set[str]:
    """Return the names of the tables in SQLite whose ids never return."""
    if not sa.inspect(connection).has_table(_SQLITE_SEQUENCE.name):
        return set()
    return {table.name for table in tables() if table.dialect_options["sqlite"]["autoincrement"]}


def _gives_ids(table: sa.Table) -> bool:
    return table.autoincrement_column is not None


def _is_json(column: sa.Column[Any]) -> bool:
    kind = column.type
    return isinstance(kind.impl_instance if isinstance(kind, sa.TypeDecorator) else kind, sa.JSON)


def _without_defaults(columns: list[sa.Column[Any]], name: str) -> sa.TableClause:
    """Return the table with plain columns. No value is NULL in a JSON column, unless it is JSON's null."""
    return sa.table(
        name,
        *(
            sa.column(column.name, sa.JSON(none_as_null=True) if _is_json(column) else column.type)
            for column in columns
        ),
    )


def _plain(value: Any, is_json: bool) -> Any:
    if value is None:
        return None
    if is_json:
        return [json.loads(value)]
    return value.isoformat() if isinstance(value, datetime.datetime) else value


def _value(column: sa.Column[Any], value: Any) -> Any:
    if value is None:
        return None
    if _is_json(column):
        return sa.JSON.NULL if value[0] is None else value[0]
    return datetime.datetime.fromisoformat(value) if isinstance(column.type, sa.DateTime) else value


def require_same_schema(found: str, needed: str) -> None:
    """Raise `ConfigurationError` unless a dump has this program's schema, or the last one before version 1.0."""
    if found not in (needed, LAST_BEFORE_1_0):
        raise exceptions.ConfigurationError(
            reason=f"the backup has schema {found}, and this program schema {needed}. Restore it with the version that "
            "wrote it, then upgrade."
        )

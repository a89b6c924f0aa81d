"""Demands of a database's schema on the programs that use it, and comparison of two schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import sqlalchemy as sa

from nova_lite.db.migrations import schema


class Column(NamedTuple):
    type: str
    nullable: bool
    has_default: bool


class Table(NamedTuple):
    """Columns by name, and the columns of unique indexes and of references to other tables."""

    columns: dict[str, Column]
    uniques: frozenset[str]
    references: frozenset[str]


def of(connection: sa.Connection) -> dict[str, Table]:
    found = sa.inspect(connection)
    names = set(found.get_table_names()) - {schema.CURRENT, schema.OLDEST}
    return {name: _table(found, name, connection.dialect) for name in names}


def _table(found: sa.Inspector, name: str, dialect: sa.Dialect) -> Table:
    columns = {}
    for column in found.get_columns(name):
        has_default = column["default"] is not None or bool(column.get("autoincrement") is True)
        columns[column["name"]] = Column(column["type"].compile(dialect), column["nullable"], has_default)
    indexes = [index["column_names"] for index in found.get_indexes(name) if index["unique"]]
    indexes += [index["column_names"] for index in found.get_unique_constraints(name)]
    references = [key["constrained_columns"] for key in found.get_foreign_keys(name)]
    return Table(columns, _joined(indexes), _joined(references))


def _joined(found: list[list[str]] | list[list[str | None]]) -> frozenset[str]:
    return frozenset(", ".join(str(name) for name in names) for names in found)


def contractions(before: dict[str, Table], after: dict[str, Table]) -> list[str]:
    """Return a sentence for everything for which a program of the schema ``before`` fails on the other one."""
    return [line for name, old in sorted(before.items()) for line in _contractions(name, old, after.get(name))]


def _contractions(name: str, old: Table, new: Table | None) -> Iterator[str]:
    if new is None:
        yield f"{name} is gone"
        return
    for column, was in old.columns.items():
        found = new.columns.get(column)
        if found is None:
            yield f"{name}.{column} is gone"
            continue
        if found.type != was.type:
            yield f"{name}.{column} was {was.type} and is {found.type}"
        if was.nullable and not found.nullable:
            yield f"{name}.{column} takes no NULL any more"
        if was.has_default and not found.has_default:
            yield f"{name}.{column} has no default any more"
    for column, made in new.columns.items():
        if column not in old.columns and not made.nullable and not made.has_default:
            yield f"{name}.{column} is new, and takes neither NULL nor a default"
    for kind, were, are in (("unique index", old.uniques, new.uniques), ("reference", old.references, new.references)):
        for columns in sorted(are - were):
            if set(columns.split(", ")) & old.columns.keys():
                yield f"{name} has a new {kind}: {columns}"

"""Rows in every table, with a value in every column, for tests of all the database's content."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import sqlalchemy as sa

from nova_lite.db.core.models import Base, Settings6
from nova_lite.objects import Subnet6

_EPOCH = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)


def fill(connection: sa.Connection, rows: int = 2) -> None:
    """Insert rows into every table. The last row of each has NULL wherever that is allowed."""
    numbers = itertools.count(1)
    for table in Base.metadata.sorted_tables:
        for row in range(rows):
            values = {
                column.name: _value(connection, column, row, next(numbers), is_last=row == rows - 1)
                for column in table.columns
                if not (column is table.autoincrement_column and not column.foreign_keys)
            }
            connection.execute(sa.insert(table).values(values))


def _value(connection: sa.Connection, column: sa.Column[Any], row: int, number: int, is_last: bool) -> Any:
    if is_last and column.nullable:
        return sa.null()
    for key in column.foreign_keys:
        target = key.column
        if target.table is column.table:  # its first row refers to none, and the others to the first one
            return sa.select(target).limit(1).scalar_subquery() if row else sa.null()
        return connection.scalars(sa.select(target).order_by(*target.table.primary_key.columns)).all()[row]
    match column.type:
        case Settings6():
            return Subnet6(gateway=f"fd00::{number}", dns=["fd00::5"])
        case sa.JSON():
            return sa.JSON.NULL if column.nullable and number % 2 else {"é": [number, None, "\u2028"]}
        case sa.Boolean():
            return bool(number % 2)
        case sa.DateTime():
            return _EPOCH + datetime.timedelta(seconds=number)
        case sa.Double():
            return number + 0.1
        case sa.Integer():
            return number
        case sa.String():
            return f"{number}-ü\n"[: column.type.length]
    raise TypeError(f"{column}: {column.type}")

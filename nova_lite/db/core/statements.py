"""Statements that SQLAlchemy does not offer in one form for all databases."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc, orm
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from nova_lite.db.core.engine import UnitOfWork, code_of
from nova_lite.db.core.models import Aggregate, Base, ComputeNode, Service

Row = TypeVar("Row", Service, ComputeNode, Aggregate)

#: MariaDB's code for a duplicate unique key.
DUPLICATE = 1062


class holds(FunctionElement[bool]):
    """Condition "this JSON list of texts has this text". A NULL has none."""

    inherit_cache = True
    type = sa.Boolean()

    def __init__(self, column: orm.InstrumentedAttribute[Any], text: str) -> None:
        super().__init__(column, sa.literal(text, sa.String), sa.literal(json.dumps([text]), sa.String))


@compiles(holds, "sqlite")
def _holds_sqlite(element: Any, compiler: Any, **kw: Any) -> str:
    column, text, _ = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"EXISTS (SELECT 1 FROM json_each({column}) AS part WHERE part.value = {text})"  # noqa: S608 compiled


@compiles(holds, "mysql")
@compiles(holds, "mariadb")
def _holds_mysql(element: Any, compiler: Any, **kw: Any) -> str:
    column, _, listed = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"JSON_CONTAINS({column}, {listed})"


@compiles(holds, "postgresql")
def _holds_postgresql(element: Any, compiler: Any, **kw: Any) -> str:
    column, _, listed = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"(CAST({column} AS JSONB) @> CAST({listed} AS JSONB))"


def insert_if_missing(uow: UnitOfWork, model: type[Base], *values: dict[str, Any]) -> None:
    """Insert rows (by attribute name) unless a unique key has them already, in one statement without a race.

    MariaDB's ``INSERT IGNORE`` would take a shared lock and invite deadlocks with the following update. An update
    without effect takes the exclusive lock at once.
    """
    dialect = uow.session.get_bind().dialect.name
    if dialect in ("mysql", "mariadb"):
        first = sa.inspect(model).primary_key[0]
        own = mysql.insert(model).values(values)
        uow.session.execute(own.on_duplicate_key_update({first.name: first}))
    elif dialect == "postgresql":
        uow.session.execute(postgresql.insert(model).values(values).on_conflict_do_nothing())
    else:
        uow.session.execute(sqlite.insert(model).values(values).on_conflict_do_nothing())


def insert_unless_taken(uow: UnitOfWork, model: type[Base], values: dict[str, Any]) -> bool:
    """Insert ``values`` (by attribute name); return False when another row has one of its unique keys.

    No savepoint is needed: only PostgreSQL aborts the transaction at an error, and there the statement raises none.
    """
    return insert_all_unless_taken(uow, model, [values])


def insert_all_unless_taken(uow: UnitOfWork, model: type[Base], rows: list[dict[str, Any]], **shared: Any) -> bool:
    """Do `insert_unless_taken` for several rows by one statement. ``shared``: SQL for values of all rows.

    After False, PostgreSQL and SQLite have inserted those rows whose keys are free.
    """
    insert = _inserting(model, tuple(rows[0]), tuple(shared.items()), uow.connection.dialect.name)
    try:
        if len(rows) == 1:
            return uow.change(insert, rows[0]) == 1
        return uow.connection.execute(insert, rows, execution_options={"preserve_rowcount": True}).rowcount == len(rows)
    except exc.IntegrityError as error:  # of MariaDB
        if code_of(error) != DUPLICATE:
            raise
        return False


@functools.cache
def _inserting(
    model: type[Base], names: tuple[str, ...], shared: tuple[tuple[str, Any], ...], dialect: str
) -> sa.Insert:
    """Prepare an insert. PostgreSQL and SQLite do nothing if a key is taken, and MariaDB raises `DUPLICATE`."""
    values = {**{name: sa.bindparam(name) for name in names}, **dict(shared)}
    if dialect in ("postgresql", "sqlite"):
        insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
        return insert(model).values(values).on_conflict_do_nothing()
    return sa.insert(model).values(values)


class UpdateEach:
    """Update of many rows that gives each its own ``value``, and all of them the ``others``.

    There is one statement for each power of two, padded. A statement for each number of rows would fill SQLAlchemy's
    cache with megabytes of compiled statements and values.
    """

    def __init__(
        self, key: orm.InstrumentedAttribute[int], value: orm.InstrumentedAttribute[Any], **others: Any
    ) -> None:
        self._key = key
        self._value = value
        self._others = others
        self._made: dict[int, sa.Update] = {}

    def run(self, uow: UnitOfWork, values: Mapping[int, Any]) -> None:
        """Run the update. ``values``: by the rows' keys, at least one."""
        rows = sorted(values.items())
        size = 1 << (len(rows) - 1).bit_length()
        parameters: dict[str, Any] = {"keys": [key for key, _ in rows]}
        for number, (key, value) in enumerate(rows + rows[-1:] * (size - len(rows))):
            parameters |= {f"key_{number}": key, f"value_{number}": value}
        uow.change(self._made[size] if size in self._made else self._make(size), parameters)

    def _make(self, size: int) -> sa.Update:
        key, value = self._key, self._value
        pairs = [
            (sa.bindparam(f"key_{number}", type_=key.type), sa.bindparam(f"value_{number}", type_=value.type))
            for number in range(size)
        ]
        chosen = sa.case(*pairs, value=key)
        statement = sa.update(key.class_).where(key.in_(sa.bindparam("keys", expanding=True)))
        self._made[size] = statement = statement.values({value.key: chosen, **self._others})
        return statement


def by_reference(
    uow: UnitOfWork, model: type[Row], reference: str, lock: bool = False, *names: orm.InstrumentedAttribute[str]
) -> Row | None:
    """Return a row by its number, its uuid, or another unique column (``names``)."""
    if reference.isascii() and reference.isdigit() and len(reference) < 19:
        query = sa.select(model).where(model.id == int(reference))
    else:
        query = sa.select(model).where(sa.or_(*(column == reference for column in (model.uuid, *names))))
    return uow.session.scalars(query.with_for_update() if lock else query).first()

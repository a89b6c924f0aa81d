"""Counts the rows that a database reads to answer queries, whether it returns them or not."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from nova_lite.db.core.engine import Database

#: SQLite counts instructions of its virtual machine: about one for each column that it reads, and some for each row.
SQLITE_INSTRUCTIONS = 20


class RowsRead:
    """Number of rows that were read. On SQLite it is an estimate that includes the work on them, such as sorting."""

    def __init__(self) -> None:
        self.count = 0


#: Time limit before a statement, as conductors' databases have it (`nova_lite.db.core.time_limit`).
_LIMIT = re.compile(r"^SET STATEMENT max_statement_time=\d+ FOR ")


@contextlib.contextmanager
def reading(db: Database) -> Iterator[RowsRead]:
    """Count the rows that the SELECT statements of this block read."""
    found, dialect = RowsRead(), db.engine.dialect.name
    count = {"sqlite": _sqlite, "postgresql": _postgresql}.get(dialect, _mariadb)

    def executed(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        select = _LIMIT.sub("", statement)
        if select.startswith("SELECT"):
            found.count += count(connection.connection.driver_connection, select, parameters)

    sa.event.listen(db.engine, "before_cursor_execute", executed)
    try:
        yield found
    finally:
        sa.event.remove(db.engine, "before_cursor_execute", executed)


def _sqlite(connection: Any, statement: str, parameters: Any) -> int:
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    connection.set_progress_handler(count, SQLITE_INSTRUCTIONS)
    try:
        connection.execute(statement, parameters).fetchall()
    finally:
        connection.set_progress_handler(None, 0)
    return counted


def _mariadb(connection: Any, statement: str, parameters: Any) -> int:
    with connection.cursor() as cursor:

        def handlers() -> int:
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
            return sum(int(value) for _, value in cursor.fetchall())

        before = handlers()
        cursor.execute(statement, parameters)
        cursor.fetchall()
        return handlers() - before


def _postgresql(connection: Any, statement: str, parameters: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
        ((plans,),) = cursor.fetchall()
    return sum(_of_plan(plan["Plan"]) for plan in plans)


def _of_plan(plan: dict[str, Any]) -> int:
    read = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
    own = int(read * plan["Actual Loops"]) if "Scan" in plan["Node Type"] else 0
    return own + sum(_of_plan(part) for part in plan.get("Plans", ()))

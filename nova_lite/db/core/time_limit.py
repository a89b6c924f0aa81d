"""Time limit of the conductor's reads: one large list must not occupy a connection, and the database, for minutes.

Whoever asked has given up by then. No limit costs a statement of its own:

- SQLite calls a function of ours while a statement runs. The limit is for the whole read.
- MariaDB and MySQL get the limit in the text of each SELECT.
- PostgreSQL has one limit for each connection, so there it holds for the statements of writes, too.
"""

from __future__ import annotations

import math
import sqlite3
import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

#: Execution option of connections that only read.
READ_ONLY = "nova_lite_readonly"

#: Steps of SQLite's virtual machine between two looks at the clock: one to three milliseconds.
_STEPS = 100_000

#: Codes of a statement that took too long: MariaDB, MySQL.
_MYSQL_CODES = (1969, 3024)
_POSTGRESQL_CODE = "57014"


def postgresql_options(seconds: int) -> str:
    return f" -c statement_timeout={seconds}s"


def install(engine: sa.Engine, seconds: int) -> None:
    """Limit the reads of ``engine`` to so many seconds each. PostgreSQL's limit is in `postgresql_options`."""
    if engine.dialect.name == "sqlite":
        _limit_sqlite(engine, seconds)
    elif engine.dialect.name in ("mysql", "mariadb"):
        _limit_mariadb(engine, seconds)


def is_exceeded(error: Exception) -> bool:
    """Check whether a statement was ended because it took too long."""
    original = error.orig if isinstance(error, exc.DBAPIError) else None
    if isinstance(original, sqlite3.Error):
        return getattr(original, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT
    first = original.args[0] if original is not None and original.args else None
    return first in _MYSQL_CODES or getattr(original, "sqlstate", None) == _POSTGRESQL_CODE


def _limit_sqlite(engine: sa.Engine, seconds: int) -> None:
    @sa.event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: Any) -> None:
        record.info["until"] = math.inf
        connection.set_progress_handler(lambda: time.monotonic() > record.info["until"], _STEPS)

    @sa.event.listens_for(engine, "begin")
    def on_begin(connection: sa.Connection) -> None:
        is_read = connection.get_execution_options().get(READ_ONLY, False)
        connection.info["until"] = time.monotonic() + seconds if is_read else math.inf


def _limit_mariadb(engine: sa.Engine, seconds: int) -> None:
    @sa.event.listens_for(engine, "before_cursor_execute", retval=True)
    def on_execute(
        connection: sa.Connection, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool
    ) -> tuple[str, Any]:
        if connection.get_execution_options().get(READ_ONLY) and statement.startswith("SELECT"):
            if connection.dialect.is_mariadb:  # type: ignore[attr-defined]  # of its dialects alone
                statement = f"SET STATEMENT max_statement_time={seconds} FOR {statement}"
            else:
                statement = f"SELECT /*+ MAX_EXECUTION_TIME({seconds * 1000}) */{statement.removeprefix('SELECT')}"
        return statement, parameters

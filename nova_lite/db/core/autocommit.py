"""Transactions of MariaDB and PostgreSQL: writes have one, and reads have none.

Connections are in autocommit mode, so a read is one round trip for each statement. It loses nothing: under READ
COMMITTED, each statement has a snapshot of its own in a transaction, too. A write sends BEGIN. A ROLLBACK is sent only
to an open transaction: after a COMMIT that failed, but not after a COMMIT that succeeded.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from nova_lite.db.core import time_limit

#: Item of a connection's pool record: whether it has a transaction. Connections of SQLite lack it.
_OPEN = "nova_lite_open"


def install(engine: sa.Engine) -> None:
    """Set up an engine whose ``isolation_level`` is AUTOCOMMIT."""
    dialect: Any = engine.dialect
    commit = dialect.do_commit
    is_postgresql = dialect.name == "postgresql"

    @sa.event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: Any) -> None:
        record.record_info[_OPEN] = False
        if not is_postgresql:
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    @sa.event.listens_for(engine, "begin")
    def on_begin(connection: sa.Connection) -> None:
        options = connection.get_execution_options()
        is_snapshot = "isolation_level" in options  # its driver begins
        if is_snapshot or not options.get(time_limit.READ_ONLY):
            connection.connection.record_info[_OPEN] = True  # type: ignore[index]  # a pool has records
            if not is_snapshot:
                connection.exec_driver_sql("BEGIN ISOLATION LEVEL READ COMMITTED" if is_postgresql else "BEGIN")

    def do_commit(connection: Any) -> None:
        commit(connection)
        connection.record_info[_OPEN] = False

    dialect.do_commit = do_commit
    dialect.do_rollback = lambda connection: roll_back(connection, connection.record_info)


def roll_back(connection: Any, info: dict[str, Any]) -> None:
    """Roll back what is open on a connection. ``info``: of its pool record."""
    is_open = info.get(_OPEN)
    if is_open is not False:
        connection.rollback()
    if is_open:
        info[_OPEN] = False

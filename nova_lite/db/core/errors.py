"""Classifies database errors: unreachable or temporarily unable (retry), or the statement's own fault (do not retry).

Drivers raise `OperationalError` for both, so the database's own code decides.
"""

from __future__ import annotations

import sqlite3

from sqlalchemy import exc

#: MariaDB and MySQL: client errors (2000 to 2999), and server errors. These are too many connections, no memory, no
#: room, access denied, no such database, shutting down, and broken connections. Also killed, too late, locks,
#: read-only, and a cluster node that accepts nothing.
_MYSQL = {
    1020, 1021, 1028, 1030, 1037, 1038, 1040, 1041, 1042, 1043, 1044, 1045, 1047, 1049, 1053, 1077, 1078, 1079, 1080,
    1104, 1114, 1129, 1130, 1152, *range(1154, 1162), 1180, 1184, 1194, 1195, 1203, 1205, 1206, 1213, 1226, 1290,
    1317, 1698, 1792, 1836, 1927, 1969, 3024, 3159, 4031,
}  # fmt: skip

#: PostgreSQL: classes of SQLSTATEs (connection, authorization, no such database, rollback, resources, operator, system)
#: and single states: read-only, lock not available, idle session timeout.
_POSTGRESQL_CLASSES = {"08", "28", "3D", "40", "53", "57", "58"}
_POSTGRESQL = {"25006", "25P03", "25P04", "55006", "55P03"}

#: SQLite: busy, locked, no memory, read-only, interrupted, disk, damaged, full, cannot open, locking, not a database.
_SQLITE = {5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 26}


def is_away(error: exc.DBAPIError) -> bool:
    if error.connection_invalidated:
        return True
    original = error.orig
    if isinstance(original, sqlite3.Error):
        code = getattr(original, "sqlite_errorcode", None)
        return isinstance(error, exc.OperationalError) and (code is None or code & 0xFF in _SQLITE)
    first = original.args[0] if original is not None and original.args else None
    if isinstance(first, int) and not isinstance(first, bool):
        # PyMySQL uses 0 for a closed connection.
        return first in _MYSQL or first == 0 or 2000 <= first < 3000
    sqlstate = getattr(original, "sqlstate", None)
    if isinstance(sqlstate, str):
        return sqlstate in _POSTGRESQL or sqlstate[:2] in _POSTGRESQL_CLASSES
    # No server answered: it was not reached.
    return isinstance(error, exc.OperationalError | exc.InterfaceError)

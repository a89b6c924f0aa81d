"""Drivers of MariaDB and MySQL: their choice by the database URL, and the arguments of connections.

mysqlclient is written in C, and takes a fifth of PyMySQL's CPU. PyMySQL is the fallback.
"""

from __future__ import annotations

import datetime
from typing import Any

import sqlalchemy as sa

from nova_lite.base import concurrency


def choose(url: sa.URL) -> sa.URL:
    """Return the URL with a driver if it names none (``mysql://``, ``mariadb://``). In eventlet mode this is PyMySQL: a
    statement of mysqlclient stops all green threads, also one with the lock for which it waits.
    """
    if url.drivername not in ("mysql", "mariadb"):
        return url
    try:
        import MySQLdb  # noqa: F401
    except ImportError:
        has_client = False
    else:
        has_client = not concurrency.is_eventlet()
    return url.set(drivername=f"{url.drivername}+{'mysqldb' if has_client else 'pymysql'}")


def arguments(url: sa.URL) -> dict[str, Any]:
    """Return the arguments with which mysqlclient does what PyMySQL does without them."""
    if url.get_driver_name() != "mysqldb":
        return {}
    from MySQLdb import constants, converters

    found: dict[str, Any] = {
        "conv": converters.conversions | {constants.FIELD_TYPE.DATETIME: datetime.datetime.fromisoformat},
        "binary_prefix": True,
        "multi_statements": False,
    }
    if "charset" not in url.query:
        found["charset"] = "utf8mb4"
    if url.host == "localhost" and "unix_socket" not in url.query:
        found["host"] = "127.0.0.1"  # Its C library takes the name for a socket, and ignores the port.
    if any(name.startswith("ssl_") for name in url.query):
        # Weaker modes of its C library accept a server without TLS.
        found["ssl_mode"] = "VERIFY_IDENTITY"
    return found

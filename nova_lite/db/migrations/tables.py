"""Helpers of the migrations that create tables. They never change: an old migration always does the same."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

TIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
LONG_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

#: MariaDB compares names exactly, as the other databases do. Its default would make project "Admin" see "admin"'s.
_OPTIONS = {"engine": "InnoDB", "charset": "utf8mb4", "collate": "utf8mb4_nopad_bin"}


def create_table(name: str, *parts: Any, **more: Any) -> None:
    """Create a table. ``more``: options of one kind of database."""
    options: dict[str, Any] = {
        f"{dialect}_{key}": _OPTIONS[key] for dialect in ("mysql", "mariadb") for key in _OPTIONS
    }
    op.create_table(name, *parts, **options, **more)

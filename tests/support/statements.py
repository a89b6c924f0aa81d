"""Counts the SQL statements and transactions of a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import sqlalchemy as sa


class Counted:
    def __init__(self) -> None:
        self.statements: list[str] = []
        self.transactions = 0


@contextlib.contextmanager
def counting() -> Iterator[Counted]:
    """Count the statements sent to any database, except for BEGIN."""
    counted = Counted()

    def executed(connection: object, cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("BEGIN"):
            counted.statements.append(" ".join(statement.split()))

    def ended(connection: object) -> None:
        counted.transactions += 1

    listeners = [("before_cursor_execute", executed), ("commit", ended)]
    for name, listener in listeners:
        sa.event.listen(sa.Engine, name, listener)
    try:
        yield counted
    finally:
        for name, listener in listeners:
            sa.event.remove(sa.Engine, name, listener)

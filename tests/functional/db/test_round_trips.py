"""Statements that each database receives, by its own count: also BEGIN, COMMIT and ROLLBACK."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.db.core.engine import Database, UnitOfWork

SHOWN = ("BEGIN", "COMMIT", "ROLLBACK", "SELECT", "UPDATE")


@contextlib.contextmanager
def received(db: Database) -> Iterator[Counter[str]]:
    """Count what the pool's connection receives, by the first word."""
    with db.engine.connect() as connection:
        raw: Any = connection.connection.dbapi_connection
    counted: Counter[str] = Counter()
    if db.is_sqlite:
        raw.set_trace_callback(lambda text: counted.update([text.split()[0]]))
        yield counted
        raw.set_trace_callback(None)
    elif db.engine.dialect.name == "postgresql":
        with tempfile.TemporaryFile("w+") as log:
            raw.pgconn.trace(log.fileno())
            yield counted
            raw.pgconn.untrace()
            log.seek(0)
            counted.update(re.findall(r'\tF\t\d+\t(?:Query|Parse)\t(?: ".*?")?\s*"(\w+)', log.read()))
    else:
        before = status(raw)
        yield counted
        counted.update({name: count - before[name] for name, count in status(raw).items() if count > before[name]})


def status(raw: Any) -> dict[str, int]:
    with raw.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Com\\_%'")
        found = {name.removeprefix("Com_").upper(): int(count) for name, count in cursor.fetchall()}
    return {name: found[name] for name in SHOWN}


def one(uow: UnitOfWork) -> int:
    return int(uow.rows(sa.select(sa.literal(1))).scalar_one())


def change(uow: UnitOfWork) -> None:
    uow.session.execute(sa.text("UPDATE services SET report_count = 1 WHERE id = -1"))


def test_read_of_one_statement_is_one_round_trip(db: Database) -> None:
    with received(db) as counted:
        db.read(one)
        db.ping()
    in_process = {"BEGIN": 2, "ROLLBACK": 2} if db.is_sqlite else {}
    assert counted == {"SELECT": 2, **in_process}


def test_write_sends_no_rollback_after_its_commit(db: Database) -> None:
    with received(db) as counted:
        db.write(change)
    assert counted == {"BEGIN": 1, "UPDATE": 1, "COMMIT": 1}


def test_write_that_fails_is_rolled_back_once(db: Database) -> None:
    def fail(uow: UnitOfWork) -> None:
        change(uow)
        raise KeyError

    with received(db) as counted, pytest.raises(KeyError):
        db.write(fail)
    assert counted == {"BEGIN": 1, "UPDATE": 1, "ROLLBACK": 1}


def test_commit_that_fails_is_rolled_back(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has become read-only refuses a COMMIT, and the transaction stays open."""

    def refused(connection: Any) -> None:
        raise KeyError

    with received(db) as counted, monkeypatch.context() as patched, pytest.raises(KeyError):
        patched.setattr(db.engine.dialect, "do_commit", refused)
        db.write(change)
    assert counted == {"BEGIN": 1, "UPDATE": 1, "ROLLBACK": 1}


def test_isolation_of_a_write_is_read_committed(db: Database) -> None:
    if db.is_sqlite:
        pytest.skip("SQLite has one writer")
    is_postgresql = db.engine.dialect.name == "postgresql"
    shown = sa.text("SHOW transaction_isolation" if is_postgresql else "SELECT @@tx_isolation")
    found = db.write(lambda uow: uow.session.execute(shown).scalar_one())
    assert found.lower().replace("-", " ") == "read committed"

"""Transactions, the database's clock, and what the database refuses."""

from __future__ import annotations

import contextlib
import datetime
import logging
import pathlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.timing import DatabaseTiming
from nova_lite.db.core import autocommit, engine, models, quotas
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.servers import instances
from nova_lite.objects import InstanceFilters
from tests.support import make


def test_connections_are_kept(conf: cfg.ConfigOpts, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool keeps as many connections as may be open. Later threads wait for one."""
    opened = []
    sa.event.listen(db.engine, "connect", lambda connection, record: opened.append(connection))
    monkeypatch.setattr(db.engine.pool, "_timeout", 0.01)
    for _ in range(3):
        with contextlib.ExitStack() as stack:
            for _ in range(conf.database.pool_size):
                stack.enter_context(db.engine.connect())
            with pytest.raises(sa.exc.TimeoutError):
                db.engine.connect()
    assert len(opened) == conf.database.pool_size


def test_statement_with_a_plan_is_run_again_if_its_connection_has_no_cursor(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg refuses a cursor of a closed connection. That is an error of the database, as of other statements."""
    cursor = sa.pool.base._ConnectionFairy.cursor
    uuid = db.write(make.instance)
    began, refusals = [], [True]

    def refuse_first(connection: Any) -> Any:
        if began and refusals:
            refusals.clear()
            raise db.engine.dialect.loaded_dbapi.OperationalError("40001", "the connection is closed")
        return cursor(connection)

    def lock(uow: UnitOfWork) -> str:
        uow.session.execute(sa.text("SELECT 1"))
        began.append(uow)
        return instances.lock(uow, uuid).uuid

    monkeypatch.setattr(sa.pool.base._ConnectionFairy, "cursor", refuse_first)
    assert db.write(lock) == uuid
    assert len(began) == 2


def test_json_is_read_as_it_was_written(db: Database) -> None:
    """Whatever Python wrote: half of a character as well, which others do not take for text."""
    said = {"plain": "\u00fc\u0000\U0001f40d", "large": 2**70, "number": 1e-7, "none": None, "list": [True]}
    if db.engine.dialect.name not in ("mysql", "mariadb"):  # which refuses it
        said["half"] = "\ud800"
    db.write(make.instance, system_metadata=said)
    found = db.read(lambda uow: uow.rows(sa.select(models.Instance.system_metadata, models.Instance.flavor)).one())
    assert found.system_metadata == said
    assert found.flavor == make.FLAVOR


@pytest.fixture
def pinging(db: Database) -> Iterator[Callable[[float], Database]]:
    """Open the database with connections that are pinged after this idle time."""
    opened: list[Database] = []

    def open_(idle: float) -> Database:
        opened.append(Database(db.conf, timing=DatabaseTiming(idle_before_ping=idle)))
        return opened[-1]

    yield open_
    for made in opened:
        made.close()


@pytest.mark.parametrize(("idle", "pings"), [(600.0, 0), (0.0, 2)])
def test_idle_connection_is_pinged_before_use(
    pinging: Callable[[float], Database], monkeypatch: pytest.MonkeyPatch, idle: float, pings: int
) -> None:
    db = pinging(idle)
    asked: list[Any] = []
    ping = db.engine.dialect.do_ping
    monkeypatch.setattr(db.engine.dialect, "do_ping", lambda used: (asked.append(used), ping(used))[1])
    for _ in range(3):
        db.read(lambda uow: uow.now)
    assert len(asked) == (0 if db.is_sqlite else pings)


@pytest.mark.parametrize("idle", [0.0, 600.0])
def test_a_connection_that_broke_harms_nobody(db: Database, pinging: Callable[[float], Database], idle: float) -> None:
    """The break is found by a ping, or by a statement, whose transaction is then retried."""
    if db.is_sqlite:
        pytest.skip("a file has no connection that could break")
    db = pinging(idle)
    own, end = "SELECT CONNECTION_ID()", "KILL {}"
    if db.engine.dialect.name == "postgresql":
        own, end = "SELECT pg_backend_pid()", "SELECT pg_terminate_backend({})"
    other = sa.create_engine(db.engine.url)
    for work in (lambda: db.write(make.instance), db.ping):
        number = db.read(lambda uow: uow.session.execute(sa.text(own)).scalar_one())
        with other.connect() as connection:
            connection.exec_driver_sql(end.format(number))
        work()
    other.dispose()
    assert len(db.read(instances.list_, make.ADMIN, InstanceFilters())) == 1


def test_clock_is_utc(db: Database) -> None:
    now = db.read(lambda uow: uow.now)
    assert now.tzinfo is None
    distance = now - datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    assert abs(distance) < datetime.timedelta(seconds=60)


def test_times_keep_their_fraction(db: Database) -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000)
    uuid = db.write(make.instance, launched_at=moment)
    assert db.read(instances.get, make.ADMIN, uuid).launched_at == moment


def test_failed_transaction_leaves_nothing(db: Database) -> None:
    def fail(uow: UnitOfWork) -> None:
        make.instance(uow)
        raise exceptions.NoMoreFixedIps(network_id="n")

    with pytest.raises(exceptions.NoMoreFixedIps):
        db.write(fail)
    assert db.read(instances.list_, make.ADMIN, InstanceFilters()) == []


def test_foreign_keys_hold(db: Database) -> None:
    with pytest.raises(sa.exc.IntegrityError):
        db.write(lambda uow: uow.session.execute(sa.text("INSERT INTO instance_tags VALUES (99, 'x')")))


@pytest.mark.parametrize("text", ["x\0y", "\ud800"])
def test_text_that_cannot_be_stored(db: Database, text: str) -> None:
    """Refused as bad input where the database cannot take it; it never looks like an outage."""
    try:
        uuid = db.write(make.instance, display_name=text)
    except Exception as error:
        assert isinstance(engine.translate(error), exceptions.InvalidInput)
    else:
        assert db.read(instances.get, make.ADMIN, uuid).display_name == text


def test_names_are_compared_exactly(db: Database) -> None:
    db.write(make.instance, project_id="Admin", display_name="Café")
    for project in ("admin", "Admin ", "Ádmin"):
        assert db.read(instances.list_, make.context(project), InstanceFilters()) == []
    assert db.read(instances.list_, make.context("Admin"), InstanceFilters(name="^caf")) == []
    assert len(db.read(instances.list_, make.context("Admin"), InstanceFilters(name="^Caf.$"))) == 1


def test_numbers_that_do_not_fit(db: Database) -> None:
    with pytest.raises(exceptions.InvalidInput):
        db.write(quotas.set_limit, "p", "ram", 2**40)


def test_a_connection_that_breaks_is_dropped_with_one_line(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def rollback(self) -> None:
            raise db.engine.dialect.loaded_dbapi.OperationalError("the server is gone")

        def close(self) -> None: ...

    connection = db.engine.connect()
    fairy: Any = connection.connection
    if not db.is_sqlite:
        fairy.record_info[autocommit._OPEN] = True  # as after a COMMIT that failed
    fairy.dbapi_connection.close()
    fairy.dbapi_connection = fairy._connection_record.dbapi_connection = Broken()
    connection.close()
    said = [record for record in caplog.records if record.levelno > logging.INFO]
    assert [record.exc_info for record in said] == [None]
    assert "A connection to the database broke: the server is gone" in caplog.text
    assert db.read(lambda uow: uow.now)


def test_errors_do_not_tell_what_statements_were_given(db: Database) -> None:
    """Passwords and user data are among that."""

    def twice(uow: UnitOfWork) -> None:
        for _ in range(2):
            make.instance(uow, uuid="0" * 36, user_data="c2VjcmV0")

    with pytest.raises(sa.exc.IntegrityError) as caught:
        db.write(twice)
    assert "c2VjcmV0" not in str(caught.value)


class Refusal(Exception):
    """Error as a driver raises it."""

    def __init__(self, *args: object, sqlstate: str | None = None) -> None:
        super().__init__(*args)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (Refusal(1205, "Lock wait timeout exceeded", sqlstate="HY000"), 1205),
        (Refusal(1205, "Lock wait timeout exceeded"), 1205),
        (Refusal("could not serialize access", sqlstate="40001"), "40001"),
        (Refusal("database is locked"), "database is locked"),
        (Refusal(), None),
    ],
)
def test_an_errors_code_is_the_one_that_says_most(refusal: Exception, code: object) -> None:
    assert engine.code_of(sa.exc.OperationalError("SELECT 1", None, refusal)) == code


@pytest.mark.parametrize(
    ("refusal", "away"),
    [
        (Refusal(2006, "MySQL server has gone away"), True),
        (Refusal(2013, "Lost connection to server during query"), True),
        (Refusal(0, ""), True),
        (Refusal(1040, "Too many connections"), True),
        (Refusal(1053, "Server shutdown in progress", sqlstate="08S01"), True),
        (Refusal(1205, "Lock wait timeout exceeded"), True),
        (Refusal(1290, "The server is running with the --read-only option"), True),
        (Refusal(1927, "Connection was killed"), True),
        (Refusal(1271, "Illegal mix of collations for operation 'in'", sqlstate="HY000"), False),
        (Refusal(1054, "Unknown column 'x' in 'SELECT'"), False),
        (Refusal(1153, "Got a packet bigger than 'max_allowed_packet' bytes"), False),
        (Refusal("terminating connection", sqlstate="57P01"), True),
        (Refusal("too many connections", sqlstate="53300"), True),
        (Refusal("cannot execute UPDATE in a read-only transaction", sqlstate="25006"), True),
        (Refusal("canceling statement due to lock timeout", sqlstate="55P03"), True),
        (Refusal("statement too complex", sqlstate="54001"), False),
        (Refusal("connection refused"), True),
        (Refusal(), True),
    ],
)
def test_database_errors_of_an_unreachable_server_are_recognized(refusal: Exception, away: bool) -> None:
    """Other errors are our own faults: a retry would not help, and no caller should retry."""
    error = sa.exc.OperationalError("SELECT 1", None, refusal)
    assert isinstance(engine.translate(error), exceptions.DatabaseUnavailable) is away
    assert away or engine.translate(error) is error


def test_failure_of_an_unreachable_database_is_one_line_and_others_have_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for refusal in (Refusal("connection refused"), Refusal("statement too complex", sqlstate="54001")):
        engine.log_failure(engine.LOG, "It failed", sa.exc.OperationalError("SELECT 1", None, refusal))
    lost, ours = [record for record in caplog.records if record.getMessage().startswith("It failed")]
    assert lost.getMessage() == f"It failed: {exceptions.DatabaseUnavailable().message}"
    assert lost.exc_info is None
    assert ours.exc_info


def test_a_statement_that_is_wrong_is_no_lost_database(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    for statement in ("SELECT no_such_column FROM instances", "SELECT 1 FROM no_such_table", "SELEC"):
        with pytest.raises(sa.exc.DBAPIError) as caught:
            db.read(lambda uow, statement=statement: uow.session.execute(sa.text(statement)))
        assert engine.translate(caught.value) is caught.value
    assert "unavailable" not in caplog.text


def test_a_database_that_others_lock_is_away(conf: cfg.ConfigOpts, tmp_path: pathlib.Path) -> None:
    conf.set_override("connection", f"sqlite:///{tmp_path}/locked", "database")
    locked = Database(conf, DatabaseTiming(lock_wait=1))
    with sqlite3.connect(tmp_path / "locked") as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sa.exc.OperationalError) as caught:
            locked.write(lambda uow: uow.now)
    assert isinstance(engine.translate(caught.value), exceptions.DatabaseUnavailable)
    locked.close()


def test_a_time_ahead_by_the_databases_clock(db: Database) -> None:
    for seconds in (30, 2.5):
        query = sa.select(engine.utcnow(), engine.later(seconds))
        now, ahead = db.read(lambda uow, query=query: uow.session.execute(query).one())
        assert seconds - 1 < (ahead - now).total_seconds() < seconds + 1


def test_database_errors_contain_no_values(db: Database) -> None:
    """Nor, so, in a log: values may be passwords."""

    def write(uow: UnitOfWork) -> None:
        uow.session.execute(sa.text("INSERT INTO taken_messages (id, taken_at) VALUES (:id, NULL)"), {"id": "s3cret"})

    with pytest.raises(sa.exc.IntegrityError) as caught:
        db.write(write)
    assert "s3cret" not in str(caught.value) and "s3cret" not in repr(caught.value)
    assert "hidden due to hide_parameters" in str(caught.value)


def test_read_that_takes_too_long_is_ended_and_says_so(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(10):
        db.write(make.instance)
    tables = [sa.alias(models.Instance.__table__) for _ in range(9)]
    slow = sa.select(sa.func.count(), *(sa.func.max(table.c.id) for table in tables))  # of a thousand million rows
    limited = Database(db.conf, read_seconds=1)
    try:
        with pytest.raises(sa.exc.DBAPIError) as caught:
            limited.read(lambda uow: uow.rows(slow).all())
        error = engine.translate(caught.value)
        assert isinstance(error, exceptions.QueryTooSlow) and error.code == 503
        assert "ask for less" in error.message
        assert "took longer than [database] read_timeout" in caplog.text and "ended: FROM instances AS" in caplog.text
        assert limited.read(lambda uow: uow.now), "the connection serves the next read"
    finally:
        limited.close()

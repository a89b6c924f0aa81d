"""Transactions, the database's clock, and what the database refuses."""

from __future__ import annotations

import contextlib
import datetime
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite import exception
from nova_lite.conductor.db import engine, instances, quotas
from nova_lite.conductor.db.engine import Database, UnitOfWork
from nova_lite.objects import InstanceFilters
from tests.unit.conductor import make


def test_connections_are_kept(conf: cfg.ConfigOpts, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as may be open at once; who comes later waits for one of them."""
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
        raise exception.NoMoreFixedIps(network_id="n")

    with pytest.raises(exception.NoMoreFixedIps):
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
        assert isinstance(engine.translate(error), exception.InvalidInput)
    else:
        assert db.read(instances.get, make.ADMIN, uuid).display_name == text


def test_names_are_compared_exactly(db: Database) -> None:
    db.write(make.instance, project_id="Admin", display_name="Café")
    for project in ("admin", "Admin ", "Ádmin"):
        assert db.read(instances.list_, make.context(project), InstanceFilters()) == []
    assert db.read(instances.list_, make.context("Admin"), InstanceFilters(name="^caf")) == []
    assert len(db.read(instances.list_, make.context("Admin"), InstanceFilters(name="^Caf.$"))) == 1


def test_numbers_that_do_not_fit(db: Database) -> None:
    with pytest.raises(exception.InvalidInput):
        db.write(quotas.set_limit, "p", "ram", 2**40)


def test_a_connection_that_breaks_is_dropped_with_one_line(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def rollback(self) -> None:
            raise db.engine.dialect.loaded_dbapi.OperationalError("the server is gone")

        def close(self) -> None: ...

    connection = db.engine.connect()
    fairy: Any = connection.connection
    fairy.dbapi_connection.close()
    fairy.dbapi_connection = fairy._connection_record.dbapi_connection = Broken()
    connection.close()
    assert [record.exc_info for record in caplog.records] == [None]
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
    """As a driver raises it."""

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


def test_a_time_ahead_by_the_databases_clock(db: Database) -> None:
    for seconds in (30, 2.5):
        query = sa.select(engine.utcnow(), engine.later(seconds))
        now, ahead = db.read(lambda uow, query=query: uow.session.execute(query).one())
        assert seconds - 1 < (ahead - now).total_seconds() < seconds + 1

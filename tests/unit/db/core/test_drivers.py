"""Drivers of MariaDB."""

from __future__ import annotations

import datetime
import sys

import pytest
import sqlalchemy as sa

from nova_lite.base import concurrency
from nova_lite.db.core import drivers, engine
from tests.support import make


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_url_without_driver_gets_the_one_in_c(kind: str) -> None:
    database = engine.create_engine(make.conf(f"{kind}://u:p@h/n"))
    assert (database.dialect.name, database.dialect.driver) == (kind, "mysqldb")


def test_url_without_driver_gets_pymysql_where_the_one_in_c_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "MySQLdb", None)
    assert engine.create_engine(make.conf("mysql://u:p@h/n?charset=utf8mb4")).dialect.driver == "pymysql"


def test_url_without_driver_gets_pymysql_in_eventlet_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "_mode", concurrency.EVENTLET)
    assert drivers.choose(sa.make_url("mysql://h/n")).drivername == "mysql+pymysql"


@pytest.mark.parametrize(
    "text", ["mysql+pymysql://h/n", "mysql+mysqldb://h/n", "postgresql+psycopg://h/n", "sqlite://"]
)
def test_driver_of_a_url_that_names_one_stays(text: str) -> None:
    assert drivers.choose(sa.make_url(text)).drivername == text.partition(":")[0]


def test_driver_in_c_gets_what_pymysql_does_by_itself() -> None:
    found = drivers.arguments(sa.make_url("mysql+mysqldb://h/n"))
    when = found.pop("conv")[12]("2026-11-30 05:42:56.000123")
    assert when == datetime.datetime(2026, 11, 30, 5, 42, 56, 123)
    assert found == {"binary_prefix": True, "charset": "utf8mb4", "multi_statements": False}
    assert drivers.arguments(sa.make_url("mysql+pymysql://localhost/n?ssl_ca=a")) == {}


@pytest.mark.parametrize(
    ("url", "name", "value"),
    [
        ("localhost/n", "host", "127.0.0.1"),
        ("localhost/n?unix_socket=/s", "host", None),
        ("h/n?charset=utf8mb3", "charset", None),
        ("h/n?ssl_ca=a", "ssl_mode", "VERIFY_IDENTITY"),
        ("h/n?ssl_key=a", "ssl_mode", "VERIFY_IDENTITY"),
    ],
)
def test_argument_of_the_driver_in_c_follows_its_url(url: str, name: str, value: str | None) -> None:
    assert drivers.arguments(sa.make_url(f"mysql+mysqldb://{url}")).get(name) == value

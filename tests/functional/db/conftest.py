"""Each kind of database in turn, with the real schema, emptied between tests. Unit tests have had their SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.db.core.engine import Database
from nova_lite.db.core.models import Base
from nova_lite.db.migrations import schema
from tests.functional.conftest import database_url
from tests.support import make
from tests.support.database import bus, conductor, manager  # noqa: F401
from tests.support.made_up_schemas import next_migration  # noqa: F401


@pytest.fixture(scope="session", autouse=True)
def broker() -> None:
    """Replace the broker fixture: these tests need no broker."""


SERVERS = ("mariadb", "postgresql")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "url" in metafunc.fixturenames:
        is_unit_test = metafunc.function.__module__.startswith("tests.unit.")
        kinds = SERVERS if is_unit_test else ("sqlite", *SERVERS)
        metafunc.parametrize("url", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path: Path = tmp_path_factory.mktemp("database") / "db.sqlite"
    with database_url(request.param) as server_url:
        made = server_url or f"sqlite:///{path}"
        schema.sync(make.conf(made))
        yield made


@pytest.fixture
def conf(url: str, tmp_path: Path) -> cfg.ConfigOpts:
    return make.conf(url, tmp_path)


@pytest.fixture
def db(conf: cfg.ConfigOpts) -> Iterator[Database]:
    """Provide a database, and empty it. Statistics that a test has made are then made again, from empty tables."""
    database, analyses = Database(conf), []

    @sa.event.listens_for(database.engine, "after_cursor_execute")
    def after_statement(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith(("ANALYZE", "VACUUM")):
            analyses.append(statement)

    yield database
    with database.engine.begin() as connection:
        for name in _filled(connection):
            connection.execute(Base.metadata.tables[name].delete())
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in dict.fromkeys(analyses):
            connection.exec_driver_sql(statement)
    database.close()


def _filled(connection: sa.Connection) -> list[str]:
    """Return the names of the tables that have rows, from one query. Each table precedes those it refers to."""
    names = [table.name for table in reversed(Base.metadata.sorted_tables)]
    quoted = connection.dialect.identifier_preparer.quote
    places = (f"SELECT {place} WHERE EXISTS (SELECT 1 FROM {quoted(name)})" for place, name in enumerate(names))
    return [names[place] for place in sorted(connection.exec_driver_sql(" UNION ALL ".join(places)).scalars())]

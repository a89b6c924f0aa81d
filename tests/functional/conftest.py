"""Clouds for functional tests: one per module and database, because daemons take seconds to start."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.functional import cloud

MARIADB = "NOVA_LITE_TEST_MARIADB"
POSTGRESQL = "NOVA_LITE_TEST_POSTGRESQL"


#: Files that take longest, in this order: they begin first, so that no worker is left alone with one.
LONGEST = (
    "test_volumes",
    "test_compute_daemon",
    "test_resize",
    "test_live_migration",
    "test_modes",
    "test_standalone",
    "test_rolling_upgrade",
    "test_restarts_under_load",
    "test_mixed_versions",
    "test_cinder",
    "test_soak",
    "test_host_upkeep",
    "test_sdk_cloud",
    "test_network_api",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [index for index, item in enumerate(items) if item.path.is_relative_to(Path(__file__).parent)]

    def place(item: pytest.Item) -> int:
        return LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST)

    for index, item in zip(here, sorted((items[index] for index in here), key=place), strict=True):
        items[index] = item


@pytest.fixture(scope="session", autouse=True)
def broker() -> None:
    """Skip or fail without a RabbitMQ on this machine."""
    if shutil.which("rabbitmqctl") is None:
        pytest.skip("rabbitmq-server is not installed (devstack/test.sh installs it)")
    answer = subprocess.run(["rabbitmqctl", "-q", "ping"], capture_output=True, timeout=60)
    if answer.returncode:
        pytest.skip("RabbitMQ does not run (devstack/test.sh starts it)")


@contextmanager
def database_url(kind: str) -> Iterator[str | None]:
    """Make a private database; None for SQLite. Skips when the environment does not name a server of the kind."""
    if kind == "sqlite":
        yield None
        return
    server = os.environ.get({"mariadb": MARIADB, "postgresql": POSTGRESQL}[kind])
    if not server:
        pytest.skip(f"{MARIADB if kind == 'mariadb' else POSTGRESQL} is not set (devstack/test.sh sets it)")
    name = f"{sa.make_url(server).database}_{uuid.uuid4().hex[:12]}"
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    try:
        yield sa.make_url(server).set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            if kind == "postgresql":
                _disconnect_all(connection, name)
            connection.exec_driver_sql(f"DROP DATABASE {name}")
        engine.dispose()


def _disconnect_all(connection: sa.Connection, database: str) -> None:
    """End what PostgreSQL's DROP DATABASE would wait for in vain: connections, and allow no new ones.

    DROP DATABASE WITH (FORCE) fails while autovacuum works in the database, as that is not this user's process.
    Without FORCE it ends autovacuum itself.
    """
    connection.exec_driver_sql(f"ALTER DATABASE {database} WITH ALLOW_CONNECTIONS false")
    connection.execute(
        sa.text(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = :name AND backend_type = 'client backend'"
        ),
        {"name": database},
    )


@pytest.fixture(scope="module")
def sqlite_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cloud.Cloud]:
    """Run two compute hosts on SQLite, in the daemons' default concurrency modes."""
    path: Path = tmp_path_factory.mktemp("cloud")
    with cloud.running(path, computes=2) as running:
        yield running


@pytest.fixture
def tidy(sqlite_cloud: cloud.Cloud) -> Iterator[cloud.Cloud]:
    """Provide the module's cloud without servers, and check its invariants afterwards."""
    yield sqlite_cloud
    sqlite_cloud.delete_all()
    assert sqlite_cloud.domains() == {}
    sqlite_cloud.audit()

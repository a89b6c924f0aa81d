"""A database with the real schema for each test: SQLite here, all three kinds in tests/functional/db."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite import rpc
from nova_lite.conductor.manager import ConductorManager
from nova_lite.db.core.engine import Database
from nova_lite.db.migrations import schema
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.rpcapi.scheduler import SchedulerRPC
from tests.support import make


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("schema") / "db.sqlite"
    schema.sync(make.conf(f"sqlite:///{path}"))
    return path


@pytest.fixture
def conf(empty_database: Path, tmp_path: Path) -> cfg.ConfigOpts:
    shutil.copy(empty_database, tmp_path / "db.sqlite")
    return make.conf(f"sqlite:///{tmp_path}/db.sqlite", tmp_path)


@pytest.fixture
def db(conf: cfg.ConfigOpts) -> Iterator[Database]:
    database = Database(conf)
    yield database
    database.close()


@pytest.fixture
def bus(conf: cfg.ConfigOpts) -> rpc.InProcess:
    """Messages to the real conductor over the test's database; hosts and schedulers there are none."""
    return rpc.InProcess(conf)


@pytest.fixture
def manager(bus: rpc.InProcess, conf: cfg.ConfigOpts) -> Iterator[ConductorManager]:
    """Make a conductor that is not started: it runs no threads."""
    client = rpc.proxy(ConductorRPC, bus)
    made = ConductorManager(conf, rpc.proxy(SchedulerRPC, bus), rpc.proxy(ComputeRPC, bus), client)
    bus.serve(made.endpoint)
    yield made
    made.close()


@pytest.fixture
def conductor(bus: rpc.InProcess, manager: ConductorManager) -> ConductorRPC:
    return rpc.proxy(ConductorRPC, bus)

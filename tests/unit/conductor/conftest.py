"""A database with the real schema for each test: SQLite here, all three kinds in tests/functional/db."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite.conductor.db import migration
from nova_lite.conductor.db.engine import Database
from tests.unit.conductor import make


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("schema") / "db.sqlite"
    migration.sync(make.conf(f"sqlite:///{path}"))
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

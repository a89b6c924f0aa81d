"""Schemas of other versions: a contracting script that only tests have, and versions that are set by hand."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from oslo_config import cfg

from nova_lite.db import engine, migration
from nova_lite.db.engine import Database

SCRIPT = '''"""Remove key_pairs, which code before 0051 reads."""

from alembic import op

serves_from = "0051"


def upgrade() -> None:
    op.execute("DROP TABLE IF EXISTS key_pairs")
'''


@pytest.fixture
def contracts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a directory with one contracting script: code of `BASE` needs ``key_pairs``, and newer code does not."""
    made = tmp_path / "contracts"
    made.mkdir()
    (made / "c0051_key_pairs.py").write_text(SCRIPT)
    package = types.ModuleType("contracts_of_a_test")
    package.__path__ = [str(made)]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    monkeypatch.delitem(sys.modules, f"{package.__name__}.c0051_key_pairs", raising=False)
    monkeypatch.setattr(migration, "contracts", package)
    return made


def set_versions(conf: cfg.ConfigOpts, current: str | None, oldest: str | None) -> None:
    """Set the version of a database's schema, and of the oldest code that it serves; None removes the row."""
    database = Database(conf)
    with database.engine.begin() as connection:
        for table, value in ((migration.CURRENT, current), (migration.OLDEST, oldest)):
            connection.execute(sa.text(f"DELETE FROM {table}"))
            if value is not None:
                connection.execute(sa.text(f"INSERT INTO {table} VALUES (:value)"), {"value": value})
    database.close()


def make_base(conf: cfg.ConfigOpts) -> None:
    """Make an empty database with the schema `migration.BASE`, as code of that time left it."""
    database = engine.create_engine(conf)
    with database.begin() as connection:
        config = migration._config()
        config.attributes |= {"connection": connection, "version_table": migration.OLDEST}
        command.upgrade(config, migration.BASE)
    database.dispose()

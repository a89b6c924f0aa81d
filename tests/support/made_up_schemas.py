"""Schemas of other versions: a migration and a contracting script that only tests have, and versions set by hand."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from oslo_config import cfg

from nova_lite.db.core import engine
from nova_lite.db.core.engine import Database
from nova_lite.db.migrations import schema

#: The migration that follows all others in tests.
NEXT = "made_up"

_MIGRATION = '''"""Add a column that only newer code reads."""

import sqlalchemy as sa
from alembic import op

revision = "{revision}"
down_revision = "{follows}"


def upgrade() -> None:
    op.add_column("flavors", sa.Column("made_up", sa.String(9)))
'''

_CONTRACT = '''"""Remove key_pairs, which code before made_up reads."""

from alembic import op

serves_from = "made_up"


def upgrade() -> None:
    op.execute("DROP TABLE IF EXISTS key_pairs")
'''


@pytest.fixture
def next_migration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Let this program be newer by one migration. Provides its revision."""
    made = tmp_path / "versions"
    made.mkdir()
    (made / f"{NEXT}_column.py").write_text(_MIGRATION.format(revision=NEXT, follows=schema.head()))
    monkeypatch.setattr(schema.versions, "__path__", [*schema.versions.__path__, str(made)])
    schema._order.cache_clear()
    yield NEXT
    schema._order.cache_clear()


@pytest.fixture
def contracts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, next_migration: str) -> Path:
    """Provide a directory with one contracting script: code of `BASE` needs ``key_pairs``, and newer code does not."""
    made = tmp_path / "contracts"
    made.mkdir()
    (made / "key_pairs.py").write_text(_CONTRACT)
    package = types.ModuleType("contracts_of_a_test")
    package.__path__ = [str(made)]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    monkeypatch.delitem(sys.modules, f"{package.__name__}.key_pairs", raising=False)
    monkeypatch.setattr(schema, "contracts", package)
    return made


def set_versions(conf: cfg.ConfigOpts, current: str | None, oldest: str | None) -> None:
    """Set the version of a database's schema, and of the oldest code that it serves; None removes the row."""
    database = Database(conf)
    with database.engine.begin() as connection:
        for table, value in ((schema.CURRENT, current), (schema.OLDEST, oldest)):
            connection.execute(sa.text(f"DELETE FROM {table}"))
            if value is not None:
                connection.execute(sa.text(f"INSERT INTO {table} VALUES (:value)"), {"value": value})
    database.close()


def make_base(conf: cfg.ConfigOpts) -> None:
    """Make an empty database with the schema `schema.BASE`, as code of that time left it."""
    database = engine.create_engine(conf)
    with database.begin() as connection:
        config = schema._config()
        config.attributes["connection"] = connection
        command.upgrade(config, schema.BASE)
        schema._set(connection, schema.OLDEST, schema.BASE)
    database.dispose()

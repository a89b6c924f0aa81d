"""The schema that migrations make, on each kind of database."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from alembic import command
from oslo_config import cfg

from nova_lite.db import migration
from nova_lite.db.engine import Database
from tests.functional.conftest import database_url
from tests.support import make, schema_shape
from tests.unit.conductor.test_migration import (
    test_expanded_schema_still_has_the_version_that_older_code_compares,
    test_migrations_make_the_models,
    test_second_sync_changes_nothing,
)

__all__ = [
    "test_expanded_schema_still_has_the_version_that_older_code_compares",
    "test_migrations_make_the_models",
    "test_second_sync_changes_nothing",
]


@pytest.mark.parametrize("kind", ["mariadb", "postgresql"])
def test_schema_that_older_code_made_is_only_expanded(kind: str) -> None:
    """SQLite: tests/unit/conductor/test_migration.py, step by step."""
    with database_url(kind) as url:
        assert url is not None
        conf = make.conf(url)
        before = _shape(conf, migration.BASE)
        synced = migration.sync(conf)
        assert synced == (migration.BASE, (migration.head(), migration.BASE))
        assert schema_shape.contractions(before, _shape(conf)) == []


def _shape(conf: cfg.ConfigOpts, revision: str | None = None) -> dict[str, schema_shape.Table]:
    """Return the shape of the database, migrated to a revision first as older code does it."""
    database = Database(conf)
    try:
        with database.engine.begin() as connection:
            if revision is not None:
                config = migration._config()
                config.attributes["connection"] = connection
                command.upgrade(config, revision)
                assert connection.scalar(sa.text("SELECT version_num FROM alembic_version")) == revision
            return schema_shape.of(connection)
    finally:
        database.close()

"""The schema that migrations make, on each kind of database."""

from __future__ import annotations

import pytest
from oslo_config import cfg

from nova_lite.db.core.engine import Database
from nova_lite.db.migrations import schema
from tests.functional.conftest import database_url
from tests.support import make, schema_shape
from tests.support.made_up_schemas import make_base
from tests.unit.db.core.test_schema import test_migrations_make_the_models, test_second_sync_changes_nothing

__all__ = [
    "test_migrations_make_the_models",
    "test_second_sync_changes_nothing",
]


@pytest.mark.parametrize("kind", ["mariadb", "postgresql"])
def test_schema_that_older_code_made_is_only_expanded(kind: str, next_migration: str) -> None:
    """SQLite: tests/unit/db/core/test_schema.py, step by step."""
    with database_url(kind) as url:
        assert url is not None
        conf = make.conf(url)
        make_base(conf)
        before = _shape(conf)
        assert schema.sync(conf) == (schema.BASE, (next_migration, schema.BASE))
        assert schema_shape.contractions(before, _shape(conf)) == []


def _shape(conf: cfg.ConfigOpts) -> dict[str, schema_shape.Table]:
    database = Database(conf)
    try:
        with database.engine.connect() as connection:
            return schema_shape.of(connection)
    finally:
        database.close()

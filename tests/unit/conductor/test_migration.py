"""The schema: migrations make exactly the models' tables. Old, new and missing schemas are distinguished."""

from __future__ import annotations

import contextlib
import datetime
import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db import action_log, migration, migrations, models
from nova_lite.db.engine import Database
from nova_lite.db.models import Base
from tests.support import make


def differs(context: Any, shown: Any, column: Any, default: str | None, *_: Any) -> bool | None:
    """Compare defaults of columns as alembic does, except that MariaDB shows true and false as numbers."""
    if context.dialect.name in ("mysql", "mariadb") and isinstance(column.type, sa.Boolean) and default is not None:
        expected = str(column.server_default.arg.compile(dialect=context.dialect))
        return {"1": "true", "0": "false"}.get(default, default) != expected
    return None


def test_migrations_make_the_models(db: Database) -> None:
    options = {"compare_type": True, "compare_server_default": differs}
    with db.engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata)
    assert differences == []


def test_comparison_finds_a_missing_column(db: Database) -> None:
    with db.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE flavors DROP COLUMN description"))
        differences = compare_metadata(MigrationContext.configure(connection), Base.metadata)
        connection.rollback()
        assert [difference[0] for difference in differences] == ["add_column"]


def test_second_sync_changes_nothing(conf: cfg.ConfigOpts, db: Database) -> None:
    assert migration.sync(conf) == migration.sync(conf) == migration.version(conf) == migration.head()
    migration.check(conf)


def test_missing_schema_is_reported(tmp_path: Path) -> None:
    conf = make.conf(f"sqlite:///{tmp_path}/new/db.sqlite")
    assert migration.version(conf) is None
    assert not os.path.exists(tmp_path / "new")
    with pytest.raises(exceptions.ConfigurationError, match="run nova-lite-manage db sync"):
        migration.check(conf)
    migration.sync(conf)
    migration.check(conf)
    assert stat.S_IMODE(os.stat(tmp_path / "new" / "db.sqlite").st_mode) == 0o600


def test_version_without_alembic_is_that_of_alembic() -> None:
    scripts = ScriptDirectory.from_config(migration._config())
    assert migration.head() == scripts.get_current_head()
    assert migration._known() == {script.revision for script in scripts.walk_revisions()}


@pytest.mark.parametrize(("version", "message"), [("0000", "newer"), (None, "db sync")])
def test_unknown_schema_is_reported(conf: cfg.ConfigOpts, version: str | None, message: str) -> None:
    database = Database(conf)
    with database.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM alembic_version"))
        if version is not None:
            connection.execute(sa.text("INSERT INTO alembic_version VALUES (:version)"), {"version": version})
    database.close()
    with pytest.raises(exceptions.ConfigurationError, match=message):
        migration.check(conf)


@pytest.mark.parametrize(
    "url",
    [
        "mysql+pymysql://nobody:wrong@127.0.0.1:1/none",
        "postgresql+psycopg://nobody:wrong@127.0.0.1:1/none",
        "sqlite:////proc/none.sqlite",
    ],
)
def test_unreachable_database_raises_unavailable(url: str) -> None:
    """A SQLite file that cannot be created is a configuration error."""
    conf = make.conf(url)
    with pytest.raises((exceptions.DatabaseUnavailable, exceptions.ConfigurationError)):
        migration.sync(conf)
    with pytest.raises((exceptions.DatabaseUnavailable, exceptions.ConfigurationError)):
        migration.check(conf)


@pytest.mark.parametrize("url", ["nonsense", "oracle+none://x/y"])
def test_wrong_url_is_a_configuration_error(url: str) -> None:
    with pytest.raises(exceptions.ConfigurationError, match=r"\[database\] connection"):
        migration.check(make.conf(url))


def test_events_of_open_actions_move_to_the_action(tmp_path: Path) -> None:
    """Closed actions keep their own events. Both are read."""
    conf = make.conf(f"sqlite:///{tmp_path}/db.sqlite")
    migrate(conf, "0012")
    database = Database(conf)
    with database.engine.begin() as connection:
        for column in ("block_devices", "network_info", "numa"):
            connection.execute(sa.text(f"ALTER TABLE instances ADD COLUMN {column} JSON"))
    uuid = database.write(make.instance)
    number = database.write(lambda uow: make.action(uow, uuid).id)
    before = ScriptDirectory(os.path.dirname(migrations.__file__)).get_revision("0012").down_revision
    with database.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE instance_actions DROP COLUMN events"))
        for column in ("block_devices", "network_info", "numa"):
            connection.execute(sa.text(f"ALTER TABLE instances DROP COLUMN {column}"))
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :before"), {"before": before})
        for event, end in (("e0", "2026-01-02 03:04:06.000000"), ("e1", None)):
            connection.execute(
                sa.text(
                    "INSERT INTO instance_action_events (action_id, event, host, start_time, finish_time) "
                    "VALUES (:number, :event, 'h1', '2026-01-02 03:04:05.000000', :end)"
                ),
                {"number": number, "event": event, "end": end},
            )
    migration.sync(conf)
    action = database.read(action_log.get, make.context(), uuid, "req-1")
    assert [(event.event, event.finish_time is None) for event in action.events] == [("e0", False), ("e1", True)]
    assert action.events[1].start_time == datetime.datetime(2026, 1, 2, 3, 4, 5)
    with database.engine.connect() as connection:
        left = connection.execute(sa.text("SELECT event FROM instance_action_events")).scalars().all()
    assert left == ["e0"]
    database.close()


def migrate(conf: cfg.ConfigOpts, revision: str) -> None:
    """Migrate a database without a schema to an older version."""
    database = Database(conf)
    with database.engine.begin() as connection:
        config = migration._config()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    database.close()


def tables_with_autoincrement(connection: sa.Connection) -> set[str]:
    found = connection.exec_driver_sql("SELECT name FROM sqlite_schema WHERE sql LIKE '%AUTOINCREMENT%'")
    return {row[0] for row in found}


def test_published_ids_are_not_assigned_again(tmp_path: Path) -> None:
    """Rows, references and indexes of an older database are kept."""
    conf = make.conf(f"sqlite:///{tmp_path}/db.sqlite")
    migrate(conf, "0010")
    database = Database(conf)
    with database.engine.begin() as connection:
        for number in (1, 2):
            connection.exec_driver_sql(
                "INSERT INTO instance_actions (id, action, instance_uuid, request_id, payload, generation, step, "
                "lease_expires_at, attempts, deadline, start_time) "
                f"VALUES ({number}, 'stop', 'u', 'r', '{{}}', 1, 'x', '2026-01-01', 0, '2026-01-01', '2026-01-01')"
            )
        connection.exec_driver_sql(
            "INSERT INTO instance_action_events (action_id, event, start_time, finish_time) "
            "VALUES (2, 'e', '2026-01-01 00:00:00.000000', '2026-01-01 00:00:01.000000')"
        )
        indexes = {index["name"] for index in sa.inspect(connection).get_indexes("instance_actions")}
    migration.sync(conf)
    with database.engine.begin() as connection:
        assert {index["name"] for index in sa.inspect(connection).get_indexes("instance_actions")} == indexes
        assert tables_with_autoincrement(connection) == {
            table.name for table in Base.metadata.tables.values() if table.kwargs.get("sqlite_autoincrement")
        }
        assert connection.exec_driver_sql("SELECT action_id FROM instance_action_events").all() == [(2,)]
    database.close()
    database = Database(conf)
    instance_uuid = database.write(make.instance)
    third = database.write(lambda uow: make.action(uow, instance_uuid).id)
    database.write(lambda uow: uow.change(sa.delete(models.InstanceAction).where(models.InstanceAction.id == third)))
    assert (third, database.write(lambda uow: make.action(uow, instance_uuid).id)) == (3, 4)
    with pytest.raises(sa.exc.IntegrityError):
        database.write(lambda uow: uow.change(sa.delete(models.InstanceAction)))
    database.close()


def test_broken_reference_ends_the_migration(tmp_path: Path) -> None:
    conf = make.conf(f"sqlite:///{tmp_path}/db.sqlite")
    migrate(conf, "0010")
    with contextlib.closing(sqlite3.connect(tmp_path / "db.sqlite")) as connection, connection:
        connection.execute(
            "INSERT INTO instance_action_events (action_id, event, start_time, finish_time) "
            "VALUES (7, 'e', '2026-01-01 00:00:00.000000', '2026-01-01 00:00:01.000000')"
        )
    with pytest.raises(exceptions.ConfigurationError, match="instance_action_events refers to a row of instance_act"):
        migration.sync(conf)
    assert migration.version(conf) == "0010"


def test_created_schema_is_the_migrated_one(tmp_path: Path) -> None:
    found = []
    for make_tables in (migration.create, migration.sync):
        conf = make.conf(f"sqlite:///{tmp_path}/{make_tables.__name__}.sqlite")
        make_tables(conf)
        migration.check(conf)
        with Database(conf).engine.connect() as connection:
            options = {"compare_type": True, "compare_server_default": differs}
            assert compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata) == []
            found.append(sorted(sa.inspect(connection).get_table_names()))
    assert found[0] == found[1]

"""The schema: migrations make exactly the models' tables; old, new and missing ones are told apart."""

from __future__ import annotations

import datetime
import os
import stat
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from oslo_config import cfg

from nova_lite import exception
from nova_lite.conductor.db import action_log, migration, migrations
from nova_lite.conductor.db.engine import Database
from nova_lite.conductor.db.models import Base
from tests.unit.conductor import make


def test_migrations_make_the_models(db: Database) -> None:
    options = {"compare_type": True, "compare_server_default": True}
    with db.engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata)
    assert differences == []


def test_the_comparison_would_notice(db: Database) -> None:
    with db.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE flavors DROP COLUMN description"))
        differences = compare_metadata(MigrationContext.configure(connection), Base.metadata)
        connection.rollback()
        assert [difference[0] for difference in differences] == ["add_column"]


def test_sync_twice(conf: cfg.ConfigOpts, db: Database) -> None:
    assert migration.sync(conf) == migration.sync(conf) == migration.version(conf) == migration.head()
    migration.check(conf)


def test_no_schema(tmp_path: Path) -> None:
    conf = make.conf(f"sqlite:///{tmp_path}/new/db.sqlite")
    assert migration.version(conf) is None
    assert not os.path.exists(tmp_path / "new")
    with pytest.raises(exception.ConfigurationError, match="run nova-lite-manage db sync"):
        migration.check(conf)
    migration.sync(conf)
    migration.check(conf)
    assert stat.S_IMODE(os.stat(tmp_path / "new" / "db.sqlite").st_mode) == 0o600


@pytest.mark.parametrize(("version", "message"), [("0000", "newer"), (None, "db sync")])
def test_other_schema(conf: cfg.ConfigOpts, version: str | None, message: str) -> None:
    database = Database(conf)
    with database.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM alembic_version"))
        if version is not None:
            connection.execute(sa.text("INSERT INTO alembic_version VALUES (:version)"), {"version": version})
    database.close()
    with pytest.raises(exception.ConfigurationError, match=message):
        migration.check(conf)


@pytest.mark.parametrize(
    "url",
    [
        "mysql+pymysql://nobody:wrong@127.0.0.1:1/none",
        "postgresql+psycopg://nobody:wrong@127.0.0.1:1/none",
        "sqlite:////proc/none.sqlite",
    ],
)
def test_database_away(url: str) -> None:
    """Worth another try, except for a file that cannot be made."""
    conf = make.conf(url)
    with pytest.raises((exception.DatabaseUnavailable, exception.ConfigurationError)):
        migration.sync(conf)
    with pytest.raises((exception.DatabaseUnavailable, exception.ConfigurationError)):
        migration.check(conf)


@pytest.mark.parametrize("url", ["nonsense", "oracle+none://x/y"])
def test_wrong_url(url: str) -> None:
    with pytest.raises(exception.ConfigurationError, match=r"\[database\] connection"):
        migration.check(make.conf(url))


def test_events_of_what_is_under_way_move_to_its_action(tmp_path: Path) -> None:
    """What was over keeps its own; both are read."""
    conf = make.conf(f"sqlite:///{tmp_path}/db.sqlite")
    migration.sync(conf)
    database = Database(conf)
    uuid = database.write(make.instance)
    number = database.write(lambda uow: make.action(uow, uuid).id)
    before = ScriptDirectory(os.path.dirname(migrations.__file__)).get_revision("0012").down_revision
    with database.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE instance_actions DROP COLUMN events"))
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

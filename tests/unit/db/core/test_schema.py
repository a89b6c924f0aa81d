"""The schema: migrations make exactly the models' tables. Old, new and missing schemas are distinguished."""

from __future__ import annotations

import contextlib
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
from nova_lite.db.core import models
from nova_lite.db.core.engine import Database
from nova_lite.db.core.models import Base
from nova_lite.db.migrations import schema
from tests.support import make, schema_shape
from tests.support.made_up_schemas import NEXT, make_base, set_versions


def differs(context: Any, shown: Any, column: Any, default: str | None, *_: Any) -> bool | None:
    """Compare defaults of columns as alembic does, except that MariaDB shows true and false as numbers."""
    if context.dialect.name in ("mysql", "mariadb") and isinstance(column.type, sa.Boolean) and default is not None:
        expected = str(column.server_default.arg.compile(dialect=context.dialect))
        return {"1": "true", "0": "false"}.get(default, default) != expected
    return None


def is_ours(_object: Any, name: str | None, kind: str, *_: Any) -> bool:
    """Leave out the tables with the schema's version, which are no models."""
    return not (kind == "table" and name in (schema.CURRENT, schema.OLDEST))


def differences_of(connection: sa.Connection) -> Any:
    options = {"compare_type": True, "compare_server_default": differs, "include_object": is_ours}
    found = compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata)
    is_sqlite = connection.dialect.name == "sqlite"
    return [difference for difference in found if not (is_sqlite and is_of_a_later_column(difference))]


def is_of_a_later_column(difference: Any) -> bool:
    """Check for the constraint of a column that SQLite got later, whose options SQLAlchemy does not read."""
    return difference[0] in ("remove_fk", "add_fk") and difference[1].column_keys == ["primary_id"]


def test_migrations_make_the_models(db: Database) -> None:
    with db.engine.connect() as connection:
        assert differences_of(connection) == []


def test_comparison_finds_a_missing_column(db: Database) -> None:
    with db.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE flavors DROP COLUMN description"))
        differences = differences_of(connection)
        connection.rollback()
        assert [difference[0] for difference in differences] == ["add_column"]


def test_state_is_read_while_another_process_writes(conf: cfg.ConfigOpts, db: Database) -> None:
    """A conductor that starts waits for no transaction of another one. A wait would end as a failure."""
    with contextlib.closing(sqlite3.connect(schema.sqlite_path(conf) or "", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert schema.state(conf) is not None


def test_second_sync_changes_nothing(conf: cfg.ConfigOpts, db: Database) -> None:
    synced = schema.sync(conf)
    assert synced == schema.sync(conf) == (schema.head(), schema.check(conf))
    assert synced.schema.version == schema.version(conf) == schema.head()


def test_missing_schema_is_reported(tmp_path: Path) -> None:
    conf = make.conf(f"sqlite:///{tmp_path}/new/db.sqlite")
    assert schema.version(conf) is None
    assert not os.path.exists(tmp_path / "new")
    with pytest.raises(exceptions.ConfigurationError, match="run nova-lite-manage db sync"):
        schema.check(conf)
    is_root = os.geteuid() == 0
    if is_root:  # The directory is the conductor's, on a controller.
        os.mkdir(tmp_path / "new")
        os.chown(tmp_path / "new", 60722, 60722)
    schema.sync(conf)
    schema.check(conf)
    status = os.stat(tmp_path / "new" / "db.sqlite")
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert (status.st_uid, status.st_gid) == ((60722, 60722) if is_root else (os.geteuid(), os.getegid()))


def test_version_without_alembic_is_that_of_alembic() -> None:
    scripts = ScriptDirectory.from_config(schema._config())
    assert schema.head() == scripts.get_current_head()
    assert schema._known() == {script.revision for script in scripts.walk_revisions()}


@pytest.mark.parametrize(
    ("current", "oldest", "message"),
    [
        ("9999", "9998", "is newer than this program's .*, and serves programs from 9998 on: upgrade the program"),
        (None, None, "is empty: run nova-lite-manage db sync"),
    ],
)
def test_schema_that_does_not_serve_this_program_is_reported(
    conf: cfg.ConfigOpts, current: str | None, oldest: str | None, message: str
) -> None:
    set_versions(conf, current, oldest)
    with pytest.raises(exceptions.ConfigurationError, match=message):
        schema.check(conf)


def test_older_schema_is_reported(conf: cfg.ConfigOpts, next_migration: str) -> None:
    set_versions(conf, schema.BASE, schema.BASE)
    with pytest.raises(exceptions.ConfigurationError, match=f"has the old schema {schema.BASE}: run nova"):
        schema.check(conf)


def test_schema_before_1_0_is_reported(conf: cfg.ConfigOpts, db: Database) -> None:
    with db.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('0048b')")
    for attempt in (schema.check, schema.sync):
        with pytest.raises(exceptions.ConfigurationError, match="is of a version before 1\\.0"):
            attempt(conf)


@pytest.mark.parametrize("oldest", [schema.BASE, schema.head()])
def test_newer_schema_that_serves_this_program_is_accepted_and_kept(conf: cfg.ConfigOpts, oldest: str) -> None:
    """A conductor starts on it, `db sync` leaves it alone, and `db contract` is left to the newer program."""
    set_versions(conf, "9999", oldest)
    newer = schema.Schema("9999", oldest)
    assert schema.check(conf) == newer
    assert schema.sync(conf) == ("9999", newer)
    with pytest.raises(exceptions.ConfigurationError, match="is newer than this program's"):
        schema.contract(conf)


def test_newer_schema_that_does_not_serve_this_program_is_not_synced(conf: cfg.ConfigOpts) -> None:
    set_versions(conf, "9999", "9998")
    with pytest.raises(exceptions.ConfigurationError, match="upgrade the program"):
        schema.sync(conf)


# --- what may follow BASE


def shape_after(path: Path, revision: str) -> Any:
    conf = make.conf(f"sqlite:///{path}/{revision}.sqlite")
    migrate(conf, revision)
    database = Database(conf)
    with database.engine.connect() as connection:
        found = schema_shape.of(connection)
    database.close()
    return found


def test_migrations_only_expand_the_schema(tmp_path: Path, next_migration: str) -> None:
    """Each of them: a program of the step before runs on the schema after it."""
    order = schema._order()
    steps = order[order.index(schema.BASE) :]
    shapes = [shape_after(tmp_path, revision) for revision in steps]
    found = {
        after: problems
        for (after, before, now) in zip(steps[1:], shapes, shapes[1:], strict=False)
        if (problems := schema_shape.contractions(before, now))
    }
    assert found == {}, "leave this to a script of nova_lite/db/migrations/contracts"


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DROP TABLE key_pairs", "key_pairs is gone"),
        ("ALTER TABLE flavors DROP COLUMN description", "flavors.description is gone"),
        ("ALTER TABLE flavors RENAME COLUMN description TO text", "flavors.description is gone"),
        ("ALTER TABLE flavors ADD COLUMN x VARCHAR(9) NOT NULL DEFAULT 'a'", None),
        ("ALTER TABLE flavors ADD COLUMN x VARCHAR(9)", None),
        ("CREATE TABLE x (y INTEGER NOT NULL PRIMARY KEY)", None),
        ("CREATE INDEX x ON flavors (description)", None),
        ("CREATE UNIQUE INDEX x ON flavors (description)", "flavors has a new unique index: description"),
    ],
)
def test_contraction_is_found(db: Database, statement: str, problem: str | None) -> None:
    with db.engine.connect() as connection:
        before = schema_shape.of(connection)
        connection.exec_driver_sql(statement)
        after = schema_shape.of(connection)
        connection.rollback()
    assert schema_shape.contractions(before, after) == ([problem] if problem else [])


def test_column_that_older_code_leaves_out_is_found(db: Database) -> None:
    """SQLite adds no such column to a table."""
    with db.engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE x (y INTEGER, z INTEGER DEFAULT 1)")
        before = schema_shape.of(connection)
        connection.exec_driver_sql("DROP TABLE x")
        connection.exec_driver_sql("CREATE TABLE x (y INTEGER NOT NULL, z VARCHAR, w INTEGER NOT NULL)")
        after = schema_shape.of(connection)
        connection.rollback()
    assert schema_shape.contractions(before, after) == [
        "x.y takes no NULL any more",
        "x.z was INTEGER and is VARCHAR",
        "x.z has no default any more",
        "x.w is new, and takes neither NULL nor a default",
    ]


# --- contracting scripts


def test_contract_removes_what_older_code_needs(contracts: Path, conf: cfg.ConfigOpts) -> None:
    title = "Remove key_pairs, which code before made_up reads."
    synced = schema.sync(conf)
    assert synced.schema == (schema.head(), schema.BASE), "it is left to db contract"
    assert schema.pending(synced.schema) == [title]
    assert schema.contract(conf) == [title]
    assert schema.check(conf) == (schema.head(), NEXT)
    assert schema.contract(conf) == schema.pending(schema.check(conf)) == []
    database = Database(conf)
    with database.engine.connect() as connection:
        assert not sa.inspect(connection).has_table("key_pairs")
    database.close()


def test_contract_that_was_interrupted_is_repeated(contracts: Path, conf: cfg.ConfigOpts) -> None:
    """MariaDB commits each change at once: the table is gone, and nothing says so yet."""
    schema.sync(conf)
    database = Database(conf)
    with database.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE key_pairs")
    database.close()
    assert len(schema.contract(conf)) == 1
    assert schema.check(conf).oldest == NEXT


def test_new_database_is_contracted_at_once(contracts: Path, tmp_path: Path) -> None:
    conf = make.conf(f"sqlite:///{tmp_path}/new.sqlite")
    assert schema.sync(conf).schema == (schema.head(), NEXT)
    database = Database(conf)
    with database.engine.connect() as connection:
        assert not sa.inspect(connection).has_table("key_pairs")
    database.close()


def test_contracts_are_in_the_order_of_the_code_that_they_leave() -> None:
    order = schema._order()
    numbers = [order.index(script.serves_from) for script in schema._contracts()]
    assert numbers == sorted(set(numbers))
    assert all(number > order.index(schema.BASE) for number in numbers)
    assert all(script.__doc__ for script in schema._contracts())


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
        schema.sync(conf)
    with pytest.raises((exceptions.DatabaseUnavailable, exceptions.ConfigurationError)):
        schema.check(conf)


@pytest.mark.parametrize("url", ["nonsense", "oracle+none://x/y"])
def test_wrong_url_is_a_configuration_error(url: str) -> None:
    with pytest.raises(exceptions.ConfigurationError, match=r"\[database\] connection"):
        schema.check(make.conf(url))


def migrate(conf: cfg.ConfigOpts, revision: str) -> None:
    """Migrate a database without a schema to an older version."""
    database = Database(conf)
    with database.engine.begin() as connection:
        config = schema._config()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    database.close()


def tables_with_autoincrement(connection: sa.Connection) -> set[str]:
    found = connection.exec_driver_sql("SELECT name FROM sqlite_schema WHERE sql LIKE '%AUTOINCREMENT%'")
    return {row[0] for row in found}


def test_published_ids_are_not_assigned_again(db: Database) -> None:
    with db.engine.begin() as connection:
        assert tables_with_autoincrement(connection) == {
            table.name for table in Base.metadata.tables.values() if table.kwargs.get("sqlite_autoincrement")
        }
    instance_uuid = db.write(make.instance)
    first = db.write(lambda uow: make.action(uow, instance_uuid).id)
    db.write(lambda uow: uow.change(sa.delete(models.InstanceAction).where(models.InstanceAction.id == first)))
    assert db.write(lambda uow: make.action(uow, instance_uuid).id) == first + 1


def test_broken_reference_ends_the_migration(tmp_path: Path, next_migration: str) -> None:
    conf = make.conf(f"sqlite:///{tmp_path}/db.sqlite")
    make_base(conf)
    with contextlib.closing(sqlite3.connect(tmp_path / "db.sqlite")) as connection, connection:
        connection.execute(
            "INSERT INTO instance_action_events (action_id, event, start_time, finish_time) "
            "VALUES (7, 'e', '2026-01-01 00:00:00.000000', '2026-01-01 00:00:01.000000')"
        )
    with pytest.raises(exceptions.ConfigurationError, match="instance_action_events refers to a row of instance_act"):
        schema.sync(conf)
    assert schema.version(conf) == schema.BASE


def test_created_schema_is_the_migrated_one(tmp_path: Path) -> None:
    found = []
    for make_tables in (schema.create, schema.sync):
        conf = make.conf(f"sqlite:///{tmp_path}/{make_tables.__name__}.sqlite")
        make_tables(conf)
        schema.check(conf)
        with Database(conf).engine.connect() as connection:
            assert differences_of(connection) == []
            found.append(sorted(sa.inspect(connection).get_table_names()))
    assert found[0] == found[1]

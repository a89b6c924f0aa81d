"""The schema's version: migrate the database, or report that a migration is needed.

A migration after `BASE` only expands the schema, so older code still runs on it. What no code needs any more is removed
later, by the scripts of `nova_lite.db.migrations.contracts` (ADR 23).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import pkgutil
import re
from collections.abc import Iterator, Sequence
from importlib.machinery import FileFinder
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy import exc

from nova_lite.base import exceptions, files
from nova_lite.db.core import engine, time_limit
from nova_lite.db.migrations import contracts, versions

if TYPE_CHECKING:
    from types import ModuleType

    from alembic.config import Config

SCRIPTS = "nova_lite.db:migrations"

#: The first migration: the schema of version 1.0.
BASE = "0001"

_REVISION = re.compile(r'^revision = "(\w+)"$', re.MULTILINE)
_FOLLOWS = re.compile(r'^down_revision = "(\w+)"$', re.MULTILINE)

#: Table with the schema's version, in which Alembic counts.
CURRENT = "schema_version"

#: Table with the newest migration of the oldest code that runs on the schema.
OLDEST = "schema_serves_from"

#: Table in which versions before 1.0 counted. Their rows are carried over by a backup.
_BEFORE_1_0 = "alembic_version"


class Schema(NamedTuple):
    """State of a schema. ``oldest``: the newest migration of the oldest code that runs on it."""

    version: str
    oldest: str


class Sync(NamedTuple):
    """Result of a migration. ``before``: the version until now; None if the database was empty."""

    before: str | None
    schema: Schema


def sync(conf: cfg.ConfigOpts) -> Sync:
    """Expand the database's schema to this program's. Repeating it is harmless.

    A missing SQLite file is created, readable by its owner only: it holds keys and user data. An empty database gets
    the schema without what is to be removed. A newer schema that serves this program stays as it is.
    """
    _prepare_sqlite(conf)
    database = engine.create_engine(conf)
    try:
        with database.connect() as connection:
            before = _read(connection)
            connection.rollback()
            if before is None or before.version in _known():
                with _tables_may_be_replaced(connection), connection.begin():
                    _upgrade(connection, before)
                    _check_references(connection)
            else:
                _require_served(before)
            after = _read(connection)
            assert after is not None
            return Sync(before and before.version, after)
    except exc.OperationalError as error:
        raise engine.unavailable(error) from error
    finally:
        database.dispose()


def _upgrade(connection: sa.Connection, before: Schema | None) -> None:
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    if before is None:
        _set(connection, OLDEST, BASE)
        _contract(connection, BASE)


def create(conf: cfg.ConfigOpts) -> None:
    """Make the tables of this program's schema in an empty database, without its history: for a cloud that is not kept.

    `sync` does the same in ten times as long.
    """
    from nova_lite.db.core.models import Base

    _prepare_sqlite(conf)
    database = engine.create_engine(conf)
    try:
        with database.connect() as connection, connection.begin():
            Base.metadata.create_all(connection)
            _set(connection, CURRENT, head())
            _set(connection, OLDEST, [BASE, *(script.serves_from for script in _contracts())][-1])
    finally:
        database.dispose()


def contract(conf: cfg.ConfigOpts) -> list[str]:
    """Remove what only code before this program needs, and return a line for each change.

    Raises `ConfigurationError` on another schema than this program's, or while a daemon has another version.
    """
    check_current(conf)
    database = engine.create_engine(conf)
    try:
        with database.connect() as connection, _tables_may_be_replaced(connection), connection.begin():
            found = _read(connection)
            assert found is not None
            done = _contract(connection, found.oldest)
            _check_references(connection)
            return done
    except exc.OperationalError as error:
        raise engine.unavailable(error) from error
    finally:
        database.dispose()


def _contract(connection: sa.Connection, oldest: str) -> list[str]:
    """Run what is pending. MariaDB commits each change at once, so a script has to bear being run again."""
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext

    done = []
    for script in _pending(oldest):
        with Operations.context(MigrationContext.configure(connection)):
            script.upgrade()
        _set(connection, OLDEST, script.serves_from)
        done.append(_title(script))
    return done


def pending(schema: Schema) -> list[str]:
    """Return a line for each change that `contract` would make."""
    return [_title(script) for script in _pending(schema.oldest)]


def _pending(oldest: str) -> list[ModuleType]:
    """Return the contracting scripts that were not run. A newer program may have run all that this one knows."""
    order = _order()
    if oldest not in order:
        return []
    return [script for script in _contracts() if order.index(script.serves_from) > order.index(oldest)]


def _title(script: ModuleType) -> str:
    return (script.__doc__ or script.__name__).strip().splitlines()[0]


def _contracts() -> list[ModuleType]:
    """Return the contracting scripts, the first first. ``serves_from`` of each is the oldest code that it leaves."""
    order = _order()
    modules = [
        importlib.import_module(f"{contracts.__name__}.{found.name}")
        for found in pkgutil.iter_modules(contracts.__path__)
    ]
    return sorted(modules, key=lambda module: order.index(module.serves_from))


@contextlib.contextmanager
def _tables_may_be_replaced(connection: sa.Connection) -> Iterator[None]:
    """Suspend SQLite's foreign keys. SQLite changes most of a table by recreating it, which references prevent, and
    they cannot be suspended within a transaction.
    """
    raw = connection.connection.driver_connection
    if connection.dialect.name != "sqlite" or raw is None:
        yield
        return
    raw.execute("PRAGMA foreign_keys=OFF")
    try:
        yield
    finally:
        raw.execute("PRAGMA foreign_keys=ON")


def _check_references(connection: sa.Connection) -> None:
    """Raise an error if a row has a dangling reference, so that nothing is committed."""
    if connection.dialect.name != "sqlite":
        return
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if broken is not None:
        raise exceptions.ConfigurationError(
            reason=f"the schema is left as it was: row {broken[1]} of {broken[0]} refers to a row of {broken[2]} that "
            "is not there. Restore a backup, or remove that row."
        )


# A conductor's check at startup avoids Alembic, which would double its duration.


def head() -> str:
    """Return the version that this program needs: no script follows it."""
    return _order()[-1]


def _known() -> set[str]:
    """Return the versions that this program knows."""
    return set(_order())


@functools.cache
def _order() -> Sequence[str]:
    """Return the versions that this program knows, oldest first. Their numbers need not be in order."""
    next_of: dict[str | None, str] = {}
    for module in pkgutil.iter_modules(versions.__path__):
        assert isinstance(module.module_finder, FileFinder)
        with open(os.path.join(module.module_finder.path, f"{module.name}.py"), encoding="utf-8") as script:
            text = script.read()
        found, follows = _REVISION.search(text), _FOLLOWS.search(text)
        assert found, module.name
        next_of[follows and follows[1]] = found[1]
    order, last = [], next_of.get(None)
    while last is not None:
        order.append(last)
        last = next_of.get(last)
    return order


def state(conf: cfg.ConfigOpts) -> Schema | None:
    """Return the state of the database's schema; None without our tables. Waits for no writer."""
    path = sqlite_path(conf)
    try:
        is_missing = path is not None and not files.exists(path)
    except OSError as error:
        raise exceptions.ConfigurationError(reason=f"the database {path}: {error.strerror}") from error
    if is_missing:
        return None
    database = engine.create_engine(conf)
    try:
        with database.connect().execution_options(**{time_limit.READ_ONLY: True}) as connection:
            return _read(connection)
    except exc.OperationalError as error:
        raise engine.unavailable(error) from error
    finally:
        database.dispose()


def version(conf: cfg.ConfigOpts) -> str | None:
    """Return the database's version; None without our tables."""
    found = state(conf)
    return found and found.version


def check(conf: cfg.ConfigOpts) -> Schema:
    """Return the schema's state. Raises `ConfigurationError` unless this program runs on it.

    A newer schema may still serve this program.
    """
    found = state(conf)
    if found is None or is_older(found):
        text = "is empty" if found is None else f"has the old schema {found.version}"
        raise exceptions.ConfigurationError(reason=f"the database {text}: run nova-lite-manage db sync")
    _require_served(found)
    return found


def is_older(found: Schema) -> bool:
    """Check whether `sync` has to expand the schema for this program."""
    return found.version in _known() and found.version != head()


def check_current(conf: cfg.ConfigOpts) -> Schema:
    """Return the schema's state. Raises `ConfigurationError` unless its version is this program's."""
    found = check(conf)
    if found.version != head():
        raise exceptions.ConfigurationError(
            reason=f"the database's schema ({found.version}) is newer than this program's ({head()}): use the program "
            "of the newer version."
        )
    return found


def _require_served(found: Schema) -> None:
    if found.oldest not in _known():
        raise exceptions.ConfigurationError(
            reason=f"the database's schema ({found.version}) is newer than this program's ({head()}), and serves "
            f"programs from {found.oldest} on: upgrade the program."
        )


def _read(connection: sa.Connection) -> Schema | None:
    current, oldest = _value(connection, CURRENT), _value(connection, OLDEST)
    if _value(connection, _BEFORE_1_0) is not None:
        raise exceptions.ConfigurationError(
            reason='the database is of a version before 1.0. The page "Upgrade" says how to carry it over.'
        )
    return None if current is None or oldest is None else Schema(current, oldest)


def _value(connection: sa.Connection, name: str) -> str | None:
    if not sa.inspect(connection).has_table(name):
        return None
    table = _table(name)
    return connection.scalar(sa.select(table.c.version_num))


def _set(connection: sa.Connection, name: str, value: str) -> None:
    """Make a table's only row."""
    table = _table(name)
    table.create(connection, checkfirst=True)
    if not connection.execute(sa.update(table).values(version_num=value)).rowcount:
        connection.execute(sa.insert(table).values(version_num=value))


def _table(name: str) -> sa.Table:
    return sa.Table(name, sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True))


def _config() -> Config:
    """Return Alembic's configuration. It is built here, so that an installed package needs no file for it."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", os.pathsep.join(versions.__path__))
    return config


def sqlite_path(conf: cfg.ConfigOpts) -> str | None:
    """Return the file of the database, if it is of SQLite."""
    try:
        url = sa.make_url(conf.database.connection)
    except exc.ArgumentError:
        return None
    return url.database if url.get_backend_name() == "sqlite" else None


def _prepare_sqlite(conf: cfg.ConfigOpts) -> None:
    """Make the file. If root makes it, it belongs to the owner of its directory: the conductor has to write it."""
    path = sqlite_path(conf)
    if not path or os.path.exists(path):
        return
    directory = os.path.dirname(os.path.abspath(path))
    try:
        os.makedirs(directory, mode=0o750, exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            if os.geteuid() == 0:
                owner = os.stat(directory)
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise exceptions.ConfigurationError(reason=f"the database file {path} cannot be made: {error}") from error

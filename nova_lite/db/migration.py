"""The schema's version: migrate the database, or report that a migration is needed."""

from __future__ import annotations

import contextlib
import functools
import os
import pkgutil
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy import exc

from nova_lite.base import exceptions
from nova_lite.db import engine
from nova_lite.db.migrations import versions

if TYPE_CHECKING:
    from alembic.config import Config

SCRIPTS = "nova_lite.db:migrations"

_FOLLOWS = re.compile(r'^down_revision = "(\w+)"$', re.MULTILINE)

#: Table in which Alembic keeps the schema's version.
_VERSION = sa.table("alembic_version", sa.column("version_num"))

#: Query of the schema's version, for a database that has one.
SELECT_VERSION = sa.select(_VERSION.c.version_num)


def sync(conf: cfg.ConfigOpts) -> str:
    """Migrate the database to this program's schema and return its version. Repeating it is harmless.

    A missing SQLite file is created, readable by its owner only: it holds keys and user data.
    """
    from alembic import command

    _prepare_sqlite(conf)
    database = engine.create_engine(conf)
    config = _config()
    try:
        with database.connect() as connection, _tables_may_be_replaced(connection), connection.begin():
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            _check_references(connection)
    except exc.OperationalError as error:
        raise engine.unavailable(error) from error
    finally:
        database.dispose()
    return head()


def create(conf: cfg.ConfigOpts) -> None:
    """Make the tables of this program's schema in an empty database, without its history: for a cloud that is not kept.

    `sync` does the same in ten times as long.
    """
    from nova_lite.db.models import Base

    _prepare_sqlite(conf)
    database = engine.create_engine(conf)
    try:
        with database.connect() as connection, connection.begin():
            Base.metadata.create_all(connection)
            connection.execute(sa.text(f"CREATE TABLE {_VERSION.name} (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"))
            connection.execute(sa.insert(_VERSION).values(version_num=head()))
    finally:
        database.dispose()


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
    before = _before()
    (last,) = before.keys() - set(before.values())
    return last


def _known() -> set[str]:
    """Return the versions that this program knows."""
    return set(_before())


@functools.cache
def _before() -> dict[str, str | None]:
    """Return each script's version with the version that it follows. Numbers need not be in the order of scripts."""
    found: dict[str, str | None] = {}
    for module in pkgutil.iter_modules(versions.__path__):
        text = pkgutil.get_data(versions.__name__, f"{module.name}.py") or b""
        follows = _FOLLOWS.search(text.decode())
        found[module.name.partition("_")[0]] = follows and follows[1]
    return found


def version(conf: cfg.ConfigOpts) -> str | None:
    """Return the database's version; None without our tables."""
    path = _sqlite_path(conf)
    if path is not None and not os.path.exists(path):
        return None
    database = engine.create_engine(conf)
    try:
        with database.connect() as connection:
            if not sa.inspect(connection).has_table(_VERSION.name):
                return None
            return connection.scalar(SELECT_VERSION)
    except exc.OperationalError as error:
        raise engine.unavailable(error) from error
    finally:
        database.dispose()


def check(conf: cfg.ConfigOpts) -> None:
    """Raise `ConfigurationError` unless the schema is exactly the version that this program needs."""
    found, needed = version(conf), head()
    if found == needed:
        return
    if found is not None and found not in _known():
        raise exceptions.ConfigurationError(
            reason=f"the database's schema ({found}) is newer than this program's ({needed}): upgrade the program."
        )
    state = "is empty" if found is None else f"has the old schema {found}"
    raise exceptions.ConfigurationError(reason=f"the database {state}: run nova-lite-manage db sync")


def _config() -> Config:
    """Return Alembic's configuration. It is built here, so that an installed package needs no file for it."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    config.set_main_option("path_separator", "os")
    return config


def _sqlite_path(conf: cfg.ConfigOpts) -> str | None:
    try:
        url = sa.make_url(conf.database.connection)
    except exc.ArgumentError:
        return None
    return url.database if url.get_backend_name() == "sqlite" else None


def _prepare_sqlite(conf: cfg.ConfigOpts) -> None:
    path = _sqlite_path(conf)
    if not path or os.path.exists(path):
        return
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o750, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise exceptions.ConfigurationError(reason=f"the database file {path} cannot be made: {error}") from error

"""Databases with the real schema, for tests that are not about migrations."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import threading
from pathlib import Path

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.db.migrations import schema
from tests.support import make

#: Alembic keeps its context in module globals.
_MIGRATING = threading.Lock()


def migrate(conf: cfg.ConfigOpts) -> None:
    """Do what `schema.sync` does. A new SQLite file is a copy of a file that all migrations made, once per process.

    Dozens of migrations take a second each time.
    """
    url = sa.make_url(conf.database.connection)
    with _MIGRATING:
        if url.get_backend_name() != "sqlite" or not url.database or os.path.exists(url.database):
            schema.sync(conf)
        else:
            shutil.copy(_template(), url.database)  # and its mode


@functools.cache
def _template() -> Path:
    directory = tempfile.mkdtemp(prefix="nova-lite-schema-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = Path(directory, "db.sqlite")
    schema.sync(make.conf(f"sqlite:///{path}"))
    return path

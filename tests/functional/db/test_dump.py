"""Dumps of each kind of database: all rows come back exactly, in another kind of database too."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.db.core.engine import Database, utcnow
from nova_lite.db.core.models import Base, Service
from nova_lite.db.migrations import schema
from nova_lite.db.upkeep import dump
from tests.support import every_row, make


@pytest.fixture
def other(tmp_path: Path) -> Iterator[cfg.ConfigOpts]:
    conf = make.conf(f"sqlite:///{tmp_path}/other.sqlite", tmp_path)
    schema.sync(conf)
    yield conf


def dumped(conf: cfg.ConfigOpts) -> tuple[dict[str, str], dict[str, int]]:
    with dump.snapshot(conf) as connection:
        tables = {table.name: "\n".join(dump.lines(connection, table)) for table in dump.tables()}
        return tables, dump.counters(connection)


def restored(conf: cfg.ConfigOpts, tables: dict[str, str], counters: dict[str, int]) -> None:
    with dump.writing(conf) as connection:
        dump.set_counters(connection, counters)
    with dump.writing(conf) as connection:
        dump.clear(connection)
        for table in dump.tables():
            dump.load(connection, table, io.StringIO(tables[table.name]))


def test_every_value_of_every_table_survives_a_dump_into_another_kind_and_back(
    db: Database, other: cfg.ConfigOpts
) -> None:
    with db.engine.begin() as connection:
        every_row.fill(connection)
    first, counters = dumped(db.conf)
    assert all(text.count("\n") == 2 for text in first.values())
    restored(other, first, counters)
    assert dumped(other)[0] == first
    restored(db.conf, *dumped(other))
    assert dumped(db.conf)[0] == first


def test_dump_sees_one_moment_while_others_write(db: Database) -> None:
    with dump.snapshot(db.conf) as connection:
        before = list(dump.lines(connection, Base.metadata.tables["quota_limits"]))
        with db.engine.begin() as writer:
            every_row.fill(writer)
        after = {table.name: list(dump.lines(connection, table)) for table in dump.tables()}
    assert after["quota_limits"] == before
    assert all(len(lines) == 1 for lines in after.values())


def test_ids_of_rows_that_are_gone_do_not_return_after_a_restore(db: Database, other: cfg.ConfigOpts) -> None:
    def add(connection: sa.Connection, host: str) -> int:
        values = {"uuid": host, "host": host, "binary": "b", "topic": "t", "created_at": utcnow()}
        return int(connection.execute(sa.insert(Service).values(values)).inserted_primary_key[0])

    with db.engine.begin() as connection:
        last = [add(connection, host) for host in ("a", "b", "c")][-1]
        connection.execute(sa.delete(Service))
    restored(other, *dumped(db.conf))
    with dump.writing(other) as connection:
        assert add(connection, "d") == last + 1
        connection.execute(sa.delete(Service))
    restored(db.conf, *dumped(other))
    with db.engine.begin() as connection:
        assert add(connection, "e") == last + 2


def test_dump_that_lacks_a_column_is_loaded_only_as_one_of_an_older_version(db: Database) -> None:
    table = Base.metadata.tables["volumes"]
    with db.engine.begin() as connection:
        every_row.fill(connection)
    names, row = (json.loads(line) for line in dumped(db.conf)[0]["volumes"].splitlines()[:2])
    place = names.index("multiattach")
    text = [json.dumps([*line[:place], *line[place + 1 :]]) for line in (names, row)]
    with db.engine.begin() as connection:
        dump.clear(connection)
        with pytest.raises(ValueError, match="the columns of volumes differ"):
            dump.load(connection, table, text)
        with pytest.raises(ValueError, match="the columns of volumes differ"):
            dump.load(connection, table, ['["id", "nosuch"]'], is_older=True)
        assert dump.load(connection, table, text, is_older=True) == 1
        assert connection.execute(sa.select(table.c.multiattach)).scalars().all() == [False]

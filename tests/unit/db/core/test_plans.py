"""Queries that clients repeat use an index, whatever the number of old rows: SQLite's plans."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.servers import instance_filters, instances, usage
from nova_lite.db.upkeep import purge
from nova_lite.objects import InstanceFilters
from tests.support import make

DAY = datetime.timedelta(days=1)


@contextlib.contextmanager
def plans(db: Database) -> Iterator[list[str]]:
    """SQLite's plan of each SELECT inside, one line a step."""
    found: list[str] = []

    def look(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT"):
            explain = connection.connection.driver_connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            found.extend(row[3] for row in explain)

    sa.event.listen(db.engine, "before_cursor_execute", look)
    try:
        yield found
    finally:
        sa.event.remove(db.engine, "before_cursor_execute", look)


def many(uow: UnitOfWork) -> None:
    """Enough that a plan matters: 300 that were deleted long ago, 20 that live."""
    for number in range(320):
        gone = number >= 20
        then = uow.now - 100 * DAY if gone else uow.now - DAY
        uuid = make.instance(
            uow,
            project_id=f"p{number % 3}",
            created_at=then,
            updated_at=then if number % 2 else None,
            launched_at=then,
            deleted=gone,
            terminated_at=then if gone else None,
        )
        make.action(uow, uuid, finish_time=then)
    uow.session.flush()
    uow.session.execute(sa.text("ANALYZE"))


QUESTIONS: dict[str, Callable[[UnitOfWork], object]] = {
    "changes, of a project": lambda uow: instances.list_(
        uow, make.context("p1"), InstanceFilters(changes_since=uow.now - DAY), limit=1000
    ),
    "changes, of all": lambda uow: instances.list_(
        uow, make.ADMIN, InstanceFilters(changes_since=uow.now - DAY), limit=1000
    ),
    "usage, of a project": lambda uow: usage.list_(uow, make.ADMIN, "p1", uow.now - 2 * DAY, uow.now, 1000),
    "usage, of all": lambda uow: usage.list_(uow, make.ADMIN, None, uow.now - 2 * DAY, uow.now, 1000),
    "purge": lambda uow: [take(uow, uow.now - 200 * DAY, 10, None, True) for take in purge.TAKES],
}


@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize("question", QUESTIONS)
def test_no_table_is_scanned(db: Database, question: str, analysed: bool) -> None:
    if analysed:
        db.write(many)
        db.engine.dispose()
    with plans(db) as steps:
        db.read(QUESTIONS[question])
    assert any("instances" in step or "migrations" in step for step in steps)
    scans = [step for step in steps if step.startswith("SCAN") and "CONSTANT ROW" not in step]
    assert scans == []


@pytest.mark.parametrize(
    ("filters", "keys", "index"),
    [
        (InstanceFilters(flavorid="1"), None, "flavorid_deleted_created_at"),
        (InstanceFilters(user_id="u1"), None, "user_id_deleted_created_at"),
        (InstanceFilters(key_name="k"), None, "key_name_deleted_created_at"),
        (InstanceFilters(availability_zone="az"), None, "availability_zone_deleted_created_at"),
        (InstanceFilters(task_states=["spawning"]), None, "task_state_deleted_created_at"),
        (InstanceFilters(), ["display_name"], "deleted_display_name_id"),
    ],
)
def test_lists_of_all_projects_are_read_in_order_by_an_index(
    db: Database, filters: InstanceFilters, keys: list[str] | None, index: str
) -> None:
    with plans(db) as steps:
        db.read(instances.list_, make.ADMIN, filters, 10, None, keys)
    assert any(f"USING INDEX ix_instances_{index}" in step for step in steps), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps


@pytest.mark.parametrize("has_other", [False, True])
def test_name_that_few_servers_have_is_found_in_the_index_of_names(db: Database, has_other: bool) -> None:
    filters = InstanceFilters(name="^a.c", host="h1" if has_other else None)
    uuid = db.write(make.instance, display_name="abcd", host="h1")
    db.write(make.instance, display_name="abcd", host="h1", deleted=True)
    db.write(make.instance, display_name="bcd", host="h1")
    with plans(db) as steps:
        found = db.read(instances.list_, make.ADMIN, filters, 10)
    assert [item.uuid for item in found] == [uuid]
    named = [step for step in steps if "USING COVERING INDEX ix_instances_deleted_display_name_id" in step]
    by_id = [step for step in steps if "instances USING INTEGER PRIMARY KEY" in step]
    assert (len(named), len(by_id)) == ((0, 0) if has_other else (1, 1)), steps


def test_name_that_many_servers_have_is_listed_in_the_order_of_the_page(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_filters, "_RARE", 1)
    uuids = [db.write(make.instance, display_name="abc") for _ in range(3)]
    with plans(db) as steps:
        found = db.read(instances.list_, make.ADMIN, InstanceFilters(name="b"), 2)
    assert [item.uuid for item in found] == uuids[:0:-1]
    assert any("USING INDEX ix_instances_deleted_created_at" in step for step in steps), steps

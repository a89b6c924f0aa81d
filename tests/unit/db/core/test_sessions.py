"""Sessions write a server and its action by plans, with the statements and rows of SQLAlchemy's own session."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy import orm

from nova_lite.db.core import actions, server_changes, sessions
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import Base, Instance, InstanceAction, InstanceTag
from nova_lite.db.servers import instances
from tests.support import make
from tests.support.statements import Counted, counting

ADMIN = make.context(admin=True)
TIME = datetime.datetime(2026, 11, 30, 12)


@pytest.fixture(params=[True, False], ids=["plans", "sqlalchemy"])
def is_planned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether sessions use plans. Without them, all writes are SQLAlchemy's."""
    if not request.param:
        monkeypatch.setattr(sessions.Session, "_are_planned", lambda *_: False)
    return bool(request.param)


def columns(row: Base) -> dict[str, Any]:
    return {column.key: getattr(row, column.key) for column in sa.inspect(type(row)).column_attrs}


def stored(db: Database, model: type[Base]) -> list[dict[str, Any]]:
    return db.read(lambda uow: [columns(row) for row in uow.session.scalars(sa.select(model).order_by(model.id))])


def changing(db: Database, change: Callable[[Instance], None]) -> Counted:
    """Count the statements of a change of the only server."""

    def write(uow: UnitOfWork) -> None:
        change(instances.get_row(uow, ADMIN, uow.rows(sa.select(Instance.uuid)).scalar_one(), lock=True))

    with counting() as counted:
        db.write(write)
    return counted


def updates(counted: Counted) -> list[str]:
    return [statement.split(" WHERE")[0] for statement in counted.statements if statement.startswith("UPDATE")]


def new_instance(**values: Any) -> Instance:
    texts = ("project_id", "user_id", "display_name", "hostname", "reservation_id", "vm_state", "flavorid")
    numbers = dict.fromkeys(("vcpus", "memory_mb", "disk_gb"), 1)
    return Instance(uuid="u" * 36, flavor={"a": 1}, created_at=TIME, **dict.fromkeys(texts, "x"), **numbers, **values)


# --- inserts


@pytest.mark.parametrize(
    "values", [{}, {"tags": []}, {"image": None, "boot_images": None}, {"metadata_": {"a": "b"}, "launch_index": 7}]
)
def test_new_server_and_its_action_are_those_of_sqlalchemy(
    db: Database, conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]
) -> None:
    found, context = [], make.context()

    def create(uow: UnitOfWork) -> tuple[dict[str, Any], ...]:
        uow._now = TIME
        row = new_instance(**values)
        uow.session.add(row)
        uow.session.flush()
        action = actions.open_action(uow, conf, context, row, "create", {})
        uow.session.flush()
        assert not uow.session.new and not uow.session.dirty and row in uow.session
        assert uow.session.get(Instance, row.id) is row
        return columns(row), columns(action)

    for is_planned in (True, False):
        with monkeypatch.context() as patched:
            if not is_planned:
                patched.setattr(sessions.Session, "_are_planned", lambda *_: False)
            in_session = db.write(create)
        rows = [[{**row, "id": 0} for row in stored(db, model)] for model in (Instance, InstanceAction)]
        assert [{**row, "id": 0} for row in in_session] == [rows[0][0], rows[1][0]]
        null = db.read(lambda uow: uow.rows(sa.select(Instance.id).where(Instance.boot_images.is_(sa.null()))).all())
        found.append((rows, len(null)))
        db.write(lambda uow: [uow.change(sa.delete(model)) for model in (Instance, InstanceAction)])
    assert found[0] == found[1]


def test_ids_of_new_rows_grow(db: Database, is_planned: bool) -> None:
    for number in range(3):
        db.write(make.instance, uuid=str(number) * 36)
    ids = [row["id"] for row in stored(db, Instance)]
    assert len(set(ids)) == 3 and ids == sorted(ids)


def test_new_server_with_tags_has_them(db: Database, is_planned: bool) -> None:
    db.write(lambda uow: uow.session.add(new_instance(tags=[InstanceTag(tag="a"), InstanceTag(tag="b")])))
    assert [row.tag for row in db.read(lambda uow: uow.session.scalars(sa.select(InstanceTag)).all())] == ["a", "b"]


def test_new_rows_of_one_kind_are_written_together(db: Database) -> None:
    def create(uow: UnitOfWork) -> None:
        for number in range(3):
            row = new_instance()
            row.uuid = str(number) * 36
            uow.session.add(row)

    db.write(lambda uow: uow.now)
    with counting() as counted:
        db.write(create)
    inserts = [statement for statement in counted.statements if statement.startswith("INSERT")]
    assert len(inserts) == (3 if db.is_sqlite else 1)  # SQLite's are never one statement


# --- updates


def test_changed_columns_alone_are_written(db: Database, is_planned: bool) -> None:
    db.write(make.instance, host="h1", display_name="old", metadata_={"a": "b"}, fault={"code": 1})

    def change(row: Instance) -> None:
        row.display_name, row.host, row.metadata_ = "new", "h1", {"a": "b"}
        row.fault, row.locked = None, True

    (statement,) = updates(changing(db, change))
    assert set(re.findall(r"(\w+) ?= ?[%?]", statement)) == {"display_name", "fault", "locked"}
    (row,) = stored(db, Instance)
    assert (row["display_name"], row["host"], row["metadata_"], row["fault"], row["locked"]) == (
        "new", "h1", {"a": "b"}, None, True,
    )  # fmt: skip


def test_change_that_is_taken_back_writes_nothing(db: Database, is_planned: bool) -> None:
    db.write(make.instance, display_name="old")

    def change(row: Instance) -> None:
        row.display_name = "new"
        row.display_name = "old"

    assert updates(changing(db, change)) == []


def test_row_may_change_again_after_it_was_written(db: Database, is_planned: bool) -> None:
    db.write(make.instance, display_name="old")

    def change(row: Instance) -> None:
        session = orm.object_session(row)
        assert session is not None
        for name in ("first", "second"):
            row.display_name = name
            session.flush()
            assert not session.dirty

    assert len(updates(changing(db, change))) == 2
    assert stored(db, Instance)[0]["display_name"] == "second"


def test_change_of_tags_is_written(db: Database, is_planned: bool) -> None:
    db.write(make.instance, tag_names=["a"])
    changing(db, lambda row: row.tags.append(InstanceTag(tag="b")))
    tags = db.read(lambda uow: uow.session.scalars(sa.select(InstanceTag.tag)).all())
    assert sorted(tags) == ["a", "b"]


def test_row_that_is_gone_is_an_error(db: Database, is_planned: bool) -> None:
    db.write(make.instance)

    def write(uow: UnitOfWork) -> None:
        row = uow.session.scalars(sa.select(Instance)).one()
        uow.change(sa.delete(Instance))
        row.display_name = "new"

    with pytest.raises(orm.exc.StaleDataError):
        db.write(write)


def test_write_that_fails_leaves_nothing(db: Database, is_planned: bool) -> None:
    db.write(make.instance, display_name="old")

    def write(uow: UnitOfWork) -> None:
        uow.session.scalars(sa.select(Instance)).one().display_name = "new"
        uow.session.flush()
        raise KeyError

    with pytest.raises(KeyError):
        db.write(write)
    assert stored(db, Instance)[0]["display_name"] == "old"


def test_change_of_a_server_is_recorded_in_its_action_once(
    db: Database, conf: cfg.ConfigOpts, is_planned: bool
) -> None:
    server_changes.watch(db)
    uuid = db.write(make.instance, display_name="old", vm_state="active")

    def write(uow: UnitOfWork) -> None:
        row = instances.get_row(uow, ADMIN, uuid, lock=True)
        row.vm_state = "stopped"
        actions.open_action(uow, conf, make.context(), row, "stop", {})

    db.write(write)
    changing(db, lambda row: setattr(row, "display_name", "new"))
    (action,) = stored(db, InstanceAction)
    assert [change["was"] for change in action["changes"]] == [{"vm_state": "active"}, {"display_name": "old"}]

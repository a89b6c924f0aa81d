"""Prepared statements run on the driver's cursor. SQLAlchemy itself reads and makes the same."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from nova_lite.db.core import actions, models, plans
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.statements import insert_unless_taken
from nova_lite.db.servers import instances
from tests.support import make
from tests.support.statements import counting

_MISSING = sa.select(sa.table("missing", sa.column("id"))).where(sa.column("id") == sa.bindparam("id"))
_NAMED = sa.select(models.Instance.uuid, models.Instance.created_at, models.Instance.flavor).where(
    models.Instance.uuid.in_(sa.bindparam("uuids", expanding=True)), models.Instance.host == "h1"
)
_UNION = sa.union_all(_NAMED, _NAMED.where(models.Instance.deleted == sa.false()))
#: Parameters that SQLAlchemy converts: a time, and a path into JSON.
_CONVERTED = sa.select(models.Instance.flavor["name"].as_string(), models.Instance.created_at).where(
    models.Instance.created_at >= sa.bindparam("since"), models.Instance.flavor["vcpus"].as_integer() >= 0
)


@pytest.mark.parametrize("query", [instances._ALL, instances._ALL_WITHOUT_USER_DATA, instances._PARTS, _NAMED, _UNION])
@pytest.mark.parametrize("count", [1, 0, 3, 1])
def test_rows_are_those_of_sqlalchemy_for_each_length_of_a_list(db: Database, query: Any, count: int) -> None:
    uuids = [db.write(make.instance, host="h1", tag_names=["a", "b"][:number]) for number in range(3)]

    def compare(uow: UnitOfWork) -> None:
        assert uow._connection is not None
        for chosen in (uuids[:count], uuids[::-1][:count]):
            values = {"uuids": set(chosen)}
            found, expected = uow.rows(query, values), uow._connection.execute(query, {"uuids": chosen})
            assert list(found.keys()) == list(expected.keys())
            assert sorted(map(repr, found.all())) == sorted(map(repr, expected.all()))

    db.read(compare)


def test_parameters_are_converted_as_by_sqlalchemy(db: Database) -> None:
    db.write(make.instance, host="h1")
    created_at = db.read(lambda uow: uow.rows(sa.select(models.Instance.created_at)).scalar_one())
    for since, count in ((created_at, 1), (created_at + datetime.timedelta(microseconds=1), 0)):
        found = db.read(lambda uow, since: uow.rows(_CONVERTED, {"since": since}).all(), since)
        assert [row[1] for row in found] == [created_at] * count


def test_rows_have_the_names_of_their_columns(db: Database) -> None:
    uuid = db.write(make.instance, host="h1")
    row = db.read(lambda uow: uow.rows(_NAMED, {"uuids": [uuid]}).one())
    assert (row.uuid, row[2]["name"]) == (uuid, row.flavor["name"])


def test_query_sees_what_its_transaction_has_not_flushed(db: Database) -> None:
    uuid = db.write(make.instance, host="h1")

    def change(uow: UnitOfWork) -> str:
        instances.get_row(uow, make.context(admin=True), uuid).display_name = "new"
        found: str = uow.rows(instances._ONE, {"instance_uuid": uuid}).one().display_name
        return found

    assert db.write(change) == "new"


def test_query_is_compiled_once_and_counted_each_time(db: Database) -> None:
    values = {"uuids": ["a"]}
    with counting() as counted:
        for _ in range(3):
            db.read(lambda uow: uow.rows(_NAMED, values).all())
    assert len(counted.statements) == 3
    assert plans.plan(_NAMED, db.engine.dialect) is plans.plan(_NAMED, db.engine.dialect)


def test_error_of_the_driver_is_sqlalchemys_without_values(db: Database) -> None:
    with pytest.raises(exc.DBAPIError) as failed:
        db.read(lambda uow: uow.rows(_MISSING, {"id": 123456}))
    assert "missing" in str(failed.value) and "123456" not in str(failed.value)
    assert not failed.value.connection_invalidated


def test_connection_that_broke_is_replaced(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    uuid = db.write(make.instance, host="h1")
    with monkeypatch.context() as patched:
        patched.setattr(db.engine.dialect, "is_disconnect", lambda *_: True)
        with pytest.raises(exc.DBAPIError) as failed:
            db.read(lambda uow: uow.rows(_MISSING, {"id": 1}))
    assert failed.value.connection_invalidated
    assert db.read(lambda uow: uow.rows(_NAMED, {"uuids": [uuid]}).one().uuid) == uuid


# --- lists that are part of the statement


def test_list_in_the_statement_itself_is_kept(db: Database) -> None:
    uuid = db.write(make.instance, host="h1")
    query = sa.select(models.Instance.uuid).where(
        models.Instance.host.in_(["h1", "h2"]), models.Instance.uuid.in_(sa.bindparam("uuids", expanding=True))
    )
    for uuids in ([uuid], ["a", uuid, "b"], []):
        assert db.read(lambda uow, uuids: uow.rows(query, {"uuids": uuids}).all(), uuids) == [(uuid,)][: len(uuids)]


# --- rows of the ORM

_INSTANCE = sa.select(models.Instance).where(models.Instance.uuid == sa.bindparam("instance_uuid"))
_WITH_ACTION = (
    sa.select(models.Instance.uuid, models.Instance, models.InstanceAction)
    .outerjoin(models.InstanceAction, models.InstanceAction.instance_uuid == models.Instance.uuid)
    .where(models.Instance.uuid == sa.bindparam("instance_uuid"))
)


def columns(row: models.Base) -> dict[str, Any]:
    return {column.key: getattr(row, column.key) for column in sa.inspect(type(row)).column_attrs}


def test_rows_of_the_orm_are_those_of_sqlalchemy(db: Database, conf: Any) -> None:
    uuid = db.write(make.instance, host="h1", tag_names=["a"])

    def open_action(uow: UnitOfWork) -> None:
        row = instances.get_row(uow, make.context(admin=True), uuid)
        actions.open_action(uow, conf, make.context(), row, "stop", {"a": [1]})

    def read(uow: UnitOfWork, is_prepared: bool) -> list[dict[str, Any]]:
        values = {"instance_uuid": uuid}
        found = uow.found(_WITH_ACTION, values) if is_prepared else uow.session.execute(_WITH_ACTION, values).all()
        ((read_uuid, *rows),) = found
        assert read_uuid == uuid
        return [columns(row) for row in rows]

    db.write(open_action)
    prepared, expected = (db.read(read, is_prepared) for is_prepared in (True, False))
    assert prepared == expected
    assert prepared[1]["payload"] == {"a": [1]}


def test_row_of_an_outer_join_without_a_match_is_none(db: Database) -> None:
    uuid = db.write(make.instance, host="h1")
    ((_, instance, action),) = db.read(lambda uow: uow.found(_WITH_ACTION, {"instance_uuid": uuid}))
    assert (instance.uuid, action) == (uuid, None)


def test_changed_row_of_the_orm_is_written(db: Database) -> None:
    uuid = db.write(make.instance, host="h1")

    def rename(uow: UnitOfWork) -> None:
        ((row,),) = uow.found(_INSTANCE, {"instance_uuid": uuid})
        assert row not in uow.session.dirty
        row.display_name = "new"
        assert sa.inspect(row).attrs.display_name.history.deleted != ()

    db.write(rename)
    assert db.read(instances.get, make.context(admin=True), uuid).display_name == "new"


@pytest.mark.parametrize("refreshes", [False, True])
def test_row_that_the_session_has_is_refreshed_if_the_query_says_so(db: Database, refreshes: bool) -> None:
    uuid = db.write(make.instance, host="h1")
    query = _INSTANCE.execution_options(populate_existing=True) if refreshes else _INSTANCE

    def read_twice(uow: UnitOfWork) -> str:
        first = instances.get_row(uow, make.context(admin=True), uuid)
        uow.change(sa.update(models.Instance).values(display_name="changed"))
        ((row,),) = uow.found(query, {"instance_uuid": uuid})
        assert row is first
        name: str = row.display_name
        return name

    assert (db.write(read_twice) == "changed") is refreshes


def test_parts_of_a_row_are_read_at_their_use_and_again_after_a_refresh(db: Database) -> None:
    uuid = db.write(make.instance, host="h1", tag_names=["a"])
    query = _INSTANCE.execution_options(populate_existing=True)

    def read_twice(uow: UnitOfWork) -> list[list[str]]:
        found = []
        for _ in range(2):
            ((row,),) = uow.found(query, {"instance_uuid": uuid})
            found.append([tag.tag for tag in row.tags])
            uow.change(sa.update(models.InstanceTag).values(tag="b"))
        return found

    assert db.write(read_twice) == [["a"], ["b"]]


def test_model_whose_parts_are_joined_has_no_plan(db: Database) -> None:
    with pytest.raises(TypeError, match="ComputeNode has parts that its query joins"):
        plans.row_plan(sa.select(models.ComputeNode), db.engine.dialect)


# --- changes

_RENAME = sa.update(models.Instance).where(models.Instance.uuid.in_(sa.bindparam("uuids", expanding=True)))
_RENAME = _RENAME.values(display_name=sa.bindparam("new_name"))
_DELETE = sa.delete(models.Instance).where(models.Instance.host == sa.bindparam("of_host"))


def test_change_returns_the_number_of_matched_rows(db: Database) -> None:
    uuids = [db.write(make.instance, host="h1") for _ in range(3)]
    for chosen in (uuids[:2], uuids[:2], uuids[:1], []):  # the second one changes nothing
        assert db.write(UnitOfWork.change, _RENAME, {"uuids": chosen, "new_name": "new"}) == len(chosen)


def test_change_that_returns_columns_returns_them_converted(db: Database) -> None:
    uuid = db.write(make.instance, host="h1")
    statement = _DELETE.returning(models.Instance.uuid, models.Instance.flavor)
    ((deleted, flavor),) = db.write(lambda uow: uow.run(statement, {"of_host": "h1"}).all())
    assert (deleted, flavor["name"]) == (uuid, make.flavor().name)


def test_prepared_insert_fills_defaults_as_sqlalchemy_does(db: Database) -> None:
    values = {"uuid": "1" * 36, "host": "a", "binary": "nova-compute", "topic": "compute"}

    def insert(uow: UnitOfWork) -> list[dict[str, Any]]:
        time = uow.now
        assert insert_unless_taken(uow, models.Service, {**values, "created_at": time})
        assert not insert_unless_taken(uow, models.Service, {**values, "created_at": time})
        uow.session.add(models.Service(**{**values, "uuid": "2" * 36, "host": "b"}, created_at=time))
        uow.session.flush()
        uow.session.expire_all()
        query = sa.select(models.Service).order_by(models.Service.host)
        return [columns(row) for row in uow.session.scalars(query)]

    first, second = db.write(insert)
    own = {"id", "uuid", "host"}
    assert {name: first[name] for name in first.keys() - own} == {name: second[name] for name in second.keys() - own}

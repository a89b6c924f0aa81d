"""Prepared queries run on the driver's cursor, with the rows that SQLAlchemy reads."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from nova_lite.db.core import models, plans
from nova_lite.db.core.engine import Database, UnitOfWork
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

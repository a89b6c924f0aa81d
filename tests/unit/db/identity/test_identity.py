"""Records of the identity service: versions, and what their readers get."""

from __future__ import annotations

import pytest

from nova_lite.base import exceptions
from nova_lite.db.core.engine import Database
from nova_lite.db.identity import identity_records
from nova_lite.objects import IdentityRecord


def record(id: str, data: dict[str, object] | None = None, kind: str = "user") -> IdentityRecord:
    return IdentityRecord(kind=kind, id=id, data=data)


def read(db: Database, known: int = 0) -> tuple[int, bool, list[tuple[str, str, object]]]:
    found = db.read(identity_records.read, known)
    return found.version, found.complete, [(item.kind, item.id, item.data) for item in found.records]


def test_empty_database_has_version_0(db: Database) -> None:
    assert read(db) == (0, True, [])


def test_reader_gets_what_changed_since_its_version(db: Database) -> None:
    data = {"name": "ä", "seconds": 1795254862.25, "roles": {"p": ["member"]}, "none": None, "on": True}
    assert db.write(identity_records.change, 0, [record("a", data), record("b", {}), record("a", {}, "project")]) == 1
    assert read(db) == (1, True, [("user", "a", data), ("user", "b", {}), ("project", "a", {})])
    assert read(db, 1) == (1, False, [])
    assert db.write(identity_records.change, 1, [record("b", {"new": 1}), record("c", {})]) == 2
    assert read(db, 1) == (2, False, [("user", "b", {"new": 1}), ("user", "c", {})])
    assert [item[1] for item in read(db)[2]] == ["a", "b", "a", "c"]


def test_deleted_record_is_reported_to_readers_that_know_it(db: Database) -> None:
    db.write(identity_records.change, 0, [record("a", {}), record("b", {})])
    db.write(identity_records.change, 1, [record("a"), record("unknown")])
    assert read(db, 1) == (2, False, [("user", "a", None), ("user", "unknown", None)])
    assert read(db) == (2, True, [("user", "b", {})])
    db.write(identity_records.change, 2, [record("a", {"again": 1})])
    assert read(db, 2) == (3, False, [("user", "a", {"again": 1})])


def test_change_of_an_old_version_is_refused_as_a_whole(db: Database) -> None:
    db.write(identity_records.change, 0, [record("a", {})])
    for known in (0, 2):
        with pytest.raises(exceptions.IdentityChanged):
            db.write(identity_records.change, known, [record("b", {})])
    assert read(db) == (1, True, [("user", "a", {})])
    assert db.write(identity_records.change, None, [record("b", {})]) == 2


def test_deleted_records_are_forgotten_and_old_readers_get_everything(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity_records, "REMEMBERED", 3)
    db.write(identity_records.change, 0, [record("a", {}), record("b", {})])
    db.write(identity_records.change, 1, [record("a")])
    for version in range(2, 5):
        db.write(identity_records.change, version, [record("b", {"version": version})])
    assert read(db, 4) == (5, False, [("user", "b", {"version": 4})])
    assert read(db, 2) == (5, True, [("user", "b", {"version": 4})])
    with db.engine.connect() as connection:
        keys = [row[0] for row in connection.exec_driver_sql("SELECT id FROM identity_records")]
    assert len(keys) == 1


def test_reader_from_the_future_of_a_restored_database_gets_everything(db: Database) -> None:
    db.write(identity_records.change, 0, [record("a", {})])
    assert read(db, 7) == (1, True, [("user", "a", {})])


def test_more_records_than_a_statement_takes_are_stored(db: Database) -> None:
    many = [record(f"{number:04}", {"n": number}) for number in range(identity_records.IDS * 2 + 1)]
    db.write(identity_records.change, 0, many)
    db.write(identity_records.change, 1, [record(item.id, {"n": -1}) for item in many])
    assert {str(item[2]) for item in read(db)[2]} == {"{'n': -1}"}

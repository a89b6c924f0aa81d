"""Rows of the audit log: each event is stored once, lists read a page by an index, and old events are purged."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.db.core.engine import Database
from nova_lite.db.core.models import AuditEvent as Row
from nova_lite.db.upkeep import audit_events
from nova_lite.objects import AuditEvent, AuditQuery
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support import make
from tests.support.rows_read import reading

THEN = datetime.datetime(2026, 1, 1)
MANY, PAGE, MOST = 10_000, 5, 200


def event(number: int = 0, **fields: Any) -> AuditEvent:
    given: dict[str, Any] = {"service": "compute", "action": "create", "outcome": "success", "reason_code": 202}
    when = THEN + datetime.timedelta(seconds=number)
    return AuditEvent(**{"uuid": str(uuid.uuid4()), "event_time": when, **given, **fields})


def listed(db: Database, limit: int = 100, **query: Any) -> list[AuditEvent]:
    return db.read(audit_events.list_, AuditQuery(limit=limit, **query))


def test_audit_event_sent_twice_is_stored_once(conductor: ConductorRPC, db: Database) -> None:
    first = event(1, user_id="alice", target_id="vm")
    second = event(2, path="/v2.1/servers", agent="caf\u00e9 \U0001f600")
    conductor.audit_record(make.ADMIN, [first])
    conductor.audit_record(make.ADMIN, [first, second])
    assert conductor.audit_list(make.ADMIN, AuditQuery(limit=10)) == [second, first]


def test_audit_list_filters_are_exact(db: Database) -> None:
    db.write(
        audit_events.record_events,
        [
            event(0, user_id="alice", project_id="p1", target_id="a", action="delete"),
            event(1, user_id="Alice", project_id="p2", target_id="A", outcome="failure"),
        ],
    )
    for name, value in (("user_id", "alice"), ("project_id", "p1"), ("target_id", "a"), ("action", "delete")):
        assert [item.user_id for item in listed(db, filters={name: value})] == ["alice"], name
    assert [item.user_id for item in listed(db, filters={"outcome": "failure"})] == ["Alice"]
    assert listed(db, filters={"user_id": "alice", "outcome": "failure"}) == []
    with pytest.raises(exceptions.InvalidInput, match="no filter agent"):
        listed(db, filters={"agent": "x"})


def test_audit_list_times_include_since_and_exclude_until(db: Database) -> None:
    db.write(audit_events.record_events, [event(number) for number in range(4)])
    until = THEN + datetime.timedelta(seconds=3)
    since = THEN + datetime.timedelta(seconds=1)
    assert [item.event_time.second for item in listed(db, since=since, until=until)] == [2, 1]


def test_audit_list_pages_have_every_event_of_one_moment_once(db: Database) -> None:
    events = [event(0) for _ in range(7)]
    db.write(audit_events.record_events, events)
    seen: list[str] = []
    while page := listed(db, 3, marker=seen[-1] if seen else None):
        seen += [item.uuid for item in page]
    assert sorted(seen) == sorted(item.uuid for item in events)
    with pytest.raises(exceptions.MarkerNotFound):
        listed(db, marker=str(uuid.uuid4()))


@pytest.mark.parametrize(
    "filters",
    [{}, *({name: "rare"} for name in ("user_id", "project_id", "target_id", "action")), {"outcome": "failure"}],
    ids=str,
)
def test_audit_list_of_many_events_reads_a_page(db: Database, filters: dict[str, str]) -> None:
    def owner(number: int) -> str:
        return "rare" if number % 500 == 0 else f"u{number % 300}"

    rows = [
        {
            **dict.fromkeys(("request_id", "credential", "address", "agent", "target_type", "path", "observer"), ""),
            "uuid": str(uuid.uuid4()),
            "service": "compute",
            "reason_code": 202,
            "count": 1,
            "event_time": THEN + datetime.timedelta(seconds=number),
            **{name: owner(number) for name in ("user_id", "project_id", "target_id", "action")},
            "outcome": "failure" if number % 500 == 0 else "success",
        }
        for number in range(MANY)
    ]
    db.write(lambda uow: uow.session.execute(sa.insert(Row), rows))
    if db.engine.dialect.name == "postgresql":
        db.write(lambda uow: uow.session.execute(sa.text("ANALYZE audit_events")))
    first = listed(db, PAGE, filters=filters)
    with reading(db) as read:
        second = listed(db, PAGE, filters=filters, marker=first[-1].uuid)
        middle = listed(db, PAGE, filters=filters, until=THEN + datetime.timedelta(seconds=MANY // 2))
        if "outcome" in filters:
            others = listed(db, PAGE, filters={"outcome": "success"}, marker=middle[0].uuid)
            assert len(others) == PAGE
    assert len({item.uuid for item in (*first, *second, *middle)}) == 3 * PAGE
    assert second[0].event_time < first[-1].event_time
    assert read.count < MOST, f"{read.count} rows were read for {2 * PAGE}"


def test_audit_purge_deletes_old_events_in_batches(db: Database) -> None:
    db.write(audit_events.record_events, [event(number) for number in range(10)])
    before = THEN + datetime.timedelta(seconds=7)
    assert db.read(audit_events.count, before) == 7
    assert audit_events.purge(db, before, batch=3, wanted=iter([True, False]).__next__) == 3
    assert [item.event_time.second for item in listed(db)] == [9, 8, 7, 6, 5, 4, 3]
    assert audit_events.purge(db, before, batch=3) == 4
    assert [item.event_time.second for item in listed(db)] == [9, 8, 7]

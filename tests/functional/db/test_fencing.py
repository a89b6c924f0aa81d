"""Fencing records that a host may remove, and guests of a host, on each kind of database."""

from __future__ import annotations

from nova_lite.db import fencing, instances, models
from nova_lite.db.engine import Database, UnitOfWork
from nova_lite.objects import SettledRecords
from tests.support import make

UNKNOWN = "99999999-9999-4999-8999-999999999999"
PURGED = "88888888-8888-4888-8888-888888888888"


def closed(uow: UnitOfWork, instance_uuid: str) -> int:
    action = make.action(uow, instance_uuid, finish_time=uow.now, request_id=f"req-{instance_uuid}")
    return action.id


def test_settled_records_are_found(db: Database) -> None:
    def fill(uow: UnitOfWork) -> tuple[list[str], int]:
        uow.session.add(models.PurgedInstance(uuid=PURGED, purged_at=uow.now))
        uow.session.flush()
        gone = make.instance(uow, host="h1", deleted=True)
        elsewhere, here, busy, silent = (make.instance(uow, host=host) for host in ("h2", "h1", "h2", "h2"))
        last = max(closed(uow, uuid) for uuid in (gone, elsewhere, here, busy))
        last = max(last, make.action(uow, busy, request_id="req-open").id)
        return [gone, elsewhere, here, busy, silent], last

    (gone, elsewhere, *others), last = db.write(fill)
    asked = [gone, elsewhere, *others, UNKNOWN]
    assert db.read(fencing.settled, "h1", asked) == SettledRecords(
        instance_uuids=sorted([gone, elsewhere]), last_action_id=last
    )
    later = db.write(lambda uow: closed(uow, gone))
    found = db.read(fencing.settled, "h1", [gone, PURGED])
    assert (found.instance_uuids, found.last_action_id) == (sorted([gone, PURGED]), later)


def test_no_record_is_settled_in_an_empty_database(db: Database) -> None:
    assert db.read(fencing.settled, "h1", [UNKNOWN]) == SettledRecords()
    assert db.read(fencing.settled, "h1", []) == SettledRecords()


def test_guests_of_a_host_are_found(db: Database) -> None:
    here, there = (db.write(make.instance, host=host) for host in ("h1", "h2"))
    found = [db.read(instances.at_host, "h1", None, uuid) for uuid in (here, there)]
    assert [[item.uuid for item in items] for items in found] == [[here], []]
    assert db.read(instances.at_host, "h1", "10.0.0.2", None) == []

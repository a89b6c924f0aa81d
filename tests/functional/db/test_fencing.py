"""Fencing records that a host may remove, and guests of a host, on each kind of database."""

from __future__ import annotations

import pytest

from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import leases
from nova_lite.db.servers import fencing, instances
from nova_lite.objects import SettledRecords
from tests.support import make
from tests.support.statements import counting

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


def test_hosts_of_protected_servers_are_counted_without_a_read_of_the_others(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    always = {"ha:restart": "always"}

    def fill(uow: UnitOfWork) -> None:
        for number in range(12):
            make.instance(uow, host=f"h{number % 3}", metadata_={"role": "web"})
        make.instance(uow, host="h1", metadata_=always)
        make.instance(uow, host="h1", flavor=make.FLAVOR | {"extra_specs": always})
        make.instance(uow, host="h2", system_metadata={"image_ha_restart": "always"})
        make.instance(uow, host="h2", metadata_={"ha:restart": "never"}, flavor=make.FLAVOR | {"extra_specs": always})
        make.instance(uow, host="h0", metadata_=always, deleted=True)

    monkeypatch.setattr(leases, "_PAGE", 3)
    db.write(fill)
    with counting() as read:
        assert db.read(leases.hosts_of_protected, db.conf) == {"h1": 2, "h2": 1}
    pages = [statement for statement in read.statements if "FROM instances" in statement]
    assert len(pages) == 2, "four of sixteen servers have a setting"
    db.conf.set_override("protected_projects", ["p1"], "conductor")
    assert db.read(leases.hosts_of_protected, db.conf) == {"h0": 4, "h1": 6, "h2": 5}

"""Work of a reconciler sweep, on each kind of database."""

from __future__ import annotations

import datetime
import uuid

from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.upkeep import due
from nova_lite.operations import states
from tests.support import make


def test_due_work_is_found_and_other_work_is_not(db: Database) -> None:
    conf = db.conf
    conf.set_override("shelved_offload_time", 10)
    assert db.read(due.due_work, conf)[1:] == (0.0, *[False] * 9)
    shelved, soft_deleted = (db.write(make.instance) for _ in range(2))

    def pass_by(uow: UnitOfWork, seconds: float) -> None:
        then = uow.now - datetime.timedelta(seconds=seconds)
        rows = {row.uuid: row for row in uow.session.query(models.Instance)}
        rows[shelved].shelved_at, rows[shelved].vm_state, rows[shelved].task_state = then, states.SHELVED, None
        rows[soft_deleted].soft_deleted_at = then
        uow.session.merge(models.PendingAttach(instance_uuid=shelved, request_id="req-1", until=then))
        service = uow.session.query(models.Service).first() or models.Service(uuid=str(uuid.uuid4()), host="h1")
        service.binary, service.topic, service.version, service.up = "nova-compute", "compute", "1", True
        service.availability_zone, service.last_seen_up, service.created_at = "nova", then, then
        uow.session.add(service)

    db.write(pass_by, 5.0)
    seen = db.read(due.due_work, conf)
    assert (seen.silent, seen.shelved, seen.soft_deleted, seen.attaches) == (False, False, False, True)
    assert 5 <= seen.quiet < 100
    db.write(pass_by, 500.0)
    assert db.read(due.due_work, conf)[2:] == (True, True, False, False, False, False, True, False, False)
    conf.set_override("reclaim_instance_interval", 60)
    conf.set_override("shelved_offload_time", -1)
    assert db.read(due.due_work, conf)[2:] == (True, False, True, False, False, False, True, False, False)

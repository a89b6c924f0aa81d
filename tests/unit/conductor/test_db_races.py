"""Two transactions at a time: the one that waited does not act on what it read before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from oslo_config import cfg

from nova_lite import states
from nova_lite.conductor import domains
from nova_lite.conductor.db import claims, hosts, instances, models, services
from nova_lite.conductor.db.engine import Database, UnitOfWork
from nova_lite.objects import DomainReport, Selection
from nova_lite.states import PowerState
from tests.unit.conductor import make

#: Seconds for which the first transaction stays open when the second one waits for it, as it has to.
HELD = 1.0


def overlap(db: Database, first: Callable[[UnitOfWork], Any], second: Callable[[UnitOfWork], Any]) -> Any:
    """What ``second`` returns, which begins when ``first`` has written and not committed."""
    written, done = threading.Event(), threading.Event()

    def hold(uow: UnitOfWork) -> None:
        first(uow)
        uow.session.flush()
        written.set()
        done.wait(HELD)

    def follow() -> Any:
        assert written.wait(30)
        try:
            return db.write(second)
        finally:
            done.set()

    with ThreadPoolExecutor(2) as pool:
        held, followed = pool.submit(db.write, hold), pool.submit(follow)
        held.result(60)
        return followed.result(60)


def test_a_host_that_is_forced_down_meanwhile_gets_no_claim(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(hosts.record, conf, make.report())
    uuid = db.write(make.instance)
    (service,) = db.read(services.list_, "h1", services.COMPUTE)

    def claim(uow: UnitOfWork) -> bool:
        row = instances.lock(uow, uuid)
        assert row is not None
        return claims.claim(uow, row, Selection(host="h1", node="n1"))

    granted = overlap(db, lambda uow: services.update(uow, str(service.id), {"forced_down": True}), claim)
    assert granted is False
    (found,) = db.read(hosts.states)
    assert found.vcpus_used == 0


def test_a_task_that_began_meanwhile_is_not_overwritten(db: Database) -> None:
    """A host reports a guest that is off, while its delete is being accepted."""
    place = {"host": "h1", "node": "n1", "generation": 1, "last_generation": 1, "power_state": 1}
    uuid = db.write(make.instance, **place)

    def accept(uow: UnitOfWork) -> None:
        row = instances.lock(uow, uuid)
        assert row is not None
        row.task_state, row.updated_at = "deleting", uow.now

    report = DomainReport(uuid=uuid, generation=1, power_state=int(PowerState.SHUTDOWN))
    overlap(db, accept, lambda uow: domains.reconcile_domains(uow, "h1", [report], [], []))
    (row,) = db.read(lambda uow: uow.session.query(models.Instance).all())
    assert (row.vm_state, row.task_state, row.power_state) == (states.ACTIVE, "deleting", 1)

"""Two concurrent transactions: the waiting one does not act on stale reads."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.context import lock_action
from nova_lite.conductor.hosts import domains
from nova_lite.conductor.volume.backups import BackupEndpoints
from nova_lite.db.core import actions, models, quotas
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import hosts, services
from nova_lite.db.network import builtin_networks, port_quota, ports, security_groups
from nova_lite.db.servers import claims, instances
from nova_lite.db.volume import volume_backups
from nova_lite.objects import DomainReport, Port, SecurityGroupRule, Selection, VolumeBackup, VolumeVerb
from nova_lite.operations import states
from nova_lite.operations.states import PowerState
from tests.support import make
from tests.support.races import overlap
from tests.support.waiting import wait_for


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


def test_an_action_that_was_closed_meanwhile_is_over(db: Database) -> None:
    """Two reports of one order: what the second one waits for is read again, the instance and the action."""
    uuid = db.write(make.instance)
    action_id = db.write(lambda uow: make.action(uow, uuid, lease_owner="me").id)

    def close(uow: UnitOfWork) -> None:
        act = lock_action(uow, action_id)
        assert act is not None
        act.instance.vm_state = states.ERROR
        actions.finish(uow, act.action)

    def seen(uow: UnitOfWork) -> tuple[str, bool]:
        instance, action = actions.lock(uow, action_id, uuid) or (None, None)
        assert instance is not None
        assert actions.still_leased(uow, {action_id: uuid}, {action_id: "me"}, "schedule") == {}
        return instance.vm_state, action.finish_time is not None

    assert overlap(db, close, seen) == (states.ERROR, True)
    assert db.write(lock_action, action_id) is None


def test_an_instance_is_locked_before_its_action(db: Database) -> None:
    """Whoever accepts an operation holds the instance, and closes its actions then: the other way round would be a
    deadlock."""
    if db.is_sqlite:
        pytest.skip("one writer at a time")
    uuid = db.write(make.instance)
    action_id = db.write(lambda uow: make.action(uow, uuid).id)
    of_action = sa.select(models.InstanceAction.id).where(models.InstanceAction.id == action_id)
    of_instance = sa.select(models.Instance.id).where(models.Instance.uuid == uuid)

    def is_locked() -> bool:
        with db.sessions() as session:
            return session.scalars(of_instance.with_for_update(skip_locked=True)).first() is None

    for lock in (lambda uow: lock_action(uow, action_id), lambda uow: actions.lock(uow, action_id, uuid)):
        with ThreadPoolExecutor(1) as pool, db.sessions() as session:
            session.execute(of_action.with_for_update())
            waiting = pool.submit(db.write, lock)
            try:
                wait_for("the instance is locked", is_locked, 10)
            finally:
                session.rollback()
            assert waiting.result(30) is not None


def test_several_instances_are_locked_in_one_order_and_no_others(db: Database) -> None:
    """Rows are locked in the order of their uuids, whatever the order of their actions. The lock does not wait for
    other instances.
    """
    if db.is_sqlite:
        pytest.skip("one writer at a time")
    first, second, third, other = sorted(db.write(make.instance) for _ in range(4))
    asked = {db.write(lambda uow, uuid=uuid: make.action(uow, uuid).id): uuid for uuid in (third, second, first)}

    def free() -> list[str]:
        query = sa.select(models.Instance.uuid).order_by(models.Instance.uuid)
        with db.sessions() as session:
            return list(session.scalars(query.with_for_update(skip_locked=True)))

    held = sa.select(models.Instance.id).where(models.Instance.uuid.in_([second, other])).with_for_update()
    with ThreadPoolExecutor(1) as pool, db.sessions() as session:
        session.execute(held)
        waiting = pool.submit(db.write, lambda uow: sorted(actions.lock_all(uow, asked)))
        try:
            wait_for("only the third instance is free", lambda: free() == [third], 10)
        finally:
            session.rollback()
        session.execute(sa.select(models.Instance.id).where(models.Instance.uuid == other).with_for_update())
        assert waiting.result(30) == sorted(asked)


def test_a_task_that_began_meanwhile_is_not_overwritten(db: Database) -> None:
    """A host reports a guest that is off, while its delete is being accepted."""
    place = {"host": "h1", "node": "n1", "generation": 1, "last_generation": 1, "power_state": 1}
    uuid = db.write(make.instance, **place)

    def accept(uow: UnitOfWork) -> None:
        row = instances.lock(uow, uuid)
        assert row is not None
        row.task_state, row.updated_at = "deleting", uow.now

    report = DomainReport(uuid=uuid, generation=1, power_state=int(PowerState.SHUTDOWN))
    overlap(db, accept, lambda uow: domains.Comparison(uow, "h1", [report], []).verdicts([report], []))
    (row,) = db.read(lambda uow: uow.session.query(models.Instance).all())
    assert (row.vm_state, row.task_state, row.power_state) == (states.ACTIVE, "deleting", 1)


def test_backups_of_the_same_data_that_are_deleted_at_once_take_the_data(db: Database) -> None:
    """An import makes a second backup of the same data."""
    ids = [str(uuid.uuid4()) for _ in range(2)]
    for backup_id in ids:
        values = {"project_id": "p1", "volume_id": ids[0], "data_id": ids[0], "size": 1, "status": "available"}
        db.write(volume_backups.insert, VolumeBackup(id=backup_id, **values))
    accepted: list[tuple[VolumeVerb, str]] = []

    def accept(uow: UnitOfWork, context: RequestContext, verb: VolumeVerb, *_: Any, **payload: Any) -> None:
        accepted.append((verb, payload["data_id"]))

    endpoints = BackupEndpoints(SimpleNamespace(db=db), accept)  # type: ignore[arg-type]
    first, second = ((lambda uow, one=one: endpoints._delete_backup(uow, make.context(), one, False)) for one in ids)
    overlap(db, first, second)
    assert accepted == [(VolumeVerb.DELETE_BACKUP, ids[0])]


def test_two_concurrent_ports_at_the_last_free_place_become_one(db: Database, conf: cfg.ConfigOpts) -> None:
    network = db.write(builtin_networks.create, make.network())
    db.write(quotas.set_limit, "p1", "fixed_ips", 1)
    context = RequestContext(user_id="u1", project_id="p1", overwrite=False)

    def create(uow: UnitOfWork) -> Port:
        return ports.create(uow, conf, context, Port(id=str(uuid.uuid4()), network_id=network.id))

    with pytest.raises(exceptions.QuotaExceeded):
        overlap(db, create, create)
    assert db.read(port_quota.used, "p1") == 1


def test_two_concurrent_rules_of_two_groups_at_the_last_free_place_become_one(
    db: Database, conf: cfg.ConfigOpts
) -> None:
    conf.set_override("security_group_rules", 5, "quota")
    context = RequestContext(user_id="u1", project_id="p1", overwrite=False)
    groups = [db.write(security_groups.create, conf, context, name, None) for name in ("web", "db")]

    def add(group_id: str) -> Callable[[UnitOfWork], SecurityGroupRule]:
        rule = SecurityGroupRule(
            id="", security_group_id=group_id, direction="ingress", ethertype="IPv4", protocol="tcp"
        )
        return lambda uow: security_groups.add_rule(uow, conf, context, rule)

    with pytest.raises(exceptions.QuotaExceeded):
        overlap(db, *(add(group.id) for group in groups))
    assert db.read(security_groups.rules_of, "p1") == 5

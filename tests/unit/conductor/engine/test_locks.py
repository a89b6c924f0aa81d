"""Permission to lock and unlock an instance, and the actions written."""

from __future__ import annotations

import pytest

from nova_lite.base import exceptions
from nova_lite.db.core.engine import Database
from nova_lite.db.servers import action_log, instances
from nova_lite.objects import Instance, InstanceFilters
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support import make


def show(db: Database, uuid: str) -> Instance:
    return db.read(instances.get, make.ADMIN, uuid)


def kinds(db: Database, uuid: str) -> list[str]:
    return [action.action for action in db.read(action_log.list_, make.ADMIN, uuid)]


def test_lock_and_unlock_write_actions(conductor: ConductorRPC, db: Database) -> None:
    uuid = db.write(make.instance)
    context = make.context()
    conductor.instance_lock(context, uuid, "why")
    found = show(db, uuid)
    assert (found.locked, found.locked_by, found.locked_reason) == (True, "owner", "why")
    assert [item.uuid for item in db.read(instances.list_, context, InstanceFilters(locked=True))] == [uuid]
    action = db.read(action_log.get, context, uuid, context.request_id)
    assert (action.action, action.message, action.finish_time is not None) == ("lock", None, True)
    assert [(event.event, event.result) for event in action.events] == [("api_lock", "Success")]
    assert action.events[0].host, "who did it, as Nova tells"

    conductor.instance_lock(make.context(), uuid, "other words")
    assert show(db, uuid).locked_reason == "why"
    conductor.instance_unlock(make.context(), uuid, may_override=False)
    found = show(db, uuid)
    assert (found.locked, found.locked_by, found.locked_reason) == (False, None, None)
    assert kinds(db, uuid) == ["unlock", "lock"]


def test_owner_cannot_remove_an_admins_lock(conductor: ConductorRPC, db: Database) -> None:
    uuid = db.write(make.instance)
    conductor.instance_lock(make.ADMIN, uuid, None)
    assert show(db, uuid).locked_by == "admin"
    with pytest.raises(exceptions.PolicyNotAuthorized, match="unlock_override"):
        conductor.instance_unlock(make.context(), uuid, may_override=False)
    assert show(db, uuid).locked
    conductor.instance_unlock(make.context(), uuid, may_override=True)
    assert not show(db, uuid).locked


def test_repeated_lock_request_writes_one_action(conductor: ConductorRPC, db: Database) -> None:
    uuid = db.write(make.instance)
    once = make.context("admin", admin=True)
    conductor.instance_lock(once, uuid, "a")
    conductor.instance_lock(once, uuid, "a")
    assert kinds(db, uuid) == ["lock"]


def test_lock_of_another_projects_instance_is_not_found(conductor: ConductorRPC, db: Database) -> None:
    uuid = db.write(make.instance)
    with pytest.raises(exceptions.InstanceNotFound):
        conductor.instance_lock(make.context("p2"), uuid, None)
    with pytest.raises(exceptions.InstanceNotFound):
        conductor.instance_unlock(make.context("p2"), uuid, may_override=False)

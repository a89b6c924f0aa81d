"""Who may lock and unlock an instance, and what is written of it."""

from __future__ import annotations

import pytest
from oslo_config import cfg

from nova_lite import exception
from nova_lite.conductor.db import action_log, instances
from nova_lite.conductor.db.engine import Database
from nova_lite.conductor.endpoints.server_parts import ServerParts
from nova_lite.conductor.operations.engine import Engine
from nova_lite.network.driver import load_backend
from nova_lite.objects import Instance, InstanceFilters
from tests.unit.conductor import make


@pytest.fixture
def parts(db: Database, conf: cfg.ConfigOpts) -> ServerParts:
    return ServerParts(db, conf, Engine(db, conf, load_backend(conf), None))  # type: ignore[arg-type]


def show(parts: ServerParts, uuid: str) -> Instance:
    return parts.db.read(instances.get, make.ADMIN, uuid)


def kinds(parts: ServerParts, uuid: str) -> list[str]:
    return [action.action for action in parts.db.read(action_log.list_, make.ADMIN, uuid)]


def test_a_lock_and_its_actions(parts: ServerParts) -> None:
    uuid = parts.db.write(make.instance)
    context = make.context()
    parts.instance_lock(context, uuid, "why")
    found = show(parts, uuid)
    assert (found.locked, found.locked_by, found.locked_reason) == (True, "owner", "why")
    assert [item.uuid for item in parts.db.read(instances.list_, context, InstanceFilters(locked=True))] == [uuid]
    action = parts.db.read(action_log.get, context, uuid, context.request_id)
    assert (action.action, action.message, action.finish_time is not None) == ("lock", None, True)
    assert [(event.event, event.result) for event in action.events] == [("api_lock", "Success")]

    parts.instance_lock(make.context(), uuid, "other words")
    assert show(parts, uuid).locked_reason == "why"
    parts.instance_unlock(make.context(), uuid, may_override=False)
    found = show(parts, uuid)
    assert (found.locked, found.locked_by, found.locked_reason) == (False, None, None)
    assert kinds(parts, uuid) == ["unlock", "lock"]


def test_an_admins_lock_is_not_the_owners_to_open(parts: ServerParts) -> None:
    uuid = parts.db.write(make.instance)
    parts.instance_lock(make.ADMIN, uuid, None)
    assert show(parts, uuid).locked_by == "admin"
    with pytest.raises(exception.PolicyNotAuthorized, match="unlock_override"):
        parts.instance_unlock(make.context(), uuid, may_override=False)
    assert show(parts, uuid).locked
    parts.instance_unlock(make.context(), uuid, may_override=True)
    assert not show(parts, uuid).locked


def test_a_repeated_request_is_one_action(parts: ServerParts) -> None:
    uuid = parts.db.write(make.instance)
    once = make.context("admin", admin=True)
    parts.instance_lock(once, uuid, "a")
    parts.instance_lock(once, uuid, "a")
    assert kinds(parts, uuid) == ["lock"]


def test_another_projects_instance(parts: ServerParts) -> None:
    uuid = parts.db.write(make.instance)
    with pytest.raises(exception.InstanceNotFound):
        parts.instance_lock(make.context("p2"), uuid, None)
    with pytest.raises(exception.InstanceNotFound):
        parts.instance_unlock(make.context("p2"), uuid, may_override=False)

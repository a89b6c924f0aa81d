"""An admin sets an instance's state by hand: what that closes, and when it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from oslo_config import cfg

from nova_lite import exception, operations
from nova_lite.conductor.db import action_log, actions, instances
from nova_lite.conductor.db.engine import Database
from nova_lite.conductor.endpoints.server_parts import ServerParts
from nova_lite.conductor.operations.engine import Engine
from nova_lite.network.driver import load_backend
from nova_lite.objects import InstanceAction
from tests.unit.conductor import make


@pytest.fixture
def parts(db: Database, conf: cfg.ConfigOpts) -> ServerParts:
    return ServerParts(db, conf, Engine(db, conf, load_backend(conf), None))  # type: ignore[arg-type]


def log(parts: ServerParts, uuid: str) -> list[InstanceAction]:
    return parts.db.read(action_log.list_, make.ADMIN, uuid)


@pytest.mark.parametrize(("kind", "task"), [("stop", "powering-off"), ("evacuate", "powering-off"), ("none", None)])
def test_the_open_action_is_closed(parts: ServerParts, kind: str, task: str | None) -> None:
    uuid = parts.db.write(make.instance, task_state=task)
    if task is not None:
        parts.db.write(make.action, uuid, action=kind, step=operations.PERFORM)
    context = make.context("admin", admin=True)
    for _ in range(2):
        parts.instance_reset_state(context, uuid, "error")
    found = parts.db.read(instances.get, make.ADMIN, uuid)
    assert (found.vm_state, found.task_state) == ("error", None)
    reset, *closed = log(parts, uuid)
    assert (reset.action, reset.message, reset.finish_time is not None) == ("reset_state", None, True)
    assert [(action.action, action.message) for action in closed] == ([(kind, "Error")] if task else [])
    assert parts.db.read(actions.find_open, uuid) is None
    parts.instance_reset_state(make.ADMIN, uuid, "active")
    assert parts.db.read(instances.get, make.ADMIN, uuid).vm_state == "active"


@pytest.mark.parametrize(
    "values",
    [
        {"action": "create", "step": operations.SCHEDULE},
        {"action": "create", "step": operations.BUILD},
        {"action": "create", "step": operations.COMPENSATE},
        {"action": "evacuate", "step": operations.BUILD},
        {"action": "delete", "step": operations.PERFORM},
    ],
)
def test_what_has_to_end_by_itself(parts: ServerParts, values: dict[str, Any]) -> None:
    uuid = parts.db.write(make.instance, task_state="any")
    parts.db.write(make.action, uuid, **values)
    with pytest.raises(exception.InstanceInvalidState, match=f"unfinished action {values['action']}"):
        parts.instance_reset_state(make.ADMIN, uuid, "active")
    assert parts.db.read(instances.get, make.ADMIN, uuid).task_state == "any"
    assert [action.finish_time for action in log(parts, uuid)] == [None]


def test_another_projects_instance(parts: ServerParts) -> None:
    uuid = parts.db.write(make.instance)
    with pytest.raises(exception.InstanceNotFound):
        parts.instance_reset_state(make.context("p2"), uuid, "error")

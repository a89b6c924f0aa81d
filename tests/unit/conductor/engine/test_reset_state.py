"""An admin sets an instance's state by hand: what that closes, and when it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.db.core import actions
from nova_lite.db.core.engine import Database
from nova_lite.db.servers import action_log, instances
from nova_lite.objects import InstanceAction
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support import make


def log(db: Database, uuid: str) -> list[InstanceAction]:
    return db.read(action_log.list_, make.ADMIN, uuid)


@pytest.mark.parametrize(("kind", "task"), [("stop", "powering-off"), ("evacuate", "powering-off"), ("none", None)])
def test_reset_closes_the_open_action(conductor: ConductorRPC, db: Database, kind: str, task: str | None) -> None:
    uuid = db.write(make.instance, task_state=task)
    if task is not None:
        db.write(make.action, uuid, action=kind, step=operations.PERFORM)
    context = make.context("admin", admin=True)
    for _ in range(2):
        conductor.instance_reset_state(context, uuid, "error")
    found = db.read(instances.get, make.ADMIN, uuid)
    assert (found.vm_state, found.task_state) == ("error", None)
    reset, *closed = log(db, uuid)
    assert (reset.action, reset.message, reset.finish_time is not None) == ("reset_state", None, True)
    assert [(action.action, action.message) for action in closed] == ([(kind, "Error")] if task else [])
    assert db.read(actions.find_open, uuid) is None
    conductor.instance_reset_state(make.ADMIN, uuid, "active")
    assert db.read(instances.get, make.ADMIN, uuid).vm_state == "active"


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
def test_reset_is_refused_until_the_action_ends(conductor: ConductorRPC, db: Database, values: dict[str, Any]) -> None:
    uuid = db.write(make.instance, task_state="any")
    db.write(make.action, uuid, **values)
    with pytest.raises(exceptions.InstanceInvalidState, match=f"unfinished action {values['action']}"):
        conductor.instance_reset_state(make.ADMIN, uuid, "active")
    assert db.read(instances.get, make.ADMIN, uuid).task_state == "any"
    assert [action.finish_time for action in log(db, uuid)] == [None]


def test_reset_of_another_projects_instance(conductor: ConductorRPC, db: Database) -> None:
    uuid = db.write(make.instance)
    with pytest.raises(exceptions.InstanceNotFound):
        conductor.instance_reset_state(make.context("p2"), uuid, "error")

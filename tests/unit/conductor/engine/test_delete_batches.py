"""Deletes that are accepted together: each as if it were alone."""

from __future__ import annotations

from typing import Any

import pytest
from oslo_config import cfg

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.conductor.manager import ConductorManager
from nova_lite.db.core.engine import Database
from nova_lite.db.image import images
from nova_lite.objects import ActionCommand, BatchedDelete
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support import make
from tests.support.counted_cloud import create, finish, serve


@pytest.fixture
def uuids(
    db: Database, conf: cfg.ConfigOpts, bus: rpc.InProcess, manager: ConductorManager, conductor: ConductorRPC
) -> list[str]:
    cloud = serve(db, conf, bus, manager)
    image = db.write(images.create, make.image())
    found = [uuid for _ in range(3) for uuid in create(conductor, image)]
    while cloud.builds:
        finish(conductor, cloud.builds.pop())
    return found


def delete(conductor: ConductorRPC, *wanted: tuple[Any, str]) -> list[ActionCommand | None]:
    deletes = [BatchedDelete(context=context.to_rpc(), instance_uuid=uuid) for context, uuid in wanted]
    return conductor.delete_instances_batch(wanted[0][0], deletes)


def test_deletes_of_a_batch_get_the_commands_of_deletes_that_come_alone(
    conductor: ConductorRPC,
    uuids: list[str],
) -> None:
    alone = conductor.accept_action(make.context(), uuids[0], "delete", {})
    first, second = delete(conductor, (make.context(), uuids[1]), (make.context(), uuids[2]))
    assert first is not None and second is not None
    for command in (first, second):
        assert (command.method, command.host, command.sequence) == (alone.method, alone.host, alone.sequence)
        assert command.payload == alone.payload
    assert len({alone.action_id, first.action_id, second.action_id}) == 3
    assert conductor.instance_get(make.context(), uuids[1]).task_state == "deleting"


def test_refused_delete_of_a_batch_leaves_the_others_accepted(
    conductor: ConductorRPC,
    uuids: list[str],
) -> None:
    conductor.accept_action(make.context(), uuids[2], "lock", {"locked_reason": None})
    stranger = make.context("p2")
    replies = delete(
        conductor,
        (make.context(), "no-such-server"),
        (stranger, uuids[1]),
        (make.context(), uuids[0]),
        (make.context(), uuids[2]),
    )
    assert [reply and reply.instance.uuid for reply in replies] == [None, None, uuids[0], None]
    assert conductor.instance_get(make.context(), uuids[1]).task_state is None
    with pytest.raises(exceptions.InstanceIsLocked):
        conductor.accept_action(make.context(), uuids[2], "delete", {})


def test_repeated_batch_of_deletes_gets_the_same_commands(
    conductor: ConductorRPC,
    uuids: list[str],
) -> None:
    contexts = [make.context(), make.context()]
    wanted = list(zip(contexts, uuids, strict=False))
    first, again = delete(conductor, *wanted), delete(conductor, *wanted)
    assert [item and item.action_id for item in first] == [item and item.action_id for item in again]


def test_two_deletes_of_one_server_in_a_batch_share_an_action(
    conductor: ConductorRPC,
    uuids: list[str],
) -> None:
    one, other = delete(conductor, (make.context(), uuids[0]), (make.context(), uuids[0]))
    assert one is not None and other is not None
    assert one.action_id == other.action_id

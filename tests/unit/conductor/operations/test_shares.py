"""Shares in the conductor: whose they are, when a server gets one, and what a server with shares may not do."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.hosts import balance
from nova_lite.db.servers import shares
from nova_lite.hardware import traits
from nova_lite.objects import ActionCommand, ShareProtocol
from tests.support.server_moves import RUNNING, SHUTDOWN, Moving, force_down


@pytest.fixture
def world(tmp_path: Path) -> Moving:
    made = Moving(tmp_path)
    stop(made)
    return made


def stop(world: Moving) -> None:
    world.act("stop")
    world.answer(SHUTDOWN)


def start(world: Moving) -> None:
    world.act("start")
    world.answer(RUNNING)


def make(world: Moving, name: str = "data", project: str = "p1") -> str:
    return world.db.write(shares.create, name, project, ShareProtocol.NFS).id


def attach(world: Moving, share_id: str, tag: str = "data") -> ActionCommand:
    return world.act("attach_share", share_id=share_id, tag=tag)


def attached(world: Moving) -> str:
    share_id = make(world)
    attach(world, share_id)
    world.answer(SHUTDOWN)
    return share_id


def states_of(world: Moving) -> list[tuple[str, str]]:
    return [(mapping.tag, str(mapping.state)) for mapping in world.instance(world.uuid).shares]


def test_share_is_in_the_command_and_attached_with_the_report(world: Moving) -> None:
    share_id = make(world)
    command = attach(world, share_id)
    (mapping,) = command.instance.shares
    assert (mapping.share_id, mapping.location) == (share_id, "nfs/data")
    assert (command.method, world.row.task_state) == ("attach_share", "attaching_share")
    assert (mapping.status(False), states_of(world)) == ("attaching", [("data", "attaching")])
    world.answer(SHUTDOWN)
    (mapping,) = world.instance(world.uuid).shares
    assert (mapping.status(False), mapping.status(True)) == ("inactive", "active")
    assert world.state[:2] == ("stopped", None)
    world.act("detach_share", share_id=share_id)
    assert states_of(world) == [("data", "detaching")]
    world.answer(SHUTDOWN)
    assert (states_of(world), world.open_actions(), world.row.shares) == ([], [], None)


def test_failed_attach_leaves_a_share_in_error_that_can_be_detached(world: Moving) -> None:
    share_id = make(world)
    attach(world, share_id)
    world.answer(SHUTDOWN, error="host1 has not mounted it")
    assert (world.command.method, states_of(world)) == ("rollback_attach_share", [("data", "attaching")])
    world.answer(SHUTDOWN)
    assert (states_of(world), world.open_actions()) == ([("data", "error")], [])
    world.act("detach_share", share_id=share_id)
    world.answer(SHUTDOWN)
    assert states_of(world) == []


def test_failed_detach_leaves_the_share_attached(world: Moving) -> None:
    share_id = attached(world)
    world.act("detach_share", share_id=share_id)
    world.answer(SHUTDOWN, error="libvirt is away")
    assert (states_of(world), world.open_actions()) == ([("data", "attached")], [])


def test_share_of_another_project_is_not_found(world: Moving) -> None:
    with pytest.raises(exceptions.ShareNotFound):
        attach(world, make(world, project="p2"))
    with pytest.raises(exceptions.ShareNotFound):
        world.act("detach_share", share_id=make(world, "another"))


def test_share_and_tag_are_used_once_in_a_server(world: Moving) -> None:
    share_id = attached(world)
    for other, tag in ((share_id, "another"), (make(world, "more"), "data")):
        with pytest.raises(exceptions.ShareMappingAlreadyExists) as refusal:
            attach(world, other, tag)
        assert refusal.value.code == 409


def test_share_is_attached_to_a_stopped_server_alone(world: Moving) -> None:
    share_id = make(world)
    start(world)
    for kind in ("attach_share", "detach_share"):
        with pytest.raises(exceptions.InstanceInvalidState):
            world.act(kind, share_id=share_id, tag="data")


def test_host_without_virtiofs_gets_no_share(world: Moving) -> None:
    share_id = make(world)
    world.db.write(lambda uow: uow.session.execute(sa.update(models.ComputeNode).values(inventory={})))
    with pytest.raises(exceptions.SharesNotSupported) as refusal:
        attach(world, share_id)
    assert refusal.value.code == 403


@pytest.mark.parametrize(("kind", "payload"), [("suspend", {}), ("live-migration", {"host": None})])
def test_running_server_with_shares_is_neither_suspended_nor_migrated(
    world: Moving, kind: str, payload: dict[str, None]
) -> None:
    attached(world)
    start(world)
    with pytest.raises(exceptions.OperationNotSupportedWithShares) as refusal:
        world.act(kind, **payload)
    assert refusal.value.code == 409
    (server,) = world.db.read(balance.read_cloud, world.conf, [world.source]).servers
    assert server.stays == "it has shares of its host"


def test_evacuated_server_goes_to_a_host_with_virtiofs_and_keeps_its_shares(world: Moving) -> None:
    attached(world)
    force_down(world, world.source)
    world.act("evacuate")
    assert world.scheduler.specs[-1].traits == [traits.VIRTIOFS]
    host, request = world.compute.builds[-1]
    assert (host, [mapping.tag for mapping in request.instance.shares]) == ("host2", ["data"])


def test_evacuation_takes_a_share_along_that_is_being_attached(world: Moving) -> None:
    attach(world, make(world))
    force_down(world, world.source)
    world.act("evacuate")
    assert states_of(world) == [("data", "attached")]


def test_share_is_deleted_once_no_server_has_it(world: Moving) -> None:
    attached(world)
    with pytest.raises(exceptions.Conflict, match=world.uuid):
        world.db.write(shares.delete, "data")
    world.act("delete")
    world.answer()
    assert world.row.shares is None
    world.db.write(shares.delete, "data")
    assert world.db.read(shares.list_) == []

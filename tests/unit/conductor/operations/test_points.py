"""Snapshot points in the conductor: the tree, its states, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.conductor.operations.points import MOST
from nova_lite.db.core import models
from nova_lite.db.hosts import balance
from nova_lite.objects import ActionCommand, SnapshotPoint
from tests.support.server_moves import RUNNING, SHUTDOWN, Moving, force_down

DEVICE = {"address": "0000:41:00.0", "vendor_id": "10de", "product_id": "1eb8"}


@pytest.fixture
def world(tmp_path: Path) -> Moving:
    return Moving(tmp_path)


def begin(world: Moving, name: str = "one", memory: bool = False) -> ActionCommand:
    return world.act("create_point", name=name, description=None, memory=memory)


def create(world: Moving, name: str = "one", memory: bool = False) -> str:
    """Create a point, and return its id."""
    point_id: str = begin(world, name, memory).payload["point_id"]
    world.answer(RUNNING)
    return point_id


def revert(world: Moving, point_id: str, memory: bool | None = None) -> ActionCommand:
    return world.act("revert_to_point", point_id=point_id, memory=memory)


def points_of(world: Moving) -> list[SnapshotPoint]:
    return world.instance(world.uuid).points


def tree(world: Moving) -> dict[str, str]:
    """Return the name of each point's parent by its own name. The current point has a star."""
    found = points_of(world)
    names = {point.id: point.name for point in found} | {None: ""}
    return {point.name + "*" * point.is_current: names[point.parent_id] for point in found}


def states_of(world: Moving) -> list[str]:
    return [str(point.state) for point in points_of(world)]


def test_point_is_available_with_the_report_of_its_host(world: Moving) -> None:
    command = begin(world)
    assert (command.method, world.row.task_state, states_of(world)) == ("create_point", "creating_point", ["creating"])
    assert tree(world) == {"one": ""}
    world.answer(RUNNING)
    assert (world.state[:2], states_of(world), tree(world)) == (("active", None), ["available"], {"one*": ""})


def test_points_are_a_tree_whose_branches_begin_where_the_server_was_reverted_to(world: Moving) -> None:
    one, two = create(world, "one"), create(world, "two")
    assert tree(world) == {"one": "", "two*": "one"}
    command = revert(world, one)
    assert (command.method, states_of(world)) == ("revert_to_point", ["reverting", "available"])
    world.answer(SHUTDOWN)
    assert (world.command.method, world.row.task_state) == ("start_instance", "powering-on")
    world.answer(RUNNING)
    assert (world.state[:2], tree(world)) == (("active", None), {"one*": "", "two": "one"})
    create(world, "three")
    assert tree(world) == {"one": "", "two": "one", "three*": "one"}
    world.act("delete_point", point_id=one)
    assert states_of(world) == ["deleting", "available", "available"]
    world.answer(RUNNING)
    assert tree(world) == {"two": "", "three*": ""}
    world.act("delete_point", point_id=two)
    world.answer(RUNNING)
    world.act("delete_point", point_id=points_of(world)[0].id)
    world.answer(RUNNING)
    assert (points_of(world), world.row.points, world.open_actions()) == ([], None, [])


def test_current_point_that_is_deleted_leaves_its_parent_current(world: Moving) -> None:
    create(world, "one")
    two = create(world, "two")
    world.act("delete_point", point_id=two)
    world.answer(RUNNING)
    assert tree(world) == {"one*": ""}


def test_point_that_could_not_be_made_disappears_once_its_host_has_removed_the_rest(world: Moving) -> None:
    begin(world)
    world.answer(RUNNING, error="the disk is full")
    assert (world.command.method, states_of(world)) == ("rollback_create_point", ["creating"])
    world.answer(RUNNING)
    assert (points_of(world), world.state[:2], world.open_actions()) == ([], ("active", None), [])


def test_failed_deletion_leaves_a_point_in_error_that_is_no_target_and_can_be_deleted(world: Moving) -> None:
    one = create(world)
    world.act("delete_point", point_id=one)
    world.answer(RUNNING, error="libvirt is away")
    assert states_of(world) == ["error"]
    with pytest.raises(exceptions.PointNotUsable, match="in the state error"):
        revert(world, one)
    world.act("delete_point", point_id=one)
    world.answer(RUNNING)
    assert points_of(world) == []


def test_failed_revert_leaves_the_server_in_error_and_can_be_repeated(world: Moving) -> None:
    one = create(world)
    revert(world, one)
    world.answer(SHUTDOWN, error="the disk cannot be read")
    assert (world.state[0], states_of(world), tree(world)) == ("error", ["available"], {"one*": ""})
    fault = world.instance(world.uuid).fault
    assert fault is not None and "Revert it again" in fault.message
    revert(world, one)
    world.answer(SHUTDOWN)
    assert world.state[:2] == ("stopped", None)


def test_stopped_server_stays_off_when_it_is_reverted(world: Moving) -> None:
    one = create(world)
    world.act("stop")
    world.answer(SHUTDOWN)
    revert(world, one)
    world.answer(SHUTDOWN)
    assert (world.state[:2], world.open_actions()) == (("stopped", None), [])


def test_server_continues_with_the_memory_of_a_point_unless_it_is_not_wanted(world: Moving) -> None:
    one = create(world, memory=True)
    command = revert(world, one)
    assert (command.payload["memory"], command.payload["start"]) == (True, False)
    world.answer(RUNNING)
    assert (world.state[:2], world.open_actions()) == (("active", None), [])
    command = revert(world, one, memory=False)
    assert (command.payload["memory"], command.payload["start"]) == (False, True)


def test_memory_of_another_guest_is_refused_but_not_the_disk(world: Moving) -> None:
    one = create(world, memory=True)
    world.db.write(lambda uow: uow.session.execute(sa.update(models.Instance).values(generation=7)))
    with pytest.raises(exceptions.PointNotUsable, match="Revert without memory"):
        revert(world, one)
    assert states_of(world) == ["available"]
    assert revert(world, one, memory=False).payload["memory"] is False


def test_point_without_memory_has_none_to_continue_with(world: Moving) -> None:
    one = create(world)
    with pytest.raises(exceptions.PointNotUsable, match="it has no memory"):
        revert(world, one, memory=True)


def test_server_that_is_off_or_has_devices_of_its_host_has_no_memory_to_save(world: Moving) -> None:
    world.db.write(lambda uow: uow.session.execute(sa.update(models.Instance).values(pci=[DEVICE])))
    with pytest.raises(exceptions.PointsNotSupported, match="devices or shares of its host"):
        begin(world, memory=True)
    world.act("stop")
    world.answer(SHUTDOWN)
    with pytest.raises(exceptions.PointsNotSupported, match="only an active one has memory"):
        begin(world, memory=True)


def test_name_of_a_point_is_its_own_in_the_server(world: Moving) -> None:
    create(world)
    with pytest.raises(exceptions.PointAlreadyExists) as refusal:
        begin(world)
    assert refusal.value.code == 409


def test_unknown_point_is_not_found(world: Moving) -> None:
    for kind in ("delete_point", "revert_to_point"):
        with pytest.raises(exceptions.PointNotFound):
            world.act(kind, point_id="11111111-1111-4111-8111-111111111111", memory=None)


def test_server_has_a_limited_number_of_points(world: Moving) -> None:
    for number in range(MOST):
        create(world, str(number))
    with pytest.raises(exceptions.TooManyPoints) as refusal:
        begin(world)
    assert refusal.value.code == 409


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"block_devices": [{"uuid": "d", "source_type": "volume", "destination_type": "volume"}]}, "it has volumes"),
        ({"flavor": {"flavorid": "1", "name": "f", "vcpus": 1, "memory_mb": 1, "root_gb": 1, "swap": 1}}, "swap disk"),
        (
            {"flavor": {"flavorid": "1", "name": "f", "vcpus": 1, "memory_mb": 1, "root_gb": 1, "ephemeral_gb": 1}},
            "eph",
        ),
        ({"site_role": "primary"}, "replicated"),
        (
            {"image": {"id": "i", "name": "i", "properties": {"hw_ephemeral_encryption": "yes"}}},
            "its disk is encrypted",
        ),
    ],
)
def test_server_with_data_elsewhere_gets_no_point(world: Moving, values: dict[str, Any], why: str) -> None:
    world.db.write(lambda uow: uow.session.execute(sa.update(models.Instance).values(values)))
    with pytest.raises(exceptions.PointsNotSupported, match=why) as refusal:
        begin(world)
    assert refusal.value.code == 409


def test_host_that_makes_no_points_is_not_asked_for_one(world: Moving) -> None:
    world.db.write(lambda uow: uow.session.execute(sa.update(models.ComputeNode).values(inventory={})))
    with pytest.raises(exceptions.PointsNotSupported, match="its host cannot do that"):
        begin(world)


@pytest.mark.parametrize(("kind", "payload"), [("rebuild", {}), ("shelve", {}), ("live-migration", {"host": None})])
def test_operation_that_would_lose_the_points_is_refused(world: Moving, kind: str, payload: dict[str, None]) -> None:
    create(world)
    with pytest.raises(exceptions.OperationNotSupportedWithPoints) as refusal:
        world.act(kind, **payload)
    assert refusal.value.code == 409
    (server,) = world.db.read(balance.read_cloud, world.conf, [world.source]).servers
    assert server.stays == "it has snapshot points"


def test_evacuated_server_with_new_disks_has_no_points_any_more(world: Moving) -> None:
    create(world)
    begin(world, "two")
    force_down(world, world.source)
    world.act("evacuate")
    assert (points_of(world), world.row.points) == ([], None)


def test_deleted_server_has_no_points(world: Moving) -> None:
    create(world)
    world.act("delete")
    world.answer()
    assert world.row.points is None

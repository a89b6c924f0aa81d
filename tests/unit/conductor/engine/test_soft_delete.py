"""Soft delete, restore and reclaim in the conductor."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.servers import instances
from nova_lite.db.upkeep import invariants
from nova_lite.objects import InstanceFilters
from tests.support.conductor_world import World
from tests.support.soft_deletes import accept, finish, grow_older, soft_deleted


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.conf.set_override("reclaim_instance_interval", 100)
    return made


def listed(world: World, **filters: Any) -> list[str]:
    query = InstanceFilters(project_id="p1", **filters)
    return [item.uuid for item in world.db.read(instances.list_, world.context(), query)]


def test_soft_deleted_server_is_off_and_releases_only_its_quota(world: World) -> None:
    uuid, host, _ = world.built()
    command = accept(world, uuid, "delete", soft=True)
    assert (command.method, world.instance(uuid).task_state) == ("soft_delete_instance", "soft-deleting")
    assert world.instances_used() == 1
    finish(world, command)
    found = world.instance(uuid)
    assert (found.vm_state, found.task_state, found.host, len(found.vifs)) == ("soft-delete", None, host, 1)
    assert (world.instances_used(), world.used(), world.open_actions()) == (0, {"host1": 1, "host2": 0}, [])
    assert world.db.read(lambda uow: list(invariants.quota_counters(uow))) == []


def test_lists_show_soft_deleted_servers_only_on_request(world: World) -> None:
    uuid, _ = soft_deleted(world)
    assert listed(world) == []
    assert listed(world, vm_states=["soft-delete"]) == []
    assert listed(world, soft_deleted=True) == [uuid]
    assert listed(world, deleted=True) == []
    assert listed(world, deleted=True, soft_deleted=True) == [uuid]
    assert listed(world, changes_since=datetime.datetime(2020, 1, 1)) == [uuid]
    assert world.db.read(instances.get, world.context(), uuid).vm_state == "soft-delete"


def test_another_delete_changes_nothing(world: World) -> None:
    uuid, _ = soft_deleted(world)
    grow_older(world, 50)
    command = accept(world, uuid, "delete", soft=True)
    assert (command.host, world.instance(uuid).vm_state, world.instances_used()) == (None, "soft-delete", 0)
    grow_older(world, 51)
    assert world.db.read(instances.to_reclaim, 100, 9) == [uuid]


def test_two_soft_deletes_at_once_are_one_action(world: World) -> None:
    uuid, _, _ = world.built()
    assert accept(world, uuid, "delete", soft=True).action_id == accept(world, uuid, "delete", soft=True).action_id


def test_restore_takes_quota_and_starts_the_server(world: World) -> None:
    uuid, host = soft_deleted(world)
    command = accept(world, uuid, "restore")
    assert (command.method, command.host, world.instances_used()) == ("restore_instance", host, 1)
    assert (world.instance(uuid).vm_state, world.instance(uuid).task_state) == ("stopped", "restoring")
    assert listed(world) == [uuid]
    finish(world, command, 1)
    assert (world.instance(uuid).vm_state, world.open_actions()) == ("active", [])
    assert world.db.read(instances.to_reclaim, 0, 9) == []
    assert world.db.read(lambda uow: list(invariants.quota_counters(uow))) == []


def test_failed_restore_does_not_delete_the_server(world: World) -> None:
    uuid, _ = soft_deleted(world)
    finish(world, accept(world, uuid, "restore"), 4, "no disk")
    assert (world.instance(uuid).vm_state, world.instances_used()) == ("stopped", 1)


def test_restore_without_quota_is_refused(world: World) -> None:
    uuid, _ = soft_deleted(world)
    world.create(min_count=10, max_count=10)
    with pytest.raises(exceptions.QuotaExceeded):
        accept(world, uuid, "restore")
    assert (world.instance(uuid).vm_state, world.instances_used()) == ("soft-delete", 10)


def test_old_soft_deleted_server_is_reclaimed(world: World) -> None:
    uuid, host = soft_deleted(world)
    world.reconciler.sweep()
    assert world.open_actions() == []
    grow_older(world, 101)
    world.reconciler.sweep()
    assert world.open_actions() == [("delete", "perform")]
    command = world.compute.commands[-1]
    assert (command.method, command.host) == ("terminate_instance", host)
    world.reconciler.sweep()
    assert len(world.compute.commands) == 1, "it is asked for once"
    finish(world, command, None)
    assert (world.instance(uuid).deleted, world.instances_used()) == (True, 0)
    assert (world.used(), world.count(models.Port)) == ({"host1": 0, "host2": 0}, 0)
    world.reconciler.sweep()
    assert world.open_actions() == []


def test_sweep_reclaims_at_most_one_batch(world: World) -> None:
    world.reconciler.batch = 2
    for _ in range(3):
        soft_deleted(world)
    grow_older(world, 101)
    world.reconciler.sweep()
    assert len(world.open_actions()) == 2
    world.reconciler.sweep()
    assert len(world.open_actions()) == 3


def test_reclaim_needs_the_option(world: World) -> None:
    soft_deleted(world)
    grow_older(world, 10**6)
    world.conf.set_override("reclaim_instance_interval", 0)
    world.reconciler.sweep()
    assert world.open_actions() == []


def test_delete_after_a_soft_delete_releases_quota_once(world: World) -> None:
    uuid, _ = soft_deleted(world)
    world.create()
    finish(world, accept(world, uuid, "delete"), None)
    assert (world.instance(uuid).deleted, world.instances_used()) == (True, 1)


def test_soft_delete_of_a_server_that_never_ran_is_refused(world: World) -> None:
    (uuid,) = world.create()
    with pytest.raises(exceptions.InstanceInvalidState):
        accept(world, uuid, "delete", soft=True)


def test_soft_delete_with_an_absent_host_is_done_for_the_owner(world: World) -> None:
    uuid, host, _ = world.built()
    world.silence(host)
    accept(world, uuid, "delete", soft=True)
    assert (world.instance(uuid).vm_state, world.open_actions()) == ("soft-delete", [("delete", "turn-off")])
    assert world.instances_used() == 0
    accept(world, uuid, "restore")
    assert (world.open_actions(), world.instances_used()) == ([("restore", "perform")], 1)


def test_reset_state_of_a_soft_deleted_server_is_refused(world: World) -> None:
    uuid, _ = soft_deleted(world)
    with pytest.raises(exceptions.InstanceInvalidState):
        world.lifecycle.accept_action(world.context(admin=True), uuid, "reset_state", {"vm_state": "active"})

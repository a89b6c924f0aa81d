"""Servers with PCI devices of their hosts: what the conductor claims, sends, and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.conductor.engine.placement_request import request_spec
from nova_lite.db.core import models
from nova_lite.db.servers import instances
from tests.support.device_world import DEVICES, GPU, TWO, UNKNOWN, Devices


@pytest.fixture
def world(tmp_path: Path) -> Devices:
    return Devices(tmp_path)


def test_build_command_has_the_devices_that_were_claimed(world: Devices) -> None:
    world.built(flavor_id=GPU)
    world.built(flavor_id=GPU)
    built = [(host, [device.address for device in build.instance.pci or ()]) for host, build in world.compute.builds]
    assert built == [("host1", ["0000:41:00.0"]), ("host1", ["0000:81:00.0"])]
    (spec, _) = world.scheduler.specs
    assert [(request.alias, request.count) for request in spec.pci] == [("gpu", 1)]


def test_server_for_which_no_device_is_left_goes_to_the_alternate(world: Devices) -> None:
    _, host, _ = world.built(flavor_id=TWO)
    other, alternate, _ = world.built(flavor_id=GPU)
    assert (host, alternate) == ("host1", "host2")
    assert world.used() == {"host1": ["0000:41:00.0", "0000:81:00.0"], "host2": ["0000:41:00.0"]}
    assert [device.alias for device in world.instance(other).pci or ()] == ["gpu"]


def test_flavor_with_an_unknown_alias_is_refused(world: Devices) -> None:
    with pytest.raises(exceptions.HardwareRefused, match="alias does not define fpga") as refused:
        world.create(flavor_id=UNKNOWN)
    assert refused.value.code == 400
    uuid, *_ = world.built()
    with pytest.raises(exceptions.HardwareRefused, match="alias does not define fpga"):
        world.lifecycle.accept_action(world.context(), uuid, "resize", {"flavor_id": UNKNOWN})
    assert (world.instance(uuid).task_state, world.count(models.Instance)) == (None, 1)


def test_alias_that_is_gone_does_not_stop_a_later_placement(world: Devices) -> None:
    uuid, *_ = world.built(flavor_id=GPU)
    world.conf.set_override("alias", [], "pci")

    def spec(uow: Any) -> Any:
        row = instances.lock(uow, uuid)
        assert row is not None
        return request_spec(uow, row, [])

    assert [(request.alias, request.kinds) for request in world.db.write(spec).pci] == [("gpu", [])]


def test_delete_gives_the_devices_back(world: Devices) -> None:
    uuid, *_ = world.built(flavor_id=TWO)
    world.finish(world.lifecycle.accept_action(world.context(), uuid, "delete", {}))
    assert (world.used(), world.count(models.PCIClaim)) == ({"host1": [], "host2": []}, 0)


def test_migration_claims_devices_of_the_destination(world: Devices) -> None:
    uuid, *_ = world.built(flavor_id=TWO)
    world.lifecycle.accept_action(world.context(), uuid, "migrate", {})
    assert world.used() == {"host1": ["0000:41:00.0", "0000:81:00.0"], "host2": []}
    world.let_time_pass(3)
    world.reconciler.sweep()
    assert world.used()["host2"] == ["0000:41:00.0", "0000:81:00.0"]
    there = world.compute.commands[-1].payload["destination"]["pci"]
    assert [device["address"] for device in there] == ["0000:41:00.0", "0000:81:00.0"]


def test_live_migration_of_ordinary_devices_is_refused(world: Devices) -> None:
    uuid, *_ = world.built(flavor_id=GPU)
    with pytest.raises(exceptions.HardwareRefused, match="cannot be migrated while it runs") as refused:
        world.lifecycle.accept_action(world.context(admin=True), uuid, "live-migration", {})
    assert refused.value.code == 400
    assert world.instance(uuid).task_state is None
    assert world.count(models.Migration) == 0


def test_live_migration_of_migratable_devices_takes_migratable_ones(tmp_path: Path) -> None:
    world = Devices(tmp_path, live_migratable="yes")
    able = [msgspec.structs.replace(device, live_migratable=True) for device in DEVICES]
    world.offer("host1", able)
    world.offer("host2", [DEVICES[0], able[1]])
    uuid, *_ = world.built(flavor_id=GPU)
    world.lifecycle.accept_action(world.context(admin=True), uuid, "live-migration", {})
    world.let_time_pass(3)
    world.reconciler.sweep()
    assert world.used() == {"host1": ["0000:41:00.0"], "host2": ["0000:81:00.0"]}


def test_suspend_of_a_server_with_devices_is_refused(world: Devices) -> None:
    uuid, *_ = world.built(flavor_id=GPU)
    with pytest.raises(exceptions.HasPCIDevices, match="cannot be suspended") as refused:
        world.lifecycle.accept_action(world.context(), uuid, "suspend", {})
    assert (refused.value.code, world.instance(uuid).task_state) == (409, None)


def test_owner_sees_once_that_a_device_has_vanished(world: Devices) -> None:
    uuid, host, _ = world.built(flavor_id=TWO)
    other, *_ = world.built(flavor_id=GPU)
    world.offer(host, DEVICES[1:])
    for _ in range(2):
        world.lost.sweep()
    assert world.events(uuid) == [
        ("device_lost", "The host does not offer PCI devices of the server any more: gpu."),
    ]
    assert (world.events(other), world.open_actions()) == ([], [])
    assert world.instance(uuid).vm_state == "active"


def test_conductor_with_a_mistake_in_an_alias_does_not_start(world: Devices) -> None:
    from nova_lite.conductor.manager import ConductorManager

    world.conf.set_override("alias", ["{}"], "pci")
    with pytest.raises(exceptions.ConfigurationError, match=r"\[pci\] alias = \{\}: it needs a name"):
        ConductorManager(world.conf, None, None, None)  # type: ignore[arg-type]

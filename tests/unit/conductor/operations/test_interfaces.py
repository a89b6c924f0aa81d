"""Attaching and detaching interfaces in the conductor: the port exists as long as its host may have it."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.network import builtin_networks
from nova_lite.network.fake import FakeNetworks
from nova_lite.objects import ActionReport, GuestDevice, GuestDevices
from tests.support import make
from tests.support.conductor_world import World
from tests.support.world_interfaces import ATTACH, DETACH, attach, detach, report


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def vifs(world: World, uuid: str) -> list[tuple[str, str | None]]:
    return [(vif.id, vif.state) for vif in world.instance(uuid).vifs]


def is_quiet(world: World, uuid: str) -> bool:
    instance = world.instance(uuid)
    return (instance.vm_state, instance.task_state, world.open_actions()) == ("active", None, [])


def test_port_is_written_with_the_command_and_deleted_with_the_report(world: World) -> None:
    uuid, _, _ = world.built()
    (first,) = vifs(world, uuid)
    command = attach(world, uuid, tag="second")
    assert (command.method, world.instance(uuid).task_state) == (ATTACH, "attaching_interface")
    second = command.payload["port_id"]
    assert vifs(world, uuid) == [first, (second, "attaching")]
    assert [vif.tag for vif in command.instance.vifs] == [None, "second"]
    report(world, command)
    assert vifs(world, uuid) == [first, (second, None)]
    command = detach(world, uuid, first[0])
    assert vifs(world, uuid) == [(first[0], "detaching"), (second, None)]
    report(world, command)
    assert vifs(world, uuid) == [(second, None)]
    assert (world.instance(uuid).vm_state, world.instance(uuid).task_state, world.open_actions()) == (
        "active",
        None,
        [],
    )
    third = attach(world, uuid)
    positions = [vif.position for vif in world.instance(uuid).vifs]
    assert positions == sorted(set(positions)), "the order stays the one of coming"
    report(world, third)


@pytest.mark.parametrize("vm_state", ["active", "paused", "stopped", "suspended", "rescued", "error"])
def test_vm_states_that_allow_interface_changes(world: World, vm_state: str) -> None:
    uuid, _, _ = world.built()
    world.db.write(lambda uow: uow.session.execute(sa.update(models.Instance).values(vm_state=vm_state)))
    if vm_state in ("active", "paused", "stopped"):
        report(world, attach(world, uuid))
        assert world.instance(uuid).vm_state == vm_state
        return
    with pytest.raises(exceptions.InstanceInvalidState, match="attach_interface"):
        attach(world, uuid)
    assert world.count(models.Port) == 1


def test_places_of_devices_are_known_before_the_guest_starts(world: World) -> None:
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    host, request = world.compute.builds[-1]
    generation = request.generation
    devices = GuestDevices(devices=[GuestDevice("fa:16:3e:00:00:01", "pci", "0000:01:00.0")], free_ports=12)
    with pytest.raises(exceptions.StaleReport):
        world.reports.report_guest_devices(world.context(), uuid, host, generation + 1, devices)
    with pytest.raises(exceptions.StaleReport):
        world.reports.report_guest_devices(world.context(), uuid, "another", generation, devices)
    assert world.instance(uuid).guest_devices is None
    for _ in range(2):
        world.reports.report_guest_devices(world.context(), uuid, host, generation, devices)
    assert (world.instance(uuid).guest_devices, world.instance(uuid).vm_state) == (devices, "building")


def report_ports(world: World, uuid: str, free: int | None) -> None:
    """Attach an interface, after which the host reports so many free ports."""
    command = attach(world, uuid)
    answer = {"devices": {"devices": [], "free_ports": free}}
    done = ActionReport(
        host=str(command.host), action_id=command.action_id, power_state=1, sequence=command.sequence, answer=answer
    )
    world.reports.finish_action(world.context(), done)


def test_attach_to_a_running_guest_without_free_ports_is_refused_and_leaves_nothing(world: World) -> None:
    uuid, _, _ = world.built()
    report_ports(world, uuid, 1)
    report_ports(world, uuid, 0)
    devices = world.instance(uuid).guest_devices
    assert devices is not None
    assert devices.free_ports == 0
    for kind, payload in (
        ("attach_interface", {"request": {}}),
        ("attach_volume", {"volume_id": "v", "attachment_id": "a", "tag": None, "delete_on_termination": False}),
    ):
        with pytest.raises(exceptions.NoFreePort, match="no free port for another disk or interface") as raised:
            world.lifecycle.accept_action(world.context(), uuid, kind, payload)
        assert raised.value.code == 409
    assert (world.count(models.Port), is_quiet(world, uuid)) == (3, True)
    report(world, detach(world, uuid, vifs(world, uuid)[0][0]))
    world.db.write(
        lambda uow: uow.session.execute(sa.update(models.Instance).values(power_state=4, vm_state="stopped"))
    )
    report(world, attach(world, uuid))


def test_report_of_devices_is_no_data_for_later_steps(world: World) -> None:
    uuid, _, _ = world.built()
    report_ports(world, uuid, 3)
    action = world.db.read(lambda uow: uow.session.scalars(sa.select(models.InstanceAction)).all()[-1].payload)
    assert "answers" not in action


def test_second_interface_change_at_the_same_time_is_refused(world: World) -> None:
    uuid, _, _ = world.built()
    command = attach(world, uuid)
    with pytest.raises(exceptions.InstanceInvalidState, match="attaching_interface"):
        attach(world, uuid)
    report(world, command)
    report(world, attach(world, uuid))
    assert len(vifs(world, uuid)) == 3


def test_failed_attach_is_undone_at_its_host_before_the_port_is_deleted(world: World) -> None:
    uuid, _, _ = world.built()
    command = attach(world, uuid)
    report(world, command, "no slot left")
    undo = world.compute.commands[-1]
    assert (undo.method, undo.payload["port_id"]) == ("rollback_attach_interface", command.payload["port_id"])
    assert len(vifs(world, uuid)) == 2
    report(world, undo)
    assert len(vifs(world, uuid)) == 1
    assert world.open_actions() == []


def test_failed_detach_keeps_the_interface(world: World) -> None:
    uuid, _, _ = world.built()
    (first,) = vifs(world, uuid)
    report(world, detach(world, uuid, first[0]), "the guest did not let go")
    undo = world.compute.commands[-1]
    assert undo.method == "rollback_detach_interface"
    report(world, undo)
    assert vifs(world, uuid) == [first]
    assert (world.instance(uuid).vm_state, world.instance(uuid).task_state, world.open_actions()) == (
        "active",
        None,
        [],
    )


@pytest.mark.parametrize("kind", [ATTACH, DETACH])
def test_attach_past_its_deadline_is_undone(world: World, kind: str) -> None:
    uuid, _, _ = world.built()
    (first,) = vifs(world, uuid)
    command = attach(world, uuid) if kind == ATTACH else detach(world, uuid, first[0])
    world.let_time_pass(world.conf.conductor.action_deadline + 1)
    world.reconciler.sweep()
    assert world.open_actions() == [(kind, "take_back")]
    report(world, command)
    assert world.open_actions() == [(kind, "take_back")], "the report came too late"
    world.let_time_pass(60)
    world.reconciler.sweep()
    report(world, world.compute.commands[-1])
    assert (vifs(world, uuid), world.open_actions()) == ([first], [])


@pytest.mark.parametrize("kind", [ATTACH, DETACH])
def test_delete_during_an_attach_leaves_no_port(world: World, kind: str) -> None:
    uuid, _, _ = world.built()
    (first,) = vifs(world, uuid)
    attach(world, uuid) if kind == ATTACH else detach(world, uuid, first[0])
    command = world.lifecycle.accept_action(world.context(), uuid, "delete", {})
    report(world, command)
    assert (world.count(models.Port), world.open_actions()) == (0, [])


def test_interface_that_cannot_be_attached_is_refused(world: World) -> None:
    uuid, _, _ = world.built()
    theirs = world.db.write(
        builtin_networks.create, make.network("theirs", project_id="p2", bridge="br9", cidr="10.9.0.0/29")
    )
    mine = world.db.write(
        builtin_networks.create, make.network("mine", project_id="p1", bridge="br8", cidr="10.8.0.0/29")
    )
    address = world.instance(uuid).vifs[0].address
    network_id = world.instance(uuid).vifs[0].network.id
    for request, error in (
        ({"network_id": "nosuch"}, exceptions.NetworkUnavailable),
        ({"network_id": theirs.id}, exceptions.NetworkUnavailable),
        ({"network_id": network_id, "fixed_ip": address}, exceptions.FixedIpForbidden),
        ({"network_id": mine.id, "fixed_ip": "10.99.0.1"}, exceptions.FixedIpInvalid),
    ):
        with pytest.raises(error):
            attach(world, uuid, **request)
    with pytest.raises(exceptions.InstanceNotFound):
        attach(world, uuid, project="p2")
    with pytest.raises(exceptions.PortNotFound):
        detach(world, uuid, "nosuch")
    other, _, _ = world.built()
    with pytest.raises(exceptions.PortNotFound):
        detach(world, uuid, world.instance(other).vifs[0].id)
    assert (world.count(models.Port), world.open_actions()) == (2, [])


def test_interface_methods_are_refused_if_a_service_allocates_interfaces(tmp_path: Path) -> None:
    world = World(tmp_path, FakeNetworks)
    world.conf.set_override("backend", "fake", "network")
    uuid, _, _ = world.built()
    with pytest.raises(exceptions.NotImplementedByDriver):
        attach(world, uuid)

"""Volumes that several servers have: each server has an attachment. The volume is free after the last one."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.conductor.volume.backups import BackupEndpoints
from nova_lite.db.backups import server_backups
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.servers import instances
from nova_lite.db.upkeep import invariants
from nova_lite.db.volume import volume_types, volumes
from nova_lite.objects import ActionReport, VolumeAttachment, VolumeBackup, VolumeSnapshot, VolumeType
from nova_lite.operations import states
from tests.support.world_volumes import Volumes, blank, boot, volume

SHARED, SECRET = "shared", "secret"


class World(Volumes):
    """A world with two ACTIVE servers, ``uuid`` and ``other``, and a type of volumes for several servers."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.scheduler.hosts.reverse()
        self.other, self.other_host, _ = self.built()
        self.scheduler.hosts.reverse()
        assert self.host != self.other_host
        self.backups = BackupEndpoints(self.engine, self.reconciler.volumes.accept)
        self.new_type(SHARED, {"multiattach": "<is> True"})

    def new_type(self, name: str, extra_specs: dict[str, str], **values: Any) -> None:
        made = VolumeType(id=str(uuid.uuid4()), name=name, extra_specs=extra_specs, **values)
        self.db.write(volume_types.create, self.conf, made)

    def shared(self, **values: Any) -> str:
        return self.make(volume_type=SHARED, multiattach=True, **values)

    def give(self, volume_id: str, server: str, **values: Any) -> Any:
        return self.attach(volume_id, server, **{"multiattach": True, **values})

    def end(self, command: Any, server: str, error: str | None = None) -> None:
        host = self.host if server == self.uuid else self.other_host
        report = ActionReport(host=host, action_id=command.action_id, power_state=1, error=error)
        self.reports.finish_action(self.context(), report)

    def attached_to_both(self, **values: Any) -> str:
        volume_id = self.shared()
        for server in (self.uuid, self.other):
            self.end(self.give(volume_id, server, **values), server)
        return volume_id

    def servers(self, volume_id: str) -> tuple[str, dict[str, str]]:
        """Return the status of the volume, and that of the attachment of each server."""
        shown = self.show(volume_id)
        assert (shown.instance_uuid, shown.attachment_id, shown.attachment) == (None, None, None)
        return shown.status, {str(item.instance_uuid): item.status for item in shown.attachments}

    def detach_from(self, volume_id: str, server: str) -> Any:
        return self.lifecycle.accept_action(self.context(), server, "detach_volume", {"volume_id": volume_id})

    def delete_server(self, server: str) -> Any:
        return self.lifecycle.accept_action(self.context(), server, "delete", {})

    def change_volume(self, volume_id: str, **changes: Any) -> None:
        self.api.volume_update(self.context(admin=True), volume_id, changes)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# --- attach and detach


def test_volume_of_a_multiattach_type_is_attached_to_two_servers(world: World) -> None:
    volume_id = world.shared()
    assert world.show(volume_id).multiattach
    first = world.give(volume_id, world.uuid)
    assert world.servers(volume_id) == ("attaching", {world.uuid: "attaching"})
    world.end(first, world.uuid)
    assert world.servers(volume_id) == ("in-use", {world.uuid: "attached"})
    second = world.give(volume_id, world.other)
    assert world.servers(volume_id) == ("attaching", {world.uuid: "attached", world.other: "attaching"})
    world.end(second, world.other)
    assert world.servers(volume_id) == ("in-use", {world.uuid: "attached", world.other: "attached"})
    for server, host in ((world.uuid, world.host), (world.other, world.other_host)):
        (device,) = world.instance(server).block_devices
        (mine,) = [item for item in world.show(volume_id).attachments if item.instance_uuid == server]
        assert (device.multiattach, device.uuid, mine.host) == (True, mine.id, host)
        assert mine.attached_at is not None and not mine.recorded
    assert world.db.read(invariants.find) == []


def test_volume_of_two_servers_is_free_after_the_last_detach(world: World) -> None:
    volume_id = world.attached_to_both()
    command = world.detach_from(volume_id, world.uuid)
    assert world.servers(volume_id) == ("detaching", {world.uuid: "detaching", world.other: "attached"})
    world.end(command, world.uuid)
    assert world.servers(volume_id) == ("in-use", {world.other: "attached"})
    with pytest.raises(exceptions.InvalidVolume):
        world.api.volume_delete(world.context(), volume_id)
    world.end(world.detach_from(volume_id, world.other), world.other)
    assert world.servers(volume_id) == ("available", {})
    world.api.volume_delete(world.context(), volume_id)


def test_failed_attachment_to_a_second_server_leaves_the_first_one_alone(world: World) -> None:
    volume_id = world.shared()
    world.end(world.give(volume_id, world.uuid), world.uuid)
    world.end(world.give(volume_id, world.other), world.other, "its file system has no direct access")
    assert world.servers(volume_id) == ("in-use", {world.uuid: "attached"})
    assert world.instance(world.other).block_devices == []


def test_failed_detach_keeps_both_attachments(world: World) -> None:
    volume_id = world.attached_to_both()
    world.end(world.detach_from(volume_id, world.uuid), world.uuid, "the guest did not release it")
    assert world.servers(volume_id) == ("in-use", {world.uuid: "attached", world.other: "attached"})


def test_two_servers_attach_a_volume_at_the_same_time(world: World) -> None:
    volume_id = world.shared()
    commands = [(world.give(volume_id, server), server) for server in (world.uuid, world.other)]
    assert world.servers(volume_id) == ("attaching", {world.uuid: "attaching", world.other: "attaching"})
    for command, server in commands:
        world.end(command, server)
    assert world.servers(volume_id)[0] == "in-use"


def test_server_has_a_shared_volume_once(world: World) -> None:
    volume_id = world.attached_to_both()
    with pytest.raises(exceptions.InvalidVolume, match="already attached"):
        world.give(volume_id, world.uuid)


def test_volume_without_multiattach_has_one_server(world: World) -> None:
    volume_id = world.attached()
    with pytest.raises(exceptions.InvalidVolume, match="must be 'available'"):
        world.give(volume_id, world.other)
    assert world.count(models.VolumeAttachment) == 0


def test_shared_volume_is_refused_in_an_older_api_version(world: World) -> None:
    volume_id = world.shared()
    with pytest.raises(exceptions.MultiattachOldMicroversion, match="starting with compute API version"):
        world.attach(volume_id)
    with pytest.raises(exceptions.MultiattachOldMicroversion):
        boot(world, volume(volume_id), names_image=True)
    assert world.servers(volume_id) == ("available", {})


def test_shared_volume_is_refused_at_a_host_that_cannot_share(world: World) -> None:
    volume_id = world.shared()

    def forget(uow: UnitOfWork) -> None:
        for node in uow.session.scalars(sa.select(models.ComputeNode)):
            node.inventory = {**node.inventory, "capabilities": {}}

    world.db.write(forget)
    with pytest.raises(exceptions.MultiattachNotSupported, match="has 'multiattach' set, which is") as told:
        world.give(volume_id, world.uuid)
    assert told.value.code == 409
    assert world.servers(volume_id) == ("available", {})


def test_shared_volume_is_refused_for_a_shelved_server(world: World) -> None:
    volume_id = world.shared()

    def shelve(uow: UnitOfWork) -> None:
        row = instances.lock(uow, world.uuid)
        assert row is not None
        row.vm_state, row.host = states.SHELVED_OFFLOADED, None

    world.db.write(shelve)
    with pytest.raises(exceptions.MultiattachToShelved, match="not supported for shelved-offloaded instances"):
        world.give(volume_id, world.uuid)


def test_shared_volume_that_is_copied_gets_no_other_server(world: World) -> None:
    volume_id = world.shared()
    world.end(world.give(volume_id, world.uuid), world.uuid)
    snapshot = VolumeSnapshot(id=str(uuid.uuid4()), volume_id=volume_id, project_id="")
    world.api.snapshot_create(world.context(), snapshot, True)
    assert world.hosts.works[-1][1].instance_uuid == world.uuid
    with pytest.raises(exceptions.InvalidVolume, match="is being copied"):
        world.give(volume_id, world.other)
    world.done()
    world.give(volume_id, world.other)


# --- servers that go, and moves


def test_delete_of_a_server_keeps_the_volume_of_the_other(world: World) -> None:
    volume_id = world.attached_to_both(delete_on_termination=True)
    world.end(world.delete_server(world.uuid), world.uuid)
    assert world.servers(volume_id) == ("in-use", {world.other: "attached"})
    world.end(world.delete_server(world.other), world.other)
    assert world.servers(volume_id) == ("deleting", {})
    assert world.db.read(invariants.find) == []


def test_server_boots_with_a_shared_volume_and_its_host_has_the_trait(world: World) -> None:
    volume_id = world.shared()
    server, _, _ = world.built(block_devices=[volume(volume_id)], names_image=True, multiattach=True)
    assert world.servers(volume_id) == ("in-use", {server: "attached"})
    assert world.scheduler.specs[-1].traits == ["COMPUTE_VOLUME_MULTI_ATTACH"]
    plain, _, _ = world.built()
    assert world.scheduler.specs[-1].traits == []
    world.give(volume_id, plain)


def test_new_volume_of_a_server_can_be_shared(world: World) -> None:
    server = boot(world, blank(volume_type=SHARED))
    (device,) = world.instance(server).block_devices
    volume_id = str(device.volume_id)
    assert device.multiattach
    assert world.servers(volume_id) == ("creating", {server: "attaching"})
    with pytest.raises(exceptions.InvalidVolume):
        world.give(volume_id, world.uuid)
    world.delete_server(server)
    assert world.servers(volume_id) == ("deleting", {}), "it was never made"


def test_new_volume_of_a_server_is_in_use_when_the_guest_has_it(world: World) -> None:
    server, _, _ = world.built(block_devices=[blank(volume_type=SHARED)])
    volume_id = str(world.instance(server).block_devices[0].volume_id)
    assert world.servers(volume_id) == ("in-use", {server: "attached"})
    world.end(world.give(volume_id, world.uuid), world.uuid)
    assert world.servers(volume_id) == ("in-use", {server: "attached", world.uuid: "attached"})


def test_evacuation_keeps_the_attachments_of_both_servers(world: World) -> None:
    volume_id = world.shared()
    world.end(world.give(volume_id, world.other), world.other)
    world.give(volume_id, world.uuid)

    def down(uow: UnitOfWork) -> None:
        table = models.Service
        uow.change(sa.update(table).where(table.host == world.host).values(forced_down=True, up=False))

    world.db.write(down)
    world.lifecycle.accept_action(world.context(admin=True), world.uuid, "evacuate", {})
    assert world.servers(volume_id) == ("in-use", {world.uuid: "attached", world.other: "attached"})


def test_audit_finds_an_attachment_of_a_missing_server(world: World) -> None:
    volume_id, gone = world.attached_to_both(), str(uuid.uuid4())
    table = models.VolumeAttachment
    moved = sa.update(table).where(table.instance_uuid == world.uuid).values(instance_uuid=gone)
    world.db.write(lambda uow: uow.change(moved))
    (problem,) = world.db.read(invariants.find)
    assert (problem.check, problem.found) == ("volume attachment", f"attached to server {gone}")
    invariants.fix(world.db)
    assert world.servers(volume_id) == ("in-use", {world.other: "attached"})


# --- operations on the volume


def test_shared_volume_is_extended_when_all_its_servers_know(world: World) -> None:
    volume_id = world.attached_to_both()
    before = len(world.hosts.works)
    world.api.volume_extend(world.context(), volume_id, 2, True)
    works = world.hosts.works[before:]
    assert {(host, work.instance_uuid) for host, work in works} == {
        (world.host, world.uuid),
        (world.other_host, world.other),
    }
    with pytest.raises(exceptions.InvalidVolume):
        world.detach_from(volume_id, world.uuid)
    for number, (host, work) in enumerate(works):
        assert world.servers(volume_id)[0] == "extending", number
        world.api.finish_volume_work(world.context(), host, work.id, None)
    assert (world.servers(volume_id)[0], world.show(volume_id).size) == ("in-use", 2)


def test_failed_extension_at_one_host_gives_the_shared_volume_its_size_again(world: World) -> None:
    volume_id = world.attached_to_both()
    world.api.volume_extend(world.context(), volume_id, 2, True)
    for error, (host, work) in zip(("no room", None), world.hosts.works[-2:], strict=True):
        world.api.finish_volume_work(world.context(), host, work.id, error)
    assert (world.servers(volume_id)[0], world.show(volume_id).size) == ("in-use", 1)


@pytest.mark.parametrize("what", ["snapshot", "backup", "image"])
def test_copy_of_a_volume_of_two_servers_is_refused(world: World, what: str) -> None:
    """The host of one guest mirrors its writes, and would miss those of the other."""
    volume_id = world.attached_to_both()

    def copy() -> None:
        if what == "snapshot":
            made = VolumeSnapshot(id=str(uuid.uuid4()), volume_id=volume_id, project_id="")
            world.api.snapshot_create(world.context(), made, True)
        elif what == "backup":
            made_backup = VolumeBackup(id=str(uuid.uuid4()), volume_id=volume_id)
            world.backups.backup_create(world.context(), made_backup, True)
        else:
            from nova_lite.conductor.operations.snapshot import _create_snapshot

            def write(uow: UnitOfWork) -> None:
                row = instances.lock(uow, world.uuid)
                assert row is not None
                _create_snapshot(uow, world.context(), row, volume_id, str(uuid.uuid4()), "image")

            world.db.write(write)

    with pytest.raises(exceptions.InvalidVolume, match="Detach it from all but one"):
        copy()
    world.end(world.detach_from(volume_id, world.other), world.other)
    copy()


def test_volume_of_two_servers_in_rbd_has_snapshots(world: World) -> None:
    """Ceph knows the writes of all hosts."""
    volume_id = world.attached_to_both()
    world.conf.set_override("backend", "rbd", "volume")
    made = VolumeSnapshot(id=str(uuid.uuid4()), volume_id=volume_id, project_id="")
    world.api.snapshot_create(world.context(), made, True)
    host, work = world.hosts.works[-1]
    assert (host, work.instance_uuid) in {(world.host, world.uuid), (world.other_host, world.other)}


def test_swap_of_a_shared_volume_is_refused(world: World) -> None:
    shared, plain, attached = world.shared(), world.make(), world.attached()
    world.end(world.give(shared, world.uuid), world.uuid)
    for old, new in ((shared, plain), (attached, world.shared())):
        payload = {"volume_id": old, "new_volume_id": new}
        with pytest.raises(exceptions.MultiattachSwap, match="Swapping multi-attach volumes"):
            world.lifecycle.accept_action(world.context(admin=True), world.uuid, "swap_volume", payload)


def test_rebuild_that_reimages_a_shared_volume_is_refused(world: World) -> None:
    from nova_lite.conductor.operations.rebuild import _reimage
    from nova_lite.objects import Image

    volume_id = world.shared()
    image = Image(id=str(uuid.uuid4()), name="i", status="active", disk_format="raw", container_format="bare")
    with pytest.raises(exceptions.MultiattachReimage, match="attached to more than one server") as told:
        world.db.write(lambda uow: _reimage(uow, volume(volume_id), image))
    assert told.value.code == 409


def test_status_of_a_shared_volume_of_a_server_is_not_reset_to_available(world: World) -> None:
    volume_id = world.attached_to_both()
    with pytest.raises(exceptions.InvalidVolume, match="has it: detach it there"):
        world.change_volume(volume_id, status="available")


def test_backups_of_a_server_leave_shared_volumes_out(world: World) -> None:
    """An increment knows only what its own guest has written."""
    world.attached_to_both()
    plain = world.make()
    world.finish(world.attach(plain))

    def disks(uow: UnitOfWork) -> list[str]:
        row = instances.lock(uow, world.uuid)
        assert row is not None
        return [disk.volume_id for disk in server_backups.disks_to_back_up(uow, row, volumes_too=True)]

    assert world.db.write(disks) == ["", plain]


# --- types


def test_retype_that_changes_multiattach_needs_an_available_volume(world: World) -> None:
    shared, plain = world.shared(), world.make()
    world.end(world.give(shared, world.uuid), world.uuid)
    with pytest.raises(exceptions.InvalidInput, match="only allowed on available volumes"):
        world.change_volume(shared, volume_type=str(world.conf.volume.default_type), multiattach=True)
    world.end(world.detach_from(shared, world.uuid), world.uuid)
    world.change_volume(shared, volume_type=str(world.conf.volume.default_type), multiattach=True)
    world.change_volume(plain, volume_type=SHARED, multiattach=True)
    assert (world.show(shared).multiattach, world.show(plain).multiattach) == (False, True)
    world.end(world.attach(shared), world.uuid)
    assert world.status(shared) == ("in-use", world.uuid)


def test_volume_of_a_multiattach_type_needs_the_policy(world: World) -> None:
    with pytest.raises(exceptions.Forbidden, match="which several servers may have"):
        world.accept(volume_type=SHARED)
    plain = world.make()
    with pytest.raises(exceptions.Forbidden):
        world.change_volume(plain, volume_type=SHARED)


def test_encrypted_volume_with_multiattach_is_refused(world: World) -> None:
    encryption = {"provider": "luks", "control_location": "front-end"}
    world.new_type(SECRET, {"multiattach": "<is> True"}, encryption=encryption)
    with pytest.raises(exceptions.InvalidVolume, match="Multiattach cannot be used with encrypted volumes"):
        world.accept(volume_type=SECRET, multiattach=True)


# --- clients of the volume API


def record(world: World, volume_id: str, expected: str | None, **values: Any) -> None:
    made = VolumeAttachment(**{"id": str(uuid.uuid4()), **values})
    world.db.write(volumes.set_attachment, world.context(), volume_id, made, expected)


def test_clients_and_servers_have_a_shared_volume_at_the_same_time(world: World) -> None:
    volume_id, mine = world.shared(), str(uuid.uuid4())
    world.end(world.give(volume_id, world.uuid), world.uuid)
    record(world, volume_id, None, id=mine, host="elsewhere")
    assert world.show(volume_id).status == "reserved"
    record(world, volume_id, mine, id=mine, host="elsewhere", status="attached")
    shown = world.show(volume_id)
    assert (shown.status, {item.recorded for item in shown.attachments}) == ("in-use", {True, False})
    with pytest.raises(exceptions.InvalidVolume):
        world.api.volume_extend(world.context(), volume_id, 2, True)
    world.end(world.detach_from(volume_id, world.uuid), world.uuid)
    assert world.show(volume_id).status == "in-use"
    with pytest.raises(exceptions.InvalidVolume):
        world.api.volume_delete(world.context(), volume_id)
    with pytest.raises(exceptions.InvalidVolume, match="another attachment"):
        world.db.write(volumes.set_attachment, world.context(), volume_id, None, str(uuid.uuid4()))
    world.db.write(volumes.set_attachment, world.context(), volume_id, None, mine)
    assert world.servers(volume_id) == ("available", {})


def test_client_cannot_take_the_attachment_of_a_server(world: World) -> None:
    volume_id = world.attached_to_both()
    server = world.show(volume_id).attachments[0].id
    with pytest.raises(exceptions.InvalidVolume):
        world.db.write(volumes.set_attachment, world.context(), volume_id, None, server)
    with pytest.raises(exceptions.InvalidVolume, match="already attached"):
        record(world, volume_id, None, instance_uuid=world.uuid)


def test_reserved_shared_volume_gets_no_server_until_that_ends(world: World) -> None:
    volume_id = world.shared()
    world.end(world.give(volume_id, world.uuid), world.uuid)
    world.db.write(volumes.set_reserved, world.context(), volume_id, True)
    assert world.show(volume_id).status == "attaching"
    with pytest.raises(exceptions.InvalidVolume):
        world.give(volume_id, world.other)
    world.db.write(volumes.set_reserved, world.context(), volume_id, False)
    assert world.servers(volume_id)[0] == "in-use"
    world.give(volume_id, world.other)


# --- volumes that servers only read


def test_read_only_flag_needs_an_available_volume_and_reaches_the_host(world: World) -> None:
    volume_id = world.shared()
    world.change_volume(volume_id, read_only=True)
    world.end(world.give(volume_id, world.uuid), world.uuid)
    assert [device.read_only for device in world.instance(world.uuid).block_devices] == [True]
    assert [item.mode for item in world.show(volume_id).all_attachments()] == ["ro"]
    with pytest.raises(exceptions.InvalidVolume, match="must be available to update readonly flag"):
        world.change_volume(volume_id, read_only=False)

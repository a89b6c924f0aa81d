"""Volumes in the conductor: attachments, tasks for hosts that are never lost, and all their outcomes."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.conductor.volume.backups import BackupEndpoints
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.hosts import hosts
from nova_lite.db.servers import action_log
from nova_lite.db.upkeep import invariants
from nova_lite.db.volume import volumes
from nova_lite.objects import BlockDevice, DeviceState, Volume, VolumeBackup, VolumeSnapshot, VolumeVerb
from nova_lite.objects.block_device import DeviceSource
from nova_lite.operations import states
from tests.support.world_volumes import NEW, Volumes, blank, boot, volume


@pytest.fixture
def world(tmp_path: Path) -> Volumes:
    return Volumes(tmp_path)


# --- work on files


def test_volume_task_is_sent_again_until_it_is_reported(world: Volumes) -> None:
    volume_id = world.accept().id
    first, work = world.hosts.works[-1]
    assert (world.status(volume_id), work.size) == (("creating", None), 1)
    world.reconciler.sweep()
    assert len(world.hosts.works) == 1, "its lease has not expired"
    world.let_leases_lapse(31)
    world.reconciler.sweep()
    assert world.hosts.works[1] == (first, work), "the same host, as long as it is up"
    world.silence(first)
    world.let_leases_lapse(31)
    world.reconciler.sweep()
    other = world.hosts.works[2][0]
    assert other != first
    world.api.finish_volume_work(world.context(), first, work.id, "it came too late")
    assert world.status(volume_id)[0] == "creating"
    for _ in range(2):
        world.api.finish_volume_work(world.context(), other, work.id, None)
    assert world.status(volume_id)[0] == "available"
    assert world.count(models.VolumeTask) == 0


def test_volume_work_is_open_for_its_host_until_it_ends(world: Volumes) -> None:
    volume_id = world.accept().id
    host, work = world.hosts.works[-1]

    def is_open(host: str, task_id: int, volume_id: str) -> bool:
        return world.api.is_volume_work_open(world.context(), host, task_id, volume_id)

    assert is_open(host, work.id, volume_id)
    assert not is_open("another", work.id, volume_id)
    assert not is_open(host, work.id, "another")
    world.done()
    assert not is_open(host, work.id, volume_id)


def test_data_of_a_volume_are_needed_until_its_deletion(world: Volumes) -> None:
    volume_id = world.accept().id

    def is_needed() -> bool:
        return world.api.is_volume_data_needed(world.context(), "host1", VolumeVerb.CREATE, volume_id)

    assert is_needed()
    world.done()
    assert is_needed()
    world.api.volume_delete(world.context(), volume_id)
    assert not is_needed(), "its file may be deleted already"
    world.done("the file is busy")
    assert is_needed(), "an admin may reset its state"
    world.api.volume_delete(world.context(), volume_id)
    world.done()
    assert not is_needed()


def test_data_of_a_snapshot_are_needed_until_its_deletion(world: Volumes) -> None:
    snapshot = VolumeSnapshot(id=str(uuid.uuid4()), volume_id=world.make(), project_id="")
    world.api.snapshot_create(world.context(), snapshot)

    def is_needed() -> bool:
        return world.api.is_volume_data_needed(world.context(), "host1", VolumeVerb.SNAPSHOT, snapshot.id)

    world.done()
    assert is_needed()
    world.api.snapshot_delete(world.context(), snapshot.id)
    assert not is_needed()
    world.done()
    assert not is_needed()


def test_data_of_a_backup_are_needed_until_its_deletion(world: Volumes) -> None:
    backups = BackupEndpoints(world.engine, world.reconciler.volumes.accept)
    backup = VolumeBackup(id=str(uuid.uuid4()), volume_id=world.make())

    def is_needed() -> bool:
        return world.api.is_volume_data_needed(world.context(), "host1", VolumeVerb.BACKUP, backup.id)

    assert not is_needed()
    backups.backup_create(world.context(), backup, False)
    world.done()
    assert is_needed()
    backups.backup_delete(world.context(), backup.id, False)
    assert not is_needed()
    world.done()
    assert not is_needed()


def test_volume_task_that_could_not_be_sent_is_sent_later(world: Volumes) -> None:
    world.hosts.away = True
    volume_id = world.accept().id
    world.hosts.away = False
    world.let_leases_lapse(31)
    world.reconciler.sweep()
    world.done()
    assert world.status(volume_id)[0] == "available"


def test_volume_task_without_a_host_fails_at_its_deadline(world: Volumes) -> None:
    for host in ("host1", "host2"):
        world.silence(host)
    volume_id = world.accept().id
    assert world.hosts.works == []
    world.let_leases_lapse(3601)
    world.reconciler.sweep()
    assert world.status(volume_id)[0] == "error"
    world.api.volume_delete(world.context(), volume_id)
    world.is_heard("host1")
    world.let_leases_lapse(31)
    world.reconciler.sweep()
    world.done()
    with pytest.raises(exceptions.VolumeNotFound):
        world.show(volume_id)


def test_repeated_request_makes_one_volume(world: Volumes) -> None:
    context = world.context("req-again")
    made = [world.api.volume_create(context, Volume(id="", project_id="", **NEW), {}).id for _ in range(2)]
    assert made[0] == made[1]
    assert world.count(models.Volume) == 1


def test_source_volume_cannot_change_while_it_is_copied(world: Volumes) -> None:
    source = world.make()
    copy = world.accept(size=0, source_volid=source)
    for refused in (
        lambda: world.api.volume_delete(world.context(), source),
        lambda: world.attach(source),
        lambda: world.api.volume_extend(world.context(), source, 2, True),
    ):
        with pytest.raises(exceptions.InvalidVolume):
            refused()
    world.done()
    assert (world.show(copy.id).size, world.show(copy.id).status) == (1, "available")
    world.api.volume_delete(world.context(), source)


def extensions(world: Volumes) -> list[tuple[str | None, str | None]]:
    """Return result and details of the extensions in the history of the server, newest first."""
    found = [
        item for item in world.db.read(action_log.list_, world.context(), world.uuid) if item.action == "extend_volume"
    ]
    assert all(item.finish_time and item.start_time <= item.finish_time for item in found)
    events = [world.db.read(action_log.get, world.context(), world.uuid, item.request_id).events[-1] for item in found]
    assert {event.event for event in events} <= {"compute_extend_volume"}
    return [(event.result, event.details) for event in events]


def test_extension_is_in_the_history_of_the_server_that_has_the_volume(world: Volumes) -> None:
    world.api.volume_extend(world.context(), world.make(), 5, attached=True)
    world.done()
    assert extensions(world) == []
    world.api.volume_extend(world.context(), world.attached(), 5, attached=True)
    world.done()
    assert extensions(world) == [("Success", None)]


def test_failed_extension_leaves_the_size(world: Volumes) -> None:
    volume_id = world.attached()
    world.api.volume_extend(world.context(), volume_id, 5, attached=True)
    host, work = world.hosts.works[-1]
    assert (host, work.instance_uuid) == (world.host, world.uuid), "its guest has to learn the new size"
    with pytest.raises(exceptions.InvalidVolume):
        world.detach(volume_id)
    world.done("no room")
    assert (world.show(volume_id).size, world.status(volume_id)) == (1, ("in-use", world.uuid))
    assert extensions(world) == [("Error", "no room")]
    with pytest.raises(exceptions.InvalidVolume):
        world.api.volume_extend(world.context(), volume_id, 5, attached=False)
    with pytest.raises(exceptions.InvalidInput):
        world.api.volume_extend(world.context(), volume_id, 1, attached=True)


def test_snapshot_is_made_copied_and_deleted(world: Volumes) -> None:
    volume_id = world.make()
    context = world.context()
    made = world.api.snapshot_create(context, VolumeSnapshot(id=str(uuid.uuid4()), volume_id=volume_id, project_id=""))
    with pytest.raises(exceptions.InvalidSnapshot):
        world.accept(size=0, snapshot_id=made.id)
    world.done()
    with pytest.raises(exceptions.InvalidVolume, match="have snapshots"):
        world.api.volume_delete(context, volume_id)
    copy = world.accept(size=0, snapshot_id=made.id)
    with pytest.raises(exceptions.InvalidSnapshot):
        world.api.snapshot_delete(context, made.id)
    world.done()
    assert world.show(copy.id).size == 1
    world.api.snapshot_delete(context, made.id)
    world.done()
    with pytest.raises(exceptions.SnapshotNotFound):
        world.db.read(volumes.get_snapshot, context, made.id)


def test_volume_and_snapshot_that_an_admin_marked_as_deleting_are_deleted(world: Volumes) -> None:
    """No deletion is under way then. A deletion that is under way is not begun again."""
    volume_id, context = world.make(), world.context()
    made = world.api.snapshot_create(context, VolumeSnapshot(id=str(uuid.uuid4()), volume_id=volume_id, project_id=""))
    world.done()
    world.api.snapshot_update(context, made.id, {"status": "deleting"})
    for _ in range(2):
        world.api.snapshot_delete(context, made.id)
    assert world.count(models.VolumeTask) == 1
    world.done()
    with pytest.raises(exceptions.SnapshotNotFound):
        world.db.read(volumes.get_snapshot, context, made.id)
    world.api.volume_update(context, volume_id, {"status": "deleting"})
    for _ in range(2):
        world.api.volume_delete(context, volume_id)
    assert world.count(models.VolumeTask) == 1
    world.done()
    with pytest.raises(exceptions.VolumeNotFound):
        world.show(volume_id)


def test_volume_is_deleted_with_its_snapshots(world: Volumes) -> None:
    volume_id, context = world.make(), world.context()
    for _ in range(2):
        snapshot = VolumeSnapshot(id=str(uuid.uuid4()), volume_id=volume_id, project_id="")
        world.api.snapshot_create(context, snapshot)
        world.done()
    for _ in range(2):
        world.api.volume_delete(context, volume_id, cascade=True)
    deletions = world.hosts.works[-2:]
    assert [work.verb for _, work in deletions] == ["delete_snapshot"] * world.count(models.VolumeTask)
    for host, work in deletions:
        world.api.finish_volume_work(context, host, work.id, None)
    assert world.hosts.works[-1][1].verb == "delete"
    world.done()
    with pytest.raises(exceptions.VolumeNotFound):
        world.show(volume_id)


def test_volume_stays_if_one_of_its_snapshots_cannot_be_deleted(world: Volumes) -> None:
    volume_id, context = world.make(), world.context()
    world.api.snapshot_create(context, VolumeSnapshot(id=str(uuid.uuid4()), volume_id=volume_id, project_id=""))
    world.done()
    world.api.volume_delete(context, volume_id, cascade=True)
    world.done("the file is busy")
    assert world.status(volume_id) == ("error_deleting", None)


def test_quota_of_volumes_is_enforced(world: Volumes) -> None:
    world.conf.set_override("quota_volumes", 2, "volume")
    world.conf.set_override("quota_gigabytes", 5, "volume")
    volume_id = world.make(size=3)
    with pytest.raises(exceptions.VolumeQuotaExceeded, match="Quota exceeded for gigabytes: requested 3, 3 of 5"):
        world.accept(size=3)
    with pytest.raises(exceptions.VolumeQuotaExceeded):
        world.api.volume_extend(world.context(), volume_id, 6, attached=False)
    world.make()
    with pytest.raises(exceptions.VolumeQuotaExceeded, match="volumes"):
        world.accept()
    with pytest.raises(exceptions.VolumeQuotaExceeded):
        boot(world, blank())
    assert world.count(models.Instance) == 1, "a refused create leaves nothing"


def test_volume_of_another_project_cannot_be_used(world: Volumes) -> None:
    volume_id = world.make()
    stranger = world.context(project="p2")
    for refused in (
        lambda: world.db.read(volumes.get, stranger, volume_id),
        lambda: world.api.volume_delete(stranger, volume_id),
        lambda: world.api.volume_update(stranger, volume_id, {"name": "mine"}),
        lambda: world.api.volume_extend(stranger, volume_id, 2, False),
    ):
        with pytest.raises(exceptions.VolumeNotFound):
            refused()
    theirs = world.api.volume_create(stranger, Volume(id="", project_id="", **NEW), {}).id
    world.done()
    with pytest.raises(exceptions.VolumeNotFound):
        world.attach(theirs)
    with pytest.raises(exceptions.InvalidBDM, match="failed to get volume"):
        boot(world, volume(theirs))


# --- attach and detach


def test_volume_is_attached_and_detached(world: Volumes) -> None:
    volume_id = world.make()
    command = world.attach(volume_id, tag="data")
    (device,) = command.instance.block_devices
    assert (device.device_name, device.tag, device.state) == ("/dev/vdc", "data", DeviceState.ATTACHING)
    assert world.status(volume_id) == ("attaching", world.uuid)
    assert world.instance(world.uuid).task_state == states.ATTACHING_VOLUME
    world.finish(command)
    assert (world.status(volume_id), world.devices()) == (("in-use", world.uuid), [(volume_id, DeviceState.ATTACHED)])
    second = world.make()
    other = world.attach(second)
    assert [item.device_name for item in other.instance.block_devices] == ["/dev/vdc", "/dev/vdd"]
    with pytest.raises(exceptions.InstanceInvalidState):
        world.detach(volume_id)
    world.finish(other)
    world.finish(world.detach(volume_id))
    assert (world.status(volume_id), world.devices()) == (("available", None), [(second, DeviceState.ATTACHED)])
    with pytest.raises(exceptions.VolumeBDMNotFound):
        world.detach(volume_id)


def test_volume_is_attached_to_one_of_two_servers(world: Volumes) -> None:
    volume_id = world.make()
    other = world.built()[0]
    world.attach(volume_id)
    for again in (other, world.uuid):
        with pytest.raises((exceptions.InvalidVolume, exceptions.InstanceInvalidState)):
            world.attach(volume_id, again)
    with pytest.raises(exceptions.InvalidVolume, match="must be 'available'"):
        world.attach(volume_id, other)
    assert world.status(volume_id) == ("attaching", world.uuid)


def test_reservation_is_one_conditional_update(world: Volumes) -> None:
    """Two servers may both read that the volume is available. Here it is taken between read and update."""
    volume_id = world.make()

    def race(uow: UnitOfWork) -> None:
        row = volumes.locked(uow, world.context(), volume_id)
        uow.change(sa.update(models.Volume).values(status="attaching", instance_uuid="another"))
        assert row.status == "available"
        uow.session.expunge(row)
        volumes.reserve(uow, world.context(), volume_id, world.uuid, "a", None)

    with pytest.raises(exceptions.InvalidVolume):
        world.db.write(race)


def test_failed_attachment_releases_the_volume(world: Volumes) -> None:
    volume_id = world.make()
    world.finish(world.attach(volume_id), "no such device")
    assert (world.status(volume_id), world.devices(), world.open_actions()) == (("available", None), [], [])
    shown = world.instance(world.uuid)
    assert (shown.vm_state, shown.task_state) == (states.ACTIVE, None)


def test_silent_host_keeps_the_volume_until_it_has_detached_it(world: Volumes) -> None:
    volume_id = world.make()
    command = world.attach(volume_id)
    world.let_time_pass(3600)
    world.reconciler.sweep()
    assert world.status(volume_id) == ("attaching", world.uuid)
    assert world.open_actions() == [("attach_volume", "detach")]
    undo = world.compute.commands[-1]
    assert undo.method == "rollback_attach_volume"
    world.finish(command, sequence=command.sequence)
    assert world.open_actions() == [("attach_volume", "detach")], "a late report of the attachment changes nothing"
    world.finish(undo, sequence=undo.sequence)
    assert (world.status(volume_id), world.devices(), world.open_actions()) == (("available", None), [], [])


def test_guest_that_does_not_release_the_volume_keeps_it(world: Volumes) -> None:
    volume_id = world.attached()
    world.finish(world.detach(volume_id), "the guest did not release it")
    assert (world.status(volume_id), world.devices()) == (("in-use", world.uuid), [(volume_id, DeviceState.ATTACHED)])
    world.detach(volume_id)
    world.let_time_pass(3600)
    world.reconciler.sweep()
    assert world.status(volume_id) == ("in-use", world.uuid)
    world.finish(world.detach(volume_id))
    assert world.status(volume_id) == ("available", None)


@pytest.mark.parametrize("delete_on_termination", [False, True])
def test_delete_releases_the_volume_after_the_host_has_confirmed(world: Volumes, delete_on_termination: bool) -> None:
    volume_id = world.make()
    world.attach(volume_id, delete_on_termination=delete_on_termination)
    command = world.delete()
    assert world.status(volume_id) == ("attaching", world.uuid), "its guest may have it"
    world.finish(command)
    assert world.status(volume_id) == ("deleting" if delete_on_termination else "available", None)
    world.let_leases_lapse(1)
    world.reconciler.sweep()
    if delete_on_termination:
        world.done()
        with pytest.raises(exceptions.VolumeNotFound):
            world.show(volume_id)


def test_delete_on_a_host_that_is_away_keeps_the_volume(world: Volumes) -> None:
    volume_id = world.attached()
    world.silence(world.host)
    command = world.delete()
    assert world.instance(world.uuid).deleted
    assert world.status(volume_id) == ("in-use", world.uuid)
    assert world.db.read(invariants.find) == []
    world.is_heard(world.host)
    world.finish(command)
    assert world.status(volume_id) == ("available", None)


def test_evacuation_keeps_the_volume(world: Volumes) -> None:
    volume_id = world.attached()
    other = world.make()
    world.attach(other)

    def down(uow: UnitOfWork) -> None:
        row = uow.session.scalars(sa.select(models.Service).where(models.Service.host == world.host)).one()
        row.up, row.forced_down = False, True

    world.db.write(down)
    assert not world.db.read(hosts.is_up, world.host)
    admin = world.context(admin=True)
    world.lifecycle.accept_action(admin, world.uuid, "evacuate", {})
    assert [world.status(item) for item in (volume_id, other)] == [("in-use", world.uuid)] * 2
    assert {state for _, state in world.devices()} == {DeviceState.ATTACHED}


def test_audit_finds_a_volume_of_a_missing_server(world: Volumes) -> None:
    volume_id = world.make()
    world.db.write(
        lambda uow: uow.change(sa.update(models.Volume).values(status="in-use", instance_uuid=str(uuid.uuid4())))
    )
    (problem,) = world.db.read(invariants.find)
    assert (problem.check, problem.subject) == ("volume", f"volume {volume_id}")
    invariants.fix(world.db)
    assert world.status(volume_id) == ("available", None)


# --- boot


def test_server_that_names_an_image_boots_from_any_volume(world: Volumes) -> None:
    """Accept it as Nova does, which checks the volume only if no image is named."""
    volume_id = world.make()
    server, _, _ = world.built(block_devices=[volume(volume_id)], names_image=True)
    assert [device.volume_id for device in world.instance(server).block_devices] == [volume_id]


def test_server_boots_from_a_volume(world: Volumes) -> None:
    volume_id = world.make()
    with pytest.raises(exceptions.InvalidBDM, match="is not bootable"):
        boot(world, volume(volume_id))
    world.api.volume_update(world.context(), volume_id, {"bootable": True})
    server, host, _ = world.built(block_devices=[volume(volume_id), blank(boot_index=None)])
    shown = world.instance(server)
    assert [item.device_name for item in shown.block_devices] == ["/dev/vda", "/dev/vdc"]
    assert world.status(volume_id) == ("in-use", server)
    assert world.status(str(shown.block_devices[1].volume_id)) == ("in-use", server)
    world.uuid, world.host = server, host
    command = world.attach(world.make())
    assert [item.device_name for item in command.instance.block_devices] == ["/dev/vda", "/dev/vdc", "/dev/vdd"]
    world.finish(command)
    with pytest.raises(exceptions.InvalidInput, match="Cannot detach a root device volume"):
        world.detach(volume_id)


def test_volumes_of_a_failed_build_are_deleted_with_the_server(world: Volumes) -> None:
    """A volume that was never made is deleted with its server, whatever ``delete_on_termination`` is."""
    server = boot(world, blank())
    volume_id = str(world.instance(server).block_devices[0].volume_id)
    world.uuid = server
    assert world.status(volume_id) == ("creating", server)
    world.delete()
    assert world.status(volume_id) == ("deleting", None)


def test_several_servers_get_a_new_volume_each(world: Volumes) -> None:
    made = world.create(block_devices=[blank()], min_count=2, max_count=2)
    assert len({world.instance(item).block_devices[0].volume_id for item in made}) == 2
    volume_id = world.make()
    with pytest.raises(exceptions.InvalidInput, match="Cannot attach one or more volumes to multiple instances"):
        world.create(block_devices=[volume(volume_id)], min_count=2, max_count=2)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ({"guest_format": "swap", "volume_size": 9999}, "Swap drive requested is larger"),
        ({"volume_size": 9999}, "Ephemeral disks requested are larger"),
        ({}, "Ephemeral disks requested are larger"),
    ],
)
def test_local_disks_stay_within_the_flavor(world: Volumes, device: dict[str, Any], message: str) -> None:
    local = BlockDevice(uuid="x", source_type=DeviceSource.BLANK, destination_type="local", **device)
    with pytest.raises(exceptions.InvalidInput, match=message):
        boot(world, local)

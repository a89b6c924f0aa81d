"""Images of servers in the conductor: their rows and files after each outcome."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite import objects, operations
from nova_lite.base import exceptions
from nova_lite.conductor.engine.context import lock_action
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.image import images
from nova_lite.db.servers import instances
from nova_lite.image import store
from nova_lite.objects import ActionReport
from nova_lite.operations import states
from nova_lite.virt.fake_disks import QCOW2_HEADER
from tests.support.conductor_world import World

IMAGE = "99999999-9999-4999-8999-999999999999"
DATA = QCOW2_HEADER + b"data"


class Snapshots(World):
    """A world with an ACTIVE server ``uuid``."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.uuid, self.host, self.generation = self.built()
        self.store = store.prepare_below(self.conf.image.store_path)

    def snapshot(self, kind: str = "createImage", image_id: str = IMAGE, **payload: Any) -> objects.ActionCommand:
        image = objects.Image(
            id=image_id, name="snap", status="queued", owner="p1", visibility="private", properties={"a": "b"}
        )
        payload = {"image": msgspec.to_builtins(image), "registered": False, **payload}
        return self.lifecycle.accept_action(self.context(), self.uuid, kind, payload)

    def upload(self, image_id: str = IMAGE, data: bytes = DATA) -> Path:
        """Upload the image, as the host does."""
        path = Path(store.prepare_below(self.store, store.UPLOADS, self.host), image_id)
        path.write_bytes(data)
        changes = {"status": "saving", "size": len(data), "checksum": "c"}
        self.db.write(images.update, self.context(admin=True), image_id, changes)
        return path

    def finish(self, command: objects.ActionCommand, error: str | None = None, power_state: int = 1) -> None:
        self.reports.finish_action(
            self.context(),
            ActionReport(host=self.host, action_id=command.action_id, power_state=power_state, error=error),
        )

    def image(self, image_id: str = IMAGE) -> objects.Image | None:
        return self.db.read(images.by_id, image_id)

    def files(self) -> list[str]:
        return sorted(name for _, _, names in os.walk(self.store) for name in names)

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of the last action of this kind."""

        def read(uow: Any) -> list[dict[str, Any]]:
            rows = uow.session.query(models.InstanceAction).filter_by(action=kind).order_by(models.InstanceAction.id)
            return list(rows.all()[-1].events)

        return self.db.read(read)

    def result(self, kind: str = "createImage") -> list[tuple[str, str | None]]:
        """Return these events with their results."""
        return [(event["event"], event["result"]) for event in self.events(kind)]

    def causes(self, kind: str) -> list[str]:
        return [event["details"] for event in self.events(kind) if event["result"] == "Error"]


@pytest.fixture
def world(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path)


def test_an_image_is_made(world: Snapshots) -> None:
    command = world.snapshot()
    assert (command.method, command.host) == ("snapshot_instance", world.host)
    made = world.image()
    assert made is not None
    assert (made.status, made.properties) == ("queued", {"a": "b"})
    assert world.instance(world.uuid).task_state == states.IMAGE_SNAPSHOT_PENDING
    for task in (states.IMAGE_SNAPSHOT, states.IMAGE_PENDING_UPLOAD, states.IMAGE_UPLOADING):
        assert world.reports.report_task(world.context(), world.host, command.action_id, task)
        assert world.instance(world.uuid).task_state == task
    assert world.reports.report_task(world.context(), world.host, command.action_id, states.IMAGE_SNAPSHOT)
    assert world.instance(world.uuid).task_state == states.IMAGE_UPLOADING, "it does not go back"
    world.upload()
    world.finish(command)
    made = world.image()
    assert made is not None
    assert (made.status, made.size, made.checksum) == ("active", len(DATA), "c")
    assert world.files() == [IMAGE]
    assert Path(world.store, IMAGE).read_bytes() == DATA
    after = world.instance(world.uuid)
    assert (after.vm_state, after.task_state) == (states.ACTIVE, None)
    assert world.open_actions() == []
    assert world.result() == [("compute_snapshot_instance", "Success")]


def test_task_reports_of_other_hosts_are_ignored(world: Snapshots) -> None:
    command = world.snapshot()
    for host, action, task in (("other", command.action_id, states.IMAGE_UPLOADING), (world.host, 99, states.DELETING)):
        assert not world.reports.report_task(world.context(), host, action, task)
    assert world.reports.report_task(world.context(), world.host, command.action_id, states.DELETING)
    assert world.instance(world.uuid).task_state == states.IMAGE_SNAPSHOT_PENDING


def gone(world: Snapshots) -> None:
    assert world.image() is None
    assert world.files() == []
    assert world.open_actions() == []


@pytest.mark.parametrize("uploaded", [False, True])
def test_a_failure_on_the_host_leaves_no_image(world: Snapshots, uploaded: bool) -> None:
    command = world.snapshot()
    if uploaded:
        world.upload()
    world.finish(command, "The disk is full.")
    gone(world)
    after = world.instance(world.uuid)
    assert (after.vm_state, after.task_state) == (states.ACTIVE, None)
    assert world.result() == [("compute_snapshot_instance", "Error")]
    assert not world.reports.report_task(world.context(), world.host, command.action_id, states.IMAGE_UPLOADING)


def test_image_past_its_deadline_is_discarded(world: Snapshots) -> None:
    world.snapshot()
    world.upload()
    world.let_time_pass(world.conf.conductor.action_deadline + 1)
    world.reconciler.sweep()
    assert world.image() is not None, "a snapshot may take longer than other actions"
    world.let_time_pass(world.conf.conductor.snapshot_deadline)
    world.reconciler.sweep()
    gone(world)
    assert world.instance(world.uuid).vm_state == states.ACTIVE


@pytest.mark.parametrize("uploaded", [False, True])
def test_a_delete_meanwhile_takes_the_image_away(world: Snapshots, uploaded: bool) -> None:
    command = world.snapshot()
    if uploaded:
        world.upload()
    delete = world.lifecycle.accept_action(world.context(), world.uuid, "delete", {})
    assert world.image() is None
    assert world.files() == []
    assert world.open_actions() == [("delete", "perform")]
    assert world.instance(world.uuid).task_state == states.DELETING
    world.finish(command)
    world.finish(delete)
    assert world.instance(world.uuid).deleted
    gone(world)


def link(path: Path) -> None:
    path.rename(path.with_suffix(".other"))
    path.symlink_to(path.with_suffix(".other"))


@pytest.mark.parametrize(
    "spoil",
    [
        Path.unlink,
        link,
        lambda path: path.with_suffix(".other").hardlink_to(path),
        lambda path: path.write_bytes(b"no qcow2" * 40),
        lambda path: path.write_bytes(QCOW2_HEADER[:8] + b"\x01" * 504),
    ],
)
def test_invalid_uploaded_file_is_no_image(world: Snapshots, spoil: Callable[[Path], Any]) -> None:
    command = world.snapshot()
    spoil(world.upload())
    world.finish(command)
    assert world.image() is None
    assert not Path(world.store, IMAGE).exists()
    assert world.open_actions() == []


def test_an_image_that_its_owner_deletes_meanwhile_stays_deleted(world: Snapshots) -> None:
    command = world.snapshot()
    world.upload()
    world.db.write(images.delete, world.context(), IMAGE)
    world.finish(command)
    gone(world)
    assert world.instance(world.uuid).vm_state == states.ACTIVE


def test_an_image_that_goes_while_it_is_published_leaves_no_file(world: Snapshots) -> None:
    command = world.snapshot()
    world.upload()
    publish = world.engine.images.publish

    def slow(call: Any) -> None:
        world.lifecycle.accept_action(world.context(), world.uuid, "delete", {})
        publish(call)

    world.engine.images.publish = slow  # type: ignore[method-assign, assignment]
    Path(world.store, "other").write_bytes(b"")
    (path,) = [Path(world.store, store.UPLOADS, world.host, IMAGE)]
    data = path.read_bytes()
    discard = world.engine.images.discard

    def late(call: Any) -> None:
        """Write the file after the discard, as a late publication does."""
        discard(call)
        if not Path(world.store, IMAGE).exists() and not path.exists() and data:
            world.engine.images.discard = discard  # type: ignore[method-assign]
            path.write_bytes(data)

    world.engine.images.discard = late  # type: ignore[method-assign]
    world.finish(command)
    assert world.files() == ["other"]


def test_unavailable_image_service_is_called_again(world: Snapshots) -> None:
    command = world.snapshot()
    world.upload()
    publish, world.engine.images.publish = world.engine.images.publish, _away  # type: ignore[method-assign]
    world.finish(command)
    assert world.open_actions() == [("createImage", "publish")]
    assert world.instance(world.uuid).task_state is not None
    world.engine.images.publish = publish  # type: ignore[method-assign]
    world.let_time_pass(10)
    world.reconciler.sweep()
    assert world.open_actions() == []
    made = world.image()
    assert made is not None
    assert made.status == "active"


def _away(call: Any) -> None:
    raise exceptions.ImageServiceUnavailable


def test_action_shows_why_an_image_could_not_be_published(world: Snapshots) -> None:
    """The host's own part has succeeded. A later failure still has its cause."""
    command = world.snapshot()
    world.upload().unlink()
    world.finish(command)
    assert world.result() == [("compute_snapshot_instance", "Success"), ("conductor_publish", "Error")]


def test_action_shows_what_superseded_a_shelve_during_publication(world: Snapshots) -> None:
    command = world.snapshot("shelve")
    world.upload()
    world.engine.images.publish = _away  # type: ignore[method-assign]
    world.finish(command, power_state=4)
    assert world.open_actions() == [("shelve", "publish")]
    world.lifecycle.accept_action(world.context(), world.uuid, "delete", {})
    assert world.result("shelve") == [("compute_shelve_instance", "Success"), ("conductor_publish", "Error")]
    assert world.causes("shelve") == ["superseded by delete"]
    assert (world.image(), world.open_actions()) == (None, [("delete", "perform")])


def test_failed_discard_of_an_image_published_in_vain_fails_no_action(
    world: Snapshots, caplog: pytest.LogCaptureFixture
) -> None:
    command = world.snapshot()
    world.upload()
    publish = world.engine.images.publish

    def superseded(call: Any) -> None:
        publish(call)
        world.lifecycle.accept_action(world.context(), world.uuid, "delete", {})
        world.engine.images.discard = _away  # type: ignore[method-assign]

    world.engine.images.publish = superseded  # type: ignore[method-assign, assignment]
    world.finish(command)
    assert world.open_actions() == [("delete", "perform")]
    assert f"Image {IMAGE}, which no action needs any more, is left behind: " in caplog.text


def test_failed_discard_is_repeated_and_delays_nothing(world: Snapshots) -> None:
    command = world.snapshot()
    world.upload()
    discard, world.engine.images.discard = world.engine.images.discard, _away  # type: ignore[method-assign]
    world.finish(command, "It broke.")
    assert world.open_actions() == [("createImage", "discard")]
    stop = world.lifecycle.accept_action(world.context(), world.uuid, "stop", {})
    assert sorted(world.open_actions()) == [("createImage", "discard"), ("stop", "perform")]
    world.finish(stop, power_state=4)
    assert world.instance(world.uuid).vm_state == states.STOPPED
    world.let_time_pass(10)
    world.engine.images.discard = discard  # type: ignore[method-assign]
    world.reconciler.sweep()
    gone(world)
    assert world.instance(world.uuid).vm_state == states.STOPPED


@pytest.mark.parametrize("kind", ["createImage", "createBackup", "shelve"])
@pytest.mark.parametrize("vm_state", [states.ERROR, states.SHELVED_OFFLOADED, states.RESCUED])
def test_a_state_without_a_disk_to_copy_is_a_409(world: Snapshots, kind: str, vm_state: str) -> None:
    def change(uow: Any) -> None:
        instance = instances.lock(uow, world.uuid)
        assert instance is not None
        instance.vm_state = vm_state

    world.db.write(change)
    with pytest.raises(exceptions.InstanceInvalidState, match=f"Cannot '{kind}' instance .* in vm_state {vm_state}"):
        world.snapshot(kind)
    assert world.image() is None


def test_second_snapshot_at_the_same_time_is_a_409(world: Snapshots) -> None:
    world.snapshot()
    with pytest.raises(exceptions.InstanceInvalidState, match="task_state image_snapshot_pending"):
        world.snapshot(image_id="99999999-9999-4999-8999-999999999998")
    assert world.count(models.Image) == 1


def test_a_registered_image_has_no_row(world: Snapshots) -> None:
    world.engine.images.has_local_rows = False
    world.snapshot(registered=True)
    assert world.count(models.Image) == 0


def test_repeated_command_has_the_same_image(world: Snapshots) -> None:
    command = world.snapshot()
    world.let_time_pass(60)
    world.reconciler.sweep()
    assert world.compute.commands[-1].payload["image"] == command.payload["image"]
    assert world.db.write(lock_action, command.action_id) is not None
    assert operations.get(command.action, command.payload) is operations.CREATE_IMAGE


def backup(world: Snapshots, number: int, rotation: int, backup_type: str = "daily") -> str:
    """Make a backup, and return its image's id."""
    image_id = f"99999999-9999-4999-8999-99999999990{number}"
    properties = {"image_type": "backup", "backup_type": backup_type, "instance_uuid": world.uuid}
    image = objects.Image(id=image_id, name="b", status="queued", owner="p1", properties=properties)
    command = world.snapshot(
        "createBackup", image=msgspec.to_builtins(image), backup_type=backup_type, rotation=rotation
    )
    assert (command.method, world.instance(world.uuid).task_state) == ("backup_instance", states.IMAGE_BACKUP)
    world.upload(image_id)
    world.finish(command)
    assert world.open_actions() == []
    return image_id


def test_new_backup_deletes_the_oldest(world: Snapshots) -> None:
    other = backup(world, 0, 1, "weekly")
    made = [backup(world, number, 2) for number in (1, 2, 3)]
    assert world.files() == sorted([other, *made[1:]])
    assert [world.image(image_id) is None for image_id in made] == [True, False, False]
    assert backup(world, 4, 0)
    assert world.files() == [other], "a rotation of 0 keeps none"


def test_failed_backup_deletes_no_other_backup(world: Snapshots) -> None:
    first = backup(world, 1, 1)
    command = world.snapshot("createBackup", backup_type="daily", rotation=1)
    world.finish(command, "It broke.")
    assert world.files() == [first]
    assert world.image() is None


def test_rotation_goes_on_beside_the_next_operation(world: Snapshots) -> None:
    first = backup(world, 1, 1)
    command = world.snapshot(
        "createBackup",
        image=msgspec.to_builtins(objects.Image(id=IMAGE, name="b", owner="p1", status="queued")),
        backup_type="daily",
        rotation=0,
    )
    world.upload()
    rotate, world.engine.images.rotate = world.engine.images.rotate, _away  # type: ignore[method-assign]
    world.finish(command)
    stop = world.lifecycle.accept_action(world.context(), world.uuid, "stop", {})
    world.finish(stop, power_state=4)
    assert world.open_actions() == [("createBackup", "rotate")]
    world.engine.images.rotate = rotate  # type: ignore[method-assign]
    world.let_time_pass(10)
    world.reconciler.sweep()
    assert world.open_actions() == []
    assert first not in world.files()


# --- shelve


@pytest.fixture
def shelved(world: Snapshots) -> Snapshots:
    """Return a server that is shelved and not offloaded."""
    world.conf.set_override("shelved_offload_time", 3600)
    command = world.snapshot("shelve")
    assert (command.method, world.instance(world.uuid).task_state) == ("shelve_instance", states.SHELVING)
    world.upload()
    world.finish(command, power_state=4)
    after = world.instance(world.uuid)
    assert (after.vm_state, after.task_state, after.host) == (states.SHELVED, None, world.host)
    assert world.files() == [IMAGE]
    return world


@pytest.fixture
def offloaded(shelved: Snapshots) -> Snapshots:
    vifs = shelved.instance(shelved.uuid).vifs
    command = shelved.lifecycle.accept_action(shelved.context(), shelved.uuid, "shelveOffload", {})
    assert shelved.instance(shelved.uuid).task_state == states.SHELVING_OFFLOADING
    shelved.finish(command, power_state=None)
    after = shelved.instance(shelved.uuid)
    assert (after.vm_state, after.task_state, after.host) == (states.SHELVED_OFFLOADED, None, None)
    assert (after.vifs, after.power_state) == (vifs, 0)
    assert set(shelved.used().values()) == {0}
    assert shelved.instances_used() == 1
    return shelved


def test_shelved_server_is_offloaded_automatically(shelved: Snapshots) -> None:
    shelved.reconciler.sweep()
    assert shelved.open_actions() == []
    shelved.conf.set_override("shelved_offload_time", -1)
    shelved.reconciler.sweep()
    assert shelved.open_actions() == []
    shelved.conf.set_override("shelved_offload_time", 0)
    shelved.reconciler.sweep()
    assert shelved.open_actions() == [("shelveOffload", "perform")]
    command = shelved.compute.commands[-1]
    assert command.method == "shelve_offload_instance"
    shelved.finish(command, "It broke.", power_state=4)
    after = shelved.instance(shelved.uuid)
    assert (after.vm_state, after.host) == (states.SHELVED, shelved.host)
    shelved.reconciler.sweep()
    assert shelved.open_actions() == [], "it is tried again, but not at once"


def test_offload_may_be_requested_although_it_is_automatic(shelved: Snapshots) -> None:
    shelved.conf.set_override("shelved_offload_time", 0)
    shelved.reconciler.sweep()
    (begun,) = shelved.compute.commands[-1:]
    again = shelved.lifecycle.accept_action(shelved.context(), shelved.uuid, "shelveOffload", {})
    assert (again.action_id, shelved.open_actions()) == (begun.action_id, [("shelveOffload", "perform")])
    shelved.finish(begun, power_state=None)
    for _ in range(2):
        shelved.lifecycle.accept_action(shelved.context(), shelved.uuid, "shelveOffload", {})
        assert shelved.open_actions() == []
    after = shelved.instance(shelved.uuid)
    assert (after.vm_state, after.task_state, after.host) == (states.SHELVED_OFFLOADED, None, None)


def test_a_shelved_server_starts_where_it_is(shelved: Snapshots) -> None:
    command = shelved.lifecycle.accept_action(shelved.context(), shelved.uuid, "unshelve", {})
    assert (command.method, command.host) == ("unshelve_instance", shelved.host)
    assert shelved.instance(shelved.uuid).task_state == states.UNSHELVING
    shelved.finish(command)
    after = shelved.instance(shelved.uuid)
    assert (after.vm_state, after.task_state) == (states.ACTIVE, None)
    gone(shelved)


@pytest.mark.parametrize("wanted", [{}, {"host": "host2"}, {"availability_zone": "nova", "host": "host2"}])
def test_an_offloaded_server_is_built_of_its_image(offloaded: Snapshots, wanted: dict[str, Any]) -> None:
    world = offloaded
    vifs = world.instance(world.uuid).vifs
    world.lifecycle.accept_action(world.context(), world.uuid, "unshelve", wanted)
    world.lifecycle.build_instances(world.context(), [world.uuid])
    destination = world.scheduler.specs[-1].requested_destination
    assert (destination and destination.host) == wanted.get("host")
    host, request = world.compute.builds[-1]
    assert request.image is not None
    assert (request.image.id, request.generation) == (IMAGE, world.generation + 1)
    world.reports.start_build(world.context(), world.uuid, host, request.generation)
    assert world.instance(world.uuid).task_state == states.SPAWNING
    world.report(world.uuid, host, request.generation, objects.BuildOutcome.BUILT)
    after = world.instance(world.uuid)
    assert (after.vm_state, after.host, after.vifs) == (states.ACTIVE, host, vifs)
    assert sum(world.used().values()) == 1
    gone(world)
    assert after.image_ref == ""


def test_offloaded_server_without_room_stays_offloaded(offloaded: Snapshots) -> None:
    world = offloaded
    world.lifecycle.accept_action(world.context(), world.uuid, "unshelve", {})
    world.scheduler.error = exceptions.NoValidHost(reason="full", details="")
    world.lifecycle.build_instances(world.context(), [world.uuid])
    after = world.instance(world.uuid)
    assert (after.vm_state, after.task_state, after.fault) == (states.SHELVED_OFFLOADED, None, None)
    assert world.files() == [IMAGE]
    assert world.open_actions() == []
    assert world.result("unshelve") == [("conductor_unshelve_instance", "Error")]
    world.scheduler.error = None
    world.lifecycle.accept_action(world.context(), world.uuid, "unshelve", {})
    world.lifecycle.build_instances(world.context(), [world.uuid])
    host, request = world.compute.builds[-1]
    world.reports.start_build(world.context(), world.uuid, host, request.generation)
    world.report(world.uuid, host, request.generation, objects.BuildOutcome.ABORTED, "The image is gone.")
    assert world.instance(world.uuid).vm_state == states.SHELVED_OFFLOADED
    assert set(world.used().values()) == {0}


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"availability_zone": "none"}, exceptions.AvailabilityZoneUnavailable),
        ({"host": "none"}, exceptions.ComputeHostUnknown),
        ({"availability_zone": None, "host": "host1"}, None),
    ],
)
def test_unsuitable_unshelve_target_is_a_400(
    offloaded: Snapshots, wanted: dict[str, Any], error: type[Exception] | None
) -> None:
    if error is None:
        offloaded.lifecycle.accept_action(offloaded.context(), offloaded.uuid, "unshelve", wanted)
        assert offloaded.instance(offloaded.uuid).requested_availability_zone is None
        return
    with pytest.raises(error):
        offloaded.lifecycle.accept_action(offloaded.context(), offloaded.uuid, "unshelve", wanted)
    assert offloaded.open_actions() == []


def test_unshelve_target_for_a_server_on_a_host_is_refused(shelved: Snapshots) -> None:
    with pytest.raises(exceptions.UnshelveInstanceInvalidState):
        shelved.lifecycle.accept_action(shelved.context(), shelved.uuid, "unshelve", {"host": "host2"})


def test_a_delete_takes_the_image_of_a_shelved_server_with_it(offloaded: Snapshots) -> None:
    offloaded.lifecycle.accept_action(offloaded.context(), offloaded.uuid, "delete", {})
    assert offloaded.instance(offloaded.uuid).deleted
    gone(offloaded)
    assert offloaded.count(models.Port) == 0


def test_delete_of_a_server_that_is_not_offloaded_deletes_its_image(shelved: Snapshots) -> None:
    command = shelved.lifecycle.accept_action(shelved.context(), shelved.uuid, "delete", {})
    shelved.finish(command, power_state=None)
    assert shelved.instance(shelved.uuid).deleted
    gone(shelved)


def test_a_shelve_that_fails_leaves_a_stopped_server(world: Snapshots) -> None:
    command = world.snapshot("shelve")
    world.finish(command, "The disk is full.", power_state=4)
    assert world.instance(world.uuid).vm_state == states.STOPPED
    gone(world)


# --- uploads of users, whose API was killed


def test_abandoned_upload_gives_its_quota_back(world: Snapshots, caplog: pytest.LogCaptureFixture) -> None:
    """An upload that may still be under way keeps it, and so does an image of a server that waits to be published."""
    world.conf.set_override("image_size_total", 100, group="image")
    world.snapshot()
    world.upload()
    ids = [f"{number}" * 8 + IMAGE[8:] for number in range(2)]
    for image_id in ids:
        world.db.write(images.create, objects.Image(id=image_id, name="mine", status="queued", owner="p1"))
        reserved = {"status": "saving", "size": 40 * 2**20}
        world.db.write(images.update, world.context(), image_id, reserved, "queued")

    def age(uow: UnitOfWork) -> None:
        age_of = {ids[0]: 1.0, ids[1]: -1.0, IMAGE: 86400.0}
        for image_id, seconds in age_of.items():
            row = uow.session.get(models.Image, image_id)
            assert row is not None
            row.updated_at = uow.now - datetime.timedelta(seconds=images.upload_seconds(world.conf) + seconds)

    world.db.write(age)
    world.reconciler.sweep()
    shown = {image_id: world.image(image_id) for image_id in (*ids, IMAGE)}
    assert {image_id: image and (image.status, image.size) for image_id, image in shown.items()} == {
        ids[0]: ("queued", 0),
        ids[1]: ("saving", 40 * 2**20),
        IMAGE: ("saving", len(DATA)),
    }
    assert f"Image {ids[0]} is queued again" in caplog.text
    again = {"status": "saving", "size": 50 * 2**20}
    world.db.write(images.update, world.context(), ids[0], again, "queued")

"""Volumes of guests on a host: swaps, copies, shelving, and rebuilds."""

from __future__ import annotations

import json
import os
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.compute.volumes import VolumeWorker
from nova_lite.image import qcow2
from nova_lite.objects import ActionCommand, BlockDevice, Image, VolumeVerb, VolumeWork
from nova_lite.objects.block_device import DeviceSource
from nova_lite.objects.build import Reimage
from nova_lite.operations import states
from nova_lite.operations.states import PowerState
from tests.support.compute_host import LATER, UUID, Host, command, make_instance

GIB = 1024**3
OLD, NEW = "0de0cbd3-6a6e-4f2a-9c8e-5d1c1d1d0001", "0de0cbd3-6a6e-4f2a-9c8e-5d1c1d1d0002"


def device(volume_id: str = OLD, **more: Any) -> BlockDevice:
    values = {"uuid": "a", "source_type": DeviceSource.VOLUME, "destination_type": "volume", "device_name": "/dev/vdc"}
    return BlockDevice(volume_id=volume_id, **{**values, **more})


@pytest.fixture
def host(host: Host) -> Host:
    """Host whose guest has the volume `OLD`. `NEW` is free."""
    host.conf.set_override("store_path", os.path.join(host.conf.state_path, "volumes"), "volume")
    for number, volume_id in enumerate((OLD, NEW)):
        size = number + 1
        host.manager.host.volumes.create(VolumeWork(id=1, verb=VolumeVerb.CREATE, volume_id=volume_id, size=size))
    return host.built(instance=make_instance(block_devices=[device()]))


def order(kind: str, **values: Any) -> ActionCommand:
    made = command(kind, **values)
    made.instance.block_devices = [device()]
    return made


def swap(method: str = "swap_volume", **values: Any) -> ActionCommand:
    payload = {"volume_id": OLD, "new_volume_id": NEW, "size": 2}
    return order("swap_volume", payload=payload, method=method, **values)


def act(host: Host, made: ActionCommand) -> None:
    host.manager.commands[made.method](host.context, made)


def held(host: Host) -> list[str]:
    path = next(Path(host.conf.state_path).rglob(f"domains/{UUID}.json"))
    return list(json.loads(path.read_text())["volumes"])


def test_swap_is_reported_before_the_guest_has_the_new_volume(host: Host) -> None:
    act(host, swap())
    host.settle()
    assert host.conductor.of("report_task") == [(LATER, states.SWAPPING_VOLUME)]
    assert host.conductor.of("finish_action") == [(LATER, PowerState.RUNNING, None)]
    assert held(host) == [NEW]


@pytest.mark.parametrize(
    ("step", "expected"), [("swap_volume", OLD), ("swap_volume_copied", OLD), ("swap_volume_after", NEW)]
)
def test_failed_swap_is_rolled_back_or_reported_as_done(host: Host, step: str, expected: str) -> None:
    host.control(fail_at=[step], fail_error="virt")
    act(host, swap())
    host.settle()
    host.control()
    act(host, swap("rollback_swap_volume", sequence=1))
    host.settle()
    (_, _, failed), (_, _, undone) = host.conductor.of("finish_action")
    assert (bool(failed), undone, held(host)) == (True, None, [expected])
    assert host.manager.host.fencing.get(UUID).result.answer == {"done": expected == NEW}
    assert os.path.getsize(host.manager.host.volumes.require(NEW)) == 2 * GIB


def test_volumes_are_copied_in_one_step(host: Host) -> None:
    snapshot_id = str(uuid.uuid4())
    payload = {"volume_backed": True, "snapshots": {OLD: snapshot_id}}
    act(host, order("createImage", payload=payload, method="snapshot_volumes"))
    host.settle()
    assert host.conductor.of("report_task") == [(LATER, states.IMAGE_SNAPSHOT)]
    assert host.conductor.of("finish_action") == [(LATER, PowerState.RUNNING, None)]
    assert os.path.getsize(os.path.join(host.conf.volume.store_path, "snapshots", snapshot_id)) == GIB


def test_backend_that_makes_snapshots_itself_holds_the_guest(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are: an image of the server, a snapshot of the volume, and a backup of it."""
    held_ids: list[str] = []
    host.conductor.finish_volume_work = lambda *arguments: None  # type: ignore[attr-defined]

    def hold_all(asked: Any, copy: Any, hold: Any) -> None:
        volume_ids = list(asked) if isinstance(asked, dict) else [asked.volume_id]
        with hold(volume_ids):
            held_ids.extend(volume_ids)

    for name in ("create_snapshots_in_use", "create_backup_in_use"):
        monkeypatch.setattr(host.manager.host.volumes, name, hold_all)
    payload = {"volume_backed": True, "snapshots": {OLD: NEW}}
    act(host, order("createImage", payload=payload, method="snapshot_volumes"))
    host.settle()
    worker = VolumeWorker(host.manager.host)
    for verb in (VolumeVerb.SNAPSHOT, VolumeVerb.BACKUP):
        more = {"snapshot_id": NEW, "backup_id": NEW}
        worker._run(VolumeWork(id=len(held_ids), verb=verb, volume_id=OLD, instance_uuid=UUID, **more))
    assert held_ids == [OLD, OLD, OLD]


def test_volumes_of_a_missing_guest_are_not_copied(host: Host) -> None:
    """The guest is on another host by now, and writes to its volume there."""
    reported: list[Any] = []
    host.conductor.finish_volume_work = lambda *arguments: reported.append(arguments[1:])  # type: ignore[attr-defined]
    worker = VolumeWorker(host.manager.host)
    for uuid_, snapshot_id in ((UUID, str(uuid.uuid4())), (str(uuid.uuid4()), str(uuid.uuid4()))):
        work = VolumeWork(id=7, verb=VolumeVerb.SNAPSHOT, volume_id=OLD, snapshot_id=snapshot_id, instance_uuid=uuid_)
        worker._run(work)
    assert [error is None for _, _, error in reported] == [True, False]
    assert len(os.listdir(os.path.join(host.conf.volume.store_path, "snapshots"))) == 1


@pytest.mark.parametrize("disk_format", ["raw", "qcow2"])
def test_image_of_a_volume_is_uploaded_in_its_format(host: Host, disk_format: str) -> None:
    uploaded: list[Any] = []

    def upload(image: Image, source: str, name: str, progress: Any) -> None:
        with open(source, "rb") as file:
            uploaded.append((image.id, name, file.read(4), qcow2.read(source)))

    host.manager.host.images.upload = upload  # type: ignore[method-assign]
    reported: list[Any] = []
    host.conductor.finish_volume_work = lambda *arguments: reported.append(arguments[2:])  # type: ignore[attr-defined]
    image = Image(id="i", name="i", disk_format=disk_format)
    worker = VolumeWorker(host.manager.host)
    worker._run(VolumeWork(id=7, verb=VolumeVerb.UPLOAD, volume_id=NEW, image=image))
    assert reported == [(7, None)]
    ((image_id, name, head, header),) = uploaded
    assert (image_id, name) == ("i", host.manager.host.name)
    if disk_format == "raw":
        assert (head, header) == (b"\0" * 4, None)
    else:
        assert (header.size, header.backing) == (2 * GIB, "")
    assert [entry for entry in os.listdir(host.conf.volume.store_path) if entry.startswith(".")] == []


def test_shelve_shuts_the_guest_down_first(host: Host) -> None:
    steps: list[str] = []
    host.driver.hooks.update({name: lambda *_, name=name: steps.append(name) for name in ("power_off", "destroy")})
    act(host, order("shelve", payload={"volume_backed": True}, method="shelve_volume_backed_instance"))
    host.settle()
    assert (steps, host.domains()) == (["power_off", "destroy"], {})
    assert host.manager.host.volumes.require(OLD)


def test_rebuild_writes_the_volume_before_it_creates_the_guest(host: Host) -> None:
    image = Image(id=str(uuid.uuid4()), name="new", disk_format="raw")
    path = Path(host.conf.image.store_path, image.id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"another image")
    with open(host.manager.host.volumes.require(OLD), "r+b") as file:
        file.write(b"what the guest has written")
    instance = make_instance(block_devices=[device(boot_index=0)])
    host.build(generation=2, instance=instance, reimage=Reimage(volume_id=OLD, size=1, image=image))
    host.settle()
    with open(host.manager.host.volumes.require(OLD), "rb") as file:
        assert file.read(26).rstrip(b"\0") == b"another image"
    assert host.domains() == {UUID: 2}


def test_work_on_backups_is_done_and_reported(host: Host) -> None:
    host.conf.set_override("backup_path", os.path.join(host.conf.state_path, "backups"), "volume")
    reported: list[Any] = []
    host.conductor.finish_volume_work = lambda *arguments: reported.append(arguments[2:])  # type: ignore[attr-defined]
    worker = VolumeWorker(host.manager.host)
    used, free, restored = (str(uuid.uuid4()) for _ in range(3))
    for fields in (
        {"verb": VolumeVerb.BACKUP, "volume_id": OLD, "backup_id": used, "instance_uuid": UUID},
        {"verb": VolumeVerb.BACKUP, "volume_id": NEW, "backup_id": free},
        {"verb": VolumeVerb.VERIFY_BACKUP, "volume_id": NEW, "data_id": used},
        {"verb": VolumeVerb.RESTORE, "volume_id": restored, "data_id": free, "size": 3, "is_new": True},
        {"verb": VolumeVerb.RESTORE, "volume_id": NEW, "data_id": used, "size": 2},
        {"verb": VolumeVerb.DELETE_BACKUP, "volume_id": NEW, "data_id": free},
        {"verb": VolumeVerb.VERIFY_BACKUP, "volume_id": NEW, "data_id": free},
    ):
        worker._run(VolumeWork(id=7, **fields))
    assert [error for _, error in reported[:-1]] == [None] * 6
    assert "its file is missing" in reported[-1][1]
    assert os.listdir(host.conf.volume.backup_path) == [used]
    assert os.path.getsize(host.manager.host.volumes.require(restored)) == 3 * GIB


@pytest.mark.parametrize("is_restarted", [False, True])
def test_late_duplicate_of_a_restoration_leaves_the_volume_alone(host: Host, is_restarted: bool) -> None:
    """A server may have the volume by then, and its guest may have written to it. A restarted host remembers nothing
    and asks the conductor.
    """
    host.conf.set_override("backup_path", os.path.join(host.conf.state_path, "backups"), "volume")
    reported: list[Any] = []
    host.conductor.finish_volume_work = lambda *arguments: reported.append(arguments[2:])  # type: ignore[attr-defined]
    worker, data_id = VolumeWorker(host.manager.host), str(uuid.uuid4())
    worker._run(VolumeWork(id=1, verb=VolumeVerb.BACKUP, volume_id=OLD, backup_id=data_id))
    restoration = VolumeWork(id=2, verb=VolumeVerb.RESTORE, volume_id=NEW, data_id=data_id, size=2)
    worker._run(restoration)
    written = Path(host.manager.host.volumes.require(NEW))
    with written.open("r+b") as file:
        file.write(b"what the guest has written")
    if is_restarted:
        worker = VolumeWorker(host.manager.host)
        host.conductor.ended_volume_work.add((2, NEW))
    worker.start(restoration)
    for thread in [thread for thread in threading.enumerate() if thread.name == f"volume-{NEW}"]:
        thread.join()
    with written.open("rb") as file:
        assert file.read(26) == b"what the guest has written"
    assert reported == [(1, None), (2, None)]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_late_command_makes_no_file_of_a_volume_or_snapshot_that_was_deleted(host: Host, is_restarted: bool) -> None:
    backend, snapshot_id, made = host.manager.host.volumes, str(uuid.uuid4()), str(uuid.uuid4())
    works = [
        VolumeWork(id=1, verb=VolumeVerb.SNAPSHOT, volume_id=NEW, snapshot_id=snapshot_id),
        VolumeWork(id=2, verb=VolumeVerb.CREATE, volume_id=made, size=1),
    ]
    host.conductor.finish_volume_work = lambda *arguments: None  # type: ignore[attr-defined]
    worker = VolumeWorker(host.manager.host)
    for work in works:
        worker._run(work)
    backend.delete_snapshot(snapshot_id)
    backend.delete(made)
    if is_restarted:
        worker = VolumeWorker(host.manager.host)
        host.conductor.ended_volume_work |= {(1, NEW), (2, made)}
    for work in works:
        worker.start(work)
    for thread in [thread for thread in threading.enumerate() if thread.name.startswith("volume-")]:
        thread.join()
    store = Path(host.conf.volume.store_path)
    assert sorted(path.name for path in store.rglob("*") if path.is_file()) == sorted([OLD, NEW])


def test_data_of_what_was_deleted_while_they_were_made_are_removed(host: Host) -> None:
    """Another host has done the work meanwhile, and a user has deleted the result."""
    host.conf.set_override("backup_path", os.path.join(host.conf.state_path, "backups"), "volume")
    host.conductor.finish_volume_work = lambda *arguments: None  # type: ignore[attr-defined]
    worker, source = VolumeWorker(host.manager.host), str(uuid.uuid4())
    worker._run(VolumeWork(id=1, verb=VolumeVerb.BACKUP, volume_id=NEW, backup_id=source))
    made, snapshot_id, backup_id, restored = (str(uuid.uuid4()) for _ in range(4))
    restoration = {"backup_id": source, "data_id": source, "size": 2, "is_new": True}
    for fields, kept in (
        ({"verb": VolumeVerb.CREATE, "volume_id": made, "size": 1}, [made]),
        ({"verb": VolumeVerb.SNAPSHOT, "volume_id": NEW, "snapshot_id": snapshot_id}, [snapshot_id]),
        ({"verb": VolumeVerb.BACKUP, "volume_id": NEW, "backup_id": backup_id}, [backup_id]),
        ({"verb": VolumeVerb.RESTORE, "volume_id": restored, **restoration}, [restored]),
    ):
        for is_needed in (False, True):
            host.conductor.unneeded = set() if is_needed else set(kept)
            worker._run(VolumeWork(id=2, **fields))
            assert [name for name in files_of_volumes(host) if name not in (OLD, NEW, source)] == kept * is_needed
            for path in Path(host.conf.state_path).rglob(kept[0]):
                path.unlink()


def files_of_volumes(host: Host) -> list[str]:
    roots = (host.conf.volume.store_path, host.conf.volume.backup_path)
    return sorted(path.name for root in roots for path in Path(root).rglob("*") if path.is_file())


def test_removal_of_unneeded_data_is_repeated_while_they_are_unneeded(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.conductor.finish_volume_work = lambda *arguments: None  # type: ignore[attr-defined]
    backend, made = host.manager.host.volumes, str(uuid.uuid4())
    host.conductor.unneeded = {made}
    attempts: list[str] = []

    def fail(volume_id: str) -> None:
        attempts.append(volume_id)
        if len(attempts) == 2:
            host.conductor.unneeded = set()
        raise exceptions.VirtDriverError(reason="it is busy")

    monkeypatch.setattr(backend, "delete", fail)
    VolumeWorker(host.manager.host)._run(VolumeWork(id=2, verb=VolumeVerb.CREATE, volume_id=made, size=1))
    assert attempts == [made, made]
    assert backend.require(made)


def test_late_deletion_leaves_what_an_admin_has_reset(host: Host) -> None:
    """Deletions waited for other work until their deadline. By then the volume, snapshot and backup are used again."""
    host.conf.set_override("backup_path", os.path.join(host.conf.state_path, "backups"), "volume")
    host.conductor.finish_volume_work = lambda *arguments: None  # type: ignore[attr-defined]
    worker, made = VolumeWorker(host.manager.host), str(uuid.uuid4())
    worker._run(VolumeWork(id=1, verb=VolumeVerb.SNAPSHOT, volume_id=NEW, snapshot_id=made))
    worker._run(VolumeWork(id=2, verb=VolumeVerb.BACKUP, volume_id=NEW, backup_id=made))
    for number, fields in enumerate(
        (
            {"verb": VolumeVerb.DELETE},
            {"verb": VolumeVerb.DELETE_SNAPSHOT, "snapshot_id": made},
            {"verb": VolumeVerb.DELETE_BACKUP, "data_id": made},
        ),
        start=3,
    ):
        host.conductor.ended_volume_work.add((number, NEW))
        worker._run(VolumeWork(id=number, volume_id=NEW, **fields))
    assert host.manager.host.volumes.require(NEW)
    assert os.path.exists(os.path.join(host.conf.volume.store_path, "snapshots", made))
    assert os.listdir(host.conf.volume.backup_path) == [made]


def test_late_command_of_an_upload_leaves_the_image_alone(host: Host) -> None:
    """The image is active by then. A second upload would make it incomplete forever."""
    image = Image(id=str(uuid.uuid4()), name="copy", status="queued", disk_format="raw", container_format="bare")
    host.conductor.ended_volume_work.add((1, NEW))
    host.manager.host.images.upload = lambda *arguments: pytest.fail("it is uploaded again")  # type: ignore[method-assign]
    VolumeWorker(host.manager.host)._run(VolumeWork(id=1, verb=VolumeVerb.UPLOAD, volume_id=NEW, image=image))


# --- files of Cinder's volumes

BASE, FILE = f"volume-{OLD}", f"volume-{OLD}.new"


class FileVolumes:
    """Backend ``cinder`` of a host, with a volume in a file."""

    def __init__(self) -> None:
        self.file = BASE

    def is_in_file(self, instance_uuid: str, volume_id: str) -> bool:
        return (instance_uuid, volume_id) == (UUID, OLD)

    def switched(self, instance_uuid: str, volume_id: str, new_file: str) -> None:
        assert (instance_uuid, volume_id) == (UUID, OLD)
        self.file = new_file


@pytest.fixture
def in_file(host: Host) -> FileVolumes:
    """Backend that has the guest's volume in the file `BASE`."""
    path = next(Path(host.conf.state_path).rglob(f"domains/{UUID}.json"))
    domain = json.loads(path.read_text())
    path.write_text(json.dumps({**domain, "volume_files": {OLD: [BASE]}}))
    made = FileVolumes()
    object.__setattr__(host.manager.host, "volumes", made)
    return made


def on_file(verb: str, method: str = "", **values: Any) -> ActionCommand:
    kind = f"volume_snapshot_{verb}"
    names = {"new_file": FILE} if verb == "create" else {"file_to_merge": None, "merge_target_file": None}
    payload = {"volume_id": OLD, "snapshot_id": NEW, **names, **values.pop("payload", {})}
    return order(kind, payload=payload, method=f"{method}{kind}", **values)


def files_of(host: Host) -> list[str]:
    names: list[str] = host.manager.host.driver.volume_files.names(UUID, OLD)  # type: ignore[attr-defined]
    return names


def test_guest_gets_a_new_file_and_the_old_one_is_merged_into_it(host: Host, in_file: FileVolumes) -> None:
    for _ in range(2):
        act(host, on_file("create"))
        host.settle()
    assert (files_of(host), in_file.file) == ([FILE, BASE], FILE)
    act(host, on_file("delete", action_id=LATER + 1))
    host.settle()
    assert files_of(host) == [FILE]
    assert [error for _, _, error in host.conductor.of("finish_action")] == [None] * 3


@pytest.mark.parametrize(("step", "done"), [("snapshot_volume_file", False), ("snapshot_volume_file_after", True)])
def test_snapshot_of_a_file_fails_only_if_the_guest_has_the_old_one(
    host: Host, in_file: FileVolumes, step: str, done: bool
) -> None:
    host.control(fail_at=[step], fail_error="virt")
    act(host, on_file("create"))
    host.settle()
    ((_, _, error),) = host.conductor.of("finish_action")
    assert bool(error) != done
    act(host, on_file("create", "rollback_", sequence=1))
    host.settle()
    assert host.manager.host.fencing.get(UUID).result.answer == {"done": done}
    assert (files_of(host)[0], in_file.file) == ((FILE, FILE) if done else (BASE, BASE))


@pytest.mark.parametrize(("step", "done"), [("merge_volume_files", False), ("merge_volume_files_after", True)])
def test_merge_fails_only_if_the_files_are_not_merged(host: Host, in_file: FileVolumes, step: str, done: bool) -> None:
    act(host, on_file("create"))
    host.settle()
    host.control(fail_at=[step], fail_error="virt")
    act(host, on_file("delete", action_id=LATER + 1))
    host.settle()
    (*_, (_, _, error)) = host.conductor.of("finish_action")
    assert bool(error) != done
    act(host, on_file("delete", "rollback_", action_id=LATER + 1, sequence=1))
    host.settle()
    assert host.manager.host.fencing.get(UUID).result.answer == {"done": done}
    assert files_of(host) == ([FILE] if done else [FILE, BASE])


@pytest.mark.parametrize(
    "made",
    [
        on_file("create", payload={"new_file": "../disk"}),
        on_file("delete", payload={"file_to_merge": "/etc/passwd"}),
        on_file("create", payload={"volume_id": NEW}),
    ],
)
def test_work_on_other_files_fails(host: Host, in_file: FileVolumes, made: ActionCommand) -> None:
    act(host, made)
    host.settle()
    ((_, _, error),) = host.conductor.of("finish_action")
    assert (bool(error), files_of(host)) == (True, [BASE])


def test_rollback_for_a_volume_that_the_guest_has_lost_is_over(host: Host, in_file: FileVolumes) -> None:
    host.manager.host.driver.volumes.detach(UUID, OLD, 0)  # type: ignore[attr-defined]
    for number, verb in enumerate(("create", "delete")):
        act(host, on_file(verb, "rollback_", action_id=LATER + number, sequence=1))
        host.settle()
        assert host.manager.host.fencing.get(UUID).result.answer == {"done": False}

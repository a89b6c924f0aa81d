"""Servers that boot from volumes: their images, rescue, rebuild and shelving; and swaps of volumes."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from nova_lite import objects, operations
from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.image import images
from nova_lite.db.servers import flavors
from nova_lite.db.upkeep import invariants
from nova_lite.db.volume import volumes
from nova_lite.image import snapshots
from nova_lite.objects import ActionReport, Image, VolumeSnapshot, VolumeVerb
from nova_lite.operations import states
from tests.support.conductor_world import BUILT
from tests.support.world_volumes import Volumes, blank, boot, volume

GIB = 1024**3
OLD = Image(id="a" * 32, name="old", size=100)
OTHER = Image(id="b" * 32, name="other", size=100, properties={"os": "other"})
BIG = Image(id="c" * 32, name="big", size=100, min_disk=9)
STABLE = Image(id="d" * 32, name="r", properties={"hw_rescue_device": "disk", "hw_rescue_bus": "virtio"})


class Booted(Volumes):
    """A world whose server boots from the volume ``root``, made of `OLD`, and has the volume ``data``."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        for image in (OLD, OTHER, BIG, STABLE):
            self.db.write(images.create, image)
        named = Image(id=OLD.id, name="", disk_format="", container_format="")
        self.root = self.make(image=named)
        self.uuid, self.host, self.generation = self.built(block_devices=[volume(self.root)])
        self.data = self.attached()

    def act(self, kind: str, admin: bool = False, **payload: Any) -> objects.ActionCommand:
        return self.lifecycle.accept_action(self.context(admin=admin), self.uuid, kind, payload)

    def rebuild(self, image: Image, **payload: Any) -> objects.ActionCommand:
        return self.act("rebuild", image_ref=image.id, images={}, changes={}, injected_files={}, **payload)

    def make_image(self) -> tuple[objects.ActionCommand, str, dict[str, str]]:
        instance = self.instance(self.uuid)
        image = snapshots.image_of(self.context(), instance, "copy", snapshots.SNAPSHOT, {})
        image, named = snapshots.of_volumes(image, instance)
        payload = {"image": msgspec.to_builtins(image), "registered": False, "snapshots": named}
        return self.act("createImage", **payload), image.id, named

    def snapshot(self, snapshot_id: str) -> VolumeSnapshot:
        return self.db.read(volumes.get_snapshot, self.context(admin=True), snapshot_id)

    def force_down(self) -> None:
        query = sa.update(models.Service).where(models.Service.host == self.host)
        self.db.write(lambda uow: uow.session.execute(query.values(up=False, forced_down=True)))


@pytest.fixture
def world(tmp_path: Path) -> Booted:
    return Booted(tmp_path)


# --- images


def test_image_of_a_volume_backed_server_names_snapshots(world: Booted) -> None:
    command, image_id, named = world.make_image()
    assert (command.method, command.payload["snapshots"], set(named)) == (
        "snapshot_volumes",
        named,
        {world.root, world.data},
    )
    shown = world.instance(world.uuid)
    assert shown.task_state == states.IMAGE_SNAPSHOT_PENDING
    image = world.db.read(images.get, world.context(), image_id)
    assert (image.status, image.size, image.min_disk) == ("queued", 0, 0)
    assert [world.snapshot(item).status for item in named.values()] == ["creating"] * 2
    world.finish(command, sequence=command.sequence)
    image = world.db.read(images.get, world.context(), image_id)
    assert (image.status, world.instance(world.uuid).task_state, world.open_actions()) == ("active", None, [])
    assert {world.snapshot(item).status for item in named.values()} == {"available"}
    assert world.snapshot(named[world.root]).name == "snapshot for copy"
    root, data = json.loads(image.properties["block_device_mapping"])
    assert (root["source_type"], root["destination_type"], root["boot_index"]) == ("snapshot", "volume", 0)
    assert (root["snapshot_id"], data["snapshot_id"], data["volume_size"]) == (named[world.root], named[world.data], 1)
    assert (image.properties["bdm_v2"], image.properties["root_device_name"]) == ("True", "/dev/vda")


def test_server_of_such_an_image_gets_volumes_of_the_snapshots(world: Booted) -> None:
    command, image_id, named = world.make_image()
    world.finish(command, sequence=command.sequence)
    server, _, _ = world.built(image_ref=image_id)
    shown = world.instance(server)
    assert [(item.snapshot_id, item.boot_index) for item in shown.block_devices] == [
        (named[world.root], 0),
        (named[world.data], None),
    ]
    made = [world.show(str(item.volume_id)) for item in shown.block_devices]
    assert [(item.status, item.snapshot_id, item.instance_uuid) for item in made] == [
        ("in-use", item, server) for item in named.values()
    ]
    assert (shown.image_ref, shown.system_metadata) == (image_id, {})
    request = world.compute.builds[-1][1]
    assert request.image is not None and request.image.id == OLD.id
    assert len(boot(world, blank(boot_index=None), image_ref=image_id)) == 36
    for refused in (
        lambda: world.rebuild(Image(id=image_id, name=""), reimage_boot_volume=True),
        lambda: world.accept(image=Image(id=image_id, name="")),
    ):
        with pytest.raises(exceptions.ImageUnacceptable, match="it has no data"):
            refused()


@pytest.mark.parametrize(
    "mapping",
    [
        "no json",
        "[]",
        '[{"source_type": "snapshot", "destination_type": "volume", "boot_index": 0}]',
        '[{"source_type": "volume", "destination_type": "volume", "boot_index": 0, "volume_size": 1}]',
        '[{"source_type": "blank", "destination_type": "volume", "boot_index": 0, "volume_size": 1}]',
    ],
)
def test_image_with_invalid_block_devices_is_refused(world: Booted, mapping: str) -> None:
    properties = {"block_device_mapping": mapping, "bdm_v2": "True"}
    world.db.write(images.create, Image(id="e" * 32, name="mine", properties=properties))
    with pytest.raises(exceptions.InvalidBDM):
        world.create(image_ref="e" * 32)


@pytest.mark.parametrize("how", ["fails", "is deleted"])
def test_failed_image_leaves_no_snapshots(world: Booted, how: str) -> None:
    command, image_id, named = world.make_image()
    if how == "fails":
        world.finish(command, "no room", sequence=command.sequence)
        assert (world.instance(world.uuid).vm_state, world.instance(world.uuid).task_state) == (states.ACTIVE, None)
    else:
        world.delete()
    with pytest.raises(exceptions.ImageNotFound):
        world.db.read(images.get, world.context(), image_id)
    assert {world.snapshot(item).status for item in named.values()} == {"deleting"}
    world.let_leases_lapse(31)
    before = len(world.hosts.works)
    world.reconciler.sweep()
    works = [work for _, work in world.hosts.works[before:]]
    assert {work.verb for work in works} == {VolumeVerb.DELETE_SNAPSHOT}
    assert {work.instance_uuid for work in works} == {world.uuid}, "the host may still work on the snapshots"


def test_image_of_changed_volumes_is_refused(world: Booted) -> None:
    instance = world.instance(world.uuid)
    image = snapshots.image_of(world.context(), instance, "copy", snapshots.SNAPSHOT, {})
    payload = {"image": msgspec.to_builtins(image), "snapshots": {world.root: str(uuid.uuid4())}}
    with pytest.raises(exceptions.InvalidInput, match="have changed"):
        world.act("createImage", **payload)


def test_backup_of_a_volume_backed_server_is_refused(world: Booted) -> None:
    with pytest.raises(exceptions.Invalid, match=r"^Backup is not supported for volume-backed instances\.$") as caught:
        world.act("createBackup", image={}, rotation=1, backup_type="daily")
    assert caught.value.code == 400


# --- snapshots of attached volumes


def test_snapshot_of_an_attached_volume_needs_force(world: Booted) -> None:
    requested = VolumeSnapshot(id=str(uuid.uuid4()), volume_id=world.data, project_id="")
    with pytest.raises(exceptions.InvalidVolume, match="copied with force"):
        world.api.snapshot_create(world.context(), requested)
    world.api.snapshot_create(world.context(), requested, force=True)
    host, work = world.hosts.works[-1]
    assert (host, work.instance_uuid, work.verb) == (world.host, world.uuid, VolumeVerb.SNAPSHOT)
    world.done()
    assert world.snapshot(requested.id).status == "available"


def test_snapshot_of_a_detached_volume_is_made_by_any_host(world: Booted) -> None:
    requested = VolumeSnapshot(id=str(uuid.uuid4()), volume_id=world.data, project_id="")
    world.hosts.away = True
    world.api.snapshot_create(world.context(), requested, force=True)
    world.hosts.away = False
    world.finish(world.detach(world.data))
    world.let_leases_lapse(31)
    world.reconciler.sweep()
    assert world.hosts.works[-1][1].instance_uuid is None


# --- rescue


def test_rescue_needs_an_image_with_a_stable_rescue_disk(world: Booted) -> None:
    for image, allowed in ((STABLE, False), (OTHER, True)):
        with pytest.raises(exceptions.InstanceNotRescuable, match="Cannot rescue a volume-backed instance") as caught:
            world.act("rescue", image_ref=image.id, images={}, allow_bfv_rescue=allowed)
        assert caught.value.code == 400
    command = world.act("rescue", image_ref=STABLE.id, images={}, allow_bfv_rescue=True)
    assert (command.method, command.payload["image"]["id"]) == ("rescue_instance", STABLE.id)


# --- rebuild


def test_rebuild_with_another_image_is_refused_before_2_93(world: Booted) -> None:
    message = "Unable to rebuild with a different image for a volume-backed server."
    with pytest.raises(exceptions.ImageUnacceptable, match=message) as caught:
        world.rebuild(OTHER)
    assert caught.value.code == 400
    command = world.rebuild(OLD)
    assert command.build is not None and command.build.reimage is None, "the volume stays as it is"


def test_rebuild_overwrites_the_volume_since_2_93(world: Booted) -> None:
    with pytest.raises(
        exceptions.InvalidInput, match="Volume size 1GB cannot be smaller than the image minDisk size 9"
    ):
        world.rebuild(BIG, reimage_boot_volume=True)
    command = world.rebuild(OTHER, reimage_boot_volume=True)
    request = command.build
    assert request is not None and request.reimage is not None
    assert (request.reimage.volume_id, request.reimage.size, request.reimage.image.id) == (world.root, 1, OTHER.id)
    world.report(world.uuid, world.host, request.generation, BUILT)
    shown = world.instance(world.uuid)
    assert (shown.vm_state, shown.image_ref, shown.system_metadata) == (states.ACTIVE, "", {"image_os": "other"})
    image = world.show(world.root).image
    assert image is not None and image.id == OTHER.id
    again = world.rebuild(OTHER)
    assert again.build is not None and again.build.reimage is None


def test_image_of_a_full_disk_fits_into_its_volume(world: Booted) -> None:
    """The file is larger than the disk, because it also has the tables of its format."""
    full = Image(id="e" * 32, name="full", size=GIB + 3 * 2**17, virtual_size=GIB)
    compressed = Image(id="f" * 32, name="compressed", size=GIB // 2, virtual_size=GIB + 1)
    for image in (full, compressed):
        world.db.write(images.create, image)
    with pytest.raises(exceptions.InvalidInput, match=r"Volume size 1GB cannot be smaller than .* size 2GB"):
        world.rebuild(compressed, reimage_boot_volume=True)
    with pytest.raises(exceptions.InvalidInput, match=r"Volume size 1GB cannot be smaller than .* size 2GB"):
        world.make(image=compressed)
    assert world.rebuild(full, reimage_boot_volume=True).build is not None
    world.make(image=full)


def test_image_of_a_full_disk_fits_the_flavor(world: Booted) -> None:
    full = Image(id="e" * 32, name="full", size=GIB + 3 * 2**17, virtual_size=GIB)
    world.db.write(images.create, full)
    world.built(image_ref=full.id)


def test_rebuild_does_not_overwrite_a_volume_of_cinder(world: Booted) -> None:
    world.conf.set_override("backend", "cinder", "volume")
    with pytest.raises(exceptions.InvalidVolume, match=rf"volume {world.root}, .* is one of Cinder") as caught:
        world.rebuild(OTHER, reimage_boot_volume=True)
    assert caught.value.code == 400


def test_image_of_a_server_that_boots_from_a_volume_asks_for_no_disk(world: Booted) -> None:
    boot_from_volume(world, OLD, flavor(world, "large", root_gb=20))
    boots, local = world.instance(world.uuid), world.instance(world.built()[0])
    found = [snapshots.image_of(world.context(), item, "i", snapshots.BACKUP, {}).min_disk for item in (boots, local)]
    assert found == [0, 1]


def test_evacuation_completes_an_open_rebuild(world: Booted) -> None:
    world.rebuild(OTHER, reimage_boot_volume=True)
    world.force_down()
    world.act("evacuate", admin=True)
    world.lifecycle.build_instances(world.context(), [world.uuid])
    host, request = world.compute.builds[-1]
    assert host != world.host
    assert request.reimage is not None and request.reimage.volume_id == world.root


def test_evacuation_keeps_the_volume_of_a_rebuilt_server(world: Booted) -> None:
    command = world.rebuild(OTHER, reimage_boot_volume=True)
    assert command.build is not None
    world.report(world.uuid, world.host, command.build.generation, BUILT)
    world.force_down()
    world.act("evacuate", admin=True)
    world.lifecycle.build_instances(world.context(), [world.uuid])
    assert world.compute.builds[-1][1].reimage is None


# --- shelve


def shelved(world: Booted) -> None:
    command = world.act("shelve")
    assert (command.method, command.instance.task_state) == (
        "shelve_volume_backed_instance",
        states.SHELVING_OFFLOADING,
    )
    world.finish(command, sequence=command.sequence)


def test_shelving_makes_no_image_and_keeps_volumes(world: Booted) -> None:
    shelved(world)
    shown = world.instance(world.uuid)
    assert (shown.vm_state, shown.host, shown.task_state) == (states.SHELVED_OFFLOADED, None, None)
    assert [world.status(item) for item in (world.root, world.data)] == [("in-use", world.uuid)] * 2
    assert (world.db.read(invariants.find), world.count(models.Image), world.used()[world.host]) == ([], 4, 1)

    world.act("unshelve")
    world.lifecycle.build_instances(world.context(), [world.uuid])
    host, request = world.compute.builds[-1]
    assert request.image is not None and request.image.id == OLD.id
    world.report(world.uuid, host, request.generation, BUILT)
    assert (world.instance(world.uuid).vm_state, world.open_actions()) == (states.ACTIVE, [])
    assert world.devices() == [(world.root, objects.DeviceState.ATTACHED), (world.data, objects.DeviceState.ATTACHED)]


def test_volumes_of_an_offloaded_server_are_attached_at_once(world: Booted) -> None:
    shelved(world)
    another = world.make()
    command = world.attach(another)
    assert (command.host, world.status(another), world.open_actions()) == (None, ("in-use", world.uuid), [])
    assert command.action_id == world.detach(world.data).action_id - 1
    assert (world.status(world.data), world.open_actions()) == (("available", None), [])
    assert [item for item, _ in world.devices()] == [world.root, another]
    command = world.delete()
    assert world.instance(world.uuid).deleted
    assert world.status(another) == ("available", None)


# --- swap


def swap(world: Booted, new: str, old: str = "") -> objects.ActionCommand:
    return world.act("swap_volume", admin=True, volume_id=old or world.data, new_volume_id=new)


def copied(world: Booted, command: objects.ActionCommand) -> None:
    assert world.reports.report_task(world.context(), world.host, command.action_id, states.SWAPPING_VOLUME)


def test_swapped_volume_replaces_the_old_one(world: Booted) -> None:
    new = world.make(size=2)
    device = world.instance(world.uuid).block_devices[1]
    command = swap(world, new)
    assert (command.method, command.payload["size"]) == ("swap_volume", 2)
    assert [world.status(item) for item in (world.data, new)] == [("in-use", world.uuid), ("attaching", world.uuid)]
    with pytest.raises(exceptions.InstanceInvalidState):
        world.detach(world.data)
    copied(world, command)
    world.finish(command, sequence=command.sequence)
    assert [world.status(item) for item in (world.data, new)] == [("available", None), ("in-use", world.uuid)]
    now = world.instance(world.uuid).block_devices[1]
    assert (now.volume_id, now.volume_size, now.device_name, now.uuid, now.swap_id) == (
        new,
        2,
        device.device_name,
        device.uuid,
        None,
    )
    assert world.open_actions() == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": 1}, "New volume must be the same size or larger."),
        ({"size": 2, "taken": True}, "New volume must be detached in order to swap."),
    ],
)
def test_swap_with_an_unsuitable_volume_is_refused(world: Booted, values: dict[str, Any], message: str) -> None:
    taken = values.pop("taken", False)
    old = world.make(size=2)
    world.finish(world.attach(old))
    new = world.make(**values)
    if taken:
        world.finish(world.attach(new))
    with pytest.raises(exceptions.InvalidVolume, match=message) as caught:
        swap(world, new, old)
    assert caught.value.code == 400
    with pytest.raises(exceptions.VolumeBDMNotFound):
        swap(world, old, str(uuid.uuid4()))
    with pytest.raises(exceptions.VolumeNotFound):
        swap(world, str(uuid.uuid4()), old)


@pytest.mark.parametrize("done", [False, True])
def test_failed_swap_is_rolled_back_or_found_to_be_done(world: Booted, done: bool) -> None:
    new = world.make()
    command = swap(world, new)
    copied(world, command)
    world.finish(command, "the pivot failed", sequence=command.sequence)
    assert world.status(new) == ("attaching", world.uuid), "its guest may have it"
    undo = world.compute.commands[-1]
    assert (undo.method, world.instance(world.uuid).task_state) == ("rollback_swap_volume", states.COPYING_VOLUME)
    world.reports.finish_action(
        world.context(),
        ActionReport(
            host=world.host, action_id=undo.action_id, power_state=1, sequence=undo.sequence, answer={"done": done}
        ),
    )
    kept, given_back = (new, world.data) if done else (world.data, new)
    assert [world.status(item) for item in (kept, given_back)] == [("in-use", world.uuid), ("available", None)]
    assert [item for item, _ in world.devices()] == [world.root, kept]
    assert (world.open_actions(), world.instance(world.uuid).vm_state) == ([], states.ACTIVE)


@pytest.mark.parametrize("at_pivot", [False, True])
def test_evacuation_during_a_swap_keeps_the_complete_volume(world: Booted, at_pivot: bool) -> None:
    new = world.make()
    command = swap(world, new)
    if at_pivot:
        copied(world, command)
    world.force_down()
    world.act("evacuate", admin=True)
    kept, given_back = (new, world.data) if at_pivot else (world.data, new)
    assert [world.status(item) for item in (kept, given_back)] == [("in-use", world.uuid), ("available", None)]
    assert [item for item, _ in world.devices()] == [world.root, kept]


def test_delete_during_a_swap_releases_both_volumes(world: Booted) -> None:
    new = world.make()
    swap(world, new)
    world.finish(world.delete())
    assert [world.status(item) for item in (world.data, new)] == [("available", None)] * 2
    assert world.db.read(invariants.find) == []


def test_swap_is_undone_by_a_rollback_step() -> None:
    row = operations.get("swap_volume", {})
    assert [step.name for step in row.undos(row.steps[-1].name)] == [operations.TAKE_BACK]


# --- images that name block devices


def image_with_devices(world: Booted, *devices: dict[str, Any]) -> str:
    """Return an image of the user's own with this list of devices, which users can write as they like."""
    properties = {"bdm_v2": "True", "block_device_mapping": json.dumps(devices)}
    image = Image(id=str(uuid.uuid4()), name="i", owner=world.context().project_id, status="active")
    world.db.write(images.create, msgspec.structs.replace(image, properties=properties))
    return image.id


def of_another_project(world: Booted) -> tuple[str, str]:
    """Return a volume of another project, and a snapshot of it."""
    context = world.context()
    context.project_id = "other"
    made = world.api.volume_create(context, objects.Volume(id="", project_id="", name="v", size=1), {})
    world.done()
    snapshot = world.api.snapshot_create(
        context, VolumeSnapshot(id=str(uuid.uuid4()), volume_id=made.id, project_id="", name="s")
    )
    world.done()
    return made.id, snapshot.id


FROM_SNAPSHOT = {"source_type": "snapshot", "destination_type": "volume", "boot_index": 0, "volume_size": 1}


def test_image_that_names_a_volume_or_snapshot_of_another_project_gets_neither(world: Booted) -> None:
    volume_id, snapshot_id = of_another_project(world)
    before = world.db.read(lambda uow: uow.session.scalar(sa.select(sa.func.count(models.Volume.id))))
    named = {"source_type": "volume", "destination_type": "volume", "boot_index": 0}
    for device in (
        {**named, "volume_id": volume_id},
        {**named, "uuid": volume_id},
        {**FROM_SNAPSHOT, "volume_id": volume_id},
        {**FROM_SNAPSHOT, "snapshot_id": volume_id},
        {**FROM_SNAPSHOT, "snapshot_id": snapshot_id},
        {**FROM_SNAPSHOT, "snapshot_id": snapshot_id, "volume_id": volume_id},
    ):
        with pytest.raises((exceptions.Invalid, exceptions.NotFound)) as refusal:
            world.built(image_ref=image_with_devices(world, device))
        assert refusal.value.code in (400, 404)
    after = world.db.read(lambda uow: uow.session.scalar(sa.select(sa.func.count(models.Volume.id))))
    assert (after, world.show(volume_id).instance_uuid) == (before, None)


@pytest.mark.parametrize(
    "change",
    [
        {"boot_index": 2**31},
        {"boot_index": 10**30},
        {"volume_size": 2**31},
        {"volume_size": -1},
        {"volume_size": 10**30},
        {"guest_format": "f" * 256},
        {"tag": "t" * 61},
        {"tag": "a,b"},
        {"tag": ""},
        {"snapshot_id": "x"},
        {"disk_bus": "usb"},
        {"boot_index": []},
    ],
)
def test_image_that_names_a_device_beyond_the_limits_is_refused(world: Booted, change: dict[str, Any]) -> None:
    device = {**FROM_SNAPSHOT, "snapshot_id": str(uuid.uuid4()), **change}
    with pytest.raises(exceptions.InvalidBDM, match="cannot be read"):
        world.built(image_ref=image_with_devices(world, device))


@pytest.mark.parametrize("text", ["[" * 2000, "{}", "[1]", "null", "[[]]", "", "[{}]", "\x00"])
def test_image_with_a_malformed_list_of_devices_is_refused(world: Booted, text: str) -> None:
    properties = {"bdm_v2": "True", "block_device_mapping": text}
    image = Image(id=str(uuid.uuid4()), name="i", owner=world.context().project_id, status="active")
    world.db.write(images.create, msgspec.structs.replace(image, properties=properties))
    with pytest.raises(exceptions.InvalidBDM, match="cannot be read"):
        world.built(image_ref=image.id)


# --- flavors without a disk


def flavor(world: Booted, flavor_id: str, **values: Any) -> str:
    made = {"vcpus": 1, "memory_mb": 64, "root_gb": 0, **values}
    world.db.write(flavors.create, objects.Flavor(flavorid=flavor_id, name=flavor_id, **made))
    return flavor_id


def boot_from_volume(world: Booted, image: Image, flavor_id: str) -> None:
    """Replace the world's server by one with this flavor that boots from a volume made of the image."""
    root = world.make(image=Image(id=image.id, name="", disk_format="", container_format=""), size=9)
    world.uuid, world.host, world.generation = world.built(block_devices=[volume(root)], flavor_id=flavor_id)


@pytest.mark.parametrize("root_gb", [0, 1])
def test_volume_backed_server_is_resized_to_a_flavor_with_a_smaller_disk(world: Booted, root_gb: int) -> None:
    """Accept it as Nova does: the root disk is the volume, whose size the flavor does not change."""
    large = flavor(world, "large", root_gb=20)
    boot_from_volume(world, OLD, large)
    command = world.act("resize", flavor_id=flavor(world, "small", root_gb=root_gb))
    assert world.instance(world.uuid).task_state == states.RESIZE_PREP
    assert command.host is None
    with pytest.raises(exceptions.InstanceInvalidState):
        world.act("resize", flavor_id="small")


def test_volume_backed_server_is_resized_although_its_image_needs_a_larger_disk(world: Booted) -> None:
    boot_from_volume(world, BIG, "1")
    world.act("resize", flavor_id=flavor(world, "small"))
    assert world.instance(world.uuid).task_state == states.RESIZE_PREP


def test_server_with_a_local_disk_is_not_resized_to_a_smaller_disk(world: Booted) -> None:
    large = flavor(world, "large", root_gb=20)
    world.uuid, world.host, world.generation = world.built(flavor_id=large)
    for root_gb, sentence in ((0, "Resize to zero disk flavor is not allowed."), (19, "Unable to resize disk down.")):
        with pytest.raises(exceptions.CannotResizeDisk, match=sentence):
            world.act("resize", flavor_id=flavor(world, f"small{root_gb}", root_gb=root_gb))


def test_volume_backed_server_keeps_the_size_of_its_ephemeral_disks(world: Booted) -> None:
    large = flavor(world, "large", ephemeral_gb=2)
    boot_from_volume(world, OLD, large)
    with pytest.raises(exceptions.CannotResizeDisk, match=r"Unable to resize disk down\."):
        world.act("resize", flavor_id=flavor(world, "small", ephemeral_gb=1))


def test_volume_backed_server_without_a_disk_in_its_flavor_is_rebuilt_evacuated_and_migrated(world: Booted) -> None:
    none = flavor(world, "none")

    def fresh() -> None:
        boot_from_volume(world, BIG, none)

    fresh()
    assert world.rebuild(BIG).method == "build_and_run_instance"
    fresh()
    world.act("migrate", admin=True)
    assert world.instance(world.uuid).task_state == states.RESIZE_PREP
    fresh()
    assert world.act("shelve").method == "shelve_volume_backed_instance"
    fresh()
    world.force_down()
    world.act("evacuate", admin=True)
    assert world.instance(world.uuid).task_state == states.REBUILDING

"""The second pass of a create, which needs no database: a request and a snapshot give a plan or an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.conductor.operations.create.validate import Plan, validate
from nova_lite.db.core.models import KeyPair
from nova_lite.db.core.quotas import RESOURCES, QuotaBounds
from nova_lite.db.creates import NO_VOLUMES, BootVolumes, CreateSnapshot, SecurityGroups, incoming_create
from nova_lite.objects import BlockDevice, CreateRequest, Flavor, Image, NetworkRequest, Volume, VolumeSnapshot
from nova_lite.objects.block_device import DeviceSource
from tests.support import make

FLAVOR = Flavor(flavorid="1", name="m1", vcpus=1, memory_mb=64, root_gb=1, ephemeral_gb=2, swap=512)
IMAGE = Image(id="i1", name="image", size=10)
NETWORK = NetworkRequest(network_id="n1")
SNAPSHOT = CreateSnapshot(
    flavor=FLAVOR,
    images={IMAGE.id: IMAGE},
    volumes=NO_VOLUMES,
    key=None,
    limits=QuotaBounds(dict.fromkeys(RESOURCES, -1), {}),
    security_groups=SecurityGroups(["default"], []),
    zone_exists=True,
    unknown_host=None,
    networks=[NETWORK],
)


def planned(snapshot: dict[str, Any] | None = None, **request: Any) -> Plan:
    """Validate a create. ``snapshot``: what is other than in `SNAPSHOT`; ``request``: fields of the request."""
    request = {"name": "vm", "flavor_id": "1", "image_ref": IMAGE.id, **request}
    create = incoming_create(make.context(), CreateRequest(**request))
    return validate(create, SNAPSHOT._replace(**(snapshot or {})))


def image(**changes: Any) -> dict[str, Any]:
    changed = Image(**{"id": "i1", "name": "image", "size": 10, **changes})
    return {"images": {changed.id: changed}}


def boot_volume(**fields: Any) -> list[BlockDevice]:
    return [BlockDevice(uuid="", destination_type="volume", boot_index=0, **fields)]


def local_disk(size: int | None, guest_format: str | None = None) -> BlockDevice:
    return BlockDevice(
        uuid="", source_type=DeviceSource.BLANK, destination_type="local", volume_size=size, guest_format=guest_format
    )


def test_plan_of_a_valid_request_has_everything_that_write_needs() -> None:
    key = KeyPair(name="k", public_key="ssh-rsa")
    plan = planned({"key": key}, key_name="k")
    assert (plan.flavor, plan.boot.image, plan.boot.is_volume, plan.key) == (FLAVOR, IMAGE, False, key)
    assert (plan.networks, plan.new_interfaces, plan.security_groups.names) == ([NETWORK], 1, ["default"])


@pytest.mark.parametrize(
    "error, snapshot, request_fields",
    [
        (exceptions.FlavorUnavailable, {"flavor": None}, {}),
        (exceptions.FlavorUnavailable, {"flavor": make.flavor(disabled=True)}, {}),
        (exceptions.ImageUnavailable, {"images": {}}, {}),
        (exceptions.ImageNotActive, image(status="queued"), {}),
        (exceptions.FlavorDiskTooSmall, image(min_disk=2), {}),
        (exceptions.FlavorDiskTooSmall, image(size=1024**3 + 1), {}),
        (exceptions.FlavorMemoryTooSmall, image(min_ram=65), {}),
        (exceptions.InvalidInput, image(properties={"kernel_id": "k"}), {}),
        (exceptions.KeypairUnavailable, {}, {"key_name": "k"}),
        (exceptions.AvailabilityZoneUnavailable, {"zone_exists": False}, {}),
        (exceptions.ComputeHostUnknown, {"unknown_host": "h1"}, {}),
        (exceptions.NetworkAmbiguous, {"networks": exceptions.NetworkAmbiguous()}, {}),
        (exceptions.Conflict, {"security_groups": exceptions.Conflict("groups")}, {}),
        (exceptions.InvalidInput, {"networks": [NetworkRequest(port_id="p")]}, {"max_count": 2}),
        (exceptions.InvalidInput, {"networks": [NetworkRequest(network_id="n", fixed_ip="::1")]}, {"max_count": 2}),
    ],
)
def test_request_that_does_not_fit_its_snapshot_is_refused(
    error: type[Exception], snapshot: dict[str, Any], request_fields: dict[str, Any]
) -> None:
    with pytest.raises(error):
        planned(snapshot, **request_fields)


def test_errors_are_reported_in_a_fixed_order() -> None:
    snapshot = {"networks": exceptions.NetworkAmbiguous(), "zone_exists": False, "flavor": None}
    with pytest.raises(exceptions.FlavorUnavailable):
        planned(snapshot)
    with pytest.raises(exceptions.AvailabilityZoneUnavailable):
        planned(snapshot | {"flavor": FLAVOR})


@pytest.mark.parametrize(
    "error, limits, request_fields",
    [
        (exceptions.MetadataLimitExceeded, {"metadata_items": 0}, {"metadata": {"a": "b"}}),
        (exceptions.InjectedFileLimitExceeded, {"injected_files": 0}, {"injected_files": {"/f": ""}}),
        (exceptions.InjectedFileLimitExceeded, {"injected_file_path_length": 1}, {"injected_files": {"/f": ""}}),
        (exceptions.InjectedFileLimitExceeded, {"injected_file_content_bytes": 2}, {"injected_files": {"/": "AAAA"}}),
    ],
)
def test_request_over_a_limit_of_its_own_is_refused(
    error: type[Exception], limits: dict[str, int], request_fields: dict[str, Any]
) -> None:
    assert planned(**request_fields)
    with pytest.raises(error):
        planned({"limits": QuotaBounds({**SNAPSHOT.limits.of_project, **limits}, {})}, **request_fields)


def test_image_with_kernel_and_ramdisk_boots_with_both() -> None:
    parts = {part_id: Image(id=part_id, name=part_id) for part_id in ("k", "r")}
    whole = image(properties={"kernel_id": "k", "ramdisk_id": "r"})["images"]
    assert planned({"images": whole | parts | {"other": IMAGE}}).boot.parts == parts


@pytest.mark.parametrize("may_have_zero_disk", [True, False])
def test_flavor_without_root_disk_needs_a_boot_volume_or_a_right(may_have_zero_disk: bool) -> None:
    snapshot = {
        "flavor": Flavor(flavorid="1", name="m", vcpus=1, memory_mb=64, root_gb=0),
        "volumes": BootVolumes({"v": volume()}),
    }
    boots_from_volume = boot_volume(source_type=DeviceSource.VOLUME, volume_id="v")
    assert planned(snapshot, image_ref="", may_have_zero_disk=may_have_zero_disk, block_devices=boots_from_volume)
    if may_have_zero_disk:
        assert planned(snapshot, may_have_zero_disk=True)
    else:
        with pytest.raises(exceptions.BootFromVolumeRequiredForZeroDiskFlavor):
            planned(snapshot, may_have_zero_disk=False)


# --- block devices


def volume(**fields: Any) -> Volume:
    return Volume(**{"id": "v", "project_id": "p1", "size": 1, "bootable": True, **fields})


@pytest.mark.parametrize(
    "disks, fits",
    [
        ([local_disk(1), local_disk(1)], True),
        ([local_disk(1), local_disk(2)], False),
        ([local_disk(None)], True),
        ([local_disk(512, "swap")], True),
        ([local_disk(513, "swap")], False),
    ],
)
def test_local_disks_fit_only_within_those_of_the_flavor(disks: list[BlockDevice], fits: bool) -> None:
    if fits:
        assert planned(block_devices=disks)
        return
    with pytest.raises(exceptions.InvalidInput):
        planned(block_devices=disks)


def test_existing_volume_is_for_one_server_only() -> None:
    devices = boot_volume(source_type=DeviceSource.VOLUME, volume_id="v")
    assert planned({"volumes": BootVolumes({"v": volume()})}, image_ref="", block_devices=devices)
    with pytest.raises(exceptions.InvalidInput, match="multiple instances"):
        planned(
            {"volumes": BootVolumes({"v": volume()})}, image_ref="", block_devices=devices, min_count=1, max_count=2
        )


def test_boot_volume_runs_the_image_that_it_is_made_of() -> None:
    devices = boot_volume(source_type=DeviceSource.VOLUME, volume_id="v")
    boot = planned({"volumes": BootVolumes({"v": volume(image=IMAGE)})}, image_ref="", block_devices=devices).boot
    assert (boot.image, boot.is_volume) == (IMAGE, True)
    devices = boot_volume(source_type=DeviceSource.IMAGE, image_id=IMAGE.id)
    assert planned(image_ref="", block_devices=devices).boot.image == IMAGE


@pytest.mark.parametrize(
    "volumes, device",
    [
        ({}, {"source_type": DeviceSource.VOLUME, "volume_id": "v"}),
        ({"v": volume(bootable=False)}, {"source_type": DeviceSource.VOLUME, "volume_id": "v"}),
        ({}, {"source_type": DeviceSource.SNAPSHOT, "snapshot_id": "s"}),
        ({}, {"source_type": DeviceSource.IMAGE, "image_id": "other"}),
    ],
)
def test_boot_volume_without_usable_source_is_refused(volumes: dict[str, Volume], device: dict[str, Any]) -> None:
    with pytest.raises(exceptions.InvalidBDM):
        planned({"volumes": BootVolumes(volumes)}, image_ref="", block_devices=boot_volume(**device))


def test_volume_that_cinder_has_yet_to_describe_is_left_to_the_reservation() -> None:
    devices = boot_volume(source_type=DeviceSource.VOLUME, volume_id="v")
    assert (
        planned({"volumes": BootVolumes({}, are_complete=False)}, image_ref="", block_devices=devices).boot.image
        is None
    )


def test_image_of_a_volume_backed_server_adds_its_devices() -> None:
    snapshot_id = "11111111-1111-4111-8111-111111111111"
    listed = [
        {
            "source_type": "snapshot",
            "destination_type": "volume",
            "boot_index": 0,
            "snapshot_id": snapshot_id,
        }
    ]
    properties = {"block_device_mapping": json.dumps(listed), "bdm_v2": "true"}
    snapshot = image(size=0, properties=properties) | {
        "volumes": BootVolumes(
            {snapshot_id: VolumeSnapshot(id=snapshot_id, volume_id="v", project_id="p1", image=IMAGE)}
        )
    }
    plan = planned(snapshot)
    assert (plan.boot.image, plan.boot.is_volume) == (IMAGE, True)
    assert [device.snapshot_id for device in plan.create.request.block_devices] == [snapshot_id]
    with pytest.raises(exceptions.InvalidBDM, match="names no volume"):
        planned(image(size=0, properties=properties | {"block_device_mapping": "[]"}))

"""The block devices of a server that is being created: checked against flavor, volumes, snapshots and images, and the
volumes among them made its own."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.operations import volume_sources
from nova_lite.db import block_devices, cinder, volumes
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance
from nova_lite.objects import BlockDevice, CreateRequest, DeviceState, Flavor, Image, Volume
from nova_lite.objects.block_device import PREFIXES, letters, local_count, root_volume

_NAMESPACE = uuid.UUID("a4a6c7b8-51f0-4b0f-8f5a-3a3b6f1f7f2c")


def check(request: CreateRequest, flavor: Flavor) -> None:
    """What can be said without a look at volumes. Raises a 400."""
    devices = request.block_devices
    ephemeral = [each.volume_size or flavor.ephemeral_gb for each in devices if each.is_ephemeral]
    if any(each.is_ephemeral for each in devices) and (sum(ephemeral) > flavor.ephemeral_gb or 0 in ephemeral):
        raise exceptions.InvalidInput(
            reason="Ephemeral disks requested are larger than the instance type allows. If no value is given in a "
            "mapping, all of the flavor's is asked for."
        )
    swap = next((each.volume_size or flavor.swap for each in devices if each.is_swap), 0)
    if swap > flavor.swap or (not swap and any(each.is_swap for each in devices)):
        raise exceptions.InvalidInput(reason="Swap drive requested is larger than instance type allows.")
    if request.max_count > 1 and any(each.volume_id is not None for each in devices):
        raise exceptions.InvalidInput(reason="Cannot attach one or more volumes to multiple instances")


def boot_image(
    uow: UnitOfWork, context: RequestContext, request: CreateRequest, flavor: Flavor
) -> tuple[Image | None, dict[str, Image]] | None:
    """Of a server that boots from a volume: what the volume is made of, its kernel and ramdisk; None for others."""
    root = root_volume(request.block_devices)
    if root is None:
        return None
    image: Image | None = None
    if root.image_id is not None:
        image, parts = _find_image(uow, context, root.image_id, request.images)
    else:
        image = _image_of_cinders(request, root) if cinder.is_backend(uow) else _image_of(uow, context, root)
        parts = {} if image is None else volume_sources.boot_parts(uow, context, image, request.images)
    if image is not None and image.min_ram > flavor.memory_mb:
        raise exceptions.FlavorMemoryTooSmall(flavor_mb=flavor.memory_mb, image_mb=image.min_ram)
    return image, parts


def _image_of_cinders(request: CreateRequest, root: BlockDevice) -> Image | None:
    volume = _described(request, root)
    if volume is not None and root.volume_id is not None and not volume.bootable:
        raise exceptions.InvalidBDM(reason=f"Block Device {root.volume_id} is not bootable.")
    return None if volume is None else volume.image


def _described(request: CreateRequest, device: BlockDevice) -> Volume | None:
    """The volume or snapshot that the device is, or is made of, as the API has read it."""
    return request.volumes.get(device.volume_id or device.snapshot_id or "")


def _image_of(uow: UnitOfWork, context: RequestContext, root: BlockDevice) -> Image | None:
    if root.volume_id is not None:
        volume = _get(root.volume_id, "volume", lambda: volumes.get(uow, context, str(root.volume_id)))
        if not volume.bootable:
            raise exceptions.InvalidBDM(reason=f"Block Device {root.volume_id} is not bootable.")
        found: Image | None = volume.image
        return found
    if root.snapshot_id is not None:
        snapshot = _get(root.snapshot_id, "snapshot", lambda: volumes.get_snapshot(uow, context, str(root.snapshot_id)))
        image: Image | None = snapshot.image
        return image
    return None


def take(uow: UnitOfWork, context: RequestContext, request: CreateRequest, flavor: Flavor, instance: Instance) -> None:
    """Give the instance its devices: volumes that are there are reserved, others are rows from now on, which its host
    makes with the guest."""
    kept: list[BlockDevice] = []
    first = local_count(flavor, request.block_devices) + (root_volume(request.block_devices) is not None)
    names = iter(list(letters(()))[first:])
    order = sorted(request.block_devices, key=lambda each: (each.boot_index is None, each.boot_index or 0))
    for index, asked in enumerate(order):
        device = msgspec.structs.replace(asked, uuid=str(uuid.uuid5(_NAMESPACE, f"{instance.uuid}/{index}")))
        if device.is_volume:
            letter = "a" if device.is_root else _next(names)
            device.device_name = f"/dev/{PREFIXES[device.disk_bus or 'virtio']}{letter}"
            device.state = DeviceState.ATTACHING
            _take_volume(uow, context, request, instance, device)
        kept.append(device)
    block_devices.keep(instance, kept)
    root = root_volume(kept)
    if root is not None:
        instance.root_device_name = root.device_name


def _next(names: Any) -> str:
    letter: str | None = next(names, None)
    if letter is None:
        raise exceptions.InvalidBDM(reason="there are more disks than a server may have.")
    return letter


def _take_volume(
    uow: UnitOfWork, context: RequestContext, request: CreateRequest, instance: Instance, device: BlockDevice
) -> None:
    if cinder.is_backend(uow):
        _take_cinders(uow, request, instance, device)
        return
    if device.volume_id is not None:
        reserved = _get(
            device.volume_id,
            "volume",
            lambda: volumes.reserve(
                uow, context, str(device.volume_id), instance.uuid, device.uuid, device.device_name
            ),
        )
        if reserved.project_id != instance.project_id:
            raise exceptions.InvalidBDM(reason=f"failed to get volume {device.volume_id}.")
        device.volume_size = reserved.size
        return
    volume = Volume(
        id=str(uuid.uuid5(_NAMESPACE, f"volume of {device.uuid}")),
        project_id=instance.project_id,
        user_id=instance.user_id,
        size=device.volume_size or 0,
        volume_type=uow.conf.volume.default_type,
        availability_zone=uow.conf.compute.default_availability_zone,
        snapshot_id=device.snapshot_id,
        instance_uuid=instance.uuid,
        attachment_id=device.uuid,
        device=device.device_name,
    )
    if device.volume_type not in (None, "", uow.conf.volume.default_type):
        raise exceptions.InvalidInput(reason=f"there is no volume type {device.volume_type}")
    if device.image_id is not None:
        volume.image, _ = _find_image(uow, context, device.image_id, request.images)
    try:
        volume_sources.prepare(uow, context, volume)
    except exceptions.SnapshotNotFound as error:
        raise exceptions.InvalidBDM(reason=f"failed to get snapshot {device.snapshot_id}.") from error
    volumes.check_quota(uow, volume.project_id, volumes=1, gigabytes=volume.size)
    volumes.insert(uow, volume)
    device.volume_id, device.volume_size = volume.id, volume.size


def _take_cinders(uow: UnitOfWork, request: CreateRequest, instance: Instance, device: BlockDevice) -> None:
    known = _described(request, device)
    if device.volume_id is not None:
        if known is None:
            raise exceptions.InvalidBDM(reason=f"failed to get volume {device.volume_id}.")
        cinder.reserve(uow, instance, device, known)
        device.volume_size = known.size
        return
    if known is not None:
        device.volume_size = device.volume_size or known.size
    cinder.reserve(uow, instance, device, None)


def images_to_make(uow: UnitOfWork, devices: list[BlockDevice]) -> dict[str, Image]:
    """By id, those that volumes are to be made of which are not there yet."""
    images: dict[str, Image] = {}
    for device in devices:
        row = None if device.image_id is None or device.volume_id is None else volumes.by_id(uow, device.volume_id)
        if row is not None and row.image is not None:
            image = msgspec.convert(row.image, Image)
            images[image.id] = image
    return images


def _find_image(
    uow: UnitOfWork, context: RequestContext, image_id: str, described: dict[str, Image]
) -> tuple[Image, dict[str, Image]]:
    try:
        image, parts = volume_sources.find_images(uow, context, image_id, described)
    except exceptions.ImageUnavailable as error:
        raise exceptions.InvalidBDM(reason=f"failed to get image {image_id}.") from error
    return image, parts


def _get(thing_id: str, what: str, read: Any) -> Any:
    try:
        return read()
    except (exceptions.VolumeNotFound, exceptions.SnapshotNotFound) as error:
        raise exceptions.InvalidBDM(reason=f"failed to get {what} {thing_id}.") from error

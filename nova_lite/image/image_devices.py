"""Block devices that an image names.

The image of a volume-backed server lists snapshots of its volumes, as `nova_lite.image.snapshots` writes them. A server
that is created from such an image gets volumes of these snapshots.
"""

from __future__ import annotations

import json
import uuid
from typing import Annotated, Any, Literal

import msgspec
from oslo_utils import strutils

from nova_lite.base import exceptions
from nova_lite.image.snapshots import DEVICES
from nova_lite.objects import BlockDevice, CreateRequest, Image
from nova_lite.objects.block_device import PREFIXES, DeviceSource, root_volume

_MAX_INT = 2**31 - 1


class _ImageDevice(msgspec.Struct, kw_only=True):
    """A block device, in Nova's words. The owner of an image can write anything there, so it is validated."""

    source_type: DeviceSource
    destination_type: Literal["volume", "local"]
    boot_index: Annotated[int, msgspec.Meta(ge=-1, le=_MAX_INT)] | None = None
    volume_size: Annotated[int, msgspec.Meta(ge=0, le=_MAX_INT)] | None = None
    snapshot_id: uuid.UUID | None = None
    guest_format: Annotated[str, msgspec.Meta(max_length=255)] | None = None
    disk_bus: Literal["virtio", "scsi", "sata", "ide"] | None = None
    delete_on_termination: bool = False
    tag: Annotated[str, msgspec.Meta(min_length=1, max_length=60, pattern="^[^,/]*$")] | None = None


assert set(PREFIXES) == {"virtio", "scsi", "sata", "ide"}


def are_named(image: Image) -> bool:
    """Return whether the image lists block devices in the current form. The old form (of EC2) is ignored."""
    return DEVICES in image.properties and strutils.bool_from_string(image.properties.get("bdm_v2", ""))


def boot_device(image: Image) -> BlockDevice | None:
    """Return the device that the image names to boot from, if it names one."""
    try:
        return root_volume(_parse(image)) if are_named(image) else None
    except exceptions.InvalidBDM:
        return None


def with_devices_of(image: Image, request: CreateRequest) -> CreateRequest:
    """Return the request with the block devices of its image, if the image names any. Raises `InvalidBDM`.

    A swap or ephemeral disk that the request names replaces those of the image.
    """
    if not are_named(image):
        return request
    devices = _parse(image)
    if root_volume(devices) is None:
        raise exceptions.InvalidBDM(reason=f"image {image.id} names no volume to boot from.")
    has_swap = any(device.is_swap for device in request.block_devices)
    has_ephemeral = any(device.is_ephemeral for device in request.block_devices)
    kept = [
        device
        for device in devices
        if not (device.is_swap and has_swap) and not (device.is_ephemeral and has_ephemeral)
    ]
    return msgspec.structs.replace(request, block_devices=[*kept, *request.block_devices])


def _parse(image: Image) -> list[BlockDevice]:
    try:
        listed = msgspec.convert(json.loads(image.properties[DEVICES]), list[_ImageDevice])
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise exceptions.InvalidBDM(reason=f"{DEVICES} of image {image.id} cannot be read: {error}") from error
    return [_device(image, item) for item in listed]


def _device(image: Image, item: _ImageDevice) -> BlockDevice:
    is_snapshot = item.source_type == DeviceSource.SNAPSHOT and item.destination_type == "volume"
    is_blank = item.source_type == DeviceSource.BLANK and item.destination_type == "local"
    if not (is_snapshot and item.snapshot_id is not None) and not is_blank:
        raise exceptions.InvalidBDM(
            reason=f"{DEVICES} of image {image.id} names more than snapshots and blank local disks."
        )
    known: dict[str, Any] = {name: getattr(item, name) for name in _COPIED}
    snapshot_id = None if item.snapshot_id is None else str(item.snapshot_id)
    index = item.boot_index if item.boot_index is not None and item.boot_index >= 0 else None
    return BlockDevice(uuid="", snapshot_id=snapshot_id, boot_index=index, **known)


_COPIED = (
    "source_type",
    "destination_type",
    "volume_size",
    "guest_format",
    "disk_bus",
    "delete_on_termination",
    "tag",
)

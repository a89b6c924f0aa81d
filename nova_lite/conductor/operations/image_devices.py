"""The block devices that the image of a volume-backed server names, as `nova_lite.image.snapshots` writes them: a
server that is created of it gets volumes of their snapshots."""

from __future__ import annotations

import json
import uuid
from typing import Any, Literal

import msgspec
from oslo_utils import strutils

from nova_lite.base import exceptions
from nova_lite.image.snapshots import DEVICES
from nova_lite.objects import BlockDevice, CreateRequest, Image
from nova_lite.objects.block_device import PREFIXES, Source, root_volume


class _Named(msgspec.Struct, kw_only=True):
    """One of them, in Nova's words; an image is its owner's, who may write there what they like."""

    source_type: Source
    destination_type: Literal["volume", "local"]
    boot_index: int | None = None
    volume_size: int | None = None
    snapshot_id: uuid.UUID | None = None
    guest_format: str | None = None
    disk_bus: Literal["virtio", "scsi", "sata", "ide"] | None = None
    delete_on_termination: bool = False
    tag: str | None = None


assert set(PREFIXES) == {"virtio", "scsi", "sata", "ide"}


def are_named(image: Image) -> bool:
    """In the new form of block device mappings; the old one (EC2's) says nothing here."""
    return DEVICES in image.properties and strutils.bool_from_string(image.properties.get("bdm_v2", ""))


def with_devices_of(image: Image, request: CreateRequest) -> CreateRequest:
    """The request, which names nothing to boot from beside its image, with the block devices that this names; local
    disks of the request's own take the place of those of their kind. Raises `InvalidBDM`."""
    named = _of_image(image)
    if root_volume(named) is None:
        raise exceptions.InvalidBDM(reason=f"image {image.id} names no volume to boot from.")
    own_swap = any(each.is_swap for each in request.block_devices)
    own_ephemeral = any(each.is_ephemeral for each in request.block_devices)
    kept = [each for each in named if not (each.is_swap and own_swap) and not (each.is_ephemeral and own_ephemeral)]
    return msgspec.structs.replace(request, block_devices=[*kept, *request.block_devices])


def _of_image(image: Image) -> list[BlockDevice]:
    try:
        found = msgspec.convert(json.loads(image.properties[DEVICES]), list[_Named])
    except (ValueError, msgspec.ValidationError) as error:
        raise exceptions.InvalidBDM(reason=f"{DEVICES} of image {image.id} cannot be read: {error}") from error
    return [_device(image, each) for each in found]


def _device(image: Image, named: _Named) -> BlockDevice:
    is_snapshot = named.source_type == Source.SNAPSHOT and named.destination_type == "volume"
    is_blank = named.source_type == Source.BLANK and named.destination_type == "local"
    if not (is_snapshot and named.snapshot_id is not None) and not is_blank:
        raise exceptions.InvalidBDM(
            reason=f"{DEVICES} of image {image.id} names more than snapshots and blank local disks."
        )
    known: dict[str, Any] = {name: getattr(named, name) for name in _KEPT}
    snapshot_id = None if named.snapshot_id is None else str(named.snapshot_id)
    index = named.boot_index if named.boot_index is not None and named.boot_index >= 0 else None
    return BlockDevice(uuid="", snapshot_id=snapshot_id, boot_index=index, **known)


_KEPT = (
    *("source_type", "destination_type", "volume_size", "guest_format", "disk_bus"),
    *("delete_on_termination", "tag"),
)

"""What a volume is made of: images, snapshots and other volumes, found with the rights of who asks, and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db import images, volumes
from nova_lite.db.engine import UnitOfWork
from nova_lite.image.snapshots import DEVICES
from nova_lite.objects import Image, Volume

GIB = 1024**3


def find_images(
    uow: UnitOfWork, context: RequestContext, image_id: str, described: Mapping[str, Image], data: bool = True
) -> tuple[Image, dict[str, Image]]:
    """An active image, and by id its kernel and ramdisk. ``described``: by id, where the API knows them (Glance). Not
    ``data``: also one that has none, but names the snapshots of a server's volumes."""
    image = _visible(uow, context, described, image_id)
    if image is None:
        raise exceptions.ImageUnavailable()
    if image.status != "active":
        raise exceptions.ImageNotActive(image_id=image.id)
    if data and not image.size and DEVICES in image.properties:
        raise exceptions.ImageUnacceptable(
            image_id=image.id, reason="it has no data, it names snapshots of volumes: create a server of it"
        )
    return image, boot_parts(uow, context, image, described)


def boot_parts(
    uow: UnitOfWork, context: RequestContext, image: Image, described: Mapping[str, Image]
) -> dict[str, Image]:
    parts = {}
    for part, part_id in image.boot_parts():
        found = _visible(uow, context, described, part_id)
        if found is None:
            raise exceptions.InvalidInput(reason=f"image {image.id} names a {part} {part_id} that does not exist")
        parts[part_id] = found
    return parts


def _visible(uow: UnitOfWork, context: RequestContext, described: Mapping[str, Image], image_id: str) -> Image | None:
    if described:
        return described.get(image_id)
    try:
        return images.get(uow, context, image_id)
    except exceptions.ImageNotFound:
        return None


def prepare(uow: UnitOfWork, context: RequestContext, volume: Volume) -> str | None:
    """Check what the volume is to be made of, and have it know its image and size. Returns the id of the volume or
    snapshot that is read, and has to stay. Raises a 4xx."""
    if volume.snapshot_id is not None:
        snapshot = volumes.locked_snapshot(uow, context, volume.snapshot_id)
        if snapshot.status != volumes.AVAILABLE:
            raise exceptions.InvalidSnapshot(
                reason=f"Originating snapshot status must be one of 'available' values, it is {snapshot.status}"
            )
        _inherit(volume, snapshot.size, volumes.snapshot_object(snapshot).image, "snapshot")
        return snapshot.id
    if volume.source_volid is not None:
        source = volumes.locked(uow, context, volume.source_volid)
        if source.status != volumes.AVAILABLE:
            raise exceptions.InvalidVolume(
                reason=f"Invalid source volume: its status must be 'available'. Currently in '{source.status}'"
            )
        _inherit(volume, source.size, volumes.to_object(source).image, "source volume")
        volume.bootable = volume.bootable or source.bootable
        return source.id
    if volume.image is not None:
        image = volume.image
        least = max(image.min_disk, -(-image.size // GIB))
        if volume.size < least:
            raise exceptions.InvalidInput(
                reason=f"Volume size {volume.size}GB cannot be smaller than the image minDisk size {least}GB."
            )
        volume.bootable = True
    if volume.size <= 0:
        raise exceptions.InvalidInput(reason="Volume size must be an integer and greater than 0.")
    return None


def _inherit(volume: Volume, size: int, image: Image | None, what: str) -> None:
    volume.size = volume.size or size
    if volume.size < size:
        raise exceptions.InvalidInput(
            reason=f"Volume size '{volume.size}'GB must not be smaller than that of its {what}, {size}GB."
        )
    volume.image, volume.bootable = image, volume.bootable or image is not None


def work_of(volume: Volume) -> dict[str, Any]:
    """Fields of `VolumeWork` that say what it is made of."""
    image = volume.image if volume.snapshot_id is None and volume.source_volid is None else None
    return {
        "size": volume.size,
        "image": msgspec.to_builtins(image),
        "source_snapshot": volume.snapshot_id,
        "source_volume": volume.source_volid,
    }

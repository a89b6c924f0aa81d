"""Sources of new volumes: an image, a snapshot or another volume. The caller must be allowed to see the source."""

from __future__ import annotations

from typing import Any

import msgspec

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.operations import checks
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.volume import volume_keys, volume_types, volumes
from nova_lite.objects import Image, Volume


def prepare(uow: UnitOfWork, context: RequestContext, volume: Volume) -> str | None:
    """Check the source of a volume, and set the volume's image, size and bootable flag accordingly.

    Returns the id of the source volume or snapshot, which has to exist until it is copied. Raises a 4xx.
    """
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
        least = checks.least_disk_gb(image)
        if volume.size < least:
            raise exceptions.InvalidInput(
                reason=f"Volume size {volume.size}GB cannot be smaller than the image minDisk size {least}GB."
            )
        volume.bootable = True
    if volume.size <= 0:
        raise exceptions.InvalidInput(reason="Volume size must be an integer and greater than 0.")
    return None


def set_type(uow: UnitOfWork, context: RequestContext, volume: Volume) -> None:
    """Set the type of a new volume, and its key if the type has encryption. ``volume_type``: what the user named.

    A volume that is made of an encrypted one is encrypted, too. Raises `InvalidInput` if its type says otherwise.
    """
    source = _source_volume(uow, context, volume)
    source_key = None if source is None else source.encryption_key_id
    reference = volume.volume_type or (source.volume_type if source is not None and source_key is not None else "")
    kind = volume_types.for_volume(uow, context, reference)
    volume.volume_type = kind.name
    volume.multiattach = volume_types.require_multiattach(kind, volume.multiattach)
    if source is not None and (source_key is not None) != (kind.encryption is not None):
        what, other = ("encrypted", "plain") if source_key is not None else ("plain", "encrypted")
        raise exceptions.InvalidInput(
            reason=f"Invalid volume_type provided: its source is {what}, and volumes of type {kind.name} are {other}"
        )
    if source is not None and source_key is not None:
        volume.encryption_key_id = volume_keys.copy(uow, source_key, source.id)
    elif kind.encryption is not None:
        volume.encryption_key_id = volume_keys.create(uow, kind)


def _source_volume(uow: UnitOfWork, context: RequestContext, volume: Volume) -> models.Volume | None:
    """Return the volume that a new one is made of, by a snapshot or itself."""
    if volume.snapshot_id is not None:
        return volumes.by_id(uow, volumes.locked_snapshot(uow, context, volume.snapshot_id).volume_id)
    return None if volume.source_volid is None else volumes.locked(uow, context, volume.source_volid)


def _inherit(volume: Volume, size: int, image: Image | None, source: str) -> None:
    volume.size = volume.size or size
    if volume.size < size:
        raise exceptions.InvalidInput(
            reason=f"Volume size '{volume.size}'GB must not be smaller than that of its {source}, {size}GB."
        )
    volume.image, volume.bootable = image, volume.bootable or image is not None


def work_of(volume: Volume) -> dict[str, Any]:
    """Return the fields of `VolumeWork` that name the source of the volume."""
    image = volume.image if volume.snapshot_id is None and volume.source_volid is None else None
    return {
        "size": volume.size,
        "image": msgspec.to_builtins(image),
        "source_snapshot": volume.snapshot_id,
        "source_volume": volume.source_volid,
    }

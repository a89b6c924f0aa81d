"""Block devices of instances, and the state of their volumes. Callers hold the lock of the instance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import sqlalchemy as sa

from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.volume import attachments, cinder, volume_tasks, volumes
from nova_lite.objects import BlockDevice, DeviceState, Image, VolumeVerb
from nova_lite.objects.block_device import DeviceSource


def of(instance: models.Instance) -> list[BlockDevice]:
    return msgspec.convert(instance.block_devices or [], list[BlockDevice])


def keep(instance: models.Instance, devices: Iterable[BlockDevice]) -> None:
    instance.block_devices = [msgspec.to_builtins(device) for device in devices] or None


def set_state(instance: models.Instance, volume_id: str, state: DeviceState) -> None:
    """Set the state of the device that has this volume."""
    changed = [
        msgspec.structs.replace(item, state=state) if item.volume_id == volume_id else item for item in of(instance)
    ]
    keep(instance, changed)


def in_state(instance: models.Instance, state: DeviceState) -> list[BlockDevice]:
    return [item for item in of(instance) if item.is_volume and item.state == state]


def all_attached(uow: UnitOfWork, instance: models.Instance) -> None:
    """Record that a host has made the guest with all of its devices."""
    if not instance.block_devices:
        return
    devices = [msgspec.structs.replace(item, state=DeviceState.ATTACHED) for item in of(instance)]
    keep(instance, devices)
    for device in devices:
        if device.volume_id is not None:
            used(uow, instance, device)


def used(uow: UnitOfWork, instance: models.Instance, device: BlockDevice) -> None:
    """Record that the guest has this volume."""
    cinder.news(uow, instance.uuid)
    if device.multiattach:
        shared = volumes.by_id(uow, str(device.volume_id), lock=True)
        if shared is not None:
            attachments.mark(uow, shared, instance.uuid, attachments.ATTACHED)
        return
    table = models.Volume
    values = {"status": volumes.IN_USE, "attached_at": uow.now, "updated_at": uow.now}
    mine = (table.id == device.volume_id, table.instance_uuid == instance.uuid)
    uow.change(sa.update(table).where(*mine, table.status != volumes.EXTENDING).values(**values))


def detached(uow: UnitOfWork, instance: models.Instance, device: BlockDevice) -> None:
    """Record that the guest does not have this volume. The volume becomes available; a volume that was never made, or
    only for this instance, is removed.
    """
    keep(instance, [item for item in of(instance) if item.uuid != device.uuid])
    _give_back(uow, instance, device, delete=False)


def swapped(uow: UnitOfWork, instance: models.Instance) -> None:
    """Record that the guest has the new volume of a swap. The old one becomes available."""
    devices = of(instance)
    for device in devices:
        if device.swap_id is None:
            continue
        _give_back(uow, instance, device, delete=False)
        device.volume_id, device.swap_id = device.swap_id, None
        device.source_type, device.image_id, device.snapshot_id = DeviceSource.VOLUME, None, None
        row = volumes.by_id(uow, device.volume_id, lock=True)
        device.volume_size = device.volume_size if row is None else row.size
        used(uow, instance, device)
    keep(instance, devices)


def not_swapped(uow: UnitOfWork, instance: models.Instance) -> None:
    """Record that the guest kept the old volume of a swap. The new one becomes available."""
    devices = of(instance)
    for device in devices:
        if device.swap_id is not None:
            other = msgspec.structs.replace(device, volume_id=device.swap_id)
            _give_back(uow, instance, other, delete=False)
            device.swap_id = None
    keep(instance, devices)


def release(uow: UnitOfWork, instance: models.Instance) -> None:
    """Release all volumes of an instance that is gone, and delete the ones marked delete-on-termination."""
    not_swapped(uow, instance)
    for device in of(instance):
        _give_back(uow, instance, device, delete=device.delete_on_termination)


def _give_back(uow: UnitOfWork, instance: models.Instance, device: BlockDevice, delete: bool) -> None:
    cinder.release(uow, device, delete)
    row = None if device.volume_id is None else volumes.by_id(uow, device.volume_id, lock=True)
    if row is None or instance.uuid not in attachments.servers(uow, row):
        return
    delete = delete or row.status == volumes.CREATING
    changes: dict[str, Any] = {"status": volumes.DELETING if delete else volumes.AVAILABLE}
    if row.multiattach:
        is_last = attachments.remove(uow, row, attachments.of_server(uow, row.id, instance.uuid))
        delete = delete and is_last  # the others keep it
        changes = changes if delete else {}
    else:
        changes |= dict.fromkeys(("instance_uuid", "attachment_id", "device", "attached_at"))
    volumes.change(row, uow, changes)
    uow.session.flush()
    if delete:
        volume_tasks.add(uow, "", VolumeVerb.DELETE, row.id)


def images_for_new_volumes(uow: UnitOfWork, devices: list[BlockDevice]) -> dict[str, Image]:
    """Return the images, by id, from which volumes of these devices will be created."""
    images: dict[str, Image] = {}
    for device in devices:
        row = None if device.image_id is None or device.volume_id is None else volumes.by_id(uow, device.volume_id)
        if row is not None and row.image is not None:
            image = msgspec.convert(row.image, Image)
            images[image.id] = image
    return images

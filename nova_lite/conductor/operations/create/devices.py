"""Block devices of a new server: volumes that exist are reserved for it, rows of others are written.

The host makes the volumes of such rows together with the guest. With Cinder, `nova_lite.conductor.volume.cinder` has
them made instead.
"""

from __future__ import annotations

import string
import uuid
from collections.abc import Iterator

import msgspec

from nova_lite.base import exceptions
from nova_lite.base.ids import derived_id
from nova_lite.conductor.operations import volume_sources
from nova_lite.conductor.operations.create.validate import Plan, device_image
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.volume import block_devices, cinder, sharing, volumes
from nova_lite.hardware import guest
from nova_lite.objects import BlockDevice, DeviceState, Volume
from nova_lite.objects.block_device import PREFIXES, letters, local_count, root_volume

_NAMESPACE = uuid.UUID("a4a6c7b8-51f0-4b0f-8f5a-3a3b6f1f7f2c")


def attach_all(uow: UnitOfWork, plan: Plan, instance: Instance) -> None:
    """Write the block devices of the instance. Raises a 400 or 409 for a volume that it cannot have."""
    requested = plan.create.request.block_devices
    local_disks = local_count(plan.flavor, requested) + (root_volume(requested) is not None)
    free_letters = iter(list(letters(()))[local_disks:])
    devices: list[BlockDevice] = []
    for index, template in enumerate(sorted(requested, key=_boot_order)):
        device = msgspec.structs.replace(template, uuid=derived_id(_NAMESPACE, f"{instance.uuid}/{index}"))
        if device.is_volume:
            letter = "a" if device.is_root else _next(free_letters)
            if device.disk_bus == guest.IDE and letter not in string.ascii_lowercase[: guest.IDE_PLACES]:
                raise exceptions.InvalidBDM(reason=f"an IDE bus has {guest.IDE_PLACES} places, which are in use.")
            device.device_name = f"/dev/{PREFIXES[device.disk_bus or 'virtio']}{letter}"
            device.state = DeviceState.ATTACHING
            if cinder.is_backend(uow):
                _reserve_in_cinder(uow, plan, instance, device)
            elif device.volume_id is not None:
                _reserve(uow, plan, instance, device, device.volume_id)
            else:
                _insert_volume(uow, plan, instance, device)
        devices.append(device)
    block_devices.keep(instance, devices)
    root = root_volume(devices)
    if root is not None:
        instance.root_device_name = root.device_name


def _boot_order(device: BlockDevice) -> tuple[bool, int]:
    return device.boot_index is None, device.boot_index or 0


def _next(free_letters: Iterator[str]) -> str:
    letter = next(free_letters, None)
    if letter is None:
        raise exceptions.InvalidBDM(reason="there are more disks than a server may have.")
    return letter


def _reserve(uow: UnitOfWork, plan: Plan, instance: Instance, device: BlockDevice, volume_id: str) -> None:
    try:
        reserved = volumes.reserve(uow, plan.create.context, volume_id, instance.uuid, device.uuid, device.device_name)
    except exceptions.VolumeNotFound as error:
        raise exceptions.InvalidBDM(reason=f"failed to get volume {volume_id}.") from error
    if reserved.project_id != instance.project_id:
        raise exceptions.InvalidBDM(reason=f"failed to get volume {volume_id}.")
    sharing.give(device, reserved, plan.create.request.multiattach)


def _insert_volume(uow: UnitOfWork, plan: Plan, instance: Instance, device: BlockDevice) -> None:
    volume = Volume(
        id=derived_id(_NAMESPACE, f"volume of {device.uuid}"),
        project_id=instance.project_id,
        user_id=instance.user_id,
        size=device.volume_size or 0,
        volume_type=device.volume_type or "",
        availability_zone=uow.conf.compute.default_availability_zone,
        snapshot_id=device.snapshot_id,
        instance_uuid=instance.uuid,
        attachment_id=device.uuid,
        device=device.device_name,
        multiattach=True,
    )
    if device.image_id is not None:
        volume.image, _ = device_image(plan.images, device.image_id)
    try:
        volume_sources.set_type(uow, plan.create.context, volume)
        volume_sources.prepare(uow, plan.create.context, volume)
    except exceptions.VolumeTypeNotFound as error:
        raise exceptions.InvalidInput(reason=f"there is no volume type {device.volume_type}") from error
    except exceptions.SnapshotNotFound as error:
        raise exceptions.InvalidBDM(reason=f"failed to get snapshot {device.snapshot_id}.") from error
    volumes.check_quota(
        uow, volume.project_id, volumes=1, gigabytes=volume.size, kind=volume.volume_type, size=volume.size
    )
    volumes.insert_for_server(uow, volume)
    device.volume_id, device.volume_size, device.multiattach = volume.id, volume.size, volume.multiattach
    device.encrypted = volume.encryption_key_id is not None


def _reserve_in_cinder(uow: UnitOfWork, plan: Plan, instance: Instance, device: BlockDevice) -> None:
    """Reserve a volume of Cinder, or have Cinder make one. The API has read volumes and snapshots with the user's
    token."""
    source = plan.create.request.volumes.get(device.volume_id or device.snapshot_id or "")
    if device.volume_id is not None:
        if source is None:
            raise exceptions.InvalidBDM(reason=f"failed to get volume {device.volume_id}.")
        sharing.give(device, source, plan.create.request.multiattach)
        cinder.reserve(uow, instance, device, source)
        return
    if source is not None:
        device.volume_size = device.volume_size or source.size
    cinder.reserve(uow, instance, device, None)

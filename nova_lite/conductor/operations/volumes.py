"""Attach, detach and swap volumes, and work on their files.

A volume belongs to the server from the acceptance until a host has reported that the guest does not have it. It stays
the server's when another operation supersedes this one: a delete releases it in the end, and an evacuation builds the
guest with it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.conductor.operations import checks
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.volume import attachments, block_devices, cinder, sharing, volumes
from nova_lite.objects import BlockDevice, DeviceState, Volume
from nova_lite.objects.block_device import DeviceSource, next_name
from nova_lite.objects.flavor import Flavor
from nova_lite.objects.volume import is_file_name
from nova_lite.operations import Step, states

#: Payload of an action on a server without a host, which is done when it is accepted.
OFFLOADED = {"offloaded": True}


class AttachVolumeHandler(OperationHandler):
    """Attaches a volume.

    ``payload``: ``volume_id``, ``attachment_id``, ``tag``, ``delete_on_termination``, and with Cinder its ``volume``.
    ``multiattach``: the API version permits a volume that other servers may have, too.
    """

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        checks.require_free_port(instance)
        devices = block_devices.of(instance)
        if any(device.volume_id == payload["volume_id"] for device in devices):
            raise exceptions.InvalidVolume(reason=f"volume {payload['volume_id']} already attached")
        try:
            name = next_name(msgspec.convert(instance.flavor, Flavor), devices, None)
        except (StopIteration, RuntimeError):
            raise exceptions.Forbidden("No free disk device names: the server has as many disks as it may.") from None
        device = BlockDevice(
            uuid=payload["attachment_id"],
            source_type=DeviceSource.VOLUME,
            destination_type="volume",
            device_name=name,
            volume_id=payload["volume_id"],
            delete_on_termination=payload["delete_on_termination"],
            tag=payload["tag"],
            state=DeviceState.ATTACHING,
        )
        volume = _reserved(uow, context, instance, device, payload)
        sharing.give_to(uow, instance, device, volume, bool(payload.get("multiattach")))
        if instance.vm_state != states.SHELVED_OFFLOADED:
            block_devices.keep(instance, [*devices, device])
            return {"volume_id": device.volume_id, "device": device.uuid}
        device.state = DeviceState.ATTACHED
        block_devices.keep(instance, [*devices, device])
        block_devices.used(uow, instance, device)
        return {"volume_id": device.volume_id, "device": device.uuid, **OFFLOADED}

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        if step.name != operations.PERFORM:
            return
        for device in block_devices.in_state(instance, DeviceState.ATTACHING):
            block_devices.set_state(instance, str(device.volume_id), DeviceState.ATTACHED)
            block_devices.used(uow, instance, device)

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        """Release the volume, because the host has reported that the guest does not have it."""
        for device in block_devices.in_state(instance, DeviceState.ATTACHING):
            block_devices.detached(uow, instance, device)

    def on_superseded(self, uow: UnitOfWork, instance: Instance, by: str) -> None:
        """Keep the volume, because the guest may have it."""


def _reserved(
    uow: UnitOfWork, context: RequestContext, instance: Instance, device: BlockDevice, payload: dict[str, Any]
) -> Volume:
    if cinder.is_backend(uow):
        volume = msgspec.convert(payload["volume"], Volume)
        cinder.reserve(uow, instance, device, volume)
        return volume
    volume = volumes.reserve(uow, context, payload["volume_id"], instance.uuid, device.uuid, device.device_name)
    if volume.project_id != instance.project_id:
        raise exceptions.VolumeNotFound(volume_id=volume.id)
    return volume


def _device_of(instance: Instance, volume_id: str) -> BlockDevice:
    """Return the device of a volume. Raises `VolumeBDMNotFound` if the server does not have the volume."""
    device = next((device for device in block_devices.of(instance) if device.volume_id == volume_id), None)
    if device is None:
        raise exceptions.VolumeBDMNotFound(instance_uuid=instance.uuid, volume_id=volume_id)
    return device


class DetachVolumeHandler(OperationHandler):
    """Detaches a volume. ``payload``: ``volume_id``."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        volume_id = payload["volume_id"]
        device = _device_of(instance, volume_id)
        if device.is_root:
            raise exceptions.InvalidInput(reason="Cannot detach a root device volume")
        row = volumes.by_id(uow, volume_id, lock=True)
        if row is not None:
            if row.status == volumes.EXTENDING:
                raise exceptions.InvalidVolume(reason=f"volume {volume_id} is being extended")
            attachments.detaching(uow, row, instance.uuid)
        if instance.vm_state == states.SHELVED_OFFLOADED:
            block_devices.detached(uow, instance, device)
            return {**payload, **OFFLOADED}
        block_devices.set_state(instance, volume_id, DeviceState.DETACHING)
        return payload

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        for device in block_devices.in_state(instance, DeviceState.DETACHING):
            block_devices.detached(uow, instance, device)

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        """Keep the volume attached, whatever the guest has done. The user may detach it again."""
        block_devices.all_attached(uow, instance)

    def on_superseded(self, uow: UnitOfWork, instance: Instance, by: str) -> None:
        """Keep the volume, because the guest may have it."""


class SwapVolumeHandler(OperationHandler):
    """Replaces the volume ``volume_id`` of ``payload`` by ``new_volume_id``."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        volume_id, new_id = payload["volume_id"], payload["new_volume_id"]
        devices = block_devices.of(instance)
        device = next((device for device in devices if device.volume_id == volume_id), None)
        if device is None:
            raise exceptions.VolumeBDMNotFound(instance_uuid=instance.uuid, volume_id=volume_id)
        old, new = volumes.by_id(uow, volume_id, lock=True), volumes.locked(uow, context, new_id)
        if old is None or new.project_id != instance.project_id:
            raise exceptions.VolumeNotFound(volume_id=new_id)
        if old.status != volumes.IN_USE:
            raise exceptions.InvalidVolume(
                reason=f"volume {volume_id} status must be 'in-use'. Currently in '{old.status}'"
            )
        sharing.require_swappable(device, old, new)
        if new.instance_uuid is not None:
            raise exceptions.InvalidVolume(reason="New volume must be detached in order to swap.")
        if old.encryption_key_id is not None or new.encryption_key_id is not None:
            raise exceptions.InvalidVolume(reason="swapping encrypted volumes is not supported.")
        if uow.conf.volume.backend == "rbd":
            raise exceptions.InvalidVolume(reason="swapping volumes in RBD is not supported.")
        if new.size < old.size:
            raise exceptions.InvalidVolume(reason="New volume must be the same size or larger.")
        volumes.reserve(uow, context, new_id, instance.uuid, device.uuid, device.device_name)
        device.swap_id = new_id
        block_devices.keep(instance, devices)
        return {"volume_id": volume_id, "new_volume_id": new_id, "size": new.size}

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        if step.name == operations.PERFORM:
            block_devices.swapped(uow, instance)

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        """Release the new volume, because the host has reported that the guest has the old one."""
        block_devices.not_swapped(uow, instance)

    def on_superseded(self, uow: UnitOfWork, instance: Instance, by: str) -> None:
        """Keep the volume that the guest has.

        From the second task state on both volumes have the same content and the guest may have either, so the new one
        is kept. Before, the guest has the old one.
        """
        if instance.task_state == states.SWAPPING_VOLUME:
            block_devices.swapped(uow, instance)
        else:
            block_devices.not_swapped(uow, instance)


class VolumeFilesHandler(OperationHandler):
    """Works on the files of a volume for Cinder, which waits for the result.

    ``payload``: ``volume_id``, ``snapshot_id``, and the names of files: ``new_file``, or ``file_to_merge`` and
    ``merge_target_file``, which may be None.
    """

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        volume_id = payload["volume_id"]
        device = _device_of(instance, volume_id)
        if device.state != DeviceState.ATTACHED:
            raise exceptions.InvalidVolume(reason=f"volume {volume_id} is {device.state}")
        names = {payload.get(key) for key in ("new_file", "file_to_merge", "merge_target_file")} - {None}
        if not all(map(is_file_name, names)):
            raise exceptions.InvalidVolume(reason="names of files have no directory, and no special characters")
        return payload

"""Attaching, detaching, swapping and copying of volumes on the host."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from nova_lite.base import exceptions
from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations.snapshot import CommandProgress
from nova_lite.objects import ActionCommand, BlockDevice, VolumeSource
from nova_lite.virt.driver import VolumeAttaching, VolumeCopying

GIB = 1024**3


def attach_volume(host: LocalHost, command: ActionCommand) -> None:
    """Attach the volume ``payload["volume_id"]``, which belongs to one of the instance's block devices."""
    driver = _attaching(host)
    host.require_domain(command)
    device = _device(command)
    driver.attach_volume(command.instance.uuid, device, _source(host, command, device))


def detach_volume(host: LocalHost, command: ActionCommand) -> None:
    """Detach the volume ``payload["volume_id"]``. A missing guest has no volumes."""
    driver = _attaching(host)
    volume_id = str(command.payload["volume_id"])
    if host.domain(command.instance.uuid) is not None:
        driver.detach_volume(command.instance.uuid, volume_id, host.conf.volume.detach_timeout)
    host.volumes.disconnect(command.instance.uuid, volume_id)


def _source(host: LocalHost, command: ActionCommand, device: BlockDevice) -> VolumeSource:
    """Return the volume's source. Wait for another volume service up to ``[cinder] connect_timeout``.

    Raises `VirtDriverError` after that time.
    """
    if not host.volumes.remote:
        return host.local_source(host.volumes.require(str(device.volume_id)))
    deadline = time.monotonic() + host.conf.cinder.connect_timeout

    def check() -> None:
        if time.monotonic() >= deadline:
            raise exceptions.VirtDriverError(reason=f"volume {device.volume_id} could not be connected in time")

    return host.volume_source(command.instance, device, check)


def snapshot_volumes(host: LocalHost, command: ActionCommand) -> None:
    """Make snapshots of volumes in use. ``payload["snapshots"]``: snapshot ids by volume id."""
    host.require_domain(command)
    driver = _copying(host)
    progress = CommandProgress(host, command)
    for task in progress.tasks:
        progress.enter(task)

    def copy(parts: Mapping[str, str]) -> None:
        sources = {volume_id: (host.volumes.require(volume_id), part) for volume_id, part in parts.items()}
        driver.copy_volumes(command.instance.uuid, sources, progress.check)

    host.volumes.create_snapshots_in_use(command.payload["snapshots"], copy)


def swap_volume(host: LocalHost, command: ActionCommand) -> None:
    """Replace the volume ``payload["volume_id"]`` in the guest by ``payload["new_volume_id"]``, with all its content.

    ``payload["size"]``: in GB. `rollback_swap_volume` cleans up after a failure.
    """
    host.require_domain(command)
    driver = _copying(host)
    old, new = _device(command), str(command.payload["new_volume_id"])
    progress = CommandProgress(host, command)

    def on_copied() -> None:
        """Report that the new volume has all the content: from now on a rollback keeps it."""
        for task in progress.tasks:
            progress.enter(task)

    size, path = command.payload["size"] * GIB, host.volumes.require(new)
    driver.swap_volume(command.instance.uuid, old, new, path, size, progress.check, on_copied)


def rollback_swap_volume(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """End a swap. Return in ``done`` whether the guest has the new volume; else it keeps the old one."""
    driver = _copying(host)
    uuid, new = command.instance.uuid, str(command.payload["new_volume_id"])
    done = False
    if host.domain(uuid) is not None:
        done = driver.end_swap(uuid, str(command.payload["volume_id"]), new, command.payload["size"] * GIB)
    if not done:
        host.volumes.extend(new, command.payload["size"])
    return {"done": done}


def _copying(host: LocalHost) -> VolumeCopying:
    if not isinstance(host.driver, VolumeCopying):
        raise exceptions.NotImplementedByDriver(operation="copying volumes in use")
    return host.driver


def _attaching(host: LocalHost) -> VolumeAttaching:
    if not isinstance(host.driver, VolumeAttaching):
        raise exceptions.NotImplementedByDriver(operation="attaching volumes")
    return host.driver


def _device(command: ActionCommand) -> BlockDevice:
    for device in command.instance.block_devices:
        if device.volume_id == command.payload["volume_id"]:
            return device
    raise exceptions.VolumeBDMNotFound(instance_uuid=command.instance.uuid, volume_id=command.payload["volume_id"])

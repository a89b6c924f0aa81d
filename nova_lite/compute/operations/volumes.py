"""Attach, detach, swap and copy volumes: the host's part."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from nova_lite.base import exceptions, failpoints
from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations.snapshot import Progress
from nova_lite.objects import ActionCommand, BlockDevice, VolumeSource
from nova_lite.virt.driver import VolumeAttaching, VolumeCopying

GIB = 1024**3


def attach_volume(host: LocalHost, command: ActionCommand) -> None:
    """``payload["volume_id"]``: of one of the instance's block devices, which the guest is to have."""
    driver = _attaching(host)
    host.require_domain(command)
    device = _device(command)
    driver.attach_volume(command.instance.uuid, device, _source(host, command, device))


def detach_volume(host: LocalHost, command: ActionCommand) -> None:
    """The guest does not have it any more. A guest that is not here has nothing."""
    driver = _attaching(host)
    volume_id = str(command.payload["volume_id"])
    if host.domain(command.instance.uuid) is not None:
        driver.detach_volume(command.instance.uuid, volume_id, host.conf.volume.detach_timeout)
    host.volumes.disconnect(command.instance.uuid, volume_id)


def _source(host: LocalHost, command: ActionCommand, device: BlockDevice) -> VolumeSource:
    """Raises `VirtDriverError` when another service does not say where it is within ``[cinder] connect_timeout``."""
    if not host.volumes.remote:
        return host.volumes.require(str(device.volume_id))
    deadline = time.monotonic() + host.conf.cinder.connect_timeout

    def check() -> None:
        if time.monotonic() >= deadline:
            raise exceptions.VirtDriverError(reason=f"volume {device.volume_id} could not be connected in time")

    return host.volume_source(command.instance, device, check)


def snapshot_volumes(host: LocalHost, command: ActionCommand) -> None:
    """``payload["snapshots"]``: ids of the snapshots to make, by those of the instance's volumes."""
    host.require_domain(command)
    driver = _copying(host)
    progress = Progress(host, command)
    for task in progress.tasks:
        progress.come_to(task)

    def copy(parts: Mapping[str, str]) -> None:
        sources = {each: (host.volumes.require(each), part) for each, part in parts.items()}
        driver.copy_volumes(command.instance.uuid, sources, progress.check)

    failpoints.reach("snapshot", "before")
    host.volumes.create_snapshots_in_use(command.payload["snapshots"], copy)
    failpoints.reach("snapshot", "after")


def swap_volume(host: LocalHost, command: ActionCommand) -> None:
    """``payload["new_volume_id"]``, of ``size`` GB, takes the place of ``payload["volume_id"]`` in the guest, with all
    that this holds.
    What is left of a failure is ended by `rollback_swap_volume`."""
    host.require_domain(command)
    driver = _copying(host)
    old, new = _device(command), str(command.payload["new_volume_id"])
    progress = Progress(host, command)

    def copied() -> None:
        """From now on whoever has to choose takes the new one."""
        for task in progress.tasks:
            progress.come_to(task)

    failpoints.reach("swap", "before")
    size, path = command.payload["size"] * GIB, host.volumes.require(new)
    driver.swap_volume(command.instance.uuid, old, new, path, size, progress.check, copied)
    failpoints.reach("swap", "after")


def rollback_swap_volume(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """Whether the guest has the new volume (``done``); else it has the old one, and nothing is copied any more."""
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

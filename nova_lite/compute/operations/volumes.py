"""Attaching, detaching, swapping and copying of volumes on the host, and work on their files."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nova_lite.base import exceptions
from nova_lite.base.timing import TIMING
from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations.snapshot import CommandProgress
from nova_lite.compute.reports import Stopping
from nova_lite.objects import ActionCommand, BlockDevice, FileMerge, VolumeSource
from nova_lite.objects.volume import is_file_name

LOG = logging.getLogger(__name__)

GIB = 1024**3


def attach_volume(host: LocalHost, command: ActionCommand) -> None:
    """Attach the volume ``payload["volume_id"]``, which belongs to one of the instance's block devices."""
    attach = host.driver.volumes.attach
    host.require_domain(command)
    device = _device(command)
    attach(command.instance.uuid, device, _source(host, command, device))


def detach_volume(host: LocalHost, command: ActionCommand) -> None:
    """Detach the volume ``payload["volume_id"]``. A missing guest has no volumes."""
    detach = host.driver.volumes.detach
    volume_id = str(command.payload["volume_id"])
    if host.domain(command.instance.uuid) is not None:
        detach(command.instance.uuid, volume_id, TIMING.volumes.detach)
    host.volumes.disconnect(command.instance.uuid, volume_id)


def _source(host: LocalHost, command: ActionCommand, device: BlockDevice) -> VolumeSource:
    """Return the volume's source. Wait for another volume service for `VolumeTiming.connect`.

    Raises `VirtDriverError` after that time.
    """
    if not host.volumes.remote:
        return host.local_source(host.volumes.require(str(device.volume_id)))
    deadline = time.monotonic() + TIMING.volumes.connect

    def check() -> None:
        if time.monotonic() >= deadline:
            raise exceptions.VirtDriverError(reason=f"volume {device.volume_id} could not be connected in time")

    return host.volume_source(command.instance, device, check)


def snapshot_volumes(host: LocalHost, command: ActionCommand) -> None:
    """Make snapshots of volumes in use. ``payload["snapshots"]``: snapshot ids by volume id."""
    host.require_domain(command)
    copy_in_use, held = host.driver.volume_copies.copy, host.driver.volume_copies.held
    progress = CommandProgress(host, command)
    for task in progress.tasks:
        progress.enter(task)

    def copy(parts: Mapping[str, str]) -> None:
        sources = {volume_id: (host.volume_file(volume_id), part) for volume_id, part in parts.items()}
        copy_in_use(command.instance.uuid, sources, progress.check)

    def hold(volume_ids: Sequence[str]) -> contextlib.AbstractContextManager[None]:
        return held(command.instance.uuid, volume_ids)

    host.volumes.create_snapshots_in_use(command.payload["snapshots"], copy, hold)


def swap_volume(host: LocalHost, command: ActionCommand) -> None:
    """Replace the volume ``payload["volume_id"]`` in the guest by ``payload["new_volume_id"]``, with all its content.

    ``payload["size"]``: in GB. `rollback_swap_volume` cleans up after a failure.
    """
    host.require_domain(command)
    swap = host.driver.volume_copies.swap
    old, new = _device(command), str(command.payload["new_volume_id"])
    progress = CommandProgress(host, command)

    def on_copied() -> None:
        """Report that the new volume has all the content: from now on a rollback keeps it."""
        for task in progress.tasks:
            progress.enter(task)

    size, path = command.payload["size"] * GIB, host.volume_file(new)
    swap(command.instance.uuid, old, new, path, size, progress.check, on_copied)


def rollback_swap_volume(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """End a swap. Return in ``done`` whether the guest has the new volume; else it keeps the old one."""
    end_swap = host.driver.volume_copies.end_swap
    uuid, new = command.instance.uuid, str(command.payload["new_volume_id"])
    done = False
    if host.domain(uuid) is not None:
        done = end_swap(uuid, str(command.payload["volume_id"]), new, command.payload["size"] * GIB)
    if not done:
        host.volumes.extend(new, command.payload["size"])
    return {"done": done}


def volume_snapshot_create(host: LocalHost, command: ActionCommand) -> None:
    """Let the guest use ``payload["new_file"]`` for the volume ``payload["volume_id"]``."""
    host.require_domain(command)
    uuid, volume_id, new_file = command.instance.uuid, str(_device(command).volume_id), command.payload["new_file"]
    if not is_file_name(new_file) or not host.volumes.is_in_file(uuid, volume_id):
        raise exceptions.VolumeNotInFiles(volume_id=volume_id, reason=f"it cannot get the file {new_file!r}")
    snapshot = host.driver.volume_files.snapshot
    _work_on_files(host, command, lambda: snapshot(uuid, volume_id, new_file), lambda: _uses(host, command))
    _record(host, command)


def rollback_volume_snapshot_create(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """Return in ``done`` whether the guest uses the new file. An earlier command cannot come any more."""
    done = _uses(host, command)
    if done:
        _record(host, command)
    return {"done": done}


def volume_snapshot_delete(host: LocalHost, command: ActionCommand) -> None:
    """Merge files of the volume ``payload["volume_id"]``, until another command for the instance comes."""
    host.require_domain(command)
    uuid, volume_id, request = command.instance.uuid, str(_device(command).volume_id), _merge_of(command)
    merge = host.driver.volume_files.merge

    def check() -> None:
        record = host.fencing.get(uuid)
        if not record.is_last_command(command.action_id, command.sequence, command.request_id):
            raise exceptions.ActionOver(action=command.action, instance_id=uuid)

    _work_on_files(
        host,
        command,
        lambda: merge(uuid, volume_id, request, check),
        lambda: _is_merged(host, command),
    )


def rollback_volume_snapshot_delete(host: LocalHost, command: ActionCommand) -> dict[str, Any]:
    """End the merge. Return in ``done`` whether it had succeeded."""
    return {"done": _is_merged(host, command)}


def _work_on_files(
    host: LocalHost, command: ActionCommand, work: Callable[[], None], is_done: Callable[[], bool]
) -> None:
    """Do the work. A failure is raised only if the guest's files confirm it, however long that takes to find out.

    Cinder deletes or keeps files by the report.
    """
    try:
        work()
    except (exceptions.ActionOver, Stopping):
        raise
    except Exception as error:
        if not host.retrier.call_until_done(f"Instance {command.instance.uuid}: query for its volumes' files", is_done):
            raise
        LOG.warning("Instance %s: %s was done after all: %s", command.instance.uuid, command.action, error)


def _uses(host: LocalHost, command: ActionCommand) -> bool:
    """Check whether the guest uses the new file."""
    return _names(host, command)[:1] == [command.payload["new_file"]]


def _record(host: LocalHost, command: ActionCommand) -> None:
    """Record that the volume of the server is in the new file now."""
    uuid = command.instance.uuid
    volume_id, new_file = str(command.payload["volume_id"]), str(command.payload["new_file"])
    host.retrier.call_until_done(
        f"Instance {uuid}: record of volume {volume_id}'s file",
        lambda: host.volumes.switched(uuid, volume_id, new_file),
    )


def _is_merged(host: LocalHost, command: ActionCommand) -> bool:
    """End a merge that continues, and check whether the files are merged."""
    if not _names(host, command):
        return False
    host.driver.volume_files.end_merge(command.instance.uuid, str(command.payload["volume_id"]))
    names = _names(host, command)
    return bool(names) and _merge_of(command).is_done(names)


def _names(host: LocalHost, command: ActionCommand) -> list[str]:
    """Return the names of the volume's files, none if there is no guest or it has no such volume."""
    if host.domain(command.instance.uuid) is None:
        return []
    try:
        return host.driver.volume_files.names(command.instance.uuid, str(command.payload["volume_id"]))
    except exceptions.VolumeNotInFiles as error:
        LOG.warning("Instance %s: %s", command.instance.uuid, error.message)
        return []


def _merge_of(command: ActionCommand) -> FileMerge:
    source, target = command.payload.get("file_to_merge"), command.payload.get("merge_target_file")
    for name in (source, target):
        if name is not None and not is_file_name(name):
            raise exceptions.VirtDriverError(reason=f"{name!r} is no name of a file of Cinder")
    return FileMerge(source=source, target=target)


def _device(command: ActionCommand) -> BlockDevice:
    for device in command.instance.block_devices:
        if device.volume_id == command.payload["volume_id"]:
            return device
    raise exceptions.VolumeBDMNotFound(instance_uuid=command.instance.uuid, volume_id=command.payload["volume_id"])

"""Images of servers, and snapshots of their volumes.

Rows of image and snapshots are written when the action is accepted, so their quota is taken, and their ids are known.
The volumes are locked one by one: a volume that leaves the server meanwhile refuses the request. If the host fails, or
the action is superseded, image and snapshots are deleted once the host does not work on them any more. Nothing of the
server is lost.
"""

from __future__ import annotations

from typing import Any

import msgspec

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.image import images
from nova_lite.db.volume import attachments, block_devices, volume_tasks, volumes
from nova_lite.objects import Image, VolumeSnapshot, VolumeVerb
from nova_lite.objects.block_device import root_volume
from nova_lite.objects.block_device import volumes as volumes_among
from nova_lite.operations import Step


class SnapshotHandler(OperationHandler):
    """Makes an image of the server's disk."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Write the image.

        ``payload``: the ``image`` to make, and whether it is ``registered`` with another service already. ``backup``: a
        request for a stream, which contains the volume that the server boots from if it names ``disks``.
        """
        is_in_stream = bool((payload.get("backup") or {}).get("disks"))
        if root_volume(block_devices.of(instance)) is not None and not is_in_stream:
            return self.of_volumes(uow, context, instance, payload)
        image = _create_image(uow, payload)
        return {**payload, "image_id": image.id}

    def of_volumes(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the action's payload for a server that boots from a volume, or refuse it."""
        raise exceptions.BackupOfVolumes()

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        """End the task with the image step."""
        if isinstance(step, operations.ImageStep):
            super().on_step_done(uow, instance, step)


class CreateImageHandler(SnapshotHandler):
    """Makes an image of a server. If it boots from a volume, the image consists of snapshots of its volumes."""

    def of_volumes(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any]:
        """Write a snapshot of each volume.

        ``payload`` has ``snapshots``, too: by the id of each volume the id of its snapshot, which the image names.
        """
        snapshots: dict[str, str] = payload.get("snapshots") or {}
        known = {device.volume_id for device in volumes_among(block_devices.of(instance))}
        if not snapshots or snapshots.keys() != known:
            raise exceptions.InvalidInput(reason="the volumes of the server have changed just now. Ask again")
        image = _create_image(uow, payload)
        for volume_id, snapshot_id in snapshots.items():
            _create_snapshot(uow, context, instance, volume_id, snapshot_id, image.name)
        return {**payload, "image_id": image.id, "volume_backed": True}

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        if not isinstance(step, operations.ImageStep):
            for row in volumes.snapshots_for(uow, instance.uuid):
                volumes.change(row, uow, {"status": volumes.AVAILABLE, "instance_uuid": None})
        super().on_step_done(uow, instance, step)

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        """Delete the snapshots, once the host does not work on them any more."""
        for row in volumes.snapshots_for(uow, instance.uuid):
            volumes.change(row, uow, {"status": volumes.DELETING, "instance_uuid": None})
            payload = {"snapshot_id": row.id, "instance_uuid": instance.uuid}
            volume_tasks.add(uow, "", VolumeVerb.DELETE_SNAPSHOT, row.volume_id, None, **payload)


def _create_image(uow: UnitOfWork, payload: dict[str, Any]) -> Image:
    image = msgspec.convert(payload["image"], Image)
    if not payload.get("registered"):
        try:
            images.create(uow, image)
        except exceptions.ImageQuotaExceeded as error:
            raise exceptions.Forbidden(error.message) from error
    return image


def _create_snapshot(
    uow: UnitOfWork, context: RequestContext, instance: Instance, volume_id: str, snapshot_id: str, image_name: str
) -> None:
    row = volumes.by_id(uow, volume_id, lock=True)
    if row is None or row.status != volumes.IN_USE or instance.uuid not in attachments.servers(uow, row):
        status = "gone" if row is None else row.status
        raise exceptions.InvalidVolume(reason=f"volume {volume_id} status must be 'in-use'. Currently in '{status}'")
    attachments.require_one_writer(uow, row, "an image of this server")
    volumes.check_quota(uow, row.project_id, gigabytes=row.size, snapshots=1, kind=row.volume_type)
    snapshot = VolumeSnapshot(
        id=snapshot_id,
        volume_id=volume_id,
        project_id=row.project_id,
        user_id=context.user_id or "",
        name=f"snapshot for {image_name}"[:255],
        size=row.size,
        image=volumes.to_object(row).image,
    )
    volumes.insert_snapshot(uow, snapshot).instance_uuid = instance.uuid

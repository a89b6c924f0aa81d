"""RPC methods about volumes.

A request is accepted in one transaction, with a row of `volume_tasks` if a file has to change.
`nova_lite.conductor.volume.tasks` sends the work to a host.
"""

from __future__ import annotations

import logging
import uuid
from typing import Any

import msgspec

from nova_lite.base import exceptions, sealing
from nova_lite.base.context import RequestContext
from nova_lite.base.ids import derived_id
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.operations import checks, volume_sources
from nova_lite.conductor.volume import backups as volume_backups
from nova_lite.conductor.volume.tasks import UPLOADING, VolumeTasks
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.image import images
from nova_lite.db.servers import disk_keys, instances, tpms
from nova_lite.db.volume import attachments, block_devices, volume_keys, volume_tasks, volume_types, volumes
from nova_lite.objects import (
    Image,
    Volume,
    VolumeEncryption,
    VolumeKey,
    VolumeSnapshot,
    VolumeVerb,
)

LOG = logging.getLogger(__name__)

#: Namespace of volume ids, which derive from the request: a repeated request gets the same id.
_NAMESPACE = uuid.UUID("0f3c52a4-6a0b-4ad1-9a8f-6b7d1f1f4c55")

#: States in which a volume may be deleted.
_DELETABLE = (volumes.AVAILABLE, volumes.ERROR, "error_deleting", "error_extending", volume_backups.ERROR_RESTORING)


class VolumeEndpoints:
    """``tasks``: sends accepted work to hosts."""

    def __init__(self, engine: ActionEngine, tasks: VolumeTasks) -> None:
        self.engine = engine
        self.db = engine.db
        self.tasks = tasks

    # --- accept

    def volume_create(self, context: RequestContext, volume: Volume, images: dict[str, Image]) -> Volume:
        """Accept a volume. The ``image`` of ``volume`` only names the image. ``images``: descriptions by the API."""
        return self.db.write(self._create_volume, context, volume, images)

    def _create_volume(
        self, uow: UnitOfWork, context: RequestContext, volume: Volume, images: dict[str, Image]
    ) -> Volume:
        if not context.project_id:
            raise exceptions.Forbidden("A volume belongs to a project; this token is for none.")
        volume.id = derived_id(_NAMESPACE, f"{context.request_id}/{volume.id}")
        known = volumes.by_id(uow, volume.id)
        if known is not None:
            return volumes.to_object(known)
        volume.project_id, volume.user_id = context.project_id, context.user_id or ""
        volume.status = volumes.CREATING
        volume_sources.set_type(uow, context, volume)
        reads = _prepare_source(uow, context, volume, images)
        volumes.check_quota(
            uow, volume.project_id, volumes=1, gigabytes=volume.size, kind=volume.volume_type, size=volume.size
        )
        row = volumes.insert(uow, volume)
        self.tasks.accept(uow, context, VolumeVerb.CREATE, row.id, reads, **volume_sources.work_of(volume))
        return volumes.to_object(row)

    def volume_update(
        self, context: RequestContext, volume_id: str, changes: dict[str, Any], merge: bool = False
    ) -> Volume:
        return self.db.write(self._update_volume, context, volume_id, changes, merge)

    def _update_volume(
        self, uow: UnitOfWork, context: RequestContext, volume_id: str, changes: dict[str, Any], merge: bool
    ) -> Volume:
        row = volumes.locked(uow, context, volume_id)
        if merge:
            changes = volumes.merged_changes(volumes.to_object(row), changes)
        unknown = changes.keys() - {
            "name",
            "description",
            "metadata",
            "bootable",
            "status",
            "volume_type",
            "image_metadata",
            "multiattach",
            "read_only",
        }
        if unknown:
            raise exceptions.InvalidInput(reason=f"{', '.join(sorted(unknown))} of a volume cannot be changed")
        if changes.get("status") == volumes.AVAILABLE:
            if servers := attachments.servers(uow, row):
                raise exceptions.InvalidVolume(reason=f"server {servers[0]} has it: detach it there")
            changes = {**changes, "attachment": None}
            if row.multiattach:
                attachments.remove(uow, row, attachments.recorded(uow, row.id))
        allowed = bool(changes.pop("multiattach", False))
        if "read_only" in changes and (row.status != volumes.AVAILABLE or volumes.is_read(uow, row.id)):
            raise exceptions.InvalidVolume(
                reason=f"Volume {volume_id} status must be available to update readonly flag, but current status is: "
                f"{row.status}."
            )
        if "volume_type" in changes:
            changes = {**changes, **_retyped(uow, context, row, changes["volume_type"], allowed)}
        volumes.change(row, uow, changes)
        return volumes.to_object(row)

    def volume_delete(self, context: RequestContext, volume_id: str, cascade: bool = False) -> None:
        self.db.write(self._delete_volume, context, volume_id, cascade)

    def _delete_volume(self, uow: UnitOfWork, context: RequestContext, volume_id: str, cascade: bool) -> None:
        row = volumes.locked(uow, context, volume_id)
        if row.status == volumes.DELETING and volume_tasks.deletes(uow, row.id):
            return
        is_attached = bool(attachments.servers(uow, row)) or attachments.is_recorded(uow, row)
        busy = is_attached or row.status not in (*_DELETABLE, volumes.DELETING)
        snapshots = volumes.snapshots_of(uow, row.id)
        if busy or (snapshots and not cascade) or volumes.is_read(uow, row.id):
            raise exceptions.InvalidVolume(
                reason="Volume status must be available or error or error_extending and must not be attached, have "
                f"snapshots or be copied just now. It is {row.status}."
            )
        volumes.change(row, uow, {"status": volumes.DELETING})
        for snapshot in snapshots:
            self._accept_snapshot_deletion(uow, context, snapshot, **{volume_tasks.CASCADE: True})
        if not snapshots:
            self.tasks.accept(uow, context, VolumeVerb.DELETE, row.id)

    def volume_upload(self, context: RequestContext, volume_id: str, image: Image) -> Volume:
        """Accept an image of a volume. The image's row is ``queued`` until a host has its data."""
        return self.db.write(self._upload_volume, context, volume_id, image)

    def _upload_volume(self, uow: UnitOfWork, context: RequestContext, volume_id: str, image: Image) -> Volume:
        if not self.engine.images.has_local_rows:
            raise exceptions.NotServed(
                what="An image of a volume", instead=" Copy the volume from a server, or use Cinder beside Glance."
            )
        row = volumes.locked(uow, context, volume_id)
        if row.status == UPLOADING and images.by_id(uow, image.id) is not None:
            return volumes.to_object(row)
        if row.status != volumes.AVAILABLE or row.instance_uuid is not None:
            raise exceptions.InvalidVolume(
                reason=f"status must be available, it is {row.status}. Of a volume that a server has, make a snapshot "
                "with force, and a volume of that."
            )
        if row.encryption_key_id is not None:
            raise exceptions.InvalidVolume(
                reason="images are plain, so none is made of an encrypted volume: make a volume or a backup of it"
            )
        made = images.create(uow, image)
        volumes.change(row, uow, {"status": UPLOADING})
        known = {"image": msgspec.to_builtins(made), "image_id": made.id}
        self.tasks.accept(uow, context, VolumeVerb.UPLOAD, row.id, row.id, **known)
        return volumes.to_object(row)

    def volume_extend(self, context: RequestContext, volume_id: str, size: int, attached: bool) -> None:
        """Accept a new size. ``attached``: also for a volume that a server has."""
        self.db.write(self._extend_volume, context, volume_id, size, attached)

    def _extend_volume(
        self, uow: UnitOfWork, context: RequestContext, volume_id: str, size: int, attached: bool
    ) -> None:
        row = volumes.locked(uow, context, volume_id)
        allowed = (volumes.AVAILABLE, volumes.IN_USE) if attached else (volumes.AVAILABLE,)
        if row.status not in allowed or attachments.is_recorded(uow, row) or volumes.is_read(uow, row.id):
            raise exceptions.InvalidVolume(
                reason=f"Volume {volume_id} status must be {' or '.join(allowed)} to extend, it is {row.status}."
            )
        if size <= row.size:
            raise exceptions.InvalidInput(
                reason=f"New size for extend must be greater than current size. (current: {row.size}, extended: {size})"
            )
        volumes.check_quota(uow, row.project_id, gigabytes=size - row.size, kind=row.volume_type, size=size)
        before, old = row.status, row.size
        volumes.change(row, uow, {"status": volumes.EXTENDING, "size": size})
        known: dict[str, Any] = {"size": size, "before": before, "old_size": old}
        servers: list[str | None] = [*attachments.servers(uow, row)]
        for server in servers or [None]:
            self.tasks.accept(uow, context, VolumeVerb.EXTEND, row.id, **known, instance_uuid=server)

    def snapshot_create(self, context: RequestContext, snapshot: VolumeSnapshot, force: bool = False) -> VolumeSnapshot:
        """Accept a snapshot. ``force``: also of a volume that a server has."""
        return self.db.write(self._create_snapshot, context, snapshot, force)

    def _create_snapshot(
        self, uow: UnitOfWork, context: RequestContext, snapshot: VolumeSnapshot, force: bool
    ) -> VolumeSnapshot:
        row = volumes.locked(uow, context, snapshot.volume_id)
        allowed = (volumes.AVAILABLE, volumes.IN_USE) if force else (volumes.AVAILABLE,)
        if row.status not in allowed:
            raise exceptions.InvalidVolume(
                reason=f"Volume {row.id} status must be {' or '.join(allowed)}, but current status is: {row.status}."
                + ("" if force else " One that a server has is copied with force, or by API version 3.66.")
            )
        attachments.require_one_writer(uow, row, "a snapshot")
        volumes.check_quota(uow, row.project_id, gigabytes=row.size, snapshots=1, kind=row.volume_type)
        snapshot.project_id, snapshot.user_id = row.project_id, context.user_id or ""
        snapshot.size, snapshot.status = row.size, volumes.CREATING
        snapshot.image = volumes.to_object(row).image
        made = volumes.insert_snapshot(uow, snapshot)
        known = {"snapshot_id": made.id, "size": row.size}
        self.tasks.accept(uow, context, VolumeVerb.SNAPSHOT, row.id, row.id, **known)
        return volumes.snapshot_object(made)

    def snapshot_update(
        self, context: RequestContext, snapshot_id: str, changes: dict[str, Any], merge: bool = False
    ) -> VolumeSnapshot:
        return self.db.write(self._update_snapshot, context, snapshot_id, changes, merge)

    def _update_snapshot(
        self, uow: UnitOfWork, context: RequestContext, snapshot_id: str, changes: dict[str, Any], merge: bool
    ) -> VolumeSnapshot:
        row = volumes.locked_snapshot(uow, context, snapshot_id)
        if merge:
            changes = volumes.merged_changes(volumes.snapshot_object(row), changes)
        unknown = changes.keys() - {"name", "description", "metadata", "status", "progress"}
        if unknown:
            raise exceptions.InvalidInput(reason=f"{', '.join(sorted(unknown))} of a snapshot cannot be changed")
        volumes.change(row, uow, changes)
        return volumes.snapshot_object(row)

    def snapshot_delete(self, context: RequestContext, snapshot_id: str) -> None:
        self.db.write(self._delete_snapshot, context, snapshot_id)

    def _delete_snapshot(self, uow: UnitOfWork, context: RequestContext, snapshot_id: str) -> None:
        row = volumes.locked_snapshot(uow, context, snapshot_id)
        if row.status == volumes.DELETING and volume_tasks.deletes_snapshot(uow, row.volume_id, row.id):
            return
        self._accept_snapshot_deletion(uow, context, row)

    def _accept_snapshot_deletion(
        self, uow: UnitOfWork, context: RequestContext, row: models.VolumeSnapshot, **payload: Any
    ) -> None:
        deletable = (volumes.AVAILABLE, volumes.ERROR, volumes.DELETING)
        # A host would make the file after its deletion, and no host would ever delete it.
        is_made = row.instance_uuid is not None or volume_tasks.makes_snapshot(uow, row.volume_id, row.id)
        if row.status not in deletable or is_made or volumes.is_read(uow, row.id):
            raise exceptions.InvalidSnapshot(
                reason=f"Snapshot status must be available or error, and neither it nor a volume of it be made just "
                f"now. It is {row.status}."
            )
        volumes.change(row, uow, {"status": volumes.DELETING})
        self.tasks.accept(uow, context, VolumeVerb.DELETE_SNAPSHOT, row.volume_id, snapshot_id=row.id, **payload)

    def attachment_update(
        self, context: RequestContext, instance_uuid: str, volume_id: str, delete_on_termination: bool
    ) -> None:
        self.db.write(self._update_attachment, context, instance_uuid, volume_id, delete_on_termination)

    def _update_attachment(
        self, uow: UnitOfWork, context: RequestContext, instance_uuid: str, volume_id: str, flag: bool
    ) -> None:
        instance = instances.get_row(uow, context, instance_uuid, lock=True)
        devices = block_devices.of(instance)
        attached = next((device for device in devices if device.volume_id == volume_id), None)
        if attached is None:
            raise exceptions.VolumeBDMNotFound(instance_uuid=instance_uuid, volume_id=volume_id)
        attached.delete_on_termination = flag
        block_devices.keep(instance, devices)

    # --- for hosts

    def finish_volume_work(self, context: RequestContext, host: str, task_id: int, error: str | None) -> None:
        self.tasks.finish(host, task_id, error)

    def volume_encryption_get(self, context: RequestContext, volume_id: str) -> VolumeEncryption:
        return self.db.read(volume_keys.describe, context, volume_id)

    def volume_key_get(self, context: RequestContext, host: str, volume_id: str, public_key: str) -> str:
        """Return the key of an encrypted volume, sealed to the host."""
        return _sealed(self.db.read(volume_keys.for_host, host, volume_id), public_key)

    def tpm_key_get(self, context: RequestContext, host: str, instance_uuid: str, public_key: str) -> str:
        """Return the key of a server's TPM, sealed to the host."""
        return _sealed(self.db.write(tpms.key_for_host, host, instance_uuid), public_key)

    def disk_key_get(self, context: RequestContext, host: str, instance_uuid: str, role: str, public_key: str) -> str:
        """Return the key of an encrypted disk of a server, sealed to the host."""
        return _sealed(self.db.write(disk_keys.key_of_disk, host, instance_uuid, role), public_key)

    def is_volume_work_open(self, context: RequestContext, host: str, task_id: int, volume_id: str) -> bool:
        """Check whether a task of this id is that of the volume, and given to the host."""

        def read(uow: UnitOfWork) -> bool:
            task = uow.session.get(models.VolumeTask, task_id)
            return task is not None and (task.host, task.volume_id) == (host, volume_id)

        return self.db.read(read)

    def is_volume_data_needed(self, context: RequestContext, host: str, verb: VolumeVerb, made_id: str) -> bool:
        """Check whether a volume, snapshot or backup exists, and is not being deleted."""
        return self.db.read(volume_tasks.is_needed, verb, made_id)


def _sealed(key: VolumeKey, public_key: str) -> str:
    try:
        return sealing.seal(public_key, msgspec.json.encode(key))
    except sealing.Unreadable as error:
        raise exceptions.InvalidInput(reason="public_key is not a public key.") from error


def _retyped(
    uow: UnitOfWork, context: RequestContext, row: models.Volume, reference: str, allowed: bool
) -> dict[str, Any]:
    """Return the changes that give a volume another type. ``allowed``: the user may have a volume with multiattach.

    Raises `InvalidInput` for a type with another encryption, or another multiattach while a server has the volume: its
    guest has opened it by the old type.
    """
    kind = volume_types.for_volume(uow, context, reference)
    if kind.name != row.volume_type:
        _require_same_encryption(uow, row, kind.name)
        volumes.check_retype(uow, row, kind.name)
    shared = volume_types.require_multiattach(kind, allowed)
    if shared != row.multiattach and row.status != volumes.AVAILABLE:
        raise exceptions.InvalidInput(
            reason="Invalid volume_type passed, retypes affecting multiattach are only allowed on available volumes, "
            f"the specified volume however currently has a status of: {row.status}."
        )
    return {"volume_type": kind.name, "multiattach": shared}


def _require_same_encryption(uow: UnitOfWork, row: models.Volume, kind: str) -> None:
    """Raise `InvalidInput` for a type by which the volume's data would have to be encrypted again."""
    if volume_types.encryption_of(uow, kind) != volume_types.encryption_of(uow, row.volume_type):
        raise exceptions.InvalidInput(
            reason=f"volume type {kind} has another encryption than {row.volume_type}, and data are not encrypted "
            "again: make a new volume, and copy the data in a server"
        )


def _prepare_source(
    uow: UnitOfWork, context: RequestContext, volume: Volume, described: dict[str, Image]
) -> str | None:
    if volume.image is not None:
        image_id = volume.image.id
        volume.image, _ = checks.boot_image(described or images.with_boot_parts(uow, context, image_id), image_id)
    return volume_sources.prepare(uow, context, volume)

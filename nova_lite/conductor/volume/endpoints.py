"""RPC methods about volumes, and the dispatch of accepted work on their files.

A request is accepted in one transaction, with a row of `volume_tasks` if a file has to change. A host changes the file
and reports the result. The reconciler sends lost work again.
"""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from nova_lite.base import exceptions, sealing
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.base.ids import derived_id
from nova_lite.base.timing import TIMING
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.operations import checks, volume_sources
from nova_lite.conductor.volume import backups as volume_backups
from nova_lite.db.core import actions, models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.image import images
from nova_lite.db.servers import instances
from nova_lite.db.volume import block_devices, volume_keys, volume_tasks, volume_types, volumes
from nova_lite.image.driver import ImageCall
from nova_lite.objects import (
    Image,
    InstanceActionEvent,
    Volume,
    VolumeEncryption,
    VolumeSnapshot,
    VolumeVerb,
    VolumeWork,
)

LOG = logging.getLogger(__name__)

#: Namespace of volume ids, which derive from the request: a repeated request gets the same id.
_NAMESPACE = uuid.UUID("0f3c52a4-6a0b-4ad1-9a8f-6b7d1f1f4c55")

#: State of a volume while an image is made of it.
UPLOADING = "uploading"

#: States in which a volume may be deleted.
_DELETABLE = (volumes.AVAILABLE, volumes.ERROR, "error_deleting", "error_extending", volume_backups.ERROR_RESTORING)


class VolumeEndpoints:
    def __init__(self, engine: ActionEngine) -> None:
        self.engine = engine
        self.db = engine.db
        self.conf = engine.conf

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
        self.accept(uow, context, VolumeVerb.CREATE, row.id, reads, **volume_sources.work_of(volume))
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
        }
        if unknown:
            raise exceptions.InvalidInput(reason=f"{', '.join(sorted(unknown))} of a volume cannot be changed")
        if "status" in changes and row.instance_uuid is not None and changes["status"] == volumes.AVAILABLE:
            raise exceptions.InvalidVolume(reason=f"server {row.instance_uuid} has it: detach it there")
        if changes.get("status") == volumes.AVAILABLE:
            changes = {**changes, "attachment": None}
        if "volume_type" in changes:
            kind = volume_types.for_volume(uow, context, changes["volume_type"]).name
            if kind != row.volume_type:
                _require_same_encryption(uow, row, kind)
                volumes.check_retype(uow, row, kind)
            changes = {**changes, "volume_type": kind}
        volumes.change(row, uow, changes)
        return volumes.to_object(row)

    def volume_delete(self, context: RequestContext, volume_id: str, cascade: bool = False) -> None:
        self.db.write(self._delete_volume, context, volume_id, cascade)

    def _delete_volume(self, uow: UnitOfWork, context: RequestContext, volume_id: str, cascade: bool) -> None:
        row = volumes.locked(uow, context, volume_id)
        if row.status == volumes.DELETING and volume_tasks.deletes(uow, row.id):
            return
        busy = (
            row.instance_uuid is not None
            or row.attachment is not None
            or row.status not in (*_DELETABLE, volumes.DELETING)
        )
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
            self.accept(uow, context, VolumeVerb.DELETE, row.id)

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
        self.accept(uow, context, VolumeVerb.UPLOAD, row.id, row.id, **known)
        return volumes.to_object(row)

    def volume_extend(self, context: RequestContext, volume_id: str, size: int, attached: bool) -> None:
        """Accept a new size. ``attached``: also for a volume that a server has."""
        self.db.write(self._extend_volume, context, volume_id, size, attached)

    def _extend_volume(
        self, uow: UnitOfWork, context: RequestContext, volume_id: str, size: int, attached: bool
    ) -> None:
        row = volumes.locked(uow, context, volume_id)
        allowed = (volumes.AVAILABLE, volumes.IN_USE) if attached else (volumes.AVAILABLE,)
        if row.status not in allowed or row.attachment is not None or volumes.is_read(uow, row.id):
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
        known: dict[str, Any] = {"size": size, "before": before, "old_size": old, "instance_uuid": row.instance_uuid}
        self.accept(uow, context, VolumeVerb.EXTEND, row.id, **known)

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
        volumes.check_quota(uow, row.project_id, gigabytes=row.size, snapshots=1, kind=row.volume_type)
        snapshot.project_id, snapshot.user_id = row.project_id, context.user_id or ""
        snapshot.size, snapshot.status = row.size, volumes.CREATING
        snapshot.image = volumes.to_object(row).image
        made = volumes.insert_snapshot(uow, snapshot)
        known = {"snapshot_id": made.id, "size": row.size}
        self.accept(uow, context, VolumeVerb.SNAPSHOT, row.id, row.id, **known)
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
        self.accept(uow, context, VolumeVerb.DELETE_SNAPSHOT, row.volume_id, snapshot_id=row.id, **payload)

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

    def accept(
        self,
        uow: UnitOfWork,
        context: RequestContext,
        verb: VolumeVerb,
        volume_id: str,
        reads: str | None = None,
        **payload: Any,
    ) -> None:
        """Accept work of a host within a transaction."""
        self._add(uow, str(context.request_id), verb, volume_id, reads, **payload)

    def _add(
        self,
        uow: UnitOfWork,
        request_id: str,
        verb: VolumeVerb,
        volume_id: str,
        reads: str | None = None,
        **payload: Any,
    ) -> None:
        """Write a due task. It is sent after the commit; else the reconciler sends it."""
        task = volume_tasks.add(uow, request_id, verb, volume_id, reads, **payload)
        send: Callable[[], None] = functools.partial(self.drive, task.id)
        uow.after_commit(lambda: self.engine.in_background(send))

    # --- dispatch

    def due(self) -> list[int]:
        """Return work that is due, to be sent again."""
        return self.db.read(volume_tasks.due, TIMING.conductor.reconcile_batch)

    def drive(self, task_id: int) -> None:
        """Send a task to its host, or end it after its deadline."""
        sent = self.db.write(self._take_volume_work, task_id)
        if sent is None:
            return
        host, work = sent
        try:
            self.engine.compute.volume_work(get_admin_context(), host, work)
        except exceptions.MessagingUnavailable as error:
            LOG.warning("%s of volume %s could not be sent: %s", work.verb, work.volume_id, error.message)

    def _take_volume_work(self, uow: UnitOfWork, task_id: int) -> tuple[str, VolumeWork] | None:
        task = volume_tasks.lock(uow, task_id)
        if task is None:
            return None
        if task.deadline <= uow.now:
            self._end(uow, task, f"No host has done it within {TIMING.volumes.task:.0f} s.")
            return None
        volume_tasks.take(uow, task)
        return None if task.host is None else (task.host, volume_tasks.work(uow, task))

    def finish_volume_work(self, context: RequestContext, host: str, task_id: int, error: str | None) -> None:
        """Record the result of a task. Repeated reports are harmless, and reports of a host that no longer has it."""
        call = self.db.read(_image_call, host, task_id)
        if call is None:
            self.db.write(self._finish_volume_work, host, task_id, error)
            return
        if error is None:
            try:
                self.engine.images.publish(call)
            except exceptions.ServiceUnavailable:
                raise
            except exceptions.NovaLiteException as failure:
                error = failure.message
        self.db.write(self._finish_volume_work, host, task_id, error)
        if not self.db.read(_has_image, call.image_id):
            self.engine.images.discard(call)

    def volume_encryption_get(self, context: RequestContext, volume_id: str) -> VolumeEncryption:
        return self.db.read(volume_keys.describe, context, volume_id)

    def volume_key_get(self, context: RequestContext, host: str, volume_id: str, public_key: str) -> str:
        """Return the key of an encrypted volume, sealed to the host."""
        key = self.db.read(volume_keys.for_host, host, volume_id)
        try:
            return sealing.seal(public_key, msgspec.json.encode(key))
        except sealing.Unreadable as error:
            raise exceptions.InvalidInput(reason="public_key is not a public key.") from error

    def is_volume_work_open(self, context: RequestContext, host: str, task_id: int, volume_id: str) -> bool:
        """Check whether a task of this id is that of the volume, and given to the host."""

        def read(uow: UnitOfWork) -> bool:
            task = uow.session.get(models.VolumeTask, task_id)
            return task is not None and (task.host, task.volume_id) == (host, volume_id)

        return self.db.read(read)

    def is_volume_data_needed(self, context: RequestContext, host: str, verb: VolumeVerb, made_id: str) -> bool:
        """Check whether a volume, snapshot or backup exists, and is not being deleted."""
        return self.db.read(volume_tasks.is_needed, verb, made_id)

    def _finish_volume_work(self, uow: UnitOfWork, host: str, task_id: int, error: str | None) -> None:
        task = volume_tasks.lock(uow, task_id)
        if task is not None and task.host == host:
            self._end(uow, task, error)

    def _end(self, uow: UnitOfWork, task: models.VolumeTask, error: str | None) -> None:
        if error is not None:
            LOG.warning("%s of volume %s has failed: %s", task.verb, task.volume_id, error)
        verb, snapshot_id = VolumeVerb(task.verb), task.payload.get("snapshot_id")
        snapshot = None if snapshot_id is None else uow.session.get(models.VolumeSnapshot, snapshot_id)
        volume = volumes.by_id(uow, task.volume_id, lock=True)
        uow.session.delete(task)
        if verb is VolumeVerb.EXTEND and task.payload.get("instance_uuid"):
            _note_in_history(uow, task, error)
        if verb in volume_backups.VERBS:
            volume_backups.end(uow, task, volume, error)
            return
        if verb is VolumeVerb.UPLOAD:
            _end_of_image(uow, task.payload["image_id"], error)
        if verb in (VolumeVerb.SNAPSHOT, VolumeVerb.DELETE_SNAPSHOT):
            if snapshot is not None:
                _end_of_snapshot(uow, verb, snapshot, error)
            if volume is not None and volume_tasks.CASCADE in task.payload:
                self._go_on_with_deletion(uow, task, volume, error)
        elif volume is not None:
            _end_of_volume(uow, verb, volume, task.payload, error)

    def _go_on_with_deletion(
        self, uow: UnitOfWork, task: models.VolumeTask, volume: models.Volume, error: str | None
    ) -> None:
        """Delete the volume after the last of its snapshots, unless one of them cannot be deleted."""
        if error is not None:
            volumes.change(volume, uow, {"status": "error_deleting"})
        elif volume.status == volumes.DELETING and not volumes.has_snapshots(uow, volume.id):
            self._add(uow, task.request_id, VolumeVerb.DELETE, volume.id)


def _image_call(uow: UnitOfWork, host: str, task_id: int) -> ImageCall | None:
    """Return the call that publishes the image of a task of this host. None: the task makes no image."""
    task = uow.session.get(models.VolumeTask, task_id)
    if task is None or task.host != host or task.verb != VolumeVerb.UPLOAD:
        return None
    image_id, image = task.payload["image_id"], task.payload["image"]
    return ImageCall(image_id=image_id, host=host, disk_format=image["disk_format"])


def _note_in_history(uow: UnitOfWork, task: models.VolumeTask, error: str | None) -> None:
    """Note the end of an extension in the history of the server that has the volume, under Nova's names."""
    event = InstanceActionEvent(
        event="compute_extend_volume",
        host=task.host,
        start_time=volume_tasks.accepted_at(uow, task),
        finish_time=uow.now,
        result="Success" if error is None else "Error",
        details=error,
    )
    actions.record_ended(uow, task.payload["instance_uuid"], task.request_id, "extend_volume", event)


def _has_image(uow: UnitOfWork, image_id: str) -> bool:
    return images.by_id(uow, image_id) is not None


def _end_of_image(uow: UnitOfWork, image_id: str, error: str | None) -> None:
    if error is None:
        images.activate(uow, image_id)
    else:
        images.drop(uow, [image_id])


def _end_of_snapshot(uow: UnitOfWork, verb: VolumeVerb, row: models.VolumeSnapshot, error: str | None) -> None:
    if verb is VolumeVerb.DELETE_SNAPSHOT and error is None:
        uow.session.delete(row)
        return
    done = volumes.AVAILABLE if error is None else volumes.ERROR
    volumes.change(row, uow, {"status": "error_deleting" if verb is VolumeVerb.DELETE_SNAPSHOT else done})


def _end_of_volume(
    uow: UnitOfWork, verb: VolumeVerb, row: models.Volume, payload: dict[str, Any], error: str | None
) -> None:
    if verb is VolumeVerb.UPLOAD:
        if row.status == UPLOADING:
            volumes.change(row, uow, {"status": volumes.AVAILABLE})
    elif verb is VolumeVerb.CREATE:
        volumes.change(row, uow, {"status": volumes.AVAILABLE if error is None else volumes.ERROR})
    elif verb is VolumeVerb.EXTEND and error is None:
        volumes.change(row, uow, {"status": volumes.AVAILABLE if row.instance_uuid is None else volumes.IN_USE})
    elif verb is VolumeVerb.EXTEND:
        status = "error_extending" if row.instance_uuid is None else volumes.IN_USE
        volumes.change(row, uow, {"status": status, "size": payload["old_size"]})
    elif error is None:
        volume_keys.delete(uow, row.encryption_key_id)
        uow.session.delete(row)
    else:
        volumes.change(row, uow, {"status": "error_deleting"})


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

"""RPC methods about backups of volumes. Hosts copy the data: it is work as that on volumes' files.

A host that restores a backup into an existing volume replaces its file. So no other host takes over that work: the
first one might wake up and replace the file again, when a server has it.
"""

from __future__ import annotations

import uuid
from typing import Any, Protocol

import msgspec

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.base.ids import derived_id
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.volume import attachments, volume_backups, volume_keys, volume_types, volumes
from nova_lite.objects import BackedUpVolume, Volume, VolumeBackup, VolumeType, VolumeVerb

_NAMESPACE = uuid.UUID("6b0b1a0e-6a55-4c39-9d6c-6f1b1c0f5a27")

#: States of a volume while it is copied into a backup, and while a backup is copied into it.
BACKING_UP, RESTORING = "backing-up", "restoring-backup"
#: State of a volume whose restoration failed.
ERROR_RESTORING = "error_restoring"

_DELETABLE = (volume_backups.AVAILABLE, volume_backups.ERROR)
#: Most characters of a failure's reason.
_REASON = 1000


class Accept(Protocol):
    """Accepts work of a host: `VolumeTasks.accept`."""

    def __call__(
        self,
        uow: UnitOfWork,
        context: RequestContext,
        verb: VolumeVerb,
        volume_id: str,
        reads: str | None = None,
        **payload: Any,
    ) -> None: ...


class BackupEndpoints:
    def __init__(self, engine: ActionEngine, accept: Accept) -> None:
        self.db = engine.db
        self._accept = accept

    def backup_create(self, context: RequestContext, backup: VolumeBackup, force: bool) -> VolumeBackup:
        """Accept a backup. ``force``: also of a volume that a server has."""
        return self.db.write(self._create_backup, context, backup, force)

    def _create_backup(
        self, uow: UnitOfWork, context: RequestContext, backup: VolumeBackup, force: bool
    ) -> VolumeBackup:
        known = volume_backups.by_id(uow, backup.id)
        if known is not None:
            return volume_backups.to_object(volume_backups.found(uow, context, backup.id))
        row = volumes.locked(uow, context, backup.volume_id)
        snapshot = self._snapshot(uow, context, backup, row)
        allowed = (volumes.AVAILABLE, volumes.IN_USE) if force or snapshot else (volumes.AVAILABLE,)
        if row.status not in allowed or (snapshot is None and volumes.is_read(uow, row.id)):
            raise exceptions.InvalidVolume(
                reason=f"the volume to be backed up must be {' or '.join(allowed)} and not be copied just now, but its "
                f"status is {row.status}." + ("" if force else " One that a server has is backed up with force.")
            )
        if snapshot is None:
            attachments.require_one_writer(uow, row, "a backup")
        size = row.size if snapshot is None else snapshot.size
        volumes.check_quota(uow, row.project_id, backups=1, backup_gigabytes=size)
        volume = volumes.to_object(row)
        backup.project_id, backup.user_id, backup.size = row.project_id, context.user_id or "", size
        backup.data_id, backup.status = backup.id, volume_backups.CREATING
        backup.data_timestamp = uow.now if snapshot is None else snapshot.created_at
        backup.volume = BackedUpVolume(
            name=volume.name,
            description=volume.description,
            metadata=volume.metadata,
            bootable=volume.bootable,
            image=volume.image,
            image_metadata=volume.image_metadata,
            volume_type=volume.volume_type,
        )
        backup.encryption_key_id = None
        if row.encryption_key_id is not None:
            backup.encryption_key_id = volume_keys.copy(uow, row.encryption_key_id, row.id)
        made = volume_backups.insert(uow, backup)
        payload: dict[str, Any] = {"backup_id": made.id, "size": size}
        if snapshot is None:
            payload["before"] = row.status
            volumes.change(row, uow, {"status": BACKING_UP})
        else:
            payload["source_snapshot"] = snapshot.id
        reads = row.id if snapshot is None else snapshot.id
        self._accept(uow, context, VolumeVerb.BACKUP, row.id, reads, **payload)
        return volume_backups.to_object(made)

    def _snapshot(
        self, uow: UnitOfWork, context: RequestContext, backup: VolumeBackup, volume: models.Volume
    ) -> models.VolumeSnapshot | None:
        """Return the snapshot that is backed up instead of the volume itself."""
        if backup.snapshot_id is None:
            return None
        row = volumes.locked_snapshot(uow, context, backup.snapshot_id)
        if row.volume_id != volume.id:
            raise exceptions.InvalidInput(reason=f"snapshot {row.id} is none of volume {volume.id}")
        if row.status != volumes.AVAILABLE:
            raise exceptions.InvalidSnapshot(reason=f"its status must be available, it is {row.status}")
        return row

    def backup_update(self, context: RequestContext, backup_id: str, changes: dict[str, Any]) -> VolumeBackup:
        return self.db.write(self._update_backup, context, backup_id, changes)

    def _update_backup(
        self, uow: UnitOfWork, context: RequestContext, backup_id: str, changes: dict[str, Any]
    ) -> VolumeBackup:
        row = volume_backups.found(uow, context, backup_id, lock=True)
        unknown = changes.keys() - {"name", "description", "metadata", "status"}
        if unknown:
            raise exceptions.InvalidInput(reason=f"{', '.join(sorted(unknown))} of a backup cannot be changed")
        if "status" in changes and volume_backups.is_worked_on(uow, row.id):
            raise exceptions.InvalidInput(reason=f"backup {row.id} is {row.status}; wait until that is done")
        volume_backups.change(uow, row, changes)
        return volume_backups.to_object(row)

    def backup_delete(self, context: RequestContext, backup_id: str, force: bool) -> None:
        self.db.write(self._delete_backup, context, backup_id, force)

    def _delete_backup(self, uow: UnitOfWork, context: RequestContext, backup_id: str, force: bool) -> None:
        row = volume_backups.found(uow, context, backup_id)
        volume_backups.lock_sharing(uow, row.data_id)
        row = volume_backups.found(uow, context, backup_id, lock=True)
        if volume_backups.is_worked_on(uow, row.id):
            if row.status == volume_backups.DELETING:
                return
            raise exceptions.InvalidInput(reason=f"backup {row.id} is {row.status}; wait until that is done")
        if row.status not in _DELETABLE and not force:
            raise exceptions.InvalidInput(reason=f"Backup status must be available or error, it is {row.status}")
        if volume_backups.has_data_of_others(uow, row):
            volume_keys.delete(uow, row.encryption_key_id)
            uow.session.delete(row)
            return
        volume_backups.change(uow, row, {"status": volume_backups.DELETING})
        payload: dict[str, Any] = {"backup_id": row.id, "data_id": row.data_id}
        self._accept(uow, context, VolumeVerb.DELETE_BACKUP, row.volume_id, **payload)

    def backup_restore(self, context: RequestContext, backup_id: str, volume_id: str | None, name: str) -> Volume:
        """Accept that a backup is restored into a volume, or into a new one (None)."""
        return self.db.write(self._restore_backup, context, backup_id, volume_id, name)

    def _restore_backup(
        self, uow: UnitOfWork, context: RequestContext, backup_id: str, volume_id: str | None, name: str
    ) -> Volume:
        row = volume_backups.found(uow, context, backup_id, lock=True)
        backup = volume_backups.to_object(row)
        new_id = derived_id(_NAMESPACE, f"{context.request_id}/{backup_id}")
        if volume_id is None and (known := volumes.by_id(uow, new_id)) is not None:
            return volumes.to_object(known)
        if backup.status != volume_backups.AVAILABLE:
            raise exceptions.InvalidInput(reason=f"Backup status must be available, it is {backup.status}")
        volume = self._new_volume(uow, context, backup, new_id, name) if volume_id is None else None
        target = volume or self._existing_volume(uow, context, backup, str(volume_id))
        old = backup.volume
        image = None if old.image is None else msgspec.to_builtins(old.image)
        becomes = {"bootable": old.bootable, "image": image, "image_metadata": old.image_metadata}
        volume_backups.change(uow, row, {"status": volume_backups.RESTORING})
        payload: dict[str, Any] = {
            "backup_id": backup.id,
            "data_id": backup.data_id,
            "size": target.size,
            "is_new": volume_id is None,
            "becomes": {} if volume_id is None else becomes,
        }
        self._accept(uow, context, VolumeVerb.RESTORE, target.id, **payload)
        return volumes.to_object(target)

    def _new_volume(
        self, uow: UnitOfWork, context: RequestContext, backup: VolumeBackup, volume_id: str, name: str
    ) -> models.Volume:
        if not context.project_id:
            raise exceptions.Forbidden("A volume belongs to a project; this token is for none.")
        old = backup.volume
        kind, key = self._type_of(uow, context, backup), backup.encryption_key_id
        volumes.check_quota(uow, context.project_id, volumes=1, gigabytes=backup.size, kind=kind.name, size=backup.size)
        made = Volume(
            id=volume_id,
            project_id=context.project_id,
            user_id=context.user_id or "",
            name=name or f"restore_backup_{backup.id}",
            description=old.description,
            size=backup.size,
            status=RESTORING,
            availability_zone=str(uow.conf.compute.default_availability_zone),
            volume_type=kind.name,
            multiattach=key is None and volume_types.require_multiattach(kind, allowed=True),
            bootable=old.bootable,
            metadata=old.metadata,
            image=old.image,
            image_metadata=old.image_metadata,
            encryption_key_id=None if key is None else volume_keys.copy(uow, key, backup.volume_id),
        )
        return volumes.insert(uow, made)

    def _type_of(self, uow: UnitOfWork, context: RequestContext, backup: VolumeBackup) -> VolumeType:
        """Return the type of a new volume of the backup: that of its volume, or else the default.

        Raises `InvalidInput` if it says otherwise than the data whether they are encrypted.
        """
        try:
            kind = volume_types.for_volume(uow, context, backup.volume.volume_type)
        except (exceptions.VolumeTypeNotFound, exceptions.InvalidInput):  # it is gone, or another project's
            kind = volume_types.for_volume(uow, context, None)
        _require_alike(backup, kind.encryption is not None, f"volumes of type {kind.name} are")
        return kind

    def _existing_volume(
        self, uow: UnitOfWork, context: RequestContext, backup: VolumeBackup, volume_id: str
    ) -> models.Volume:
        row = volumes.locked(uow, context, volume_id)
        if row.status != volumes.AVAILABLE or row.instance_uuid is not None or volumes.is_read(uow, row.id):
            raise exceptions.InvalidVolume(
                reason=f"volume to be restored to must be available and not be copied just now, it is {row.status}"
            )
        if row.size < backup.size:
            raise exceptions.InvalidInput(
                reason=f"volume size {row.size} GB is too small to restore a backup of {backup.size} GB"
            )
        _require_alike(backup, row.encryption_key_id is not None, f"volume {row.id} is")
        volumes.change(row, uow, {"status": RESTORING})
        return row

    def backup_import(self, context: RequestContext, backup: VolumeBackup) -> VolumeBackup:
        """Accept the record of a backup that was exported. A host looks for its data."""
        return self.db.write(self._import_backup, context, backup)

    def _import_backup(self, uow: UnitOfWork, context: RequestContext, backup: VolumeBackup) -> VolumeBackup:
        if not context.project_id:
            raise exceptions.Forbidden("A backup belongs to a project; this token is for none.")
        if volume_backups.by_id(uow, backup.id) is not None:
            raise exceptions.InvalidInput(reason=f"backup {backup.id} exists already")
        volumes.check_quota(uow, context.project_id, backups=1, backup_gigabytes=backup.size)
        backup.project_id, backup.user_id = context.project_id, context.user_id or ""
        backup.status = volume_backups.CREATING
        key_id = backup.encryption_key_id
        if key_id is not None:
            if not volume_keys.exists(uow, key_id):
                raise exceptions.InvalidInput(reason=f"this cloud does not have key {key_id}, which the backup needs")
            backup.encryption_key_id = volume_keys.copy(uow, key_id, backup.volume_id)
        made = volume_backups.insert(uow, backup)
        payload: dict[str, Any] = {"backup_id": made.id, "data_id": made.data_id, "size": made.size}
        self._accept(uow, context, VolumeVerb.VERIFY_BACKUP, made.volume_id, **payload)
        return volume_backups.to_object(made)


def _require_alike(backup: VolumeBackup, encrypted: bool, target: str) -> None:
    if (backup.encryption_key_id is not None) != encrypted:
        is_, other = ("encrypted", "not") if backup.encryption_key_id is not None else ("plain", "encrypted")
        raise exceptions.InvalidInput(reason=f"backup {backup.id} is {is_}, and {target} {other}")


def end(uow: UnitOfWork, task: models.VolumeTask, volume: models.Volume | None, error: str | None) -> None:
    """Record the end of a host's work on a backup."""
    verb = VolumeVerb(task.verb)
    row = volume_backups.by_id(uow, task.payload["backup_id"], lock=True)
    if verb is VolumeVerb.BACKUP and volume is not None and volume.status == BACKING_UP:
        volumes.change(volume, uow, {"status": attachments.status(uow, volume)})
    if verb is VolumeVerb.RESTORE and volume is not None and volume.status == RESTORING:
        failed = volumes.ERROR if task.payload["is_new"] else ERROR_RESTORING
        done = {"status": volumes.AVAILABLE, **task.payload["becomes"]}
        volumes.change(volume, uow, {"status": failed} if error else done)
        if error is None and row is not None and not task.payload["is_new"]:
            _take_key(uow, volume, row)
    if row is None:
        return
    if verb is VolumeVerb.DELETE_BACKUP and error is None:
        volume_keys.delete(uow, row.encryption_key_id)
        uow.session.delete(row)
        return
    failed = {
        VolumeVerb.DELETE_BACKUP: "error_deleting",
        VolumeVerb.RESTORE: volume_backups.AVAILABLE,
    }.get(verb, volume_backups.ERROR)
    reason = None if error is None else error[:_REASON]
    status = volume_backups.AVAILABLE if error is None else failed
    volume_backups.change(uow, row, {"status": status, "fail_reason": reason})


def _take_key(uow: UnitOfWork, volume: models.Volume, backup: models.VolumeBackup) -> None:
    """Give the key of a backup to the volume that has its data now."""
    if backup.encryption_key_id is None or volume.encryption_key_id is None:
        return
    old, volume.encryption_key_id = (
        volume.encryption_key_id,
        volume_keys.copy(uow, backup.encryption_key_id, backup.volume_id),
    )
    volume_keys.delete(uow, old)


#: Work that belongs to a backup.
VERBS = frozenset({VolumeVerb.BACKUP, VolumeVerb.DELETE_BACKUP, VolumeVerb.VERIFY_BACKUP, VolumeVerb.RESTORE})

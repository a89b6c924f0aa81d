"""Backups of servers that policies make: their rows, from the plan to the removal.

Conductors share the work. Each change of a status happens under the lock of the backup's row, and only from the status
that it follows.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from nova_lite import objects, operations
from nova_lite.backups import disk_parts
from nova_lite.backups.disk_data import DiskHeader, DiskPart
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import actions, models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, InstanceAction
from nova_lite.db.core.models import ServerBackup as Row
from nova_lite.db.core.rows import to_object
from nova_lite.db.core.statements import insert_if_missing
from nova_lite.db.image import images
from nova_lite.db.servers import instances
from nova_lite.db.volume import block_devices, volumes
from nova_lite.objects import (
    BackupDisk,
    BackupEngine,
    BackupPolicy,
    BackupQuery,
    BackupStatus,
    Image,
    InstanceActionEvent,
    RestoreStatus,
    ServerBackup,
)
from nova_lite.objects.block_device import DeviceState, root_volume
from nova_lite.operations import states

#: Event of the action that reports a backup that did not begin.
EVENT = "conductor_backup_policy"
#: Time in which a server that is restored gets its image. After that, the server refers to it.
HOLD = datetime.timedelta(hours=1)
#: Time in which data that were uploaded get into the repository. After that, the backup has failed.
STORE_TIME = datetime.timedelta(days=1)
_LONGEST_CHAIN = 10_000
#: Most characters of a reason.
_REASON = 1000


# --- for the API and operators


def list_(uow: UnitOfWork, context: RequestContext, query: BackupQuery) -> list[ServerBackup]:
    """Return the backups of the project's servers, newest first; with ``all_projects`` and for an admin, all backups.

    Raises `MarkerNotFound`.
    """
    chosen = sa.select(Row).order_by(Row.id.desc()).limit(query.limit)
    if not (query.all_projects and context.is_admin):
        chosen = chosen.where(Row.project_id == context.project_id)
    for column, value in (
        (Row.policy_id, query.policy_id),
        (Row.instance_uuid, query.instance_uuid),
        (Row.status, query.status),
    ):
        if value is not None:
            chosen = chosen.where(column == value)
    if query.marker is not None:
        last = _find(uow, context, query.marker)
        if last is None:
            raise exceptions.MarkerNotFound(marker=query.marker)
        chosen = chosen.where(Row.id < last.id)
    return [to_backup(row) for row in uow.session.scalars(chosen)]


def get(uow: UnitOfWork, context: RequestContext, backup_id: str) -> ServerBackup:
    """Return a backup by uuid. Raises `ServerBackupNotFound`, also for another project's, except for an admin."""
    return to_backup(_visible(uow, context, backup_id))


def delete(uow: UnitOfWork, context: RequestContext, backup_id: str) -> None:
    """Delete a backup: its image is removed soon. Raises `ServerBackupRunning` while it is being made, and
    `ServerBackupLocked` for anyone."""
    row = _visible(uow, context, backup_id, lock=True)
    if row.status in (BackupStatus.RUNNING, BackupStatus.STORING):
        raise exceptions.ServerBackupRunning(backup_id=backup_id)
    if _is_locked(uow, row):
        raise _locked(row)
    row.status = BackupStatus.DELETING
    uow.session.flush()


def lock_until(uow: UnitOfWork, context: RequestContext, backup_id: str, until: datetime.datetime) -> ServerBackup:
    """Lock a complete backup in a repository until this time, or lengthen its lock. Return it.

    Raises `ServerBackupLocked` if that shortens its lock, `ServerBackupNotLockable`, or `InvalidInput`.
    """
    row = _visible(uow, context, backup_id, lock=True)
    if row.status != BackupStatus.COMPLETE:
        raise exceptions.ServerBackupNotLockable(backup_id=backup_id, reason=f"it is {row.status}")
    if row.engine == BackupEngine.IMAGES:
        raise exceptions.ServerBackupNotLockable(backup_id=backup_id, reason="it is an image of its project")
    days = uow.conf.server_backups.max_locked_days
    if not uow.now < until <= uow.now + datetime.timedelta(days=days):
        raise exceptions.InvalidInput(reason=f"locked_until is in the future, and at most {days} days from now")
    if row.locked_until is not None and until < row.locked_until:
        raise _locked(row)
    row.locked_until = until
    uow.session.flush()
    return to_backup(row)


def _is_locked(uow: UnitOfWork, row: Row) -> bool:
    return row.locked_until is not None and row.locked_until > uow.now


def _locked(row: Row) -> exceptions.ServerBackupLocked:
    return exceptions.ServerBackupLocked(backup_id=row.uuid, locked_until=f"{row.locked_until:%Y-%m-%dT%H:%M:%SZ}")


def hold(uow: UnitOfWork, context: RequestContext, backup_id: str) -> ServerBackup:
    """Return a complete backup that is about to be restored. Retention leaves it alone for `HOLD`.

    Raises `ServerBackupNotComplete`.
    """
    row = _visible(uow, context, backup_id, lock=True)
    if row.status != BackupStatus.COMPLETE:
        raise exceptions.ServerBackupNotComplete(backup_id=backup_id, status=row.status)
    in_repository = row.engine != BackupEngine.IMAGES
    if in_repository and row.restore_status != RestoreStatus.READY:
        raise exceptions.ServerBackupInRepository(backup_id=backup_id)
    row.held_until = uow.now + HOLD
    uow.session.flush()
    found = to_backup(row)
    return msgspec.structs.replace(found, image_id=row.restored_image_id) if in_repository else found


def want_image(uow: UnitOfWork, context: RequestContext, backup_id: str) -> ServerBackup:
    """Request an image of a complete backup in a repository, unless there is one. A failed attempt is repeated.

    Raises `ServerBackupNotComplete`. A backup that is an image is returned as it is.
    """
    row = _visible(uow, context, backup_id, lock=True)
    if row.status != BackupStatus.COMPLETE:
        raise exceptions.ServerBackupNotComplete(backup_id=backup_id, status=row.status)
    if row.engine == BackupEngine.IMAGES or row.restore_status == RestoreStatus.WANTED:
        return to_backup(row)
    is_there = all(images.by_id(uow, image_id) is not None for image_id in _images_of(row))
    if row.restore_status != RestoreStatus.READY or not is_there:
        row.restored_image_id, row.restore_reason = str(uuid.uuid4()), None
        row.restore_status = RestoreStatus.WANTED
        _name_images(row)
    row.held_until = uow.now + HOLD
    uow.session.flush()
    return to_backup(row)


def _name_images(row: Row) -> None:
    """Give each disk the id of the image that will be made of it. The root disk's image is the backup's own."""
    disks = _disks(row)
    for disk in disks:
        disk.image_id = row.restored_image_id if disk.is_root else str(uuid.uuid4())
    row.disks = msgspec.to_builtins(disks)


def _images_of(row: Row) -> list[str]:
    """Return the ids of the images that are made of a backup."""
    named = dict.fromkeys([row.restored_image_id, *(disk.image_id for disk in _disks(row))])
    return [image_id for image_id in named if image_id is not None]


def _disks(row: Row) -> list[BackupDisk]:
    return msgspec.convert(row.disks or [], list[BackupDisk])


# --- for policies


def plan(
    uow: UnitOfWork,
    policy: BackupPolicy,
    server: Instance,
    scheduled_for: datetime.datetime,
    due_at: datetime.datetime,
    deadline: datetime.datetime,
) -> ServerBackup:
    """Write a pending backup, unless there is one for this time, and return it. The policy's row is locked."""
    known = sa.select(Row).where(
        Row.policy_id == policy.id, Row.instance_uuid == server.uuid, Row.scheduled_for == scheduled_for
    )
    row = uow.session.scalars(known).first()
    if row is None:
        row = Row(
            uuid=str(uuid.uuid4()),
            policy_id=policy.id,
            project_id=policy.project_id,
            user_id=policy.user_id,
            instance_uuid=server.uuid,
            status=BackupStatus.PENDING,
            scheduled_for=scheduled_for,
            due_at=due_at,
            deadline=deadline,
            image_id=str(uuid.uuid4()),
            created_at=uow.now,
            server={"name": server.display_name},
        )
        uow.session.add(row)
        uow.session.flush()
    return to_backup(row)


def hastened(uow: UnitOfWork, policy_id: str) -> dict[str, ServerBackup]:
    """Return the newest backup of a policy that waits or is being made, by server, after moving its moment to now.

    A backup that was put off keeps its moment. A backup whose window has passed is left out: it does not begin. The
    policy's row is locked.
    """
    waits = sa.and_(Row.policy_id == policy_id, Row.status == BackupStatus.PENDING, Row.deadline > uow.now)
    uow.change(sa.update(Row).where(waits, Row.attempts == 0, Row.due_at > uow.now).values(due_at=uow.now))
    is_made = sa.and_(Row.policy_id == policy_id, Row.status.in_((BackupStatus.RUNNING, BackupStatus.STORING)))
    query = sa.select(Row).where(sa.or_(waits, is_made)).order_by(Row.id)
    rows = uow.session.scalars(query.execution_options(populate_existing=True))
    return {row.instance_uuid: to_backup(row) for row in rows}


def drop_pending(uow: UnitOfWork, policy_id: str) -> None:
    """Delete the backups of a policy that have not begun."""
    _drop_pending(uow, Row.policy_id == policy_id)


def _drop_pending(uow: UnitOfWork, chosen: sa.ColumnElement[bool]) -> None:
    """Delete pending backups. A backup for which an image may be registered is removed soon, with its image."""
    is_pending = sa.and_(chosen, Row.status == BackupStatus.PENDING)
    uow.change(sa.delete(Row).where(is_pending, Row.has_image.is_(False)))
    uow.change(sa.update(Row).where(is_pending).values(status=BackupStatus.DELETING))


def newest(uow: UnitOfWork, policy_id: str) -> dict[str, list[ServerBackup]]:
    """Return the newest backup of each status, by server."""
    last = sa.select(sa.func.max(Row.id)).where(Row.policy_id == policy_id).group_by(Row.instance_uuid, Row.status)
    found: dict[str, list[ServerBackup]] = {}
    for row in uow.session.scalars(sa.select(Row).where(Row.id.in_(last))):
        found.setdefault(row.instance_uuid, []).append(to_backup(row))
    return found


def oldest_uploads(uow: UnitOfWork, policy_id: str) -> dict[str, datetime.datetime]:
    """Return when the oldest data arrived that wait for their repository, by server."""
    query = sa.select(Row.instance_uuid, sa.func.min(Row.finished_at)).group_by(Row.instance_uuid)
    query = query.where(Row.policy_id == policy_id, Row.status == BackupStatus.STORING, Row.finished_at.is_not(None))
    return dict(uow.rows(query).all())


# --- for conductors


class Waiting(NamedTuple):
    """Pending backup whose moment has come. ``host``: of its server, "" without one. ``reason``: why it was put off."""

    backup_id: str
    project_id: str
    host: str
    is_late: bool
    reason: str | None


class Running(NamedTuple):
    """Backup that is being made. ``host``: of its server, "" without one."""

    project_id: str
    host: str


def startable(uow: UnitOfWork) -> list[Waiting]:
    """Return the pending backups whose moment has come, those with the earliest deadlines first."""
    query = sa.select(Row.uuid, Row.project_id, Instance.host, Row.deadline, Row.reason)
    query = query.join(Instance, Instance.uuid == Row.instance_uuid, isouter=True)
    query = query.where(Row.status == BackupStatus.PENDING, Row.due_at <= uow.now)
    return [
        Waiting(backup_id, project_id, host or "", deadline <= uow.now, reason)
        for backup_id, project_id, host, deadline, reason in uow.rows(query.order_by(Row.deadline, Row.due_at, Row.id))
    ]


def running(uow: UnitOfWork) -> list[Running]:
    """Return the backups that are being made."""
    query = sa.select(Row.project_id, Row.host).where(Row.status == BackupStatus.RUNNING)
    return [Running(project_id, host or "") for project_id, host in uow.rows(query)]


def candidate(uow: UnitOfWork, backup_id: str) -> tuple[ServerBackup, objects.Instance | None] | None:
    """Return a pending backup with its server, or None if it does not wait any more. A deleted server is None."""
    row = uow.session.scalars(sa.select(Row).where(Row.uuid == backup_id, Row.status == BackupStatus.PENDING)).first()
    if row is None:
        return None
    server = uow.session.scalars(sa.select(Instance).where(Instance.uuid == row.instance_uuid)).unique().first()
    gone = server is None or server.deleted or server.vm_state == states.SOFT_DELETED
    return to_backup(row), None if gone or server is None else instances.to_object(uow, server)


def lock(uow: UnitOfWork, backup_id: str, status: BackupStatus) -> Row | None:
    """Lock a backup of this status; None if it has left it."""
    query = sa.select(Row).where(Row.uuid == backup_id, Row.status == status).with_for_update()
    return uow.session.scalars(query.execution_options(populate_existing=True)).first()


def note_image(uow: UnitOfWork, backup_id: str) -> bool:
    """Record that an image is about to be registered for a pending backup. Return False if it waits no longer."""
    row = lock(uow, backup_id, BackupStatus.PENDING)
    if row is None:
        return False
    row.has_image = True
    uow.session.flush()
    return True


def base_of(uow: UnitOfWork, row: Row, server: models.Instance, full_every: int) -> Row | None:
    """Return the newest backup of the server in a repository, if an increment of it may be made, and lock it.

    It was made on the same host and of the same build of the server. After ``full_every`` - 1 increments, none is.
    """
    query = sa.select(Row).where(
        Row.instance_uuid == row.instance_uuid,
        Row.project_id == row.project_id,
        Row.engine == BackupEngine.RESTIC,
        Row.status == BackupStatus.COMPLETE,
    )
    query = query.order_by(Row.started_at.desc(), Row.id.desc()).limit(1).with_for_update()
    base = uow.session.scalars(query).first()
    if base is None or (base.host, base.generation) != (server.host, server.generation):
        return None
    return base if base.increments + 1 < full_every else None


def disks_to_back_up(uow: UnitOfWork, server: models.Instance, volumes_too: bool) -> list[BackupDisk]:
    """Return the disks of a server that a backup contains, the root disk first. Encrypted volumes are left out, and
    volumes that several servers may have: no host knows what others have changed.

    A volume that the server boots from is always in it. Raises `BackupOfVolumes` if that is left out.
    """
    attached = [
        device
        for device in block_devices.of(server)
        if device.is_volume and device.volume_id is not None and device.state is DeviceState.ATTACHED
    ]
    found = []
    for device in attached:
        volume = volumes.by_id(uow, str(device.volume_id))
        is_left_out = volume is not None and (volume.encryption_key_id is not None or volume.multiattach)
        if device.is_root and is_left_out:
            raise exceptions.BackupOfVolumes()
        if not is_left_out and (device.is_root or volumes_too):
            name = device.device_name or ""
            found.append(BackupDisk(volume_id=str(device.volume_id), device=name, is_root=device.is_root))
    if root_volume(block_devices.of(server)) is None:
        found.append(BackupDisk(is_root=True))
    return sorted(found, key=lambda disk: (not disk.is_root, disk.device, disk.volume_id))


def begin(
    uow: UnitOfWork,
    row: Row,
    action_id: int,
    server: models.Instance,
    image: Image,
    engine: BackupEngine,
    base: Row | None,
    disks: Sequence[BackupDisk] = (),
) -> None:
    """Record that the backup's action was accepted, and what a new server of the backup needs."""
    row.engine, row.generation, row.has_image = engine, server.generation, engine is BackupEngine.RESTIC
    row.base_id = None if base is None else base.uuid
    row.disks = msgspec.to_builtins(list(disks))
    row.status, row.action_id, row.host, row.reason = BackupStatus.RUNNING, action_id, server.host, None
    row.attempts += 1
    row.started_at = uow.now
    instance = instances.to_object(uow, server)
    row.server = {
        "name": instance.display_name,
        "description": instance.display_description,
        "flavor_id": instance.flavor.flavorid,
        "networks": list(dict.fromkeys(vif.network.public_id for vif in instance.vifs)),
        "metadata": instance.metadata,
        "tags": instance.tags,
        "key_name": instance.key_name,
        "security_groups": instance.security_groups,
        "config_drive": instance.config_drive,
    }
    if engine is BackupEngine.RESTIC:
        row.server = {**row.server, "image": msgspec.to_builtins(image)}
    uow.session.flush()


def put_backup_off(uow: UnitOfWork, backup_id: str, reason: str, seconds: float) -> bool:
    """Try a pending backup again later. Return False if its window has passed by then."""
    row = lock(uow, backup_id, BackupStatus.PENDING)
    if row is None:
        return True
    due_at = uow.now + datetime.timedelta(seconds=seconds)
    if due_at >= row.deadline:
        return False
    row.due_at, row.reason = due_at, reason[:_REASON]
    row.attempts += 1
    uow.session.flush()
    return True


def drop_backup(uow: UnitOfWork, backup_id: str) -> None:
    """Delete a pending backup, whose server is gone."""
    _drop_pending(uow, Row.uuid == backup_id)


def fail_backup(uow: UnitOfWork, backup_id: str, status: BackupStatus, reason: str) -> ServerBackup | None:
    """Record that a backup has failed, and return it. None if it has left ``status``.

    A backup that did not begin has no action, so one is written that has failed: the server's owner sees it there.
    """
    row = lock(uow, backup_id, status)
    if row is None:
        return None
    row.status, row.reason, row.finished_at = BackupStatus.FAILED, reason[:_REASON], uow.now
    row.locked_until = None  # it has no data
    if row.action_id is None:
        server = instances.lock(uow, row.instance_uuid)
        if server is not None and not server.deleted:
            _report(uow, row, server, reason)
    uow.session.flush()
    return to_backup(row)


def ended(uow: UnitOfWork) -> list[tuple[ServerBackup, str | None]]:
    """Return the running backups whose action has ended, with the cause if it failed.

    An action that was purged counts as failed.
    """
    query = sa.select(Row, InstanceAction).join(InstanceAction, InstanceAction.id == Row.action_id, isouter=True)
    query = query.where(
        Row.status == BackupStatus.RUNNING,
        sa.or_(InstanceAction.id.is_(None), InstanceAction.finish_time.is_not(None)),
    )
    found = []
    for row, action in uow.session.execute(query):
        failed = action is None or action.message is not None
        found.append((to_backup(row), _cause(action) if failed else None))
    return found


def complete_backup(uow: UnitOfWork, backup_id: str, size: int) -> bool:
    """Record that a backup's image is active. Return False if the backup is not running any more."""
    return _end_running(uow, backup_id, BackupStatus.COMPLETE, size)


def _end_running(uow: UnitOfWork, backup_id: str, status: BackupStatus, size: int) -> bool:
    row = lock(uow, backup_id, BackupStatus.RUNNING)
    if row is None:
        return False
    row.status, row.size, row.finished_at = status, size, uow.now
    uow.session.flush()
    return True


# --- backups in repositories


def with_status(uow: UnitOfWork, status: BackupStatus) -> list[ServerBackup]:
    """Return the backups in repositories with a status, the oldest first."""
    query = sa.select(Row).where(Row.status == status, Row.engine == BackupEngine.RESTIC)
    return [to_backup(row) for row in uow.session.scalars(query.order_by(Row.id))]


def begin_storing(uow: UnitOfWork, backup_id: str, size: int) -> bool:
    """Record that the data of a backup are uploaded. Return False if the backup is not running any more."""
    return _end_running(uow, backup_id, BackupStatus.STORING, size)


def store_backup(uow: UnitOfWork, backup_id: str, header: DiskHeader, snapshot: str, digest: str) -> bool:
    """Record that the data of a backup are in its repository: it is complete. Return False if no user wants it.

    ``header``: of its stream. Raises `BackupDataInvalid` if a disk is missing, and for an increment whose base is gone,
    has failed, or is a backup of other disks.
    """
    row = lock(uow, backup_id, BackupStatus.STORING)
    if row is None:
        return False
    disks = _sized(_disks(row), disk_parts.of(header))
    row.base_id, row.increments = header.base, 0
    if header.base is not None:
        base = uow.session.scalars(sa.select(Row).where(Row.uuid == header.base).with_for_update()).first()
        if base is None or base.snapshot is None or base.status == BackupStatus.FAILED:
            raise exceptions.BackupDataInvalid(reason="the backup that they are based on is gone")
        mine = (row.instance_uuid, row.project_id, row.host, row.generation, header.size)
        known = (base.instance_uuid, base.project_id, base.host, base.generation, base.disk_size)
        if known != mine or layout(_disks(base)) != layout(disks):
            raise exceptions.BackupDataInvalid(reason="the backup that they are based on is one of another disk")
        row.increments = base.increments + 1
    row.status, row.disk_size, row.snapshot, row.digest = BackupStatus.COMPLETE, header.size, snapshot, digest
    row.disks = msgspec.to_builtins(disks)
    row.reason, row.finished_at = None, uow.now
    uow.session.flush()
    _change_repository(uow, row.project_id, is_made=True)
    return True


def _sized(disks: list[BackupDisk], parts: Sequence[DiskPart]) -> list[BackupDisk]:
    """Return the disks of a backup with their sizes. Raises `BackupDataInvalid` unless ``parts`` are these disks."""
    if [disk.volume_id for disk in disks] != [part.volume_id for part in parts]:
        raise exceptions.BackupDataInvalid(reason="they have other disks than those that the backup is of")
    for disk, part in zip(disks, parts, strict=True):
        disk.size = part.size
    return disks


def layout(disks: Sequence[BackupDisk]) -> list[tuple[str, int]]:
    """Return volume and size of each disk in a stored backup."""
    return [(disk.volume_id, disk.size) for disk in disks]


def has_repository(uow: UnitOfWork, project_id: str) -> bool:
    """Return whether a backup of the project was ever stored."""
    repository = uow.session.get(models.BackupRepository, project_id)
    return repository is not None and repository.is_made


def newest_stored(uow: UnitOfWork) -> ServerBackup | None:
    """Return the newest complete backup of all projects that is in a repository."""
    query = sa.select(Row).where(Row.snapshot.is_not(None), Row.status == BackupStatus.COMPLETE)
    row = uow.session.scalars(query.order_by(Row.id.desc()).limit(1)).first()
    return None if row is None else to_backup(row)


def put_storing_off(uow: UnitOfWork, backup_id: str, reason: str) -> bool:
    """Record why the data cannot be stored now. Return True if that has lasted for `STORE_TIME`."""
    row = lock(uow, backup_id, BackupStatus.STORING)
    if row is None:
        return False
    row.reason = reason[:_REASON]
    uow.session.flush()
    return row.finished_at is not None and row.finished_at < uow.now - STORE_TIME


def with_needless_image(uow: UnitOfWork) -> list[ServerBackup]:
    """Return the backups whose uploaded data are in the repository, or will never be."""
    query = sa.select(Row).where(Row.has_image.is_(True), Row.engine == BackupEngine.RESTIC)
    query = query.where(Row.status.in_((BackupStatus.COMPLETE, BackupStatus.FAILED)))
    return [to_backup(row) for row in uow.session.scalars(query.order_by(Row.id))]


def image_dropped(uow: UnitOfWork, backup: ServerBackup) -> None:
    """Record that the uploaded data of a backup are removed, and those of a failed one from the repository as well."""
    uow.change(sa.update(Row).where(Row.uuid == backup.id).values(has_image=False))
    if backup.status is BackupStatus.FAILED and backup.snapshot is None:
        _note_removal(uow, backup)


def _note_removal(uow: UnitOfWork, backup: ServerBackup) -> None:
    if backup.engine == BackupEngine.RESTIC:
        _change_repository(uow, backup.project_id, removals=models.BackupRepository.removals + 1)


def _change_repository(uow: UnitOfWork, project_id: str, **values: Any) -> None:
    repository = models.BackupRepository
    insert_if_missing(uow, repository, {"project_id": project_id, "is_made": False, "removals": 0})
    uow.change(sa.update(repository).where(repository.project_id == project_id).values(values))


def unpruned(uow: UnitOfWork) -> dict[str, int]:
    """Return how often data were removed from repositories since their room was freed, by project."""
    repository = models.BackupRepository
    query = sa.select(repository.project_id, repository.removals).where(repository.removals > 0)
    return {row.project_id: row.removals for row in uow.rows(query.order_by(repository.project_id))}


def pruned(uow: UnitOfWork, project_id: str, removals: int) -> None:
    """Record that the room of so many removals is free."""
    repository = models.BackupRepository
    changed = sa.update(repository).where(repository.project_id == project_id, repository.removals >= removals)
    uow.change(changed.values(removals=repository.removals - removals))


def chain(uow: UnitOfWork, backup_id: str) -> list[ServerBackup]:
    """Return a backup with all backups that it is based on, the whole one first."""
    found: list[ServerBackup] = []
    wanted: str | None = backup_id
    while wanted is not None:
        row = uow.session.scalars(sa.select(Row).where(Row.uuid == wanted)).first()
        if row is None or row.snapshot is None or len(found) > _LONGEST_CHAIN:
            raise exceptions.BackupDataInvalid(reason="a backup that it is based on is missing")
        found.insert(0, to_backup(row))
        wanted = row.base_id
    return found


def in_repositories(uow: UnitOfWork, policy_id: str | None, only_newest: bool) -> list[ServerBackup]:
    """Return the backups whose data are in repositories, the oldest first.

    ``policy_id`` None: of all policies. ``only_newest``: the newest of each server, and its bases.
    """
    chosen = sa.select(Row).where(Row.snapshot.is_not(None), Row.status == BackupStatus.COMPLETE)
    if policy_id is not None:
        chosen = chosen.where(Row.policy_id == policy_id)
    rows = list(uow.session.scalars(chosen.order_by(Row.id)))
    if only_newest:
        rows = list({row.instance_uuid: row for row in rows}.values())
    found = {backup.id: backup for row in rows for backup in chain(uow, row.uuid)}
    return list(found.values())


def wanted_images(uow: UnitOfWork) -> list[ServerBackup]:
    """Return the backups of which images are to be made."""
    query = sa.select(Row).where(Row.restore_status == RestoreStatus.WANTED, Row.status == BackupStatus.COMPLETE)
    return [to_backup(row) for row in uow.session.scalars(query.order_by(Row.id))]


def register_image(uow: UnitOfWork, image: Image) -> Image:
    """Write the queued image of a backup, unless an earlier attempt has done so, and return it."""
    found = images.by_id(uow, image.id)
    return images.create(uow, image) if found is None else found


def restored_image(uow: UnitOfWork, image_id: str) -> Image | None:
    """Activate the image of a backup. Return None if it was deleted."""
    return images.activate(uow, image_id)


def end_restore(uow: UnitOfWork, backup_id: str, image_id: str, status: RestoreStatus, reason: str | None) -> None:
    """Record what became of the images of a backup. ``image_id``: that of its root disk."""
    row = lock(uow, backup_id, BackupStatus.COMPLETE)
    made = [image_id]
    if row is not None and row.restored_image_id == image_id:
        row.restore_status, row.restore_reason = status, None if reason is None else reason[:_REASON]
        made = _images_of(row)
        uow.session.flush()
    if status is RestoreStatus.FAILED:
        images.drop(uow, made)


def to_forget(uow: UnitOfWork) -> list[ServerBackup]:
    """Return the backups whose data are to be removed from repositories.

    A base stays while increments of it exist, and a backup that another site may begin with until there is a newer one.
    """
    later, replicated = sa.orm.aliased(Row), models.ReplicatedServer
    needed = sa.exists().where(later.base_id == Row.uuid, later.status != BackupStatus.FAILED)
    offered = sa.exists().where(sa.or_(replicated.published == Row.uuid, replicated.backup_id == Row.uuid))
    query = sa.select(Row).where(
        Row.status == BackupStatus.DELETING, Row.engine == BackupEngine.RESTIC, sa.not_(needed), sa.not_(offered)
    )
    return [to_backup(row) for row in uow.session.scalars(query.order_by(Row.id))]


# --- retention


def groups(uow: UnitOfWork) -> list[tuple[str, str]]:
    """Return policy and server of each series with more than one complete backup."""
    query = sa.select(Row.policy_id, Row.instance_uuid).where(Row.status == BackupStatus.COMPLETE)
    query = query.group_by(Row.policy_id, Row.instance_uuid).having(sa.func.count() > 1)
    return [(policy_id, instance_uuid) for policy_id, instance_uuid in uow.rows(query)]


def series(uow: UnitOfWork, policy_id: str, instance_uuid: str) -> list[ServerBackup]:
    """Return the complete backups of a policy and server, newest first."""
    query = sa.select(Row).where(
        Row.policy_id == policy_id, Row.instance_uuid == instance_uuid, Row.status == BackupStatus.COMPLETE
    )
    return [to_backup(row) for row in uow.session.scalars(query.order_by(Row.scheduled_for.desc()))]


def retire_backups(uow: UnitOfWork, backups: Sequence[ServerBackup]) -> int:
    """Mark complete backups for removal, and return their number. A newer complete one of each exists.

    A backup stays that is locked or being restored, and each from which a server was restored, as long as it uses
    the image.
    """
    ids = [backup.image_id for backup in backups]
    used = sa.select(Instance.image_ref).where(Instance.image_ref.in_(ids), Instance.deleted == sa.false())
    kept, number = set(uow.session.scalars(used)), 0
    for backup in backups:
        row = None if backup.image_id in kept else lock(uow, backup.id, BackupStatus.COMPLETE)
        newer = sa.exists().where(
            Row.policy_id == backup.policy_id,
            Row.instance_uuid == backup.instance_uuid,
            Row.status == BackupStatus.COMPLETE,
            Row.scheduled_for > backup.scheduled_for,
        )
        is_held = row is not None and row.held_until is not None and row.held_until > uow.now
        if row is not None and not is_held and not _is_locked(uow, row) and uow.session.scalar(sa.select(newer)):
            row.status = BackupStatus.DELETING
            uow.session.flush()
            number += 1
    return number


def lose_backup(uow: UnitOfWork, backup_id: str, reason: str) -> None:
    """Record that the data of a backup are gone: it has failed if it was complete, and so have increments of it."""
    chosen = sa.select(Row).where(Row.status.in_((BackupStatus.COMPLETE, BackupStatus.DELETING)))
    found = uow.session.scalars(chosen.where(Row.uuid == backup_id).with_for_update()).all()
    seen: set[str] = set()
    while found:
        for row in found:
            if row.status == BackupStatus.COMPLETE:
                row.status, row.reason, row.finished_at = BackupStatus.FAILED, reason[:_REASON], uow.now
        uow.session.flush()
        bases = {row.uuid for row in found} - seen
        seen |= bases
        found = uow.session.scalars(chosen.where(Row.base_id.in_(bases)).with_for_update()).all()


def to_remove(uow: UnitOfWork, limit: int) -> list[ServerBackup]:
    """Return backups whose image is to be removed."""
    query = sa.select(Row).where(Row.status == BackupStatus.DELETING, Row.engine == BackupEngine.IMAGES)
    query = query.order_by(Row.id).limit(limit)
    return [to_backup(row) for row in uow.session.scalars(query)]


def drop_backup_image(uow: UnitOfWork, image_id: str) -> None:
    """Delete the row of a backup's image before its file."""
    images.drop(uow, [image_id])


def forget_backup(uow: UnitOfWork, backup: ServerBackup) -> None:
    """Delete a backup whose image, or whose data in a repository, are removed."""
    _note_removal(uow, backup)
    uow.change(sa.delete(Row).where(Row.uuid == backup.id, Row.status == BackupStatus.DELETING))


def expired(uow: UnitOfWork, days: int) -> list[int]:
    """Return the keys of records of failed backups that are older."""
    before = uow.now - datetime.timedelta(days=days)
    return list(
        uow.session.scalars(
            sa.select(Row.id).where(
                Row.status == BackupStatus.FAILED,
                Row.finished_at < before,
                sa.or_(Row.locked_until.is_(None), Row.locked_until <= uow.now),
            )
        )
    )


def expire_backups(uow: UnitOfWork, keys: Sequence[int]) -> None:
    """Delete these records. Data that a backup may have in a repository are removed first."""
    has_data = sa.and_(Row.engine == BackupEngine.RESTIC, sa.or_(Row.snapshot.is_not(None), Row.has_image.is_(True)))
    uow.change(sa.update(Row).where(Row.id.in_(keys), has_data).values(status=BackupStatus.DELETING))
    uow.change(sa.delete(Row).where(Row.id.in_(keys), Row.status == BackupStatus.FAILED))


def _report(uow: UnitOfWork, row: Row, server: models.Instance, reason: str) -> None:
    context = RequestContext(user_id=row.user_id, project_id=row.project_id, overwrite=False)
    payload = {"backup_policy_id": row.policy_id}
    action = actions.open_action(uow, uow.conf, context, server, operations.CREATE_BACKUP.kind, payload)
    action.step, action.host = operations.PERFORM, None  # no host has got a command
    actions.start_event(uow, action, EVENT, uow.conf.host)
    actions.finish(uow, action, reason)


def _cause(action: InstanceAction | None) -> str:
    if action is None:
        return "its action was purged before its end was known"
    events = msgspec.convert(action.events or [], list[InstanceActionEvent])
    causes = [event.details for event in events if event.result == "Error" and event.details]
    return causes[-1] if causes else "the action failed"


def to_backup(row: Row) -> ServerBackup:
    """Convert a row."""
    return to_object(ServerBackup, row, id=row.uuid, status=BackupStatus(row.status), disks=_disks(row))


def _visible(uow: UnitOfWork, context: RequestContext, backup_id: str, lock: bool = False) -> Row:
    row = _find(uow, context, backup_id, lock)
    if row is None:
        raise exceptions.ServerBackupNotFound(backup_id=backup_id)
    return row


def _find(uow: UnitOfWork, context: RequestContext, backup_id: str, lock: bool = False) -> Row | None:
    query: Any = sa.select(Row).where(Row.uuid == backup_id)
    if not context.is_admin:
        query = query.where(Row.project_id == context.project_id)
    found: Row | None = uow.session.scalars(query.with_for_update() if lock else query).first()
    return found

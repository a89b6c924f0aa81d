"""The action log of volumes: work of hosts on their files."""

from __future__ import annotations

import datetime
import random
from typing import Any

import msgspec
import sqlalchemy as sa

from nova_lite.base.timing import TIMING
from nova_lite.db.core import models
from nova_lite.db.core.engine import Time, UnitOfWork
from nova_lite.db.hosts import hosts, services
from nova_lite.db.volume import attachments
from nova_lite.objects import VolumeVerb, VolumeWork

#: Seconds after which work is sent again.
LEASE = 30

#: Payload of work on a snapshot whose volume is deleted after it.
CASCADE = "cascade"


def add(
    uow: UnitOfWork, request_id: str, verb: VolumeVerb, volume_id: str, reads: str | None = None, **payload: Any
) -> models.VolumeTask:
    """Accept work on a volume, due at once. ``payload``: fields of `VolumeWork`, and values for its end."""
    row = models.VolumeTask(
        verb=str(verb),
        volume_id=volume_id,
        reads=reads,
        payload=payload,
        host=None,
        request_id=request_id,
        lease_expires_at=uow.now,
        deadline=uow.now + datetime.timedelta(seconds=TIMING.volumes.task),
    )
    uow.session.add(row)
    uow.session.flush()
    return row


def accepted_at(uow: UnitOfWork, task: models.VolumeTask) -> datetime.datetime:
    """Return when the work was accepted."""
    return min(uow.now, task.deadline - datetime.timedelta(seconds=TIMING.volumes.task))


def deletes(uow: UnitOfWork, volume_id: str) -> bool:
    """Check whether the deletion of the volume was accepted and has not ended."""
    row = models.VolumeTask
    query = sa.select(row.verb, row.payload).where(row.volume_id == volume_id)
    return any(verb == VolumeVerb.DELETE or CASCADE in payload for verb, payload in uow.session.execute(query))


def deletes_snapshot(uow: UnitOfWork, volume_id: str, snapshot_id: str) -> bool:
    """Check whether the deletion of this snapshot of the volume was accepted and has not ended."""
    return _is_under_way(uow, VolumeVerb.DELETE_SNAPSHOT, volume_id, snapshot_id)


def makes_snapshot(uow: UnitOfWork, volume_id: str, snapshot_id: str) -> bool:
    """Check whether this snapshot of the volume was accepted and has not ended, whatever its status is."""
    return _is_under_way(uow, VolumeVerb.SNAPSHOT, volume_id, snapshot_id)


def is_needed(uow: UnitOfWork, verb: VolumeVerb, made_id: str) -> bool:
    """Check whether the thing that ``verb`` has made exists, and no deletion of it is under way."""
    if verb is VolumeVerb.SNAPSHOT:
        snapshot = uow.session.get(models.VolumeSnapshot, made_id)
        return snapshot is not None and not deletes_snapshot(uow, snapshot.volume_id, made_id)
    if verb is VolumeVerb.BACKUP:
        backup = models.VolumeBackup
        has_data = uow.session.scalar(sa.select(backup.id).where(backup.data_id == made_id).limit(1)) is not None
        return has_data and not _deletes_backup(uow, made_id)
    return uow.session.get(models.Volume, made_id) is not None and not deletes(uow, made_id)


def _deletes_backup(uow: UnitOfWork, data_id: str) -> bool:
    row = models.VolumeTask
    query = sa.select(row.payload).where(row.verb == str(VolumeVerb.DELETE_BACKUP))
    return any(payload.get("data_id") == data_id for payload in uow.session.scalars(query))


def extends(uow: UnitOfWork, volume_id: str) -> bool:
    """Check whether a host is still to extend the volume."""
    row = models.VolumeTask
    query = sa.select(row.id).where(row.volume_id == volume_id, row.verb == str(VolumeVerb.EXTEND))
    return uow.session.scalar(query.limit(1)) is not None


def _is_under_way(uow: UnitOfWork, verb: VolumeVerb, volume_id: str, snapshot_id: str) -> bool:
    row = models.VolumeTask
    query = sa.select(row.payload).where(row.volume_id == volume_id, row.verb == str(verb))
    return any(payload.get("snapshot_id") == snapshot_id for payload in uow.session.scalars(query))


def due(uow: UnitOfWork, most: int) -> list[int]:
    row = models.VolumeTask
    query = sa.select(row.id).where(*is_due(uow.now)).order_by(row.lease_expires_at).limit(most)
    return list(uow.session.scalars(query))


def is_due(now: Time) -> tuple[sa.ColumnElement[bool], ...]:
    return (models.VolumeTask.lease_expires_at <= now,)


def lock(uow: UnitOfWork, task_id: int) -> models.VolumeTask | None:
    query = sa.select(models.VolumeTask).where(models.VolumeTask.id == task_id)
    return uow.session.scalars(query.with_for_update().execution_options(populate_existing=True)).first()


def take(uow: UnitOfWork, task: models.VolumeTask) -> None:
    """Lease the work for one try and choose its host: the previous one while it is up, else another, None without any.
    Work on an attached volume stays on the server's host.
    """
    task.lease_expires_at = uow.now + datetime.timedelta(seconds=LEASE)
    volume = uow.session.get(models.Volume, task.volume_id)
    owner = _owner(uow, task, volume)
    at = uow.session.scalar(sa.select(models.Instance.host).where(models.Instance.uuid == owner)) if owner else None
    if task.host is not None and task.verb == VolumeVerb.RESTORE and not task.payload["is_new"]:
        return  # no second host may replace the file
    if task.verb == VolumeVerb.BACKUP and task.payload.get("source_snapshot") is not None:
        at = None
    elif task.verb in (VolumeVerb.SNAPSHOT, VolumeVerb.BACKUP):  # whose guest writes to it now
        task.payload = {**task.payload, "instance_uuid": None if at is None else owner}
    if at is not None:
        task.host = at if hosts.is_up(uow, at) else None
        return
    if task.host is None or not hosts.is_up(uow, task.host):
        up = sa.select(models.Service.host).where(
            models.Service.binary == services.COMPUTE,
            models.Service.up.is_(True),
            models.Service.forced_down.is_(False),
        )
        found = list(uow.session.scalars(up))
        task.host = random.choice(found) if found else None


def _owner(uow: UnitOfWork, task: models.VolumeTask, volume: models.Volume | None) -> str | None:
    """Return the server on whose host the work is done: that of the work if it has the volume, or else any with it."""
    named = task.payload.get("instance_uuid")
    if volume is None:
        return None if named is None else str(named)
    found = attachments.servers(uow, volume)
    return named if named in found else next(iter(found), None)


def work(uow: UnitOfWork, task: models.VolumeTask) -> VolumeWork:
    """Return the command for the host."""
    volume = uow.session.get(models.Volume, task.volume_id)
    known = {"id": task.id, "verb": task.verb, "volume_id": task.volume_id}
    known["encrypted"] = volume is not None and volume.encryption_key_id is not None
    return msgspec.convert({**task.payload, **known}, VolumeWork)

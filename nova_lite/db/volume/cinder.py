"""Rows of the Cinder volumes of instances. `nova_lite.conductor.volume.cinder` drives Cinder from them.

A volume has at most one row, so it belongs to at most one instance. With multiattach it has a row for each instance.
The row exists from the transaction that gives the volume to the instance until Cinder holds nothing of that. Without a
row no call to Cinder is made. Callers lock the instance before the row.
"""

from __future__ import annotations

import datetime
import uuid

import msgspec
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.db.core.engine import Time, UnitOfWork
from nova_lite.db.core.events import CinderWorkDue
from nova_lite.db.core.models import CinderAttachment as Row
from nova_lite.db.core.models import Instance
from nova_lite.objects import BlockDevice, Volume

#: Value of ``[volume] backend``.
BACKEND = "cinder"

AVAILABLE, IN_USE = "available", "in-use"

#: Key of an attachment that is reserved but has no host yet.
RESERVED = ""


def is_backend(uow: UnitOfWork) -> bool:
    return str(uow.conf.volume.backend) == BACKEND


def reserve(uow: UnitOfWork, instance: Instance, device: BlockDevice, volume: Volume | None) -> None:
    """Give the volume to the instance; Cinder is called after the commit.

    ``volume``: as the API read it with the user's token; None for a volume that Cinder is to create. Raises
    `VolumeNotFound` or `InvalidVolume`.
    """
    if volume is not None:
        if volume.project_id and volume.project_id != instance.project_id:
            raise exceptions.VolumeNotFound(volume_id=volume.id)
        check_available(volume)
        taken = Row.volume_id == volume.id
        if volume.multiattach:
            taken = sa.and_(sa.or_(taken, Row.shared_volume_id == volume.id), Row.instance_uuid == instance.uuid)
        if uow.session.scalar(sa.select(Row.id).where(taken).limit(1)) is not None:
            raise exceptions.InvalidVolume(reason=f"volume {volume.id} status must be 'available'. A server has it")
    seconds = uow.conf.cinder.create_timeout
    uow.session.add(
        Row(
            id=device.uuid,
            instance_uuid=instance.uuid,
            volume_id=None if volume is None or volume.multiattach else volume.id,
            shared_volume_id=volume.id if volume is not None and volume.multiattach else None,
            to_be_made=volume is None,
            due_at=uow.now,
            deadline=uow.now + datetime.timedelta(seconds=seconds),
        )
    )
    uow.session.flush()
    uow.publish(CinderWorkDue(device.uuid))


def check_available(volume: Volume) -> None:
    """Raise `InvalidVolume` unless the volume is available, or in use and others may have it, too."""
    allowed = (AVAILABLE, IN_USE) if volume.multiattach else (AVAILABLE,)
    if volume.status not in allowed:
        raise exceptions.InvalidVolume(
            reason=f"volume {volume.id} status must be '{' or '.join(allowed)}'. Currently in '{volume.status}'"
        )


def news(uow: UnitOfWork, instance_uuid: str) -> None:
    """Schedule a call to Cinder after the commit: the instance's volumes or its host have changed."""
    if not is_backend(uow):
        return
    found = list(uow.session.scalars(sa.select(Row.id).where(Row.instance_uuid == instance_uuid)))
    if found:
        uow.change(sa.update(Row).where(Row.id.in_(found), Row.lease_owner.is_(None)).values(due_at=uow.now))
        uow.publish(*map(CinderWorkDue, found))


def release(uow: UnitOfWork, device: BlockDevice, delete: bool) -> None:
    """Take the volume from its instance. ``delete``: Cinder deletes it as well. A volume that was never made is
    dropped.
    """
    row = get(uow, device.uuid, lock=True) if is_backend(uow) else None
    if row is None:
        return
    row.wanted = False
    row.delete_volume = delete or row.to_be_made
    if row.lease_owner is None:
        row.due_at = uow.now
    uow.session.flush()
    uow.publish(CinderWorkDue(row.id))


def made(uow: UnitOfWork, row: Row, volume_id: str) -> None:
    """Record that Cinder has started to create the volume."""
    row.volume_id = volume_id
    row.due_at = row.due_at or uow.now
    uow.publish(CinderWorkDue(row.id))


def get(uow: UnitOfWork, device_uuid: str, lock: bool = False) -> Row | None:
    query = sa.select(Row).where(Row.id == device_uuid)
    if lock:
        query = query.with_for_update().execution_options(populate_existing=True)
    return uow.session.scalars(query).first()


def place_of(uow: UnitOfWork, volume_id: str) -> tuple[str, str] | None:
    """Return the instance that has the volume, and the id of its host's attachment. None without either.

    Raises `VolumeBDMIsMultiAttach` if several instances have it.
    """
    query = sa.select(Row, Instance.host).join(Instance, Instance.uuid == Row.instance_uuid)
    is_of = sa.or_(Row.volume_id == volume_id, Row.shared_volume_id == volume_id)
    found = uow.session.execute(query.where(is_of, Row.wanted)).all()
    if len(found) > 1:
        raise exceptions.VolumeBDMIsMultiAttach(volume_id=volume_id)
    if not found:
        return None
    row, host = found[0]
    attachment = row.attachments.get(str(host))
    return None if attachment is None else (row.instance_uuid, str(attachment["id"]))


def due(uow: UnitOfWork, most: int) -> list[str]:
    query = sa.select(Row.id).where(*is_due(uow.now)).order_by(Row.due_at).limit(most)
    return list(uow.session.scalars(query))


def is_due(now: Time) -> tuple[sa.ColumnElement[bool], ...]:
    return Row.due_at.is_not(None), Row.due_at <= now  # the former for PostgreSQL, as with `instances.soft_deleted`


def lease(uow: UnitOfWork, row: Row, seconds: float) -> str | None:
    """Lease the row and return the token that releases it; None while another driver has it."""
    if row.lease_owner is not None and row.due_at is not None and row.due_at > uow.now:
        return None
    row.lease_owner = str(uuid.uuid4())
    row.due_at = uow.now + datetime.timedelta(seconds=seconds)
    return row.lease_owner


def held(row: Row | None, token: str) -> Row | None:
    """Return the row if this token still leases it."""
    return row if row is not None and row.lease_owner == token else None


def device_of(instance: Instance, device_uuid: str) -> BlockDevice | None:
    found = [block_device for block_device in instance.block_devices or [] if block_device["uuid"] == device_uuid]
    return msgspec.convert(found[0], BlockDevice) if found else None


def keep_device(instance: Instance, device: BlockDevice) -> None:
    """Write back one device of the instance."""
    instance.block_devices = [
        msgspec.to_builtins(device) if block_device["uuid"] == device.uuid else block_device
        for block_device in instance.block_devices or []
    ]

"""Offers of volumes to other projects. Who has the id of an offer and its key gets the volume and its snapshots.

The key itself is known to users only. Its digest is stored.
"""

from __future__ import annotations

import hmac
from typing import Any

import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import models, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import VolumeTransfer as Row
from nova_lite.db.volume import volumes
from nova_lite.objects import VolumeTransfer
from nova_lite.objects.volume import transfer_digest

OFFERED = "awaiting-transfer"


def create(
    uow: UnitOfWork, context: RequestContext, transfer: VolumeTransfer, salt: str, digest: str
) -> VolumeTransfer:
    """Offer a volume. Raises `VolumeNotFound`, or `InvalidVolume` unless it is available and free."""
    volume = volumes.locked(uow, context, transfer.volume_id)
    known = uow.session.get(Row, transfer.id)
    if known is not None and known.volume_id == volume.id:
        return rows.to_object(VolumeTransfer, known)
    if volume.status != volumes.AVAILABLE or volume.instance_uuid is not None:
        raise exceptions.InvalidVolume(reason=f"status must be available, it is {volume.status}")
    if volume.encryption_key_id is not None:
        raise exceptions.InvalidVolume(reason="transferring encrypted volume is not supported")
    _require_still(uow, volume)
    row = Row(
        id=transfer.id,
        volume_id=volume.id,
        project_id=volume.project_id,
        name=transfer.name,
        salt=salt,
        digest=digest,
        created_at=uow.now,
    )
    rows.insert(uow, row, exceptions.InvalidVolume(reason=f"volume {volume.id} is offered already"))
    volumes.change(volume, uow, {"status": OFFERED})
    return rows.to_object(VolumeTransfer, row)


def list_(uow: UnitOfWork, context: RequestContext, all_projects: bool = False) -> list[VolumeTransfer]:
    """Return the project's offers, oldest first; with ``all_projects`` and for an admin those of all projects."""
    query = sa.select(Row).order_by(Row.created_at, Row.id)
    if not (all_projects and context.is_admin):
        query = query.where(Row.project_id == (context.project_id or ""))
    return [rows.to_object(VolumeTransfer, row) for row in uow.session.scalars(query)]


def get(uow: UnitOfWork, context: RequestContext, transfer_id: str) -> VolumeTransfer:
    """Return an offer of the context's project, for an admin of any. Raises `VolumeTransferNotFound`."""
    return rows.to_object(VolumeTransfer, _row(uow, context, transfer_id))


def delete(uow: UnitOfWork, context: RequestContext, transfer_id: str) -> None:
    """Delete an offer: the volume is available again."""
    offered = _row(uow, context, transfer_id)
    volume = volumes.by_id(uow, offered.volume_id, lock=True)
    row = _row(uow, context, transfer_id, lock=True)
    if volume is not None and volume.status == OFFERED:
        volumes.change(volume, uow, {"status": volumes.AVAILABLE})
    uow.session.delete(row)


def accept(uow: UnitOfWork, context: RequestContext, transfer_id: str, key: str) -> VolumeTransfer:
    """Give the volume and its snapshots to the context's project, within its quota. The offer ends.

    Raises `VolumeTransferNotFound`; a 400 for a wrong key, and for a volume whose state has changed;
    `VolumeQuotaExceeded`.
    """
    if not context.project_id:
        raise exceptions.Forbidden("A volume belongs to a project; this token is for none.")
    offered = _any_row(uow, transfer_id)
    if not hmac.compare_digest(transfer_digest(offered.salt, key), offered.digest):
        raise exceptions.InvalidInput(reason=f"Attempt to transfer {transfer_id} with invalid auth key.")
    volume = volumes.by_id(uow, offered.volume_id, lock=True)
    row = _any_row(uow, transfer_id, lock=True)
    if volume is None or volume.status != OFFERED or volume.instance_uuid is not None:
        raise exceptions.InvalidVolume(reason=f"status must be {OFFERED}")
    _require_still(uow, volume)
    snapshots = list(
        uow.session.scalars(
            sa.select(models.VolumeSnapshot).where(models.VolumeSnapshot.volume_id == volume.id).with_for_update()
        )
    )
    if volume.project_id != context.project_id:
        size = volume.size + sum(snapshot.size for snapshot in snapshots)
        more: dict[str, Any] = {"volumes": 1, "gigabytes": size, "snapshots": len(snapshots)}
        volumes.check_quota(uow, context.project_id, **more, kind=volume.volume_type)
    owner = {"project_id": context.project_id, "user_id": context.user_id or ""}
    for snapshot in snapshots:
        volumes.change(snapshot, uow, owner)
    volumes.change(volume, uow, {**owner, "status": volumes.AVAILABLE})
    accepted = rows.to_object(VolumeTransfer, row)
    uow.session.delete(row)
    return accepted


def _require_still(uow: UnitOfWork, volume: models.Volume) -> None:
    """Refuse a volume or snapshot that a host works on, because that work is charged to the old project."""
    table = models.VolumeSnapshot
    moving = sa.select(table.id).where(table.volume_id == volume.id, table.status != volumes.AVAILABLE).limit(1)
    if volumes.is_read(uow, volume.id) or uow.session.scalar(moving) is not None:
        raise exceptions.InvalidVolume(reason=f"volume {volume.id} or a snapshot of it is being copied or deleted")


def _row(uow: UnitOfWork, context: RequestContext, transfer_id: str, lock: bool = False) -> Row:
    row = _any_row(uow, transfer_id, lock)
    if not context.is_admin and row.project_id != context.project_id:
        raise exceptions.VolumeTransferNotFound(transfer_id=transfer_id[:64])
    return row


def _any_row(uow: UnitOfWork, transfer_id: str, lock: bool = False) -> Row:
    """Return an offer of any project. ``lock``: after its volume, in the order of all transactions."""
    query = sa.select(Row).where(Row.id == transfer_id)
    if lock:
        query = query.with_for_update().execution_options(populate_existing=True)
    row = uow.session.scalars(query).first()
    if row is None:
        raise exceptions.VolumeTransferNotFound(transfer_id=transfer_id[:64])
    return row

"""Attachments of volumes: columns of a volume's row name its one server or client, and rows name each of several.

A volume with ``multiattach`` has a row for each server and client. Any other volume has no such row. So a volume with
one server costs no further statement. Changes hold the lock of the volume's row.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy import orm

from nova_lite.base import exceptions
from nova_lite.db.core import models, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import VolumeAttachment as Row
from nova_lite.objects import VolumeAttachment

#: Statuses of an attachment.
RESERVED, ATTACHING, ATTACHED, DETACHING = "reserved", "attaching", "attached", "detaching"

#: Statuses of a volume by that of an attachment. The volume has the first status that one of its attachments has.
_SHOWN = {ATTACHING: "attaching", DETACHING: "detaching", RESERVED: "reserved", ATTACHED: "in-use"}
_FREE, _CREATING = "available", "creating"


# --- all volumes


def servers(uow: UnitOfWork, volume: models.Volume) -> list[str]:
    """Return the servers that have the volume, also while it is attached or detached."""
    if not volume.multiattach:
        return [] if volume.instance_uuid is None else [volume.instance_uuid]
    return [str(row.instance_uuid) for row in _of(uow, volume.id) if not row.recorded]


def is_recorded(uow: UnitOfWork, volume: models.Volume) -> bool:
    """Check whether a client of the volume API has the volume."""
    return volume.attachment is not None or (volume.multiattach and any(row.recorded for row in _of(uow, volume.id)))


def status(uow: UnitOfWork, volume: models.Volume) -> str:
    """Return the status that the volume has while nothing but its attachments concerns it."""
    if volume.multiattach:
        return _status(_of(uow, volume.id))
    return _FREE if volume.instance_uuid is None and volume.attachment is None else _SHOWN[ATTACHED]


def detaching(uow: UnitOfWork, volume: models.Volume, instance_uuid: str) -> None:
    """Record that a server is to lose the volume."""
    if volume.multiattach:
        mark(uow, volume, instance_uuid, DETACHING)
    else:
        _show(uow, volume, _SHOWN[DETACHING])


def require_one_writer(uow: UnitOfWork, volume: models.Volume, what: str) -> None:
    """Raise `InvalidVolume` if several have the volume and ``what`` sees the writes of one host only.

    The data would be of no one moment.
    """
    shares = volume.multiattach and uow.conf.volume.backend != "rbd" and len(_of(uow, volume.id)) > 1
    if shares:
        raise exceptions.InvalidVolume(
            reason=f"several servers have volume {volume.id}, and {what} would lack what the others write meanwhile. "
            "Detach it from all but one of them"
        )


# --- volumes with multiattach


def add(uow: UnitOfWork, volume: models.Volume, attachment: VolumeAttachment) -> None:
    """Add a server or client. Raises `InvalidVolume` if it has the volume already."""
    taken = exceptions.InvalidVolume(reason=f"volume {volume.id} already attached to {attachment.instance_uuid}")
    rows.insert(uow, Row(volume_id=volume.id, **rows.values_of(attachment, Row)), taken)
    if volume.status != _CREATING:
        _show(uow, volume, _status(_of(uow, volume.id)))


def require_room(uow: UnitOfWork, volume: models.Volume) -> None:
    """Raise `InvalidVolume` if another operation than attachments concerns the volume."""
    if volume.status not in (_FREE, _SHOWN[ATTACHED], _status(_of(uow, volume.id))):
        raise exceptions.InvalidVolume(
            reason=f"volume {volume.id} status must be available or in-use. Currently in '{volume.status}'"
        )


def mark(uow: UnitOfWork, volume: models.Volume, instance_uuid: str, new_status: str) -> None:
    """Record the status of a server's attachment. A volume that was made together with the server is in use then."""
    found = _of(uow, volume.id)
    before = _status(found)
    for row in found:
        if row.instance_uuid == instance_uuid and not row.recorded:
            row.status = new_status
            row.attached_at = row.attached_at or (uow.now if new_status == ATTACHED else None)
    if volume.status in (before, _CREATING):
        _show(uow, volume, _status(found))


def change(uow: UnitOfWork, volume: models.Volume, attachment: VolumeAttachment) -> None:
    """Change an attachment of a client of the volume API."""
    found = _of(uow, volume.id)
    for row in found:
        if row.id == attachment.id:
            for name, value in rows.values_of(attachment, Row).items():
                setattr(row, name, value)
    _show(uow, volume, _status(found))


def remove(uow: UnitOfWork, volume: models.Volume, gone: Iterable[Row]) -> bool:
    """Remove attachments. Return whether those were the last ones."""
    found = _of(uow, volume.id)
    before, gone_ids = _status(found), {row.id for row in gone}
    left = [row for row in found if row.id not in gone_ids]
    for row in found:
        if row.id in gone_ids:
            uow.session.delete(row)
    uow.session.flush()
    if volume.status == before:
        _show(uow, volume, _status(left))
    return not left


def of_server(uow: UnitOfWork, volume_id: str, instance_uuid: str) -> list[Row]:
    """Return the attachment of a server, if it has the volume."""
    return [row for row in _of(uow, volume_id) if row.instance_uuid == instance_uuid and not row.recorded]


def recorded(uow: UnitOfWork, volume_id: str) -> list[Row]:
    """Return the attachments of clients of the volume API."""
    return [row for row in _of(uow, volume_id) if row.recorded]


def objects(session: orm.Session, volume_ids: Iterable[str]) -> dict[str, list[VolumeAttachment]]:
    """Return the attachments of volumes, oldest first, with the hosts of servers."""
    query = sa.select(Row, models.Instance.host).outerjoin(models.Instance, models.Instance.uuid == Row.instance_uuid)
    found: dict[str, list[VolumeAttachment]] = {volume_id: [] for volume_id in volume_ids}
    query = query.where(Row.volume_id.in_(list(found))).order_by(Row.attached_at, Row.id)
    for row, host in session.execute(query):
        found[row.volume_id].append(rows.to_object(VolumeAttachment, row, host=row.host or host))
    return found


def _of(uow: UnitOfWork, volume_id: str) -> list[Row]:
    return list(uow.session.scalars(sa.select(Row).where(Row.volume_id == volume_id).order_by(Row.attached_at, Row.id)))


def _status(found: Iterable[Row]) -> str:
    statuses = {row.status for row in found}
    return next((shown for known, shown in _SHOWN.items() if known in statuses), _FREE)


def _show(uow: UnitOfWork, volume: models.Volume, new_status: str) -> None:
    volume.status, volume.updated_at = new_status, uow.now

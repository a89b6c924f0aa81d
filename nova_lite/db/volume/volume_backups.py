"""Rows of backups. Their data are files that hosts copy; several backups have the same file after an import."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import models, paging, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import VolumeBackup as Row
from nova_lite.objects import BackedUpVolume, VolumeBackup, VolumeFilters

CREATING, AVAILABLE, RESTORING, DELETING, ERROR = "creating", "available", "restoring", "deleting", "error"

_SORT_KEYS = ("created_at", "updated_at", "name", "size", "status", "id")


def to_object(row: Row) -> VolumeBackup:
    metadata = {name: str(value) for name, value in row.metadata_.items()}
    return rows.to_object(VolumeBackup, row, metadata=metadata, volume=msgspec.convert(row.volume, BackedUpVolume))


def get(uow: UnitOfWork, context: RequestContext, backup_id: str) -> VolumeBackup:
    """Return a backup of the context's project, or any for an admin. Raises `NotFound`."""
    return to_object(found(uow, context, backup_id))


def list_(
    uow: UnitOfWork,
    context: RequestContext,
    filters: VolumeFilters,
    limit: int | None,
    marker: str | None,
    sort_keys: list[str],
    sort_dirs: list[str],
    offset: int,
) -> list[VolumeBackup]:
    """Return backups in pages, newest first unless sorted otherwise. Others than admins get their project's only."""
    query = sa.select(Row)
    project = filters.project_id if context.is_admin else context.project_id
    if project is not None:
        query = query.where(paging.Equal(Row.project_id, project))
    wanted = ((Row.name, filters.name), (Row.status, filters.status), (Row.volume_id, filters.volume_id))
    for column, value in wanted:
        if value is not None:
            query = query.where(column == value)
    known = {name: getattr(Row, name) for name in _SORT_KEYS}
    order = paging.Order(known, sort_keys or ["created_at"], sort_dirs or ["desc"], tie_breaker=Row.id)
    start = None if marker is None else found(uow, context, marker)
    page = order.page(query, start, limit, [] if project is None else [Row.project_id])
    return [to_object(row) for row in uow.session.scalars(page.offset(offset or None))]


def found(uow: UnitOfWork, context: RequestContext, backup_id: str, lock: bool = False) -> Row:
    """Return the row of a backup that the context may see. Raises `NotFound`."""
    row = by_id(uow, backup_id, lock)
    if row is None or not (context.is_admin or row.project_id == context.project_id):
        raise exceptions.NotFound(f"Backup {backup_id[:64]} could not be found.")
    return row


def by_id(uow: UnitOfWork, backup_id: str, lock: bool = False) -> Row | None:
    query = sa.select(Row).where(Row.id == backup_id)
    if lock:
        query = query.with_for_update().execution_options(populate_existing=True)
    return uow.session.scalars(query).first()


def insert(uow: UnitOfWork, backup: VolumeBackup) -> Row:
    values = rows.values_of(backup, Row)
    values.pop("metadata", None)
    values |= {"metadata_": backup.metadata, "volume": msgspec.to_builtins(backup.volume)}
    row = Row(**values | {"created_at": uow.now, "updated_at": None})
    rows.insert(uow, row, exceptions.Conflict(f"Backup {backup.id} exists already."))
    return row


def change(uow: UnitOfWork, row: Row, changes: dict[str, Any]) -> None:
    for name, value in changes.items():
        setattr(row, "metadata_" if name == "metadata" else name, value)
    row.updated_at = uow.now


def lock_sharing(uow: UnitOfWork, data_id: str) -> None:
    """Lock all backups that have the same file. Otherwise two that are deleted at once would leave it behind."""
    uow.session.scalars(sa.select(Row.id).where(Row.data_id == data_id).order_by(Row.id).with_for_update()).all()


def has_data_of_others(uow: UnitOfWork, row: Row) -> bool:
    """Check whether another backup has the same file. `lock_sharing` has locked them."""
    query = sa.select(Row.id).where(Row.data_id == row.data_id, Row.id != row.id).limit(1)
    return uow.session.scalar(query) is not None


def is_worked_on(uow: UnitOfWork, backup_id: str) -> bool:
    """Check whether a host copies, deletes or restores this backup."""
    table = models.VolumeTask
    verbs = ("backup", "delete_backup", "verify_backup", "restore")
    found_payloads = uow.session.scalars(sa.select(table.payload).where(table.verb.in_(verbs)))
    return any(payload.get("backup_id") == backup_id for payload in found_payloads)

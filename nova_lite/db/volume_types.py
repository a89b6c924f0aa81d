"""Types of volumes: the operator's type, which ``[volume] default_type`` names, and types that admins make.

All of them have the same files. Their extra specs are kept for clients.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db import models, rows
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import VolumeType as Row
from nova_lite.objects import VolumeType
from nova_lite.objects.volume import default_type


def list_(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext) -> list[VolumeType]:
    """Return the default type, and the others that the context's project may use, by name."""
    found = [_to_object(row) for row in uow.session.scalars(sa.select(Row).order_by(Row.name))]
    return [default_type(conf.volume.default_type), *(kind for kind in found if _may_use(context, kind))]


def get(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, reference: str) -> VolumeType:
    """Return a type by its id or name. Raises `VolumeTypeNotFound`, also for a type of other projects."""
    default = default_type(conf.volume.default_type)
    if reference in (default.id, default.name):
        return default
    rows_found = uow.session.scalars(sa.select(Row).where(sa.or_(Row.id == reference, Row.name == reference))).all()
    found = sorted((_to_object(row) for row in rows_found), key=lambda kind: kind.id != reference)
    if not found or not _may_use(context, found[0]):
        raise exceptions.VolumeTypeNotFound(type=reference[:64])
    return found[0]


def name_of(uow: UnitOfWork, context: RequestContext, reference: str | None) -> str:
    """Return the name of the type of a new volume. None or "": the default type."""
    return get(uow, uow.conf, context, reference).name if reference else str(uow.conf.volume.default_type)


def create(uow: UnitOfWork, conf: cfg.ConfigOpts, volume_type: VolumeType) -> VolumeType:
    """Raise `VolumeTypeExists` if the name is taken."""
    known = uow.session.get(Row, volume_type.id)
    if known is not None:
        return _to_object(known)
    taken = exceptions.VolumeTypeExists(type=volume_type.name)
    if volume_type.name == conf.volume.default_type:
        raise taken
    row = Row(**rows.values_of(volume_type, Row), created_at=uow.now)
    rows.insert(uow, row, taken)
    return _to_object(row)


def update(uow: UnitOfWork, conf: cfg.ConfigOpts, type_id: str, changes: dict[str, Any]) -> VolumeType:
    """Change ``name``, ``description``, ``is_public``, ``extra_specs`` (merged; None removes one) or ``projects`` (all
    of them). Volumes of a renamed type get its new name.
    """
    row = _row(uow, conf, type_id)
    name = changes.get("name", row.name)
    if name != row.name:
        if name == conf.volume.default_type:
            raise exceptions.VolumeTypeExists(type=name)
        volume = models.Volume
        uow.change(sa.update(volume).where(volume.volume_type == row.name).values(volume_type=name))
    specs = {**row.extra_specs, **changes.get("extra_specs", {})}
    row.extra_specs = {key: value for key, value in specs.items() if value is not None}
    for field in ("name", "description", "is_public", "projects"):
        if field in changes:
            setattr(row, field, changes[field])
    rows.insert(uow, row, exceptions.VolumeTypeExists(type=name))
    return _to_object(row)


def delete(uow: UnitOfWork, conf: cfg.ConfigOpts, type_id: str) -> None:
    """Delete a type. Raises `InvalidInput` while a volume has it."""
    row = _row(uow, conf, type_id)
    query = sa.select(models.Volume.id).where(models.Volume.volume_type == row.name).limit(1)
    if uow.session.scalar(query) is not None:
        raise exceptions.InvalidInput(reason=f"volume type {row.name} is in use; give its volumes another one first")
    uow.session.delete(row)


def add_project(uow: UnitOfWork, conf: cfg.ConfigOpts, type_id: str, project_id: str) -> VolumeType:
    """Let a project use a private type. Raises `Conflict` if it may already."""
    row = _private(uow, conf, type_id)
    if project_id in row.projects:
        raise exceptions.Conflict(f"Project {project_id} may use volume type {row.name} already.")
    row.projects = [*row.projects, project_id]
    return _to_object(row)


def remove_project(uow: UnitOfWork, conf: cfg.ConfigOpts, type_id: str, project_id: str) -> VolumeType:
    row = _private(uow, conf, type_id)
    if project_id not in row.projects:
        raise exceptions.NotFound(f"Project {project_id} has no access to volume type {row.name}.")
    row.projects = [other for other in row.projects if other != project_id]
    return _to_object(row)


def _private(uow: UnitOfWork, conf: cfg.ConfigOpts, type_id: str) -> Row:
    row = _row(uow, conf, type_id)
    if row.is_public:
        raise exceptions.InvalidInput(reason=f"volume type {row.name} is public: every project may use it")
    return row


def _row(uow: UnitOfWork, conf: cfg.ConfigOpts, type_id: str) -> Row:
    """Return the type's row, locked. Raises `InvalidInput` for the default type, which has none."""
    if type_id == default_type(conf.volume.default_type).id:
        raise exceptions.InvalidInput(reason="the operator defines the default volume type: [volume] default_type")
    row = uow.session.get(Row, type_id, with_for_update=True)
    if row is None:
        raise exceptions.VolumeTypeNotFound(type=type_id[:64])
    return row


def _may_use(context: RequestContext, kind: VolumeType) -> bool:
    return kind.is_public or bool(context.is_admin) or context.project_id in kind.projects


def _to_object(row: Row) -> VolumeType:
    return rows.to_object(VolumeType, row)

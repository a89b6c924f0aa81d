"""Types of volumes: the operator's type, which ``[volume] default_type`` names, and types that admins make.

All of them have the same files, encrypted if the type says so. Several servers may have a volume of a type with
``multiattach``. Other extra specs are kept for clients.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import models, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import VolumeType as Row
from nova_lite.objects import VolumeType
from nova_lite.objects.volume import default_type, is_default_type

#: Extra spec of types whose volumes several servers may have.
MULTIATTACH = "multiattach"
#: Fields of a type's encryption that its volumes do not have.
_OF_TYPE = ("volume_type_id", "encryption_id", "created_at", "updated_at")
#: Keys of a type's or QoS specs' settings, at most.
MAX_SPECS = 128


def list_(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext) -> list[VolumeType]:
    """Return the default type, and the others that the context's project may use, by name."""
    found = [_to_object(row) for row in uow.session.scalars(sa.select(Row).order_by(Row.name))]
    return [default_type(conf.volume.default_type), *(kind for kind in found if _may_use(context, kind))]


def get(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, reference: str) -> VolumeType:
    """Return a type by its id or name. Raises `VolumeTypeNotFound`, also for a type of other projects."""
    if is_default_type(reference, conf.volume.default_type):
        return default_type(conf.volume.default_type)
    rows_found = uow.session.scalars(sa.select(Row).where(sa.or_(Row.id == reference, Row.name == reference))).all()
    found = sorted((_to_object(row) for row in rows_found), key=lambda kind: kind.id != reference)
    if not found or not _may_use(context, found[0]):
        raise exceptions.VolumeTypeNotFound(type=reference[:64])
    return found[0]


def for_volume(uow: UnitOfWork, context: RequestContext, reference: str | None) -> VolumeType:
    """Return the type of a new volume. None or "": the default type."""
    return get(uow, uow.conf, context, reference) if reference else _default_of(uow, context.project_id)


def require_multiattach(kind: VolumeType, allowed: bool) -> bool:
    """Return whether several servers may have volumes of this type.

    ``allowed``: the user may have such a volume. Raises `Forbidden`, or `InvalidVolume` for a type with encryption.
    """
    if kind.extra_specs.get(MULTIATTACH, "").strip().lower() != "<is> true":
        return False
    if kind.encryption is not None:
        raise exceptions.InvalidVolume(reason="Multiattach cannot be used with encrypted volumes.")
    if not allowed:
        raise exceptions.Forbidden(f"Policy doesn't allow volumes of type {kind.name}, which several servers may have.")
    return True


def encryption_of(uow: UnitOfWork, name: str) -> dict[str, Any] | None:
    """Return the settings of the encryption of a volume's type, without ids. None: it has none, or is gone."""
    row = uow.session.scalars(sa.select(Row).where(Row.name == name)).first()
    if row is None or row.encryption is None:
        return None
    return {key: value for key, value in row.encryption.items() if key not in _OF_TYPE}


def _default_of(uow: UnitOfWork, project_id: str | None) -> VolumeType:
    """Return the type of a project's volumes that name none."""
    own = uow.session.get(models.VolumeDefaultType, project_id or "")
    row = None if own is None else uow.session.get(Row, own.type_id)
    return default_type(uow.conf.volume.default_type) if row is None else _to_object(row)


def default_types(uow: UnitOfWork, project_id: str | None = None) -> dict[str, str]:
    """Return the ids of the default types by project: of all projects, or of one (``project_id``)."""
    table = models.VolumeDefaultType
    query = sa.select(table.project_id, table.type_id).order_by(table.project_id)
    if project_id is not None:
        query = query.where(table.project_id == project_id)
    return dict(uow.session.execute(query).all())


def set_default(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, type_id: str | None) -> None:
    """Set the default type of a project. None: it has that of the operator again."""
    table = models.VolumeDefaultType
    if type_id is None or is_default_type(type_id, conf.volume.default_type):
        uow.change(sa.delete(table).where(table.project_id == project_id))
        return
    locked(uow, conf, type_id)
    uow.session.merge(table(project_id=project_id, type_id=type_id))


def set_encryption(
    uow: UnitOfWork, conf: cfg.ConfigOpts, type_id: str, encryption: dict[str, Any] | None, is_new: bool
) -> VolumeType:
    """Set the encryption of a type that no volume has. None removes it. ``is_new``: the type must have none."""
    row = locked(uow, conf, type_id)
    if is_new and row.encryption is not None:
        raise exceptions.InvalidInput(reason=f"volume type encryption for type {type_id} already exists")
    if not is_new and row.encryption is None:
        raise exceptions.NotFound(f"Volume type encryption for type {type_id} does not exist.")
    query = sa.select(models.Volume.id).where(models.Volume.volume_type == row.name).limit(1)
    if uow.session.scalar(query) is not None:
        raise exceptions.InvalidInput(reason=f"volume type {row.name} is in use; its encryption cannot change")
    if encryption is not None:
        now = uow.now.strftime("%Y-%m-%dT%H:%M:%S.%f")
        times = {"created_at": now} if row.encryption is None else {"updated_at": now}
        encryption = encryption | times
    row.encryption = encryption
    uow.session.flush()
    return _to_object(row)


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
    row = locked(uow, conf, type_id)
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
    row = locked(uow, conf, type_id)
    query = sa.select(models.Volume.id).where(models.Volume.volume_type == row.name).limit(1)
    if uow.session.scalar(query) is not None:
        raise exceptions.InvalidInput(reason=f"volume type {row.name} is in use; give its volumes another one first")
    table = models.VolumeDefaultType
    if uow.session.scalar(sa.select(table.project_id).where(table.type_id == type_id).limit(1)) is not None:
        raise exceptions.InvalidInput(reason=f"volume type {row.name} is the default of a project; unset that first")
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
    row = locked(uow, conf, type_id)
    if row.is_public:
        raise exceptions.InvalidInput(reason=f"volume type {row.name} is public: every project may use it")
    return row


def locked(uow: UnitOfWork, conf: cfg.ConfigOpts, type_id: str) -> Row:
    """Return the type's row, locked. Raises `InvalidInput` for the default type, which has none."""
    if is_default_type(type_id, conf.volume.default_type):
        raise exceptions.InvalidInput(reason="the operator defines the default volume type: [volume] default_type")
    row = uow.session.get(Row, type_id, with_for_update=True)
    if row is None:
        raise exceptions.VolumeTypeNotFound(type=type_id[:64])
    return row


def _may_use(context: RequestContext, kind: VolumeType) -> bool:
    return kind.is_public or bool(context.is_admin) or context.project_id in kind.projects


def _to_object(row: Row) -> VolumeType:
    return rows.to_object(VolumeType, row)

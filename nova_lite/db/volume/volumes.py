"""Rows of volumes and snapshots, and the server that has a volume.

A volume belongs to at most one server, unless it has ``multiattach`` (`nova_lite.db.volume.attachments`). Only
`reserve` gives it to one, by an update that matches while the volume is free.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy import orm

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import models, paging, quotas, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.volume import attachments
from nova_lite.objects import Image, Volume, VolumeAttachment, VolumeFilters, VolumeSnapshot, VolumeUse

T = TypeVar("T", models.Volume, models.VolumeSnapshot)

AVAILABLE, CREATING, ATTACHING, IN_USE = "available", "creating", "attaching", "in-use"
DETACHING, DELETING, EXTENDING, ERROR = "detaching", "deleting", "extending", "error"

#: Resources with a quota. The resources in `TYPE_QUOTAS` also have one for each volume type, as ``volumes_TYPE``.
TYPE_QUOTAS = ("volumes", "gigabytes", "snapshots")
QUOTAS = (*TYPE_QUOTAS, "per_volume_gigabytes", "backups", "backup_gigabytes", "groups")
#: Groups of volumes in quota sets. Clients read it; this cloud has no groups.
GROUPS = 10
_LONGEST_RESOURCE = 64

#: Most items of metadata of a volume or snapshot.
MAX_METADATA = 128

_SORT_KEYS = ("created_at", "updated_at", "name", "size", "status", "id", "bootable")


def to_object(
    row: models.Volume, host: str | None = None, shared: dict[str, list[VolumeAttachment]] | None = None
) -> Volume:
    """Convert a row. ``host``: of its one server. ``shared``: attachments of volumes with multiattach, if they are
    known.
    """
    if row.multiattach and shared is None:
        session = orm.object_session(row)
        shared = {} if session is None else attachments.objects(session, [row.id])
    metadata = {name: str(value) for name, value in row.metadata_.items()}
    attachment = None if row.attachment is None else msgspec.convert(row.attachment, VolumeAttachment)
    return rows.to_object(
        Volume,
        row,
        metadata=metadata,
        image=_image(row.image),
        host=host,
        attachment=attachment,
        attachments=(shared or {}).get(row.id, []),
        encrypted=row.encryption_key_id is not None,
    )


def snapshot_object(row: models.VolumeSnapshot) -> VolumeSnapshot:
    metadata = {name: str(value) for name, value in row.metadata_.items()}
    return rows.to_object(VolumeSnapshot, row, metadata=metadata, image=_image(row.image))


def _image(kept: dict[str, Any] | None) -> Image | None:
    return None if kept is None else msgspec.convert(kept, Image)


# --- reading


def get(uow: UnitOfWork, context: RequestContext, volume_id: str) -> Volume:
    """Return a volume of the context's project, or any for an admin. Raises `VolumeNotFound`."""
    row = _found(uow, context, volume_id)
    host = sa.select(models.Instance.host).where(models.Instance.uuid == row.instance_uuid)
    return to_object(row, uow.session.scalar(host) if row.instance_uuid else None)


def get_snapshot(uow: UnitOfWork, context: RequestContext, snapshot_id: str) -> VolumeSnapshot:
    return snapshot_object(_found_snapshot(uow, context, snapshot_id))


def list_(
    uow: UnitOfWork,
    context: RequestContext,
    filters: VolumeFilters,
    limit: int | None = None,
    marker: str | None = None,
    sort_keys: list[str] | None = None,
    sort_dirs: list[str] | None = None,
    offset: int = 0,
) -> list[Volume]:
    """Return volumes in pages, newest first unless sorted otherwise. A caller who is no admin gets the context's
    project only. Raises `VolumeNotFound` for an unknown marker.
    """
    table = models.Volume
    query, fixed = _filtered(sa.select(table), table, context, filters)
    if filters.bootable is not None:
        query = query.where(table.bootable.is_(filters.bootable))
    start = None if marker is None else _found(uow, context, marker)
    found = _page(uow, table, query, filters, start, limit, sort_keys, sort_dirs, offset, fixed)
    servers = {row.instance_uuid for row in found if row.instance_uuid}
    places = sa.select(models.Instance.uuid, models.Instance.host).where(models.Instance.uuid.in_(servers))
    hosts = dict(uow.session.execute(places).all()) if servers else {}
    several = [row.id for row in found if row.multiattach]
    shared = attachments.objects(uow.session, several) if several else {}
    return [to_object(row, hosts.get(row.instance_uuid or ""), shared) for row in found]


def list_snapshots(
    uow: UnitOfWork,
    context: RequestContext,
    filters: VolumeFilters,
    limit: int | None = None,
    marker: str | None = None,
    sort_keys: list[str] | None = None,
    sort_dirs: list[str] | None = None,
    offset: int = 0,
) -> list[VolumeSnapshot]:
    table = models.VolumeSnapshot
    query, fixed = _filtered(sa.select(table), table, context, filters)
    if filters.volume_id is not None:
        query = query.where(table.volume_id == filters.volume_id)
    start = None if marker is None else _found_snapshot(uow, context, marker)
    found = _page(uow, table, query, filters, start, limit, sort_keys, sort_dirs, offset, fixed)
    return [snapshot_object(row) for row in found]


def _filtered(query: Any, table: Any, context: RequestContext, filters: VolumeFilters) -> tuple[Any, list[Any]]:
    """Return the query with its conditions, and the columns that have one value in all of its rows."""
    project = filters.project_id if context.is_admin else context.project_id
    if project is not None:
        query = query.where(paging.Equal(table.project_id, project))
    for column, value in ((table.name, filters.name), (table.status, filters.status)):
        if value is not None:
            query = query.where(column == value)
    return query, [] if project is None else [table.project_id]


def _page(
    uow: UnitOfWork,
    table: Any,
    query: Any,
    filters: VolumeFilters,
    start: Any,
    limit: int | None,
    sort_keys: list[str] | None,
    sort_dirs: list[str] | None,
    offset: int,
    fixed: list[Any],
) -> list[Any]:
    """Return one page. Metadata filters are applied here, because each database queries JSON in its own way."""
    known = {name: getattr(table, name) for name in _SORT_KEYS if hasattr(table, name)}
    dirs = sort_dirs or ["desc"]
    order = paging.Order(known, sort_keys or ["created_at"], dirs, tie_breaker=table.id)
    if not filters.metadata:
        return list(uow.session.scalars(order.page(query, start, limit, fixed).offset(offset or None)))
    wanted = filters.metadata.items()
    rows = uow.session.scalars(order.page(query, start, None, fixed))
    every = [row for row in rows if wanted <= row.metadata_.items()]
    return every[offset:][:limit]


def _found(uow: UnitOfWork, context: RequestContext, volume_id: str, lock: bool = False) -> models.Volume:
    row = by_id(uow, volume_id, lock)
    if row is None or not (context.is_admin or row.project_id == context.project_id):
        raise exceptions.VolumeNotFound(volume_id=volume_id)
    return row


def _found_snapshot(
    uow: UnitOfWork, context: RequestContext, snapshot_id: str, lock: bool = False
) -> models.VolumeSnapshot:
    query = sa.select(models.VolumeSnapshot).where(models.VolumeSnapshot.id == snapshot_id)
    row = uow.session.scalars(query.with_for_update() if lock else query).first()
    if row is None or not (context.is_admin or row.project_id == context.project_id):
        raise exceptions.SnapshotNotFound(snapshot_id=snapshot_id)
    return row


def by_id(uow: UnitOfWork, volume_id: str, lock: bool = False) -> models.Volume | None:
    """Return a volume of any project."""
    query = sa.select(models.Volume).where(models.Volume.id == volume_id)
    if lock:
        query = query.with_for_update().execution_options(populate_existing=True)
    return uow.session.scalars(query).first()


def locked(uow: UnitOfWork, context: RequestContext, volume_id: str) -> models.Volume:
    """Return a volume as `get` does, locked until the transaction ends."""
    return _found(uow, context, volume_id, lock=True)


def locked_snapshot(uow: UnitOfWork, context: RequestContext, snapshot_id: str) -> models.VolumeSnapshot:
    return _found_snapshot(uow, context, snapshot_id, lock=True)


# --- writing


def insert(uow: UnitOfWork, volume: Volume) -> models.Volume:
    """Insert the row of a volume that is being created."""
    return _insert(uow, models.Volume, volume)


def insert_snapshot(uow: UnitOfWork, snapshot: VolumeSnapshot) -> models.VolumeSnapshot:
    return _insert(uow, models.VolumeSnapshot, snapshot)


def _insert(uow: UnitOfWork, model: type[T], made: Volume | VolumeSnapshot) -> T:
    values = rows.values_of(made, model)
    values.pop("metadata", None)
    values.pop("attachment", None)
    image = None if made.image is None else msgspec.to_builtins(made.image)
    times = {"created_at": uow.now, "updated_at": None}
    row = model(**{**values, "metadata_": made.metadata, "image": image, **times})
    uow.session.add(row)
    uow.session.flush()
    return row


def change(row: models.Volume | models.VolumeSnapshot, uow: UnitOfWork, changes: dict[str, Any]) -> None:
    """Change fields. ``metadata`` replaces all items."""
    for name, value in changes.items():
        setattr(row, "metadata_" if name == "metadata" else name, value)
    row.updated_at = uow.now


def merged_changes(known: Volume | VolumeSnapshot, changes: dict[str, Any]) -> dict[str, Any]:
    """Return the changes with all items of ``metadata`` and ``image_metadata``, stored ones included.

    An item of None is removed. Raises `InvalidInput` for too many items.
    """
    stored = {"metadata": known.metadata}
    if isinstance(known, Volume):
        stored["image_metadata"] = known.shown_image_metadata()
    merged = {}
    for name in stored.keys() & changes.keys():
        items = {**stored[name], **changes[name]}
        merged[name] = {key: value for key, value in items.items() if value is not None}
        if len(merged[name]) > MAX_METADATA:
            raise exceptions.InvalidInput(reason=f"metadata have at most {MAX_METADATA} items")
    return changes | merged


def has_snapshots(uow: UnitOfWork, volume_id: str) -> bool:
    query = sa.select(models.VolumeSnapshot.id).where(models.VolumeSnapshot.volume_id == volume_id).limit(1)
    return uow.session.scalar(query) is not None


def snapshots_of(uow: UnitOfWork, volume_id: str) -> list[models.VolumeSnapshot]:
    """Return the snapshots of the volume, locked."""
    table = models.VolumeSnapshot
    return list(uow.session.scalars(sa.select(table).where(table.volume_id == volume_id).with_for_update()))


def is_read(uow: UnitOfWork, thing_id: str) -> bool:
    """Check whether this volume or snapshot is being copied, so that it must not change."""
    row = models.VolumeTask
    if uow.session.scalar(sa.select(row.id).where(row.reads == thing_id).limit(1)) is not None:
        return True
    made = sa.select(models.Volume.id).where(models.Volume.snapshot_id == thing_id, models.Volume.status == CREATING)
    return uow.session.scalar(made.limit(1)) is not None


def reserve(
    uow: UnitOfWork, context: RequestContext, volume_id: str, instance_uuid: str, attachment_id: str, device: str | None
) -> Volume:
    """Give the volume to the instance. Raises `VolumeNotFound`, or `InvalidVolume` unless it is available. Of two
    concurrent requests one succeeds, or both if several servers may have the volume.
    """
    row = locked(uow, context, volume_id)
    if is_read(uow, volume_id):
        raise exceptions.InvalidVolume(reason=f"Volume {volume_id} is being copied.")
    if row.multiattach:
        attachments.require_room(uow, row)
        attachments.add(uow, row, _of_server(row, instance_uuid, attachment_id, device))
        return to_object(row)
    table = models.Volume
    free = (table.id == volume_id, table.status == AVAILABLE, table.instance_uuid.is_(None))
    values = {
        "status": ATTACHING,
        "instance_uuid": instance_uuid,
        "attachment_id": attachment_id,
        "device": device,
        "updated_at": uow.now,
    }
    if uow.change(sa.update(table).where(*free).values(**values)) != 1:
        raise exceptions.InvalidVolume(
            reason=f"volume {volume_id} status must be 'available'. Currently in '{row.status}'"
        )
    uow.session.refresh(row)
    return to_object(row)


def insert_for_server(uow: UnitOfWork, volume: Volume) -> models.Volume:
    """Insert a volume that is made together with a server, whose columns it has."""
    if not volume.multiattach:
        return insert(uow, volume)
    instance_uuid, attachment_id = str(volume.instance_uuid), str(volume.attachment_id)
    row = insert(uow, msgspec.structs.replace(volume, instance_uuid=None, attachment_id=None, device=None))
    attachments.add(uow, row, _of_server(row, instance_uuid, attachment_id, volume.device))
    return row


def _of_server(row: models.Volume, instance_uuid: str, attachment_id: str, device: str | None) -> VolumeAttachment:
    return VolumeAttachment(
        id=attachment_id,
        recorded=False,
        instance_uuid=instance_uuid,
        device=device,
        mode="ro" if row.read_only else "rw",
        status=attachments.ATTACHING,
    )


#: Statuses of a volume by that of an attachment that the volume API has made.
_ATTACHED = {"reserved": "reserved", "attaching": ATTACHING, "attached": IN_USE}


def set_attachment(
    uow: UnitOfWork, context: RequestContext, volume_id: str, attachment: VolumeAttachment | None, expected: str | None
) -> Volume:
    """Set, change or remove (None) the attachment that the volume API makes.

    ``expected``: the id of the present one; None: the volume must be free. Raises `VolumeNotFound`, `InstanceNotFound`,
    `InvalidVolume`, or `Conflict` if a server has the volume. A volume with multiattach may have others.
    """
    row = locked(uow, context, volume_id)
    if row.multiattach:
        return _set_shared(uow, context, row, attachment, expected)
    if row.instance_uuid is not None:
        raise exceptions.Conflict(f"Detach volume from instance {row.instance_uuid} using the Compute API.")
    if (row.attachment or {}).get("id") != expected:
        raise exceptions.InvalidVolume(reason=f"volume {volume_id} has another attachment")
    if expected is None and (row.status not in (AVAILABLE, ATTACHING) or is_read(uow, row.id)):
        raise exceptions.InvalidVolume(
            reason=f"volume {volume_id} status must be 'available' or reserved. Currently in '{row.status}'"
        )
    if attachment is None:
        change(row, uow, {"status": AVAILABLE, "attachment": None})
        return to_object(row)
    attachment = _recorded(uow, context, attachment)
    kept = msgspec.to_builtins(attachment)
    change(row, uow, {"status": _ATTACHED[attachment.status], "attachment": kept})
    return to_object(row)


def _recorded(uow: UnitOfWork, context: RequestContext, attachment: VolumeAttachment) -> VolumeAttachment:
    """Return an attachment of a client, with its time. Raises `InstanceNotFound`."""
    if attachment.instance_uuid is not None:
        require_server(uow, context, attachment.instance_uuid)
    if attachment.status == attachments.ATTACHED and attachment.attached_at is None:
        return msgspec.structs.replace(attachment, attached_at=uow.now)
    return attachment


def _set_shared(
    uow: UnitOfWork,
    context: RequestContext,
    row: models.Volume,
    attachment: VolumeAttachment | None,
    expected: str | None,
) -> Volume:
    """Set, change or remove one attachment of a volume with multiattach, as `set_attachment` does."""
    known = [item for item in attachments.recorded(uow, row.id) if item.id == expected]
    if expected is not None and not known:
        raise exceptions.InvalidVolume(reason=f"volume {row.id} has another attachment")
    if attachment is None:
        attachments.remove(uow, row, known)
        return to_object(row)
    attachment = _recorded(uow, context, attachment)
    if expected is None:
        if is_read(uow, row.id):
            raise exceptions.InvalidVolume(reason=f"Volume {row.id} is being copied.")
        attachments.require_room(uow, row)
        attachments.add(uow, row, attachment)
    else:
        attachments.change(uow, row, attachment)
    return to_object(row)


def require_server(uow: UnitOfWork, context: RequestContext, instance_uuid: str) -> None:
    """Raise `InstanceNotFound` unless the context's project has this server."""
    table = models.Instance
    project = uow.session.scalar(
        sa.select(table.project_id).where(table.uuid == instance_uuid, table.deleted.is_(False))
    )
    if project is None or not (context.is_admin or project == context.project_id):
        raise exceptions.InstanceNotFound(instance_id=instance_uuid)


def set_reserved(uow: UnitOfWork, context: RequestContext, volume_id: str, reserved: bool) -> None:
    """Reserve a free volume, or end that. Raises `InvalidVolume`.

    One with multiattach may be in use. Its servers keep it.
    """
    row = locked(uow, context, volume_id)
    settled = attachments.status(uow, row)
    before, after = (settled, ATTACHING) if reserved else (ATTACHING, settled)
    is_free = settled == AVAILABLE or (row.multiattach and settled == IN_USE)
    if row.status != before or not is_free or is_read(uow, row.id):
        raise exceptions.InvalidVolume(
            reason=f"volume {volume_id} status must be '{before}' and it must be free. Currently in '{row.status}'"
        )
    change(row, uow, {"status": after})


def snapshots_for(uow: UnitOfWork, instance_uuid: str) -> list[models.VolumeSnapshot]:
    """Return the snapshots that are being made for an image of the instance."""
    table = models.VolumeSnapshot
    return list(uow.session.scalars(sa.select(table).where(table.instance_uuid == instance_uuid).with_for_update()))


# --- quota


def set_quota(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, limits: dict[str, int]) -> VolumeUse:
    """Set limits of a project by resource. Usage above a new limit stays. The project "" has the defaults of all."""
    known = usage(uow, conf, project_id).limits
    unknown = limits.keys() - known.keys()
    if unknown:
        raise exceptions.InvalidInput(reason=f"the volume service has no quota {', '.join(sorted(unknown))}")
    if long := [name for name in limits if len(name) > _LONGEST_RESOURCE]:
        raise exceptions.InvalidInput(reason=f"the name of the volume type is too long for a quota: {long[0][:255]}")
    quotas.lock(uow, project_id)
    for name, limit in limits.items():
        uow.session.merge(models.VolumeQuotaLimit(project_id=project_id, resource=name, limit=limit))
    uow.session.flush()
    return usage(uow, conf, project_id)


def reset_quota(uow: UnitOfWork, project_id: str) -> None:
    """Give the project the default limits again."""
    table = models.VolumeQuotaLimit
    uow.change(sa.delete(table).where(table.project_id == project_id))


def usage(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str) -> VolumeUse:
    """Return limits and use by resource, in all and by volume type. A type without own limits has none (-1)."""
    volumes, snapshots = models.Volume, models.VolumeSnapshot
    kinds = [str(conf.volume.default_type), *uow.session.scalars(sa.select(models.VolumeType.name))]
    limits = {name: conf.volume[f"quota_{name}"] for name in QUOTAS if name != "groups"}
    limits["groups"] = GROUPS
    limits |= {f"{name}_{kind}": -1 for kind in kinds for name in TYPE_QUOTAS}
    used = dict.fromkeys(limits, 0)

    def add(name: str, kind: str | None, amount: int) -> None:
        for key in (name, f"{name}_{kind}"):
            if key in used:
                used[key] += amount

    size = sa.func.coalesce(sa.func.sum(volumes.size), 0)
    mine = sa.select(volumes.volume_type, sa.func.count(), size).where(volumes.project_id == project_id)
    for kind, count, gigabytes in uow.session.execute(mine.group_by(volumes.volume_type)):
        add("volumes", kind, count)
        add("gigabytes", kind, int(gigabytes))
    size = sa.func.coalesce(sa.func.sum(snapshots.size), 0)
    copies = sa.select(volumes.volume_type, sa.func.count(), size).where(snapshots.project_id == project_id)
    copies = copies.select_from(snapshots).outerjoin(volumes, volumes.id == snapshots.volume_id)
    for kind, count, gigabytes in uow.session.execute(copies.group_by(volumes.volume_type)):
        add("snapshots", kind, count)
        add("gigabytes", kind, int(gigabytes))
    backups = models.VolumeBackup
    size = sa.func.coalesce(sa.func.sum(backups.size), 0)
    saved = uow.session.execute(sa.select(sa.func.count(), size).where(backups.project_id == project_id)).one()
    used["backups"], used["backup_gigabytes"] = saved[0], int(saved[1])
    table = models.VolumeQuotaLimit
    own = sa.select(table.project_id, table.resource, table.limit).where(table.project_id.in_({"", project_id}))
    for _, name, limit in sorted(uow.session.execute(own), key=lambda row: row[0] != ""):
        if name in limits:
            limits[name] = limit
    return VolumeUse(limits=limits, used=used)


def check_quota(
    uow: UnitOfWork,
    project_id: str,
    volumes: int = 0,
    gigabytes: int = 0,
    snapshots: int = 0,
    kind: str | None = None,
    size: int = 0,
    backups: int = 0,
    backup_gigabytes: int = 0,
) -> None:
    """Raise `VolumeQuotaExceeded` unless the project may have so many more. Other requests wait until the commit.

    ``kind``: their volume type, if it is one. ``size``: of one volume in GB, which has a limit of its own.
    """
    quotas.lock(uow, project_id)
    use = usage(uow, uow.conf, project_id)
    wanted = {"volumes": volumes, "snapshots": snapshots, "gigabytes": gigabytes}
    wanted |= {"backups": backups, "backup_gigabytes": backup_gigabytes}
    _require_room(use, {key: more for name, more in wanted.items() for key in (name, f"{name}_{kind}")})
    most = use.limits["per_volume_gigabytes"]
    if 0 <= most < size:
        raise exceptions.VolumeQuotaExceeded(name="per_volume_gigabytes", requested=size, used=0, allowed=most)


def check_retype(uow: UnitOfWork, volume: models.Volume, kind: str) -> None:
    """Raise `VolumeQuotaExceeded` unless the project may have this volume, with its snapshots, of another type."""
    snapshots = snapshots_of(uow, volume.id)
    quotas.lock(uow, volume.project_id)
    size = volume.size + sum(snapshot.size for snapshot in snapshots)
    wanted = {f"volumes_{kind}": 1, f"gigabytes_{kind}": size, f"snapshots_{kind}": len(snapshots)}
    _require_room(usage(uow, uow.conf, volume.project_id), wanted)


def _require_room(use: VolumeUse, wanted: dict[str, int]) -> None:
    for name, more in wanted.items():
        if more and 0 <= use.limits.get(name, -1) < use.used[name] + more:
            raise exceptions.VolumeQuotaExceeded(
                name=name, requested=more, used=use.used[name], allowed=use.limits[name]
            )

"""Metadata of images of the built-in backend. Their bytes are files (`nova_lite.image`)."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.base.timing import TIMING
from nova_lite.db.core import models, paging, quotas, rows
from nova_lite.db.core.engine import Time, UnitOfWork
from nova_lite.objects import Image, ImageQuery

_MIB = 1024**2
#: Most properties of an image, and most tags.
MAX_ITEMS = 128
#: Seconds after the deadline of an upload in which the API still records its end.
UPLOAD_MARGIN = 600.0

_CHANGEABLE = frozenset(rows.shared_fields(Image, models.Image)) - {"id", "properties", "created_at", "updated_at"}


def to_object(row: models.Image) -> Image:
    """Convert a row. The checksum algorithm is the default of `Image`."""
    properties = {name: str(value) for name, value in row.properties.items()}
    return rows.to_object(Image, row, properties=properties, tags=row.tags or [])


#: Fields by which `list_` filters and sorts.
_FIELDS = {
    name: getattr(models.Image, name)
    for name in (
        "id", "name", "status", "container_format", "disk_format", "size", "checksum", "min_disk", "min_ram",
        "visibility", "owner", "created_at", "updated_at",
    )
}  # fmt: skip


def list_(uow: UnitOfWork, context: RequestContext, query: ImageQuery) -> list[Image]:
    """Return the images that the context's project may see. Raises `MarkerNotFound` or `InvalidSortKey`."""
    order = paging.Order(_FIELDS, query.sort_keys, query.sort_dirs, tie_breaker=models.Image.id)
    start = paging.start(query.marker, lambda image_id: _find(uow, context, image_id))
    conditions = [models.Image.status != "deleted"]
    conditions += [_FIELDS[name].in_(values) for name, values in query.filters.items()]
    conditions += [_FIELDS[name] >= value for name, value in (query.minimums | query.earliest).items()]
    conditions += [_FIELDS[name] <= value for name, value in (query.maximums | query.latest).items()]
    cases = [sa.and_(case, *conditions) for case in _cases(context, query.community)]
    chosen = order.page_of(sa.select(models.Image), models.Image.id, cases, start, query.limit)
    found = [to_object(row) for row in uow.session.scalars(chosen)]
    if shared := [image for image in found if image.visibility == "shared" and image.owner != context.project_id]:
        member = models.ImageMember
        mine = sa.select(member.image_id, member.status).where(member.member_id == context.project_id)
        statuses = dict(uow.session.execute(mine.where(member.image_id.in_([image.id for image in shared]))).all())
        for image in shared:
            image.member_status = statuses.get(image.id)
    return found


def _cases(context: RequestContext, community: bool) -> list[sa.ColumnElement[bool]]:
    """Build the cases of an image that the context's project may see: its own, another's that is not private, or one
    that another shares with it.
    """
    image, mine = models.Image, models.Image.owner == context.project_id
    others = sa.or_(image.owner.is_(None), image.owner != context.project_id)
    if context.project_id is None:
        mine, others = sa.false(), sa.true()
    if context.is_admin:
        return [sa.true()] if community else [sa.or_(image.visibility != "community", mine)]
    shown = ("public", "community") if community else ("public",)
    member = models.ImageMember
    members = sa.select(member.image_id).where(member.member_id == context.project_id)
    shared = sa.and_(image.visibility == "shared", others, image.id.in_(members))
    return [mine, *(sa.and_(image.visibility == visibility, others) for visibility in shown), shared]


def get(uow: UnitOfWork, context: RequestContext, image_id: str) -> Image:
    """Return an image. Raises `ImageNotFound`, also for an image that the context's project may not see."""
    return to_object(_get_row(uow, context, image_id))


def with_boot_parts(uow: UnitOfWork, context: RequestContext, image_id: str) -> dict[str, Image]:
    """Return an image with its kernel and ramdisk by id, as far as they exist and the context may see them."""
    row = _find(uow, context, image_id)
    if row is None:
        return {}
    image = to_object(row)
    parts = (_find(uow, context, part_id) for _, part_id in image.boot_parts())
    return {image.id: image} | {row.id: to_object(row) for row in parts if row is not None}


def visible_row(uow: UnitOfWork, context: RequestContext, image_id: str, lock: bool = False) -> models.Image:
    """Return the row of an image that the context's project may see. Raises `ImageNotFound`."""
    row = _find(uow, context, image_id, lock)
    if row is None:
        raise exceptions.ImageNotFound(image_id=image_id)
    return row


def by_id(uow: UnitOfWork, image_id: str) -> Image | None:
    """Return an image of any project."""
    row = uow.session.get(models.Image, image_id)
    return None if row is None or row.status == "deleted" else to_object(row)


def find_same(uow: UnitOfWork, name: str, checksum: str) -> Image | None:
    """Return an active image with this name and checksum, if there is one."""
    query = sa.select(models.Image).where(
        models.Image.name == name, models.Image.checksum == checksum, models.Image.status == "active"
    )
    row = uow.session.scalars(query.order_by(models.Image.created_at)).first()
    return None if row is None else to_object(row)


def create(uow: UnitOfWork, image: Image) -> Image:
    """Create an image. Raises `ImageExists` when the id is taken, `ImageQuotaExceeded` when its owner has too many."""
    _check_quota(uow, image.owner, more=1)
    row = models.Image(**rows.values_of(image, models.Image) | {"created_at": uow.now, "updated_at": uow.now})
    rows.insert(uow, row, exceptions.ImageExists(image_id=image.id))
    return to_object(row)


def update(
    uow: UnitOfWork,
    context: RequestContext,
    image_id: str,
    changes: dict[str, Any],
    expected_status: str | None = None,
    tags: Mapping[str, bool] | None = None,
) -> Image:
    """Set the fields in ``changes``. ``properties`` are merged; None removes one. ``tags``: to add (true) or to remove.

    Raises `Forbidden` for a caller without the right, `ImageStatusConflict` when the image is not in the expected
    status, `ImageQuotaExceeded` for a size above the owner's quota, `TooManyUploads`, and `InvalidInput` for too many
    properties or tags. A size with the status ``saving`` is a reservation for an upload.
    """
    row = _get_row(uow, context, image_id, to="change")
    if expected_status is not None and row.status != expected_status:
        raise exceptions.ImageStatusConflict(image_id=image_id, status=row.status, expected=expected_status)
    if changes.get("size"):
        _check_quota(uow, row.owner, size=changes["size"], without=row.id)
        if changes.get("status") == "saving" and row.status in ("queued", "uploading"):
            _check_uploads(uow, row.owner)
    before = {"properties": len(row.properties), "tags": len(row.tags or [])}
    properties = {**row.properties, **changes.get("properties", {})}
    row.properties = {name: value for name, value in properties.items() if value is not None}
    for name in _CHANGEABLE & changes.keys():
        setattr(row, name, changes[name])
    if tags:
        known = dict.fromkeys(row.tags or [], True) | dict(tags)
        row.tags = [tag for tag, is_wanted in known.items() if is_wanted]
    for what, items in (("properties", row.properties), ("tags", row.tags or [])):
        if len(items) > max(MAX_ITEMS, before[what]):
            raise exceptions.InvalidInput(reason=f"an image has at most {MAX_ITEMS} {what}")
    row.updated_at = uow.now
    uow.session.flush()
    return to_object(row)


def delete(uow: UnitOfWork, context: RequestContext, image_id: str) -> Image:
    """Delete an image and return it. Raises `Forbidden` for a caller who sees it but is neither owner nor admin."""
    row = _get_row(uow, context, image_id, to="delete")
    if row.protected:
        raise exceptions.Forbidden(f"Image {image_id} is protected and cannot be deleted.")
    uow.session.delete(row)
    return to_object(row)


def require(uow: UnitOfWork, image_id: str) -> None:
    """Raise `ImageNotFound` when there is no such image, whatever its visibility."""
    if by_id(uow, image_id) is None:
        raise exceptions.ImageNotFound(image_id=image_id)


def drop(uow: UnitOfWork, image_ids: Iterable[str]) -> None:
    """Delete these images of any project. Missing ones are ignored."""
    uow.change(sa.delete(models.Image).where(models.Image.id.in_(list(image_ids))))


def activate(uow: UnitOfWork, image_id: str) -> Image | None:
    """Activate an image whose data is in place. Returns None when it was deleted meanwhile."""
    row = uow.session.get(models.Image, image_id, with_for_update=True)
    if row is None:
        return None
    row.status, row.updated_at = "active", uow.now
    uow.session.flush()
    return to_object(row)


def hide_beyond(uow: UnitOfWork, project_id: str, properties: Mapping[str, str], kept: int) -> list[str]:
    """Hide the project's active images with these properties, except the newest ``kept``. Returns the ids of all hidden
    ones: the caller removes their files, then drops them.
    """
    query = sa.select(models.Image).where(models.Image.owner == project_id)
    query = query.where(*(models.Image.properties[name].as_string() == value for name, value in properties.items()))
    query = query.where(models.Image.status.in_(("active", "deleted"))).with_for_update()
    newest = query.order_by(models.Image.created_at.desc(), models.Image.id.desc())
    found = [row for row in uow.session.scalars(newest) if properties.items() <= row.properties.items()]
    for row in [row for row in found if row.status == "active" and not row.protected][kept:]:
        row.status = "deleted"
    uow.session.flush()
    return [row.id for row in found if row.status == "deleted"]


def _check_quota(uow: UnitOfWork, owner: str | None, more: int = 0, size: int = 0, without: str = "") -> None:
    """Check the quota for ``more`` images, or for ``size`` bytes beside all images but ``without``."""
    limits, table = uow.conf.image, models.Image
    if owner is None or (limits.image_count_total < 0 and limits.image_size_total < 0):
        return
    quotas.lock(uow, owner)
    query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(table.size), 0))
    mine = query.where(table.owner == owner, table.status != "deleted", table.id != without)
    count, used = uow.session.execute(mine).one()
    if 0 <= limits.image_count_total < count + more and more:
        raise exceptions.ImageQuotaExceeded(allowed=limits.image_count_total, unit="images", used=count)
    if 0 <= limits.image_size_total * _MIB < used + size and size:
        raise exceptions.ImageQuotaExceeded(allowed=limits.image_size_total, unit="MiB", used=int(used) // _MIB)


def _check_uploads(uow: UnitOfWork, owner: str | None) -> None:
    """Raise `TooManyUploads` if the owner has too many uploads under way.

    Uploads have a size from the beginning on. Images of servers, which hosts save, do not.
    """
    limit, table = uow.conf.image.uploads_per_project, models.Image
    if owner is None or limit < 0:
        return
    quotas.lock(uow, owner)
    query = sa.select(sa.func.count()).where(table.owner == owner, table.status == "saving", table.size > 0)
    dead = uow.now - datetime.timedelta(seconds=upload_seconds(uow.conf))
    under_way = uow.session.scalar(query.where(table.updated_at > dead)) or 0
    if under_way >= limit:
        raise exceptions.TooManyUploads(limit=limit)


def upload_seconds(conf: cfg.ConfigOpts) -> float:
    """Return the seconds after its last reservation in which an upload has ended."""
    return TIMING.api.upload + UPLOAD_MARGIN


def abandoned(before: Time) -> tuple[sa.ColumnElement[bool], ...]:
    """Build the conditions of an upload that reserved its last bytes ``before``, and whose API has ended.

    An image that a host saves has a size, too, while its action publishes it.
    """
    table, action = models.Image, models.InstanceAction
    is_made = sa.exists().where(action.finish_time.is_(None), action.payload["image_id"].as_string() == table.id)
    return table.status == "saving", table.size > 0, table.updated_at < before, ~is_made


def requeue_abandoned(uow: UnitOfWork) -> list[str]:
    """Release the quota that abandoned uploads have reserved, and return the ids of their images. The images are queued
    again, as after any failed upload.
    """
    query = sa.select(models.Image).where(*abandoned(uow.now - datetime.timedelta(seconds=upload_seconds(uow.conf))))
    found = uow.session.scalars(query.order_by(models.Image.id).with_for_update()).all()
    for row in found:
        row.status, row.size, row.updated_at = "queued", 0, uow.now
    uow.session.flush()
    return [row.id for row in found]


def _get_row(uow: UnitOfWork, context: RequestContext, image_id: str, to: str | None = None) -> models.Image:
    """Return an image's row. ``to``: the intended change; the row is then locked, and only its owner or an admin gets
    it.
    """
    row = visible_row(uow, context, image_id, lock=to is not None)
    if to is not None and not context.is_admin and row.owner != context.project_id:
        raise exceptions.Forbidden(f"You are not permitted to {to} image {image_id}.")
    return row


def _find(uow: UnitOfWork, context: RequestContext, image_id: str, lock: bool = False) -> models.Image | None:
    values = {"image_id": image_id, "asker": context.project_id}
    found = uow.found(_one(bool(context.is_admin), lock), values)
    return found[0][0] if found else None


@functools.cache
def _one(of_any: bool, lock: bool) -> sa.Select[models.Image]:
    query = _seen(of_any, sa.bindparam("asker")).where(models.Image.id == sa.bindparam("image_id"))
    return query.with_for_update() if lock else query


def _seen(of_any: bool, project_id: Any) -> sa.Select[models.Image]:
    query = sa.select(models.Image).where(models.Image.status != "deleted")
    if of_any:
        return query
    member = models.ImageMember
    shared = sa.exists().where(member.image_id == models.Image.id, member.member_id == project_id)
    return query.where(
        sa.or_(
            models.Image.visibility.in_(("public", "community")),
            sa.and_(models.Image.owner.is_not(None), models.Image.owner == project_id),
            sa.and_(models.Image.visibility == "shared", shared),
        )
    )

"""Metadata of images of the built-in backend. Their bytes are files (`nova_lite.image`)."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db import models, paging, quotas, rows
from nova_lite.db.engine import UnitOfWork
from nova_lite.objects import Image

_MIB = 1024**2
#: Longest time of an upload, from its last reservation on.
UPLOAD_TIME = datetime.timedelta(days=1)

_CHANGEABLE = frozenset(rows.shared_fields(Image, models.Image)) - {"id", "properties", "created_at", "updated_at"}


def to_object(row: models.Image) -> Image:
    """Convert a row. The checksum algorithm is the default of `Image`."""
    properties = {name: str(value) for name, value in row.properties.items()}
    return rows.to_object(Image, row, properties=properties, tags=row.tags or [])


def list_(
    uow: UnitOfWork,
    context: RequestContext,
    name: str | None = None,
    status: str | None = None,
    limit: int | None = None,
    marker: str | None = None,
) -> list[Image]:
    """Return the images that the context's project may see, newest first."""
    query = _visible(context)
    if name is not None:
        query = query.where(models.Image.name == name)
    if status is not None:
        query = query.where(models.Image.status == status)
    order = paging.Order({"created_at": models.Image.created_at}, ["created_at"], ["desc"], tie_breaker=models.Image.id)
    start = paging.start(marker, lambda image_id: _find(uow, context, image_id))
    found = [to_object(row) for row in uow.session.scalars(order.page(query, start, limit))]
    if any(image.visibility == "shared" and image.owner != context.project_id for image in found):
        member = models.ImageMember
        mine = sa.select(member.image_id, member.status).where(member.member_id == context.project_id)
        statuses = dict(uow.session.execute(mine).all())
        for image in found:
            image.member_status = statuses.get(image.id) if image.visibility == "shared" else None
    return found


def get(uow: UnitOfWork, context: RequestContext, image_id: str) -> Image:
    """Return an image. Raises `ImageNotFound`, also for an image that the context's project may not see."""
    return to_object(_get_row(uow, context, image_id))


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
) -> Image:
    """Set the fields in ``changes``. ``properties`` are merged; None removes one.

    Raises `Forbidden` for a caller without the right, `ImageStatusConflict` when the image is not in the expected
    status, `ImageQuotaExceeded` for a size above the owner's quota, and `TooManyUploads`. A size with the status
    ``saving`` is a reservation for an upload.
    """
    row = _get_row(uow, context, image_id, to="change")
    if expected_status is not None and row.status != expected_status:
        raise exceptions.ImageStatusConflict(image_id=image_id, status=row.status, expected=expected_status)
    if changes.get("size"):
        _check_quota(uow, row.owner, size=changes["size"], without=row.id)
        if changes.get("status") == "saving" and row.status == "queued":
            _check_uploads(uow, row.owner)
    properties = {**row.properties, **changes.get("properties", {})}
    row.properties = {name: value for name, value in properties.items() if value is not None}
    for name in _CHANGEABLE & changes.keys():
        setattr(row, name, changes[name])
    row.updated_at = uow.now
    uow.session.flush()
    return to_object(row)


def delete(uow: UnitOfWork, context: RequestContext, image_id: str) -> Image:
    """Delete an image and return it. Raises `Forbidden` for a caller who sees it but is neither owner nor admin."""
    row = _get_row(uow, context, image_id, to="delete")
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
    query = query.where(models.Image.status.in_(("active", "deleted"))).with_for_update()
    newest = query.order_by(models.Image.created_at.desc(), models.Image.id.desc())
    found = [row for row in uow.session.scalars(newest) if properties.items() <= row.properties.items()]
    for row in [row for row in found if row.status == "active"][kept:]:
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
    """Raise `TooManyUploads` if the owner has too many uploads under way. A stopped upload counts for a day.

    Uploads have a size from the beginning on. Images of servers, which hosts save, do not.
    """
    limit, table = uow.conf.image.uploads_per_project, models.Image
    if owner is None or limit < 0:
        return
    quotas.lock(uow, owner)
    query = sa.select(sa.func.count()).where(table.owner == owner, table.status == "saving", table.size > 0)
    under_way = uow.session.scalar(query.where(table.updated_at > uow.now - UPLOAD_TIME)) or 0
    if under_way >= limit:
        raise exceptions.TooManyUploads(limit=limit)


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
    return uow.session.scalars(_one(bool(context.is_admin), lock), values).first()


@functools.cache
def _one(of_any: bool, lock: bool) -> sa.Select[models.Image]:
    query = _seen(of_any, sa.bindparam("asker")).where(models.Image.id == sa.bindparam("image_id"))
    return query.with_for_update() if lock else query


def _visible(context: RequestContext) -> sa.Select[models.Image]:
    return _seen(bool(context.is_admin), context.project_id)


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

"""Projects that the owner of an image shares it with.

A member sees the image from the start. Its list has the image once the member has accepted it.
"""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Image
from nova_lite.db.core.models import ImageMember as Row
from nova_lite.db.image import images
from nova_lite.objects import ImageMember

PENDING = "pending"
#: Largest number of members of one image.
MAX_MEMBERS = 128


def list_(uow: UnitOfWork, context: RequestContext, image_id: str) -> list[ImageMember]:
    """Return the members of a shared image, oldest first; a member gets itself alone.

    Raises `ImageNotFound`, or `Forbidden` for an image that is not shared.
    """
    image = _shared(uow, context, image_id)
    query = sa.select(Row).where(Row.image_id == image_id).order_by(Row.created_at, Row.member_id)
    if not _may_share(context, image):
        query = query.where(Row.member_id == context.project_id)
    return [rows.to_object(ImageMember, row) for row in uow.session.scalars(query)]


def add(uow: UnitOfWork, context: RequestContext, image_id: str, member_id: str) -> ImageMember:
    """Add a member to an image of the context's project. Raises `ImageNotFound`, `Forbidden` or `Conflict`."""
    _owned(uow, context, image_id)
    count = uow.session.scalar(sa.select(sa.func.count()).select_from(Row).where(Row.image_id == image_id)) or 0
    if count >= MAX_MEMBERS:
        raise exceptions.ImageMemberLimitExceeded(limit=MAX_MEMBERS)
    row = Row(image_id=image_id, member_id=member_id, status=PENDING, created_at=uow.now, updated_at=uow.now)
    rows.insert(uow, row, exceptions.Conflict(f"Member {member_id} is duplicated for image {image_id}."))
    return rows.to_object(ImageMember, row)


def update(uow: UnitOfWork, context: RequestContext, image_id: str, member_id: str, status: str) -> ImageMember:
    """Set the status, which only the member itself and an admin may do."""
    _shared(uow, context, image_id)
    row = _row(uow, context, image_id, member_id)
    if not context.is_admin and context.project_id != member_id:
        raise exceptions.Forbidden(f"Only project {member_id} decides whether it accepts image {image_id}.")
    row.status, row.updated_at = status, uow.now
    uow.session.flush()
    return rows.to_object(ImageMember, row)


def delete(uow: UnitOfWork, context: RequestContext, image_id: str, member_id: str) -> None:
    """Remove a member from an image of the context's project."""
    _owned(uow, context, image_id)
    uow.session.delete(_row(uow, context, image_id, member_id))


def _shared(uow: UnitOfWork, context: RequestContext, image_id: str, lock: bool = False) -> Image:
    image = images.visible_row(uow, context, image_id, lock)
    if image.visibility != "shared":
        raise exceptions.Forbidden("Only shared images have members.")
    return image


def _owned(uow: UnitOfWork, context: RequestContext, image_id: str) -> None:
    """Lock the image, so that two requests do not add more members than the limit."""
    if not _may_share(context, _shared(uow, context, image_id, lock=True)):
        raise exceptions.Forbidden(f"You are not permitted to change the members of image {image_id}.")


def _may_share(context: RequestContext, image: Image) -> bool:
    return bool(context.is_admin) or (image.owner is not None and image.owner == context.project_id)


def _row(uow: UnitOfWork, context: RequestContext, image_id: str, member_id: str) -> Row:
    row = uow.session.get(Row, (image_id, member_id), with_for_update=True)
    if row is None:
        raise exceptions.NotFound(f"{member_id[:64]} not found in the member list of the image {image_id}.")
    return row

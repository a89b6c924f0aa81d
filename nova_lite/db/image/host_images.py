"""Access of a compute host to images: it may see and change images that an open action or a volume's task creates on
it, until they are active.
"""

from __future__ import annotations

import itertools
from typing import Any

import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import InstanceAction, VolumeTask
from nova_lite.db.image import images
from nova_lite.objects import Image, VolumeVerb

#: States of an image that its host may change.
_MAKING = frozenset({"queued", "saving"})
_TOLD = frozenset({"status", "size", "checksum", "md5", "virtual_size"})


def get(uow: UnitOfWork, host: str, image_id: str) -> Image:
    """Return an image that this host creates; raise `ImageNotFound` for any other."""
    image = images.by_id(uow, image_id)
    if image is None or image.status not in _MAKING or not _is_made_by(uow, host, image_id):
        raise exceptions.ImageNotFound(image_id=image_id)
    return image


def update(
    uow: UnitOfWork, host: str, image_id: str, changes: dict[str, Any], expected_status: str | None = None
) -> Image:
    """Apply the changes that report what was saved. Raises `Forbidden` for other changes."""
    get(uow, host, image_id)
    if not changes.keys() <= _TOLD or changes.get("status", "saving") != "saving":
        raise exceptions.Forbidden(f"Host {host} may not change this of image {image_id}.")
    return images.update(uow, get_admin_context(), image_id, changes, expected_status)


def _is_made_by(uow: UnitOfWork, host: str, image_id: str) -> bool:
    mine = sa.select(InstanceAction.payload).where(InstanceAction.finish_time.is_(None), InstanceAction.host == host)
    uploads = sa.select(VolumeTask.payload).where(VolumeTask.verb == VolumeVerb.UPLOAD, VolumeTask.host == host)
    payloads = itertools.chain(uow.session.scalars(mine), uow.session.scalars(uploads))
    return any(payload.get("image_id") == image_id for payload in payloads)

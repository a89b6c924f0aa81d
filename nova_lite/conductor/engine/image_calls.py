"""Calls to the image backend, and the changes of image rows around them if the backend keeps its images as rows."""

from __future__ import annotations

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, InstanceAction
from nova_lite.db.image import images
from nova_lite.image.driver import ImageBackend, ImageCall
from nova_lite.objects import Image
from nova_lite.operations import MAKES_IMAGE, ImageVerb

#: The property of all backups.
BACKUP = {"image_type": "backup"}


def plan(
    uow: UnitOfWork, backend: ImageBackend, verb: ImageVerb, instance: Instance, action: InstanceAction
) -> ImageCall:
    """Return the call for an image step, and delete the row of an image that it discards.

    Raises `ImageNotFound` if the image to publish does not exist.
    """
    payload = action.payload
    image_id = str(payload["image_id"])
    call = ImageCall(
        image_id=image_id,
        host=action.host,
        disk_format=payload.get("image", {}).get("disk_format") or "qcow2",
        project_id=instance.project_id,
        instance_uuid=instance.uuid,
        backup_type=payload.get("backup_type", ""),
        rotation=payload.get("rotation", 0),
    )
    if not backend.has_local_rows:
        return call
    if verb in MAKES_IMAGE:
        images.require(uow, image_id)
    elif verb is ImageVerb.DISCARD:
        images.drop(uow, [image_id])
    else:
        properties = {**BACKUP, "instance_uuid": call.instance_uuid, "backup_type": call.backup_type}
        call.removed_ids.extend(images.hide_beyond(uow, instance.project_id, properties, call.rotation))
    return call


def drop(uow: UnitOfWork, image_ids: list[str]) -> None:
    """Delete the rows of images whose files are deleted."""
    if image_ids:
        images.drop(uow, image_ids)


def is_wanted(uow: UnitOfWork, backend: ImageBackend, image_id: str) -> bool:
    """Check whether the image's file may stay."""
    return not backend.has_local_rows or images.by_id(uow, image_id) is not None


def published(uow: UnitOfWork, backend: ImageBackend, image_id: str, reply: Image | None) -> Image | None:
    """Activate the image and return it, or None if its row is gone."""
    if not backend.has_local_rows:
        return reply
    return images.activate(uow, image_id)

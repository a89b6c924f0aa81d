"""The rows of images, where they are the conductor's, in the transactions of a step `Image`; and what is then asked."""

from __future__ import annotations

from nova_lite.db import images
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance, InstanceAction
from nova_lite.image.driver import ImageBackend, ImageCall
from nova_lite.objects import Image
from nova_lite.operations import MAKES_IMAGE, ImageVerb

#: The property that all backups of a server have in common, and the one of each kind.
BACKUP = {"image_type": "backup"}


def plan(
    uow: UnitOfWork, backend: ImageBackend, verb: ImageVerb, instance: Instance, action: InstanceAction
) -> ImageCall:
    """What to ask; the row of what is discarded is deleted here. Raises `ImageNotFound` where nothing is to publish."""
    payload = action.payload
    image_id = str(payload["image_id"])
    call = ImageCall(
        image_id=image_id,
        host=action.host,
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
        call.gone.extend(images.hide_beyond(uow, instance.project_id, properties, call.rotation))
    return call


def drop(uow: UnitOfWork, image_ids: list[str]) -> None:
    """Their files are removed."""
    if image_ids:
        images.drop(uow, image_ids)


def is_wanted(uow: UnitOfWork, backend: ImageBackend, image_id: str) -> bool:
    """Whether the image's file may stay."""
    return not backend.has_local_rows or images.by_id(uow, image_id) is not None


def published(uow: UnitOfWork, backend: ImageBackend, image_id: str, answer: Image | None) -> Image | None:
    """The image as it is from now on; None when its row is gone."""
    if not backend.has_local_rows:
        return answer
    return images.activate(uow, image_id)

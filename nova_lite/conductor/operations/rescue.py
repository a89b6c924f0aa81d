"""Accepting a rescue: which image the server is to boot from."""

from __future__ import annotations

from typing import Any

import msgspec

from nova_lite import exception
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Instance
from nova_lite.conductor.operations import create
from nova_lite.conductor.operations.own import Own
from nova_lite.context import RequestContext
from nova_lite.objects import Image


class Rescue(Own):
    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """``payload``: ``image_ref`` (None: the server's own image), ``images``, by id, where the API describes them,
        and ``admin_password``. Kept is the image as it is now, with kernel and ramdisk in ``images``."""
        image, others = instance.image, instance.boot_images or {}
        if payload.get("image_ref") is not None:
            image, others = _find(uow, context, payload)
        if image is None:
            raise exception.InstanceNotRescuable(
                instance_id=instance.uuid, reason="it has no image, and none was named to rescue it with"
            )
        return {"image": image, "images": others, "admin_password": payload.get("admin_password")}


def _find(
    uow: UnitOfWork, context: RequestContext, payload: dict[str, Any]
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    described = msgspec.convert(payload.get("images", {}), dict[str, Image])
    try:
        image, others = create.find_images(uow, context, payload["image_ref"], described, None)
    except exception.Invalid as error:
        raise exception.UnsupportedRescueImage(image=payload["image_ref"]) from error
    return msgspec.to_builtins(image), msgspec.to_builtins(others)

"""Rescue: which image the server is to boot from.

The server's own disk stays, beside the rescue image. The image is kept as it is at acceptance, so a later change or
delete of the image does not matter. Unrescue and delete remove the rescue disk, and what was written to it is lost.
"""

from __future__ import annotations

from typing import Any

import msgspec

from nova_lite import hardware
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.conductor.operations import checks
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.image import images
from nova_lite.db.volume import block_devices
from nova_lite.objects import Image
from nova_lite.objects.block_device import root_volume


class RescueHandler(OperationHandler):
    """Chooses the rescue image."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Check the rescue image, and keep it as it is now, with kernel and ramdisk in ``images``.

        ``payload``: ``image_ref`` (None: the server's own image), ``images`` by id if the API describes them,
        ``admin_password``, and whether a server that boots from a volume may be rescued (``allow_bfv_rescue``).
        """
        image, others = instance.image, instance.boot_images or {}
        if payload.get("image_ref") is not None:
            image, others = _find(uow, context, payload)
        if image is None:
            raise exceptions.InstanceNotRescuable(
                instance_id=instance.uuid, reason="it has no image, and none was named to rescue it with"
            )
        _check_volumes(instance, image, payload.get("allow_bfv_rescue", False))
        own = None if instance.image is None else msgspec.convert(instance.image, Image)
        hardware.check_rescue(msgspec.convert(image, Image), own, strict=payload.get("image_ref") is not None)
        return {"image": image, "images": others, "admin_password": payload.get("admin_password")}


def _check_volumes(instance: Instance, image: dict[str, Any], allowed: bool) -> None:
    """Raise `InstanceNotRescuable` for a server on a volume, unless the image names the place of its own disk."""
    properties = image.get("properties", {})
    stable = "hw_rescue_bus" in properties and "hw_rescue_device" in properties
    if root_volume(block_devices.of(instance)) is not None and not (allowed and stable):
        raise exceptions.InstanceNotRescuable(
            instance_id=instance.uuid, reason="Cannot rescue a volume-backed instance"
        )


def _find(
    uow: UnitOfWork, context: RequestContext, payload: dict[str, Any]
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    image_id = payload["image_ref"]
    described = msgspec.convert(payload.get("images", {}), dict[str, Image])
    try:
        image, others = checks.boot_image(described or images.with_boot_parts(uow, context, image_id), image_id)
    except exceptions.Invalid as error:
        raise exceptions.UnsupportedRescueImage(image=image_id) from error
    return msgspec.to_builtins(image), msgspec.to_builtins(others)

"""The image that a server boots from, with its kernel and ramdisk."""

from __future__ import annotations

from collections.abc import Mapping

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.operations import checks
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.image import images
from nova_lite.objects import Image


def find(
    uow: UnitOfWork, context: RequestContext, image_id: str, described: Mapping[str, Image]
) -> tuple[Image, dict[str, Image]]:
    """Return an active image, and its kernel and ramdisk by id. Raises a 400, as `checks.boot_image` does.

    ``described``: by id, the images as the API has read them from Glance; empty for the built-in image service.
    """
    return checks.boot_image(described or read(uow, context, image_id), image_id)


def read(uow: UnitOfWork, context: RequestContext, image_id: str) -> dict[str, Image]:
    """Return the image with its kernel and ramdisk by id, as far as they exist and the context may see them."""
    image = _get(uow, context, image_id)
    if image is None:
        return {}
    found = {image.id: image}
    for _, part_id in image.boot_parts():
        part = _get(uow, context, part_id)
        if part is not None:
            found[part_id] = part
    return found


def _get(uow: UnitOfWork, context: RequestContext, image_id: str) -> Image | None:
    try:
        return images.get(uow, context, image_id)
    except exceptions.ImageNotFound:
        return None


def metadata_of(image: Image) -> dict[str, str]:
    """Return the image's properties in the form in which an instance keeps them in its system metadata."""
    return {f"image_{name}": str(value)[:255] for name, value in image.properties.items()}


def needs_config_drive(image: Image) -> bool:
    return image.properties.get("img_config_drive") == "mandatory"

"""Images as files in one directory, ``[image] store_path``; their metadata are rows of the conductor."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from nova_lite import concurrency, exception
from nova_lite.context import RequestContext
from nova_lite.image import verified
from nova_lite.image.driver import ImageBackend
from nova_lite.objects import Image


class LocalImages(ImageBackend):
    def list_images(self, context: RequestContext, name: str | None) -> list[Image]:
        return self.conductor.image_list(context, name, None, None, None)

    def get(self, context: RequestContext, image_id: str) -> Image:
        return self.conductor.image_get(context, image_id)

    def change_properties(self, context: RequestContext, image_id: str, changes: Mapping[str, str | None]) -> Image:
        return self.conductor.image_update(context, image_id, {"properties": dict(changes)}, None)

    def describe(self, context: RequestContext, image_ids: Sequence[str]) -> dict[str, Image]:
        return {}

    def fetch(self, image: Image, target: str) -> None:
        copy(image, file_path(self.conf.image.store_path, image.id), target)


def file_path(store_path: str, image_id: str) -> str:
    """``<store>/<image id>``; an id that is not a plain name never leaves the directory."""
    return os.path.join(store_path, os.path.basename(image_id))


def copy(image: Image, source: str, target: str) -> None:
    """The image's bytes from one file of this host to another, as `ImageBackend.fetch` has it."""
    try:
        size = os.stat(source).st_size
    except OSError as error:
        raise exception.ImageFileMissing(image_id=image.id, reason=error.strerror or str(error)) from error
    if image.size and size != image.size:
        raise exception.ImageCorrupt(
            image_id=image.id, reason=f"its file has {size} bytes where {image.size} were registered"
        )
    with verified.whole(target):
        try:
            size, checksum = concurrency.call_blocking(_copy, source, target, image.hash_algorithm)
        except OSError as error:
            raise exception.ImageFileMissing(image_id=image.id, reason=error.strerror or str(error)) from error
        verified.check(image, size, checksum)


def _copy(source: str, target: str, algorithm: str) -> tuple[int, str]:
    """Runs in a native thread, so it uses nothing of ours."""
    with open(source, "rb") as reader:
        return verified.write(iter(lambda: reader.read(verified.CHUNK), b""), target, algorithm)

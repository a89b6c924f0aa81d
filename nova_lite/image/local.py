"""Images as files in one directory, ``[image] store_path``; their metadata are rows of the conductor."""

from __future__ import annotations

import os

from nova_lite import exception
from nova_lite.image.driver import ImageBackend
from nova_lite.objects import Image


class LocalImages(ImageBackend):
    def path(self, image: Image) -> str:
        path = file_path(self.conf.image.store_path, image.id)
        try:
            size = os.stat(path).st_size
        except OSError as error:
            raise exception.ImageFileMissing(image_id=image.id, reason=error.strerror or str(error)) from error
        if size != image.size:
            raise exception.ImageCorrupt(
                image_id=image.id, reason=f"its file has {size} bytes where {image.size} were registered"
            )
        return path


def file_path(store_path: str, image_id: str) -> str:
    """``<store>/<image id>``; an id that is not a plain name never leaves the directory."""
    return os.path.join(store_path, os.path.basename(image_id))

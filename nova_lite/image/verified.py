"""Writing an image's bytes into a file of this host, and telling whether they are the image's."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator

from nova_lite.base import exceptions, files
from nova_lite.objects import Image

CHUNK = 1024**2


def write(chunks: Iterable[bytes], target: str, algorithm: str) -> tuple[int, str]:
    """Size and checksum (hex) of what was written to ``target``, which is on disk then. Uses nothing of ours, so that a
    native thread may run it."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    size = 0
    with open(target, "wb", opener=files.private_opener) as writer:
        for chunk in chunks:
            digest.update(chunk)
            writer.write(chunk)
            size += len(chunk)
        writer.flush()
        os.fsync(writer.fileno())
    return size, digest.hexdigest()


def check(image: Image, size: int, checksum: str) -> None:
    """Raises `ImageCorrupt`."""
    if image.size and size != image.size:
        raise exceptions.ImageCorrupt(image_id=image.id, reason=f"{size} bytes where {image.size} were registered")
    if image.checksum and checksum != image.checksum.lower():
        raise exceptions.ImageCorrupt(image_id=image.id, reason="its checksum is not the registered one")


@contextlib.contextmanager
def whole(target: str) -> Iterator[None]:
    """Whatever goes wrong inside leaves no file behind."""
    try:
        yield
    except BaseException:
        files.remove(target)
        raise

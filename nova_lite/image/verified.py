"""Copies of image data on this host, checked by size and checksum."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator

from nova_lite.base import exceptions, files
from nova_lite.objects import Image

CHUNK = 1024**2


def write(chunks: Iterable[bytes], target: str, algorithm: str) -> tuple[int, str]:
    """Write chunks to ``target`` and to disk. Return the size and the checksum in hex.

    Uses no concurrency primitives of this project, so a native thread may run it.
    """
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
    """Check size and checksum. Raises `ImageCorrupt`."""
    if image.size and size != image.size:
        raise exceptions.ImageCorrupt(image_id=image.id, reason=f"{size} bytes where {image.size} were registered")
    if image.checksum and checksum != image.checksum.lower():
        raise exceptions.ImageCorrupt(image_id=image.id, reason="its checksum is not the registered one")


@contextlib.contextmanager
def whole(target: str) -> Iterator[None]:
    """Remove the file if the block raises."""
    try:
        yield
    except BaseException:
        files.remove(target)
        raise

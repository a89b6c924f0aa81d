"""Empty overlays of cached images. qemu-img makes the first of a kind; the next ones are copies of it.

They differ only in the backing file and the size, and the image of a path never changes. Overlays have a few hundred
kilobytes, nearly all zeros, so compressed copies are kept in memory.
"""

from __future__ import annotations

import os
import threading
import zlib

from nova_lite.base import files
from nova_lite.virt import images

#: Number of cached kinds, and size in bytes of the biggest cached overlay: that of a disk of 40 TiB.
MAX_CACHED = 64
BIGGEST = 1024**2

_BLOCK = 4096

#: Path and format of the backing file, size in bytes.
Kind = tuple[str, str, int]


class Overlays:
    def __init__(self, qemu_img: images.QemuImg) -> None:
        self._qemu_img = qemu_img
        self._lock = threading.Lock()
        self._cache: dict[Kind, bytes] = {}

    def make(self, path: str, backing: str, backing_format: str, size: int) -> None:
        """Write a qcow2 file (mode 0600) of ``size`` bytes on top of ``backing``. It survives a power cut.

        Raises `VirtDriverError` and OSError.
        """
        kind = (backing, backing_format, size)
        with self._lock:
            cached = self._cache.get(kind)
        if cached is not None:
            _write(path, zlib.decompress(cached))
            return
        self._qemu_img.create_overlay(path, backing, backing_format, size)
        os.chmod(path, 0o600)
        if os.path.getsize(path) <= BIGGEST:
            with open(path, "rb") as file:
                self._keep(kind, zlib.compress(file.read()))

    def _keep(self, kind: Kind, data: bytes) -> None:
        with self._lock:
            self._cache[kind] = data
            if len(self._cache) > MAX_CACHED:
                del self._cache[next(iter(self._cache))]


def _write(path: str, data: bytes) -> None:
    """Write a file with holes in place of zeros."""
    with open(path, "wb", opener=files.private_opener) as file:
        for offset in range(0, len(data), _BLOCK):
            block = data[offset : offset + _BLOCK]
            if any(block):
                file.seek(offset)
                file.write(block)
        file.truncate(len(data))
        file.flush()
        os.fsync(file.fileno())

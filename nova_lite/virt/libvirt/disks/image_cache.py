"""Images that guests' disks begin as: each is fetched and checked once per host, and then only read.

The files lie in ``<instances_path>/_base``, named by the image's id. An image never changes under its id, so a file
with that name is right; it gets the name only when it is whole and was found acceptable. Daemons that share the
directory exclude each other by a lock file per image.

A file's time of change is when it was last asked for. One that no instance uses and nobody has asked for in a while
goes (`ImageCache.age`). What a killed daemon was fetching or converting (``.part``, ``.raw``) goes at the next start.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator

import msgspec
from oslo_concurrency import lockutils

from nova_lite.base import exceptions, files, metrics
from nova_lite.image import formats, qcow2
from nova_lite.objects import Image
from nova_lite.virt import images
from nova_lite.virt.driver import FetchImage

LOG = logging.getLogger(__name__)

_PART, _CONVERTED = ".part", ".raw"

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")


class CachedImage(msgspec.Struct, frozen=True):
    """``virtual_size`` in bytes; ``format``: raw or qcow2."""

    path: str
    format: str
    virtual_size: int


class ImageCache:
    def __init__(self, directory: str, qemu_img: images.QemuImg, fetch_image: FetchImage) -> None:
        self._directory = directory
        self._qemu_img = qemu_img
        self._fetch_image = fetch_image

    def get(self, image: Image) -> CachedImage:
        """The image's file; raises `ImageUnacceptable` and what fetching it does."""
        if not _PLAIN_NAME.fullmatch(image.id) or image.id.endswith((_PART, _CONVERTED)):
            raise exceptions.ImageUnacceptable(image_id=image.id, reason="its id is not a plain name")
        kept = images.qemu_format(image) if images.qemu_format(image) in images.KEPT_FORMATS else "raw"
        path = os.path.join(self._directory, image.id)
        with self._lock(image.id):
            if os.path.exists(path):
                os.utime(path)
            else:
                self._fetch(image, path)
        size = os.path.getsize(path) if kept == "raw" else self._qcow2_size(path)
        return CachedImage(path=path, format=kept, virtual_size=size)

    def _qcow2_size(self, path: str) -> int:
        """By its head: qemu-img has looked at all of it when it was fetched."""
        head = qcow2.read(path)
        return self._qemu_img.info(path, "qcow2").virtual_size if head is None else head.size

    def _lock(self, image_id: str, blocking: bool = True) -> contextlib.AbstractContextManager[object]:
        """Excludes other daemons, too. Not ``blocking``: raises `AcquireLockFailedException` while it is held."""
        path = os.path.join(self._directory, "locks")
        return lockutils.lock(f"image-{image_id}", "nova-lite-", external=True, lock_path=path, blocking=blocking)

    # --- what goes

    def clean(self) -> None:
        """Remove what killed daemons have left half fetched; what another daemon is at stays."""
        for name in self._names():
            image_id = name.removesuffix(_PART).removesuffix(_CONVERTED)
            if image_id == name:
                continue
            with contextlib.suppress(lockutils.AcquireLockFailedException), self._lock(image_id, blocking=False):
                files.remove(os.path.join(self._directory, name))
                LOG.info("%s, which a killed daemon has left in the image cache, is removed", name)

    def age(self, minimum_age: float, used: Callable[[], set[str]]) -> list[str]:
        """Remove images that nobody has asked for in ``minimum_age`` seconds and that are not among those that ``used``
        names; returns them. Who asks for one meanwhile waits, and fetches it again."""
        old = [name for name in self._names() if self._is_old(name, minimum_age)]
        removed = []
        for name in sorted(set(old) - used()) if old else []:
            with contextlib.suppress(lockutils.AcquireLockFailedException), self._lock(name, blocking=False):
                if self._is_old(name, minimum_age):
                    files.remove(os.path.join(self._directory, name))
                    removed.append(name)
        return removed

    def _names(self) -> Iterator[str]:
        with os.scandir(self._directory) as entries:
            yield from [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]

    def _is_old(self, name: str, minimum_age: float) -> bool:
        if name.endswith((_PART, _CONVERTED)) or not _PLAIN_NAME.fullmatch(name):
            return False
        with contextlib.suppress(FileNotFoundError):
            return time.time() - os.path.getmtime(os.path.join(self._directory, name)) >= minimum_age
        return False

    # --- fetching

    def _fetch(self, image: Image, path: str) -> None:
        part = path + _PART
        converted = path + _CONVERTED
        try:
            with metrics.timed(metrics.IMAGES):
                self._fetch_image(image, part)
            formats.check(part, image.disk_format, image.id)
            info = self._info(image, part)
            images.check_acceptable(image, info)
            if info.format in images.KEPT_FORMATS:
                os.rename(part, path)
            else:
                self._convert(image, part, info, converted)
                os.rename(converted, path)
            os.utime(path)
            files.sync_directory(self._directory)
        finally:
            files.remove(part)
            files.remove(converted)
        LOG.info("Image %s (%s) is now in the cache", image.id, image.disk_format)

    def _info(self, image: Image, part: str) -> images.DiskInfo:
        """What qemu-img says, told what to look for. Its complaint, which names files of this host, is for the log."""
        try:
            return self._qemu_img.info(part, images.qemu_format(image))
        except exceptions.VirtDriverError as error:
            LOG.warning("Image %s (%s) cannot be read: %s", image.id, image.disk_format, error)
            raise exceptions.ImageUnacceptable(image_id=image.id, reason="it cannot be read") from error

    def _convert(self, image: Image, part: str, info: images.DiskInfo, target: str) -> None:
        """A header may promise any size: what has no room here is refused before it fills the disk. Another host may
        have more, so neither that nor a copy that fails is the image's fault."""
        room = shutil.disk_usage(self._directory).free
        if info.virtual_size > room:
            LOG.warning("Image %s is %d bytes big, and there are %d free", image.id, info.virtual_size, room)
            raise exceptions.VirtDriverError(reason=f"image {image.id} is bigger than this host has room for")
        try:
            self._qemu_img.convert(part, info, target)
        except exceptions.VirtDriverError as error:
            LOG.warning("Image %s (%s) cannot be converted: %s", image.id, image.disk_format, error)
            raise exceptions.VirtDriverError(reason=f"image {image.id} could not be converted here") from error

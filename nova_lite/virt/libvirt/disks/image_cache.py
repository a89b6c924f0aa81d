"""Images that guests' disks are based on: each is fetched and checked once per host, and then only read.

The files are in ``<instances_path>/_base``, named by the image's id. The content of an image id never changes. A file
gets the name only when it is complete and acceptable. Layers of clones (`layers`) are in the same directory. Daemons
that share the directory exclude each other by a lock file per image.

A file's modification time is the time of its last request. An image that no instance uses, and that has not been
requested for a while, is removed (`ImageCache.remove_unused`), and so is its raw form (``.flat``). Partial files of a
killed daemon (``.part``, ``.raw``) are removed at the next start.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator

import msgspec
from oslo_concurrency import lockutils

from nova_lite.base import disk_room, exceptions, files, metrics
from nova_lite.image import qcow2
from nova_lite.objects import Image
from nova_lite.virt import images
from nova_lite.virt.abilities import FetchImage
from nova_lite.virt.libvirt.disks import reflinks
from nova_lite.virt.libvirt.disks.layers import belongs_to_clone

LOG = logging.getLogger(__name__)

_PART, _CONVERTED, _FLAT = ".part", ".raw", ".flat"

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")


def _is_reserved(name: str) -> bool:
    return name.endswith((_PART, _CONVERTED, _FLAT)) or belongs_to_clone(name)


class CachedImage(msgspec.Struct, frozen=True):
    """A cached image. ``virtual_size`` in bytes; ``format``: raw or qcow2."""

    path: str
    format: str
    virtual_size: int


class ImageCache:
    def __init__(
        self, directory: str, qemu_img: images.QemuImg, fetch_image: FetchImage, room: disk_room.DiskRoom
    ) -> None:
        self._directory = directory
        self._qemu_img = qemu_img
        self._fetch_image = fetch_image
        self._room = room

    def get(self, image: Image) -> CachedImage:
        """Return the image's file, and fetch it if necessary. Raises `ImageUnacceptable` and errors of the fetch."""
        if not _PLAIN_NAME.fullmatch(image.id) or _is_reserved(image.id):
            raise exceptions.ImageUnacceptable(image_id=image.id, reason="its id is not a plain name")
        disk_format = images.qemu_format(image) if images.qemu_format(image) in images.DISK_FORMATS else "raw"
        path = os.path.join(self._directory, image.id)
        with self._lock(image.id):
            if os.path.exists(path):
                os.utime(path)
            else:
                self._fetch(image, path)
        size = os.path.getsize(path) if disk_format == "raw" else self._qcow2_size(path)
        return CachedImage(path=path, format=disk_format, virtual_size=size)

    def raw(self, image: Image) -> CachedImage:
        """Return the image in raw format, and convert it if necessary. Raises as `get`."""
        base = self.get(image)
        if base.format == "raw":
            return base
        path = base.path + _FLAT
        with self._lock(image.id + _FLAT):
            if os.path.exists(path):
                os.utime(path)
            else:
                info = images.DiskInfo(format=base.format, virtual_size=base.virtual_size, data_files=[])
                try:
                    self._convert(image, base.path, info, path + _CONVERTED)
                    os.rename(path + _CONVERTED, path)
                finally:
                    files.remove(path + _CONVERTED)
        return CachedImage(path=path, format="raw", virtual_size=base.virtual_size)

    def path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def layer(self, name: str, fetch: Callable[[str], None]) -> CachedImage:
        """Return a layer of clones. If it is missing, ``fetch`` writes it to a file, and puts it on its base."""
        path = os.path.join(self._directory, name)
        with self._lock(name):
            if os.path.exists(path):
                os.utime(path)
            else:
                try:
                    fetch(path + _PART)
                    os.rename(path + _PART, path)
                    files.sync_directory(self._directory)
                finally:
                    files.remove(path + _PART)
        return CachedImage(path=path, format="qcow2", virtual_size=self._qcow2_size(path))

    def copy(self, base: CachedImage, path: str) -> None:
        """Write a raw image to ``path`` (mode 0600): a reflink, or a sparse copy on other file systems.

        Raises `VirtDriverError` and OSError.
        """
        if reflinks.make(base.path, path):
            return
        purpose = "the data of its root disk"
        self._room.require(self._directory, disk_room.data_in(base.path) or 0, purpose)
        check = self._room.kept(self._directory, lambda: None, purpose)
        images.run_checked(check, "cp", "--reflink=never", "--sparse=always", "--", base.path, path)

    def _qcow2_size(self, path: str) -> int:
        """Return the size from the header: qemu-img has checked the whole file when it was fetched."""
        head = qcow2.read(path)
        return self._qemu_img.info(path, "qcow2").virtual_size if head is None else head.size

    def _lock(self, image_id: str, blocking: bool = True) -> contextlib.AbstractContextManager[object]:
        """Lock an image, also against other daemons. Not ``blocking``: raises `AcquireLockFailedException` if it is
        locked."""
        path = os.path.join(self._directory, "locks")
        return lockutils.lock(f"image-{image_id}", "nova-lite-", external=True, lock_path=path, blocking=blocking)

    # --- removal

    def clean(self) -> None:
        """Remove partial files of killed daemons. Files that another daemon is working on stay."""
        for name in self._names():
            image_id = name.removesuffix(_PART).removesuffix(_CONVERTED)
            if image_id == name:
                continue
            with contextlib.suppress(lockutils.AcquireLockFailedException), self._lock(image_id, blocking=False):
                files.remove(os.path.join(self._directory, name))
                LOG.info("Removing %s, which a killed daemon has left in the image cache", name)

    def remove_unused(self, minimum_age: float, used: Callable[[], set[str]], layers: bool = False) -> list[str]:
        """Remove images that were not requested for ``minimum_age`` seconds and are not in ``used``. Return their ids.

        A concurrent request for such an image waits, and fetches it again. ``layers``: remove layers of clones instead.
        """
        names = (name for name in self._names() if belongs_to_clone(name) == layers)
        old = sorted(name for name in names if self._is_old(name, minimum_age))
        kept = used() if old else set()
        removed = []
        for name in [name for name in old if name.removesuffix(_FLAT) not in kept]:
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

    # --- fetch

    def _fetch(self, image: Image, path: str) -> None:
        part = path + _PART
        converted = path + _CONVERTED
        self._room.require(self._directory, image.size, f"the data of image {image.id}")
        try:
            with metrics.timed(metrics.IMAGES):
                self._fetch_image(image, part)
            info = self._qemu_img.check(image, part)
            if info.format in images.DISK_FORMATS:
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

    def _convert(self, image: Image, part: str, info: images.DiskInfo, target: str) -> None:
        """Convert an image to raw, after a check that it fits, since its header may promise any size.

        Another host may have more space. So neither a lack of space nor a failed conversion counts as the image's
        fault.
        """
        purpose = f"the raw data of image {image.id}"
        self._room.require(self._directory, info.virtual_size, purpose)
        check = self._room.kept(self._directory, lambda: None, purpose)
        try:
            self._qemu_img.convert(part, info, target, check)
        except exceptions.VirtDriverError as error:
            LOG.warning("Image %s (%s) cannot be converted: %s", image.id, image.disk_format, error)
            raise exceptions.VirtDriverError(reason=f"image {image.id} could not be converted here") from error

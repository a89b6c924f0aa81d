"""Images that guests' disks begin as: each is fetched and checked once per host, and then only read.

The files lie in ``<instances_path>/_base``, named by the image's id. An image never changes under its id, so a file
with that name is right; it gets the name only when it is whole and was found acceptable. Daemons that share the
directory exclude each other by a lock file per image.
"""

from __future__ import annotations

import logging
import os
import re
import shutil

import msgspec
from oslo_concurrency import lockutils

from nova_lite import exception, files
from nova_lite.image import formats
from nova_lite.objects import Image
from nova_lite.virt import images
from nova_lite.virt.driver import FetchImage

LOG = logging.getLogger(__name__)

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
        if not _PLAIN_NAME.fullmatch(image.id):
            raise exception.ImageUnacceptable(image_id=image.id, reason="its id is not a plain name")
        kept = images.qemu_format(image) if images.qemu_format(image) in images.KEPT_FORMATS else "raw"
        path = os.path.join(self._directory, image.id)
        with lockutils.lock(
            f"image-{image.id}", "nova-lite-", external=True, lock_path=os.path.join(self._directory, "locks")
        ):
            if not os.path.exists(path):
                self._fetch(image, path)
        size = os.path.getsize(path) if kept == "raw" else self._qemu_img.info(path, kept).virtual_size
        return CachedImage(path=path, format=kept, virtual_size=size)

    def _fetch(self, image: Image, path: str) -> None:
        part = f"{path}.part"
        converted = f"{path}.raw"
        try:
            self._fetch_image(image, part)
            formats.check(part, image.disk_format, image.id)
            info = self._info(image, part)
            images.check_acceptable(image, info)
            if info.format in images.KEPT_FORMATS:
                os.rename(part, path)
            else:
                self._convert(image, part, info, converted)
                os.rename(converted, path)
            files.sync_directory(self._directory)
        finally:
            files.remove(part)
            files.remove(converted)
        LOG.info("Image %s (%s) is now in the cache", image.id, image.disk_format)

    def _info(self, image: Image, part: str) -> images.DiskInfo:
        """What qemu-img says, told what to look for. Its complaint, which names files of this host, is for the log."""
        try:
            return self._qemu_img.info(part, images.qemu_format(image))
        except exception.VirtDriverError as error:
            LOG.warning("Image %s (%s) cannot be read: %s", image.id, image.disk_format, error)
            raise exception.ImageUnacceptable(image_id=image.id, reason="it cannot be read") from error

    def _convert(self, image: Image, part: str, info: images.DiskInfo, target: str) -> None:
        """A header may promise any size: what has no room here is refused before it fills the disk. Another host may
        have more, so neither that nor a copy that fails is the image's fault."""
        room = shutil.disk_usage(self._directory).free
        if info.virtual_size > room:
            LOG.warning("Image %s is %d bytes big, and there are %d free", image.id, info.virtual_size, room)
            raise exception.VirtDriverError(reason=f"image {image.id} is bigger than this host has room for")
        try:
            self._qemu_img.convert(part, info, target)
        except exception.VirtDriverError as error:
            LOG.warning("Image %s (%s) cannot be converted: %s", image.id, image.disk_format, error)
            raise exception.VirtDriverError(reason=f"image {image.id} could not be converted here") from error

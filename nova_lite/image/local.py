"""Images as files in one directory, ``[image] store_path``; their metadata are rows of the conductor.

Hosts read it, and write only below ``uploads/<host>``: what they upload there a conductor takes into the store, when
their order has ended well.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

from nova_lite.base import concurrency, exceptions, files
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.image import formats, store, verified
from nova_lite.image.driver import ImageBackend, ImageCall
from nova_lite.image.store import file_path, uploads_path
from nova_lite.objects import Image

#: What is wrong with the place that an image is copied to, not with where it comes from.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class LocalImages(ImageBackend):
    has_local_rows = True

    def list_images(self, context: RequestContext, name: str | None) -> list[Image]:
        return self.conductor.image_list(context, name, None, None, None)

    def get(self, context: RequestContext, image_id: str) -> Image:
        return self.conductor.image_get(context, image_id)

    def change_properties(self, context: RequestContext, image_id: str, changes: Mapping[str, str | None]) -> Image:
        return self.conductor.image_update(context, image_id, {"properties": dict(changes)}, None)

    def delete(self, context: RequestContext, image_id: str) -> None:
        self.conductor.image_delete(context, image_id)

    def describe(self, context: RequestContext, image_ids: Sequence[str]) -> dict[str, Image]:
        return {}

    def register(self, context: RequestContext, image: Image) -> Image | None:
        return None

    def withdraw(self, context: RequestContext, image_id: str) -> None:
        """Nothing was made."""

    # --- for compute hosts

    def fetch(self, image: Image, target: str) -> None:
        copy(image, file_path(self.conf.image.store_path, image.id), target)

    def upload(self, image: Image, source: str, host: str, progress: Callable[[int], None]) -> None:
        context = get_admin_context()
        self.conductor.image_update(context, image.id, {"status": "saving"}, None)
        try:
            directory = store.prepare_below(self.conf.image.store_path, store.UPLOADS, os.path.basename(host))
            with open(source, "rb") as reader:
                size, checksum = store.add(directory, image.id, reader, progress)
        except OSError as error:
            raise exceptions.ImageUploadFailed(image_id=image.id, reason=error.strerror or str(error)) from error
        with contextlib.ExitStack() as undo:
            undo.callback(store.remove, directory, image.id)
            # After the file has its name: who discards the image deletes its row first, and the file then.
            self.conductor.image_update(context, image.id, {"size": size, "checksum": checksum}, "saving")
            undo.pop_all()

    def sweep_uploads(self, host: str) -> None:
        directory = uploads_path(self.conf.image.store_path, host)
        if not os.path.isdir(directory):
            return
        for name in os.listdir(directory):
            if not self._is_wanted(name):
                files.remove(os.path.join(directory, name))

    def _is_wanted(self, image_id: str) -> bool:
        """A whole file may wait for a conductor to take it; half ones begin in another way."""
        try:
            return self.conductor.image_get(get_admin_context(), image_id).status == "saving"
        except exceptions.ImageNotFound:
            return False

    # --- for conductors

    def publish(self, call: ImageCall) -> Image | None:
        """Quiet when it is in the store already."""
        target = file_path(self.conf.image.store_path, call.image_id)
        source = file_path(uploads_path(self.conf.image.store_path, call.host or ""), call.image_id)
        try:
            if not os.path.exists(source) and os.path.exists(target):
                return None
            _check_upload(call.image_id, source)
            os.rename(source, target)
            files.sync_directory(self.conf.image.store_path)
        except OSError as error:
            raise exceptions.ImageFileMissing(image_id=call.image_id, reason=error.strerror or str(error)) from error
        return None

    def activate(self, call: ImageCall) -> Image | None:
        """Its row is all there is."""
        return None

    def discard(self, call: ImageCall) -> None:
        """Its row is deleted before."""
        self._remove([call.image_id], call.host)

    def rotate(self, call: ImageCall) -> None:
        self._remove(call.gone, None)

    def _remove(self, image_ids: Sequence[str], host: str | None) -> None:
        store_path = self.conf.image.store_path
        try:
            for image_id in image_ids:
                files.remove(file_path(store_path, image_id))
                if host is not None:
                    files.remove(file_path(uploads_path(store_path, host), image_id))
        except OSError as error:
            raise exceptions.ServiceUnavailable(f"An image's file cannot be removed: {error.strerror}.") from error


def _check_upload(image_id: str, path: str) -> None:
    """A host may have been taken over: what it leaves must be a file of its own, and refer to no other one."""
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        raise exceptions.ImageUnacceptable(image_id=image_id, reason="what was uploaded is not a file")
    formats.check(path, "qcow2", image_id)


def copy(image: Image, source: str, target: str) -> None:
    """The image's bytes from one file of this host to another, as `ImageBackend.fetch` has it."""
    try:
        descriptor = formats.open_regular(source)
    except OSError as error:
        raise exceptions.ImageFileMissing(image_id=image.id, reason=error.strerror or str(error)) from error
    with open(descriptor, "rb") as reader, verified.whole(target):
        size = os.fstat(descriptor).st_size
        if image.size and size != image.size:
            raise exceptions.ImageCorrupt(
                image_id=image.id, reason=f"its file has {size} bytes where {image.size} were registered"
            )
        try:
            size, checksum = concurrency.call_blocking(_copy, reader, target, image.hash_algorithm)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise exceptions.ImageDownloadFailed(image_id=image.id, reason=str(error.strerror)) from error
            raise exceptions.ImageFileMissing(image_id=image.id, reason=error.strerror or str(error)) from error
        verified.check(image, size, checksum)


def _copy(reader: BinaryIO, target: str, algorithm: str) -> tuple[int, str]:
    """Runs in a native thread, so it uses nothing of ours."""
    return verified.write(iter(lambda: reader.read(verified.CHUNK), b""), target, algorithm)

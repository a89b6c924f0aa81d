"""Backend ``local``: images are files in the directory ``[image] store_path``. Metadata are rows of the database.

Compute hosts read the directory. They write only below ``uploads/<host>``. A conductor moves an uploaded file into the
store when the host's command has succeeded. With ``[image] store_address``, hosts use the store of a controller
(`nova_lite.image.remote`) in place of a directory that they share.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO

import msgspec
from oslo_config import cfg

from nova_lite.base import concurrency, exceptions, files
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.image import formats, store, verified
from nova_lite.image.driver import ImageBackend, ImageCall
from nova_lite.image.store import file_path, uploads_path
from nova_lite.objects import Image, ImageQuery

if TYPE_CHECKING:  # the message bus takes long to load, and nova-lite-manage does not need it
    from nova_lite.image.remote import RemoteStore
    from nova_lite.rpcapi.conductor import ConductorRPC

#: Images that are read at a time.
PAGE = 1000

#: Errors of the target of a copy, not of its source.
_TARGET_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class LocalImages(ImageBackend):
    """Images in a directory."""

    has_local_rows = True

    def __init__(self, conf: cfg.ConfigOpts, conductor: ConductorRPC) -> None:
        super().__init__(conf, conductor)
        self._remote: RemoteStore | None = None
        if conf.image.store_address:
            from nova_lite.image.remote import RemoteStore

            self._remote = RemoteStore(conf)

    def list_images(self, context: RequestContext, name: str | None, marker: str | None = None) -> Iterator[Image]:
        query = ImageQuery(filters={} if name is None else {"name": [name]}, marker=marker, limit=PAGE)
        while True:
            images = self.conductor.image_list(context, query)
            yield from filter(_is_listed, images)
            if len(images) < PAGE:
                return
            query = msgspec.structs.replace(query, marker=images[-1].id)

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
        """Do nothing, since `register` made nothing."""

    # --- for compute hosts

    def fetch(self, image: Image, target: str) -> None:
        if self._remote is not None:
            self._remote.fetch(image, target)
            return
        copy(image, file_path(self.conf.image.store_path, image.id), target)

    def upload(self, image: Image, source: str, host: str, progress: Callable[[int], None]) -> None:
        context = get_admin_context()
        self.conductor.image_update(context, image.id, {"status": "saving"}, None)
        if self._remote is not None:  # The join API records what it has received.
            self._remote.upload(image, source, progress)
            return
        try:
            directory = store.prepare_below(self.conf.image.store_path, store.UPLOADS, os.path.basename(host))
            room = store.Room(directory, self.conf.image.min_free_mb, os.path.getsize(source))

            def advance(done: int) -> None:
                room.check(done)
                progress(done)

            with open(source, "rb") as reader:
                sums = store.add(directory, image.id, reader, advance)
            size = formats.virtual_size(source, image.disk_format)
        except OSError as error:
            raise exceptions.ImageUploadFailed(image_id=image.id, reason=error.strerror or str(error)) from error
        with contextlib.ExitStack() as undo:
            undo.callback(store.remove, directory, image.id)
            # The file exists before this update, since `discard` deletes first the row and then the file.
            changes = {**sums._asdict(), "virtual_size": size}
            self.conductor.image_update(context, image.id, changes, "saving")
            undo.pop_all()

    def sweep_uploads(self, host: str) -> None:
        directory = uploads_path(self.conf.image.store_path, host)
        if not os.path.isdir(directory):
            return
        for name in os.listdir(directory):
            if not self._is_saving(name):
                files.remove(os.path.join(directory, name))

    def _is_saving(self, image_id: str) -> bool:
        """Return whether a complete file may still be waiting for a conductor. Incomplete files have other names."""
        try:
            return self.conductor.image_get(get_admin_context(), image_id).status == "saving"
        except exceptions.ImageNotFound:
            return False

    # --- for conductors

    def register_for_owner(self, image: Image) -> Image | None:
        return None

    def publish(self, call: ImageCall) -> Image | None:
        """Move the uploaded file into the store, unless an earlier attempt has done so."""
        target = file_path(self.conf.image.store_path, call.image_id)
        source = file_path(uploads_path(self.conf.image.store_path, call.host or ""), call.image_id)
        try:
            if not os.path.exists(source) and os.path.exists(target):
                return None
            _check_upload(call.image_id, source, call.disk_format)
            os.rename(source, target)
            files.sync_directory(self.conf.image.store_path)
        except OSError as error:
            raise exceptions.ImageFileMissing(image_id=call.image_id, reason=error.strerror or str(error)) from error
        return None

    def activate(self, call: ImageCall) -> Image | None:
        """Do nothing, since the image is only a row."""
        return None

    def discard(self, call: ImageCall) -> None:
        """Remove the files. The row is deleted already."""
        self._remove([call.image_id], call.host)

    def rotate(self, call: ImageCall) -> None:
        self._remove(call.removed_ids, None)

    def _remove(self, image_ids: Sequence[str], host: str | None) -> None:
        store_path = self.conf.image.store_path
        try:
            for image_id in image_ids:
                files.remove(file_path(store_path, image_id))
                if host is not None:
                    files.remove(file_path(uploads_path(store_path, host), image_id))
        except OSError as error:
            raise exceptions.ServiceUnavailable(f"An image's file cannot be removed: {error.strerror}.") from error


def _is_listed(image: Image) -> bool:
    """Check whether a list has the image: not if it is hidden, or shared by others and not accepted."""
    return image.member_status in (None, "accepted") and not image.hidden


def _check_upload(image_id: str, path: str, disk_format: str) -> None:
    """Check the file of a host, which an attacker may control: it is a regular file and refers to no other file."""
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        raise exceptions.ImageUnacceptable(image_id=image_id, reason="the upload is not a regular file")
    formats.check(path, disk_format, image_id)


def copy(image: Image, source: str, target: str) -> None:
    """Copy the image from one file of this host to another. Raises like `ImageBackend.fetch`."""
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
            if error.errno in _TARGET_ERRORS:
                raise exceptions.ImageDownloadFailed(image_id=image.id, reason=str(error.strerror)) from error
            raise exceptions.ImageFileMissing(image_id=image.id, reason=error.strerror or str(error)) from error
        verified.check(image, size, checksum)


def _copy(reader: BinaryIO, target: str, algorithm: str) -> tuple[int, str]:
    """Copy in a native thread, so without this project's concurrency primitives."""
    return verified.write(iter(lambda: reader.read(verified.CHUNK), b""), target, algorithm)

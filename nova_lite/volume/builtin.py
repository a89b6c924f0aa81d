"""Parts that the backends of the built-in service share: new servers' volumes, images, backups and unfinished files.

::

    <backup_path>/<backup id>            a backup: its data, and at the end their SHA-256 in hex
    <directory>/.part-…                  an incomplete file
"""

from __future__ import annotations

import abc
import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from oslo_config import cfg

from nova_lite.base import disk_room, exceptions, files, trees
from nova_lite.base.timing import TIMING
from nova_lite.objects import BlockDevice, Image, VolumeVerb, VolumeWork
from nova_lite.objects.block_device import DeviceSource
from nova_lite.virt import images as disk_images
from nova_lite.volume.driver import FetchImage, VolumeBackend

LOG = logging.getLogger(__name__)

GIB = 1024**3
#: Bytes to read at a time.
CHUNK = 1024**2

PART = ".part-"
#: Bytes of the sum at the end of a backup.
SUM = 64
#: Age in seconds at which an incomplete file is abandoned.
OLD_SECONDS = 86400.0

#: qemu runs as another user. It must be able to open the files, but not to list them.
DIRECTORY_MODE = 0o711

#: Request of Linux that lets a file share the blocks of another one.
_FICLONE = 0x40049409
#: Errors of a request to share blocks that a copy of them would have, too.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class BuiltInVolumes(VolumeBackend):
    """Volumes that this cloud keeps itself."""

    def __init__(self, conf: cfg.ConfigOpts, fetch_image: FetchImage) -> None:
        super().__init__(conf, fetch_image)
        self.room = disk_room.of_host(conf)
        #: Seconds in which a copy has to end.
        self.copy_seconds = TIMING.volumes.task

    @abc.abstractmethod
    def has(self, volume_id: str) -> bool:
        """Check whether the volume exists."""

    def prepare(self, devices: Sequence[BlockDevice], images: Mapping[str, Image]) -> None:
        for device in devices:
            if device.volume_id is None or self.has(device.volume_id):
                continue
            source = device.made_from or device.source_type
            if source == DeviceSource.VOLUME:
                raise exceptions.VolumeFileMissing(volume_id=device.volume_id)
            work = VolumeWork(
                id=0,
                verb=VolumeVerb.CREATE,
                volume_id=device.volume_id,
                size=device.volume_size or 0,
                image=images[str(device.image_id)] if source == DeviceSource.IMAGE else None,
                source_snapshot=device.snapshot_id if source == DeviceSource.SNAPSHOT else None,
                encrypted=device.encrypted,
            )
            self.create(work)

    # --- images

    @contextlib.contextmanager
    def fetched(self, image: Image, part: str) -> Iterator[tuple[str, disk_images.DiskInfo]]:
        """Yield the path of an image's data, beside ``part``, and their properties.

        The checks are those for a guest's own disk. Raises `ImageUnacceptable`.
        """
        with tempfile.TemporaryDirectory(prefix=f"{os.path.basename(part)}.", dir=os.path.dirname(part)) as directory:
            path = os.path.join(directory, "image")
            self.room.require(directory, image.size, f"the data of image {image.id}")
            self.fetch_image(image, path)
            yield path, disk_images.QemuImg(self.conf).check(image, path)

    # --- backups

    def backup_path(self, data_id: str) -> str:
        return os.path.join(os.path.abspath(self.conf.volume.backup_path), str(uuid.UUID(data_id)))

    def back_up(self, data_id: str, fill: Callable[[str], None]) -> None:
        """Write the data of a backup and their sum into one file, which gets its name when it is complete."""
        target = self.backup_path(data_id)
        if os.path.exists(target):
            return
        with as_driver_errors():
            self.prepare_directory(self.conf.volume.backup_path)
            with self.new_file(target) as part:
                fill(part)
                digest = _sha256(part, os.path.getsize(part))
                with open(part, "ab") as file:
                    file.write(digest.encode())

    def delete_backup(self, data_id: str) -> None:
        with as_driver_errors():
            files.remove(self.backup_path(data_id))

    def verify_backup(self, data_id: str) -> None:
        with as_driver_errors():
            check_backup(data_id, self.backup_path(data_id))

    # --- files

    def room_kept(self, path: str) -> Callable[[], None]:
        """Return the check to call while the file ``path`` is written.

        It raises when the disk is nearly full, and after `copy_seconds`: the storage may not answer.
        """
        end = time.monotonic() + self.copy_seconds

        def require_time() -> None:
            if time.monotonic() >= end:
                raise exceptions.VirtDriverError(reason=f"data of volumes: no end within {self.copy_seconds:g} s")

        return self.room.kept(os.path.dirname(path), require_time, "data of volumes")

    def copy_sparse(self, source: str, target: str) -> None:
        """Copy into an existing file. Blocks are copied only if the file system cannot share them, and if they fit."""
        if _share_blocks(source, target):
            return
        self.require_room_of(source, target)
        command = ("cp", "--reflink=auto", "--sparse=always", "--no-preserve=all", source, target)
        disk_images.run_checked(self.room_kept(target), *command)

    def require_room_of(self, source: str, target: str) -> None:
        """Raise `VirtDriverError` if the blocks of ``source`` do not fit beside ``target``."""
        self.room.require(os.path.dirname(target), disk_room.data_in(source) or 0, "copies of a volume's data")

    def prepare_directory(self, directory: str) -> None:
        os.makedirs(directory, exist_ok=True)
        os.chmod(directory, DIRECTORY_MODE)

    @contextlib.contextmanager
    def new_file(self, target: str) -> Iterator[str]:
        """Yield the path of a file to write. The file gets its name at the end."""
        with self.part(target) as part:
            yield part
            sync(part)
            with contextlib.suppress(FileExistsError):
                os.link(part, target)
            files.sync_directory(os.path.dirname(target))

    @contextlib.contextmanager
    def part(self, target: str) -> Iterator[str]:
        """Yield the path of an empty file in the directory of ``target``. It is removed at the end."""
        with files.large_part(os.path.dirname(target), PART) as part:
            yield part


def require_fits(image: Image, needed: int, size: int) -> None:
    """Raise `ImageUnacceptable` if an image of ``needed`` bytes does not fit into a volume of ``size`` GB."""
    if needed > size * GIB:
        raise exceptions.ImageUnacceptable(
            image_id=image.id, reason=f"it needs {-(-needed // GIB)} GB, and the volume has {size}"
        )


def sync(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def check_backup(data_id: str, path: str) -> int:
    """Compare the data of a backup with their sum. Return their size. Raises `BackupDamaged`."""
    try:
        size = os.path.getsize(path) - SUM
        known = recorded_sum(path)
    except FileNotFoundError as error:
        raise exceptions.BackupDamaged(backup_id=data_id, reason="its file is missing") from error
    if size < 0 or _sha256(path, size) != known:
        raise exceptions.BackupDamaged(backup_id=data_id, reason="its data are not those that were written")
    return size


def recorded_sum(path: str) -> str:
    """Return the sum at the end of a backup. Raises `OSError`."""
    with open(path, "rb") as file:
        file.seek(max(os.path.getsize(path) - SUM, 0))
        return file.read().decode(errors="replace")


def _sha256(path: str, size: int) -> str:
    """Return the `content_sum` of the first ``size`` bytes of a file, without reading its holes."""
    with open(path, "rb", buffering=0) as source:

        def read(start: int) -> bytes:
            source.seek(start)
            return source.read(min(CHUNK, size - start))

        return content_sum(size, ((start, read(start)) for start in _chunks_with_data(source.fileno(), size)))


def content_sum(size: int, chunks: Iterable[tuple[int, bytes]]) -> str:
    """Return a SHA-256 in hex of the size, and of each chunk that is not all zeros with its place.

    So a copy with other holes has the same sum.
    """
    digest = hashlib.sha256(size.to_bytes(8, "big"))
    for start, chunk in chunks:
        if chunk.count(0) < len(chunk):
            digest.update(start.to_bytes(8, "big"))
            digest.update(chunk)
    return digest.hexdigest()


def _chunks_with_data(descriptor: int, size: int) -> Iterator[int]:
    """Yield the offsets of chunks that are not in a hole of the file."""
    start = 0
    while start < size:
        try:
            found = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return
        start = found - found % CHUNK
        if start < size:
            yield start
        start += CHUNK


def remove_part(path: str) -> None:
    """Remove a file, or the directory of a downloaded image."""
    for left in trees.remove(path):
        LOG.warning("An incomplete file of a volume stays: %s", left)


def _share_blocks(source: str, target: str) -> bool:
    """Let the existing file ``target`` have the blocks of another one. Return whether the file system can do that."""
    with open(source, "rb") as reader, open(target, "r+b") as writer:
        try:
            fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        except OSError as error:
            if error.errno in _DISK_ERRORS:
                raise
            return False
    return True


@contextlib.contextmanager
def as_driver_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise exceptions.VirtDriverError(reason=f"[volume] store_path: {error.strerror or error}") from error

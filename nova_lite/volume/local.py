"""Backend ``local``: volumes are raw, sparse files in the directory ``[volume] store_path``, which all hosts share.

::

    <store_path>/<volume id>             a volume
    <store_path>/snapshots/<snapshot id>
    <store_path>/luks/…                  the same of encrypted volumes: their files are LUKS
    <store_path>/.part-…                 an incomplete file
    <backup_path>/<backup id>            a backup: its data, and at the end their SHA-256 in hex

The place of a file says whether it is encrypted. Its content does not, since that is a guest's. Copies of an encrypted
volume are copies of its file, so they have its passphrase.

A complete file is linked to its name, which fails if the name exists. So two hosts with the same work never write to a
file that a guest may use already.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence

from nova_lite.base import exceptions, files
from nova_lite.objects import BlockDevice, Image, VolumeKey, VolumeVerb, VolumeWork
from nova_lite.objects.block_device import DeviceSource
from nova_lite.virt import images as disk_images
from nova_lite.volume import luks
from nova_lite.volume.driver import CopyVolumes, VolumeBackend

GIB = 1024**3
#: Bytes to read at a time.
CHUNK = 1024**2

SNAPSHOTS = "snapshots"
ENCRYPTED = "luks"
PART = ".part-"
#: Bytes of the sum at the end of a backup.
SUM = 64
#: Age in seconds at which an incomplete file is abandoned.
OLD_SECONDS = 86400.0

#: qemu runs as another user. It must be able to open the files, but not to list them.
DIRECTORY_MODE = 0o711


class LocalVolumes(VolumeBackend):
    """Volumes in a shared directory."""

    def path(self, volume_id: str) -> str:
        return self._existing(str(uuid.UUID(volume_id)))

    def require(self, volume_id: str) -> str:
        path = self.path(volume_id)
        if not os.path.exists(path):
            raise exceptions.VolumeFileMissing(volume_id=volume_id)
        return path

    def is_encrypted(self, path: str) -> bool:
        return path.startswith(os.path.join(self._store(encrypted=True), ""))

    def _store(self, encrypted: bool) -> str:
        store = os.path.abspath(self.conf.volume.store_path)
        return os.path.join(store, ENCRYPTED) if encrypted else store

    def _existing(self, *name: str) -> str:
        """Return the path of an encrypted file of this name, if there is one, else that of a plain one."""
        path = os.path.join(self._store(encrypted=True), *name)
        return path if os.path.exists(path) else os.path.join(self._store(encrypted=False), *name)

    def _snapshot_path(self, snapshot_id: str) -> str:
        return self._existing(SNAPSHOTS, str(uuid.UUID(snapshot_id)))

    def _new_snapshot_path(self, snapshot_id: str, source: str) -> str:
        """Return the path of a new snapshot of the file ``source``."""
        return os.path.join(self._store(self.is_encrypted(source)), SNAPSHOTS, str(uuid.UUID(snapshot_id)))

    def create(self, work: VolumeWork) -> None:
        target = os.path.join(self._store(work.encrypted), str(uuid.UUID(work.volume_id)))
        if os.path.exists(target):
            return
        if work.source_snapshot is not None:
            self._copy(self._snapshot_path(work.source_snapshot), target, work)
        elif work.source_volume is not None:
            self._copy(self.require(work.source_volume), target, work)
        elif work.image is not None:
            image = work.image
            self._make(target, lambda part: self._write_image(work.volume_id, image, target, part, work.size))
        else:
            self._make(target, lambda part: self._write_blank(work.volume_id, target, part, work.size))

    def _copy(self, source: str, target: str, work: VolumeWork) -> None:
        if not os.path.exists(source) or self.is_encrypted(source) != work.encrypted:
            raise exceptions.VolumeFileMissing(volume_id=work.volume_id)

        def fill(part: str) -> None:
            _copy_sparse(source, part)
            self._grow(target, part, work.size)

        self._make(target, fill)

    def _write_blank(self, volume_id: str, target: str, part: str, size: int) -> VolumeKey | None:
        """Write an empty volume. Return its key if the ``target`` is encrypted."""
        key = None
        if self.is_encrypted(target):
            key = self.volume_key(volume_id)
            with open(part, "wb") as file:
                file.write(luks.new_header(key.passphrase.encode(), key.key_size))
        self._grow(target, part, size)
        return key

    def _grow(self, target: str, part: str, size: int) -> None:
        """Let the data of ``part``, which becomes ``target``, have ``size`` GB, unless they have more."""
        _grow(part, size * GIB + (luks.data_offset(part) if self.is_encrypted(target) else 0))

    def _write_image(self, volume_id: str, image: Image, target: str, part: str, size: int) -> None:
        """Write an image to ``part`` as a raw disk, with the same checks as for a guest's own disk."""
        key = self._write_blank(volume_id, target, part, size) if self.is_encrypted(target) else None
        qemu_img = disk_images.QemuImg(self.conf)
        with tempfile.TemporaryDirectory(prefix=f"{os.path.basename(part)}.", dir=os.path.dirname(part)) as directory:
            fetched = os.path.join(directory, "image")
            self.fetch_image(image, fetched)
            disk_format = disk_images.qemu_format(image)
            if disk_format == "raw":
                needed = os.path.getsize(fetched)
            else:
                info = qemu_img.info(fetched, disk_format)
                disk_images.check_acceptable(image, info)
                needed = info.virtual_size
            if needed > size * GIB:
                raise exceptions.ImageUnacceptable(
                    image_id=image.id, reason=f"it needs {-(-needed // GIB)} GB, and the volume has {size}"
                )
            if key is not None:
                qemu_img.encrypt(fetched, disk_format, part, key.passphrase)
            elif disk_format == "raw":
                _copy_sparse(fetched, part)
            else:
                qemu_img.convert(fetched, info, part)
        self._grow(target, part, size)

    def delete(self, volume_id: str) -> None:
        with _as_driver_errors():
            for encrypted in (True, False):
                files.remove(os.path.join(self._store(encrypted), str(uuid.UUID(volume_id))))

    @contextlib.contextmanager
    def exported(self, volume_id: str, disk_format: str) -> Iterator[str]:
        source = self.require(volume_id)
        if self.is_encrypted(source):
            raise exceptions.NotImplementedByDriver(operation="an image of an encrypted volume")
        if disk_format == "raw":
            yield source
            return
        with contextlib.ExitStack() as stack:
            with _as_driver_errors():
                part = stack.enter_context(self._part(source))
            disk_images.QemuImg(self.conf).flatten(source, "raw", part, lambda: None)
            yield part

    def extend(self, volume_id: str, size: int) -> None:
        with _as_driver_errors():
            path = self.require(volume_id)
            self._grow(path, path, size)

    def create_snapshot(self, volume_id: str, snapshot_id: str) -> None:
        if os.path.exists(self._snapshot_path(snapshot_id)):
            return
        source = self.require(volume_id)
        target = self._new_snapshot_path(snapshot_id, source)
        with _as_driver_errors():
            self._prepare(os.path.dirname(target))
        self._make(target, lambda part: _copy_sparse(source, part))

    def create_snapshots_in_use(self, snapshots: Mapping[str, str], copy: CopyVolumes) -> None:
        missing = {
            volume_id: self._new_snapshot_path(name, self.require(volume_id))
            for volume_id, name in snapshots.items()
            if not os.path.exists(self._snapshot_path(name))
        }
        with _as_driver_errors(), contextlib.ExitStack() as finish:
            parts = {}
            for volume_id, target in missing.items():
                self._prepare(os.path.dirname(target))
                parts[volume_id] = finish.enter_context(self._new(target))
                self._prepare_copy(volume_id, parts[volume_id])
            if parts:
                copy(parts)

    def _prepare_copy(self, volume_id: str, part: str) -> None:
        """Prepare a file for the hypervisor to copy a volume in use into: of the same size and format."""
        source = self.require(volume_id)
        if self.is_encrypted(source):
            self._write_blank(volume_id, source, part, 0)
        os.truncate(part, os.path.getsize(source))

    def reimage(self, volume_id: str, image: Image, size: int) -> None:
        """Replace the volume's file, once the new one is complete."""
        target = self.path(volume_id)
        with _as_driver_errors():
            self._prepare(os.path.dirname(target))
            with self._part(target) as part:
                self._write_image(volume_id, image, target, part, size)
                _sync(part)
                os.rename(part, target)
            files.sync_directory(os.path.dirname(target))

    def delete_snapshot(self, snapshot_id: str) -> None:
        with _as_driver_errors():
            for encrypted in (True, False):
                files.remove(os.path.join(self._store(encrypted), SNAPSHOTS, str(uuid.UUID(snapshot_id))))

    # --- backups

    def _backup_path(self, data_id: str) -> str:
        return os.path.join(os.path.abspath(self.conf.volume.backup_path), str(uuid.UUID(data_id)))

    def create_backup(self, work: VolumeWork) -> None:
        if work.source_snapshot is not None:
            source = self._snapshot_path(work.source_snapshot)
            if not os.path.exists(source):
                raise exceptions.VolumeFileMissing(volume_id=work.volume_id)
        else:
            source = self.require(work.volume_id)
        self._back_up(str(work.backup_id), lambda part: _copy_sparse(source, part))

    def create_backup_in_use(self, work: VolumeWork, copy: CopyVolumes) -> None:
        def fill(part: str) -> None:
            self._prepare_copy(work.volume_id, part)
            copy({work.volume_id: part})

        self._back_up(str(work.backup_id), fill)

    def _back_up(self, data_id: str, fill: Callable[[str], None]) -> None:
        """Write the data of a backup and their sum into one file, which gets its name when it is complete."""
        target = self._backup_path(data_id)
        if os.path.exists(target):
            return
        with _as_driver_errors():
            self._prepare(self.conf.volume.backup_path)
            with self._new(target) as part:
                fill(part)
                digest = _sha256(part, os.path.getsize(part))
                with open(part, "ab") as file:
                    file.write(digest.encode())

    def delete_backup(self, data_id: str) -> None:
        with _as_driver_errors():
            files.remove(self._backup_path(data_id))

    def verify_backup(self, data_id: str) -> None:
        with _as_driver_errors():
            _check_backup(data_id, self._backup_path(data_id))

    def restore_backup(self, work: VolumeWork) -> None:
        """Copy a backup, and compare the copy with the backup's sum, before the volume gets it."""
        data_id, source = str(work.data_id), self._backup_path(str(work.data_id))
        if work.is_new and os.path.exists(self.path(work.volume_id)):
            return
        new = os.path.join(self._store(work.encrypted), str(uuid.UUID(work.volume_id)))
        target = new if work.is_new else self.require(work.volume_id)

        def fill(part: str) -> None:
            if not os.path.exists(source):
                raise exceptions.BackupDamaged(backup_id=data_id, reason="its file is missing")
            _copy_sparse(source, part)
            os.truncate(part, _check_backup(data_id, part))
            self._grow(target, part, work.size)

        if work.is_new:
            self._make(target, fill)
            return
        with _as_driver_errors(), self._part(target) as part:
            fill(part)
            _sync(part)
            os.rename(part, target)
            files.sync_directory(os.path.dirname(target))

    def prepare(self, devices: Sequence[BlockDevice], images: Mapping[str, Image]) -> None:
        for device in devices:
            if device.volume_id is None or os.path.exists(self.path(device.volume_id)):
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

    def sweep(self) -> None:
        """Remove abandoned files of any host. Hosts share the directory, so a newer file may be in use."""
        stores = [self._store(encrypted) for encrypted in (False, True)]
        backups = os.path.abspath(self.conf.volume.backup_path)
        for directory in (*stores, *(os.path.join(store, SNAPSHOTS) for store in stores), backups):
            for path in files.abandoned_parts(directory, PART, OLD_SECONDS):
                _remove(path)

    # --- files

    def _prepare(self, directory: str) -> None:
        os.makedirs(directory, exist_ok=True)
        os.chmod(directory, DIRECTORY_MODE)

    def _make(self, target: str, fill: Callable[[str], object]) -> None:
        """Write a new file with ``fill`` and give it its name when it is on disk. An existing ``target`` stays.

        Raises `VirtDriverError` and the errors of ``fill``. Then no file remains.
        """
        with _as_driver_errors():
            self._prepare(self.conf.volume.store_path)
            self._prepare(os.path.dirname(target))
            with self._new(target) as part:
                fill(part)

    @contextlib.contextmanager
    def _new(self, target: str) -> Iterator[str]:
        """Yield the path of a file to write. The file gets its name at the end."""
        with self._part(target) as part:
            yield part
            _sync(part)
            with contextlib.suppress(FileExistsError):
                os.link(part, target)
            files.sync_directory(os.path.dirname(target))

    @contextlib.contextmanager
    def _part(self, target: str) -> Iterator[str]:
        """Yield the path of an empty file in the directory of ``target``. It is removed at the end."""
        with files.large_part(os.path.dirname(target), PART) as part:
            yield part


def _sync(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _check_backup(data_id: str, path: str) -> int:
    """Compare the data of a backup with their sum. Return their size. Raises `BackupDamaged`."""
    try:
        size = os.path.getsize(path) - SUM
        with open(path, "rb") as file:
            file.seek(max(size, 0))
            known = file.read()
    except FileNotFoundError as error:
        raise exceptions.BackupDamaged(backup_id=data_id, reason="its file is missing") from error
    if size < 0 or _sha256(path, size).encode() != known:
        raise exceptions.BackupDamaged(backup_id=data_id, reason="its data are not those that were written")
    return size


def _sha256(path: str, size: int) -> str:
    """Return a SHA-256 in hex of the first ``size`` bytes of a file: of the size, and of each chunk that is not all
    zeros with its place. So holes are not read, and a copy with other holes has the same sum.
    """
    digest = hashlib.sha256(size.to_bytes(8, "big"))
    with open(path, "rb", buffering=0) as source:
        for start in _chunks_with_data(source.fileno(), size):
            source.seek(start)
            chunk = source.read(min(CHUNK, size - start))
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


def _remove(path: str) -> None:
    """Remove a file, or the directory of a downloaded image."""
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        files.remove(path)


def _grow(path: str, size: int) -> None:
    if os.path.getsize(path) < size:
        os.truncate(path, size)


def _copy_sparse(source: str, target: str) -> None:
    """Copy a file, without copying blocks if the file system supports that."""
    disk_images.run("cp", "--reflink=auto", "--sparse=always", "--no-preserve=all", source, target)


@contextlib.contextmanager
def _as_driver_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise exceptions.VirtDriverError(reason=f"[volume] store_path: {error.strerror or error}") from error

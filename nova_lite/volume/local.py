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
import os
import uuid
from collections.abc import Callable, Iterator, Mapping

from nova_lite.base import exceptions, files
from nova_lite.image import luks
from nova_lite.objects import Image, VolumeKey, VolumeWork
from nova_lite.virt import images as disk_images
from nova_lite.volume.builtin import (
    GIB,
    OLD_SECONDS,
    PART,
    BuiltInVolumes,
    as_driver_errors,
    check_backup,
    remove_part,
    require_fits,
    sync,
)
from nova_lite.volume.driver import CopyVolumes, HoldVolumes

SNAPSHOTS = "snapshots"
ENCRYPTED = "luks"


class LocalVolumes(BuiltInVolumes):
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

    def has(self, volume_id: str) -> bool:
        return os.path.exists(self.path(volume_id))

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
            self.copy_sparse(source, part)
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
        _grow(part, self._size(target, part, size))

    def _size(self, target: str, part: str, size: int) -> int:
        """Return the bytes of ``part``, which becomes ``target``, with ``size`` GB of data."""
        return size * GIB + (luks.data_offset(part) if self.is_encrypted(target) else 0)

    def _write_image(self, volume_id: str, image: Image, target: str, part: str, size: int) -> None:
        """Write an image to ``part`` as a raw disk, with the same checks as for a guest's own disk."""
        key = self._write_blank(volume_id, target, part, size) if self.is_encrypted(target) else None
        qemu_img = disk_images.QemuImg(self.conf)
        with self.fetched(image, part) as (fetched, info):
            require_fits(image, info.virtual_size, size)
            if key is not None:
                self.room.require(os.path.dirname(part), info.virtual_size, "encrypted data of a volume")
                qemu_img.encrypt(fetched, info.format, part, key.passphrase, self.room_kept(part))
            elif info.format == "raw":
                self.copy_sparse(fetched, part)
            else:
                qemu_img.convert(fetched, info, part, self.room_kept(part))
        self._grow(target, part, size)

    def delete(self, volume_id: str) -> None:
        with as_driver_errors():
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
            with as_driver_errors():
                part = stack.enter_context(self.part(source))
                self.require_room_of(source, part)
            disk_images.QemuImg(self.conf).flatten(source, "raw", part, self.room_kept(part))
            yield part

    def extend(self, volume_id: str, size: int) -> None:
        with as_driver_errors():
            path = self.require(volume_id)
            _extend(path, self._size(path, path, size))

    def create_snapshot(self, volume_id: str, snapshot_id: str) -> None:
        if os.path.exists(self._snapshot_path(snapshot_id)):
            return
        source = self.require(volume_id)
        target = self._new_snapshot_path(snapshot_id, source)
        with as_driver_errors():
            self.prepare_directory(os.path.dirname(target))
        self._make(target, lambda part: self.copy_sparse(source, part))

    def create_snapshots_in_use(self, snapshots: Mapping[str, str], copy: CopyVolumes, hold: HoldVolumes) -> None:
        found = [name for name in snapshots.values() if os.path.exists(self._snapshot_path(name))]
        if len(found) == len(snapshots):
            return
        targets = {
            volume_id: self._new_snapshot_path(name, self.require(volume_id)) for volume_id, name in snapshots.items()
        }
        # A killed daemon has named these. The new ones are of another moment.
        for name in found:
            self.delete_snapshot(name)
        with as_driver_errors(), contextlib.ExitStack() as finish:
            parts = {}
            for volume_id, target in targets.items():
                self.prepare_directory(os.path.dirname(target))
                parts[volume_id] = finish.enter_context(self.new_file(target))
                self._prepare_copy(volume_id, parts[volume_id])
            copy(parts)

    def _prepare_copy(self, volume_id: str, part: str) -> None:
        """Prepare a file for the hypervisor to copy a volume in use into: of the same size and format."""
        source = self.require(volume_id)
        self.require_room_of(source, part)
        if self.is_encrypted(source):
            self._write_blank(volume_id, source, part, 0)
        os.truncate(part, os.path.getsize(source))

    def reimage(self, volume_id: str, image: Image, size: int) -> None:
        """Replace the volume's file, once the new one is complete."""
        target = self.path(volume_id)
        with as_driver_errors():
            self.prepare_directory(os.path.dirname(target))
            with self.part(target) as part:
                self._write_image(volume_id, image, target, part, size)
                sync(part)
                os.rename(part, target)
            files.sync_directory(os.path.dirname(target))

    def delete_snapshot(self, snapshot_id: str) -> None:
        with as_driver_errors():
            for encrypted in (True, False):
                files.remove(os.path.join(self._store(encrypted), SNAPSHOTS, str(uuid.UUID(snapshot_id))))

    # --- backups

    def create_backup(self, work: VolumeWork) -> None:
        if work.source_snapshot is not None:
            source = self._snapshot_path(work.source_snapshot)
            if not os.path.exists(source):
                raise exceptions.VolumeFileMissing(volume_id=work.volume_id)
        else:
            source = self.require(work.volume_id)
        self.back_up(str(work.backup_id), lambda part: self.copy_sparse(source, part))

    def create_backup_in_use(self, work: VolumeWork, copy: CopyVolumes, hold: HoldVolumes) -> None:
        def fill(part: str) -> None:
            self._prepare_copy(work.volume_id, part)
            copy({work.volume_id: part})

        self.back_up(str(work.backup_id), fill)

    def restore_backup(self, work: VolumeWork) -> None:
        """Copy a backup, and compare the copy with the backup's sum, before the volume gets it."""
        data_id, source = str(work.data_id), self.backup_path(str(work.data_id))
        if work.is_new and os.path.exists(self.path(work.volume_id)):
            return
        new = os.path.join(self._store(work.encrypted), str(uuid.UUID(work.volume_id)))
        target = new if work.is_new else self.require(work.volume_id)

        def fill(part: str) -> None:
            if not os.path.exists(source):
                raise exceptions.BackupDamaged(backup_id=data_id, reason="its file is missing")
            self.copy_sparse(source, part)
            os.truncate(part, check_backup(data_id, part))
            self._grow(target, part, work.size)

        if work.is_new:
            self._make(target, fill)
            return
        with as_driver_errors(), self.part(target) as part:
            fill(part)
            sync(part)
            os.rename(part, target)
            files.sync_directory(os.path.dirname(target))

    def sweep(self) -> None:
        """Remove abandoned files of any host. Hosts share the directory, so a newer file may be in use."""
        stores = [self._store(encrypted) for encrypted in (False, True)]
        backups = os.path.abspath(self.conf.volume.backup_path)
        for directory in (*stores, *(os.path.join(store, SNAPSHOTS) for store in stores), backups):
            for path in files.abandoned_parts(directory, PART, OLD_SECONDS):
                remove_part(path)

    # --- files

    def _make(self, target: str, fill: Callable[[str], object]) -> None:
        """Write a new file with ``fill`` and give it its name when it is on disk. An existing ``target`` stays.

        Raises `VirtDriverError` and the errors of ``fill``. Then no file remains.
        """
        with as_driver_errors():
            self.prepare_directory(self.conf.volume.store_path)
            self.prepare_directory(os.path.dirname(target))
            with self.new_file(target) as part:
                fill(part)


def _grow(path: str, size: int) -> None:
    if os.path.getsize(path) < size:
        os.truncate(path, size)


def _extend(path: str, size: int) -> None:
    """Let a file that others may use have at least ``size`` bytes. Another host that extends it loses nothing."""
    if os.path.getsize(path) < size:
        with open(path, "r+b", buffering=0) as file:
            os.posix_fallocate(file.fileno(), size - 1, 1)

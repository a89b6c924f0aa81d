"""Backend ``rbd``: volumes are images in the pool ``[volume] rbd_pool`` of a Ceph, which all hosts reach.

`nova_lite.virt.rbd_pool` makes, renames and removes the images. An encrypted volume has another name: its data begin
with a header of LUKS, and have whole GB behind it. Their content does not say so, since that is a guest's.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Iterator, Mapping

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, files
from nova_lite.base.timing import TIMING, ClientTiming
from nova_lite.image import luks
from nova_lite.objects import Image, NetworkDisk, VolumeWork
from nova_lite.virt import images as disk_images
from nova_lite.virt.rbd_pool import LUKS, OLD, SHRINK, SNAPSHOT, VOLUME, network_disk, open_pool
from nova_lite.volume.builtin import (
    CHUNK,
    GIB,
    OLD_SECONDS,
    PART,
    BuiltInVolumes,
    as_driver_errors,
    check_backup,
    content_sum,
    recorded_sum,
    remove_part,
    require_fits,
)
from nova_lite.volume.driver import CopyVolumes, FetchImage, HoldVolumes


class RbdVolumes(BuiltInVolumes):
    """Volumes in a pool of Ceph."""

    def __init__(self, conf: cfg.ConfigOpts, fetch_image: FetchImage, timing: ClientTiming = TIMING.clients) -> None:
        super().__init__(conf, fetch_image)
        self.pool = open_pool(conf, conf.volume.rbd_pool, timing)

    # --- names

    def path(self, volume_id: str) -> NetworkDisk:
        return self._disk(self._existing(_volume(volume_id)))

    def require(self, volume_id: str) -> NetworkDisk:
        return self._disk(self._required(volume_id))

    def has(self, volume_id: str) -> bool:
        return self._found(volume_id) is not None

    def _disk(self, name: str) -> NetworkDisk:
        return msgspec.structs.replace(network_disk(self.conf, self.pool.spec(name)), encrypted=name.startswith(LUKS))

    def _existing(self, name: str) -> str:
        """Return the name of an encrypted image, if there is one, else that of a plain one."""
        return LUKS + name if self.pool.exists(LUKS + name) else name

    def _found(self, volume_id: str) -> str | None:
        """Return the name of a volume's image, if it exists. Complete a replacement that was interrupted."""
        name = _volume(volume_id)
        for found in (name, LUKS + name):
            if self.pool.exists(found) or self.pool.rename(OLD + found, found, missing_ok=True):
                return found
        return None

    def _required(self, volume_id: str) -> str:
        """Return the name of a volume's image. Raises `VolumeFileMissing`."""
        found = self._found(volume_id)
        if found is None:
            raise exceptions.VolumeFileMissing(volume_id=volume_id)
        return found

    # --- volumes

    def create(self, work: VolumeWork) -> None:
        if self.has(work.volume_id):
            return
        with self.pool.new(_target(work)) as part:
            if work.source_snapshot is not None:
                self._copy(_snapshot(work.source_snapshot), part, work)
            elif work.source_volume is not None:
                self._copy(_volume(work.source_volume), part, work)
            elif work.encrypted:
                self._write_encrypted(work.volume_id, work.image, part, work.size)
            elif work.image is not None:
                self._write_image(work.image, part, work.size)
            else:
                self.pool.create(part, work.size)

    def _copy(self, source: str, part: str, work: VolumeWork) -> None:
        found = self._existing(source)
        if not self.pool.exists(found) or found.startswith(LUKS) != work.encrypted:
            raise exceptions.VolumeFileMissing(volume_id=work.volume_id)
        self.pool.clone_now(found, part)
        self._grow(part, work.size, work.encrypted)

    def _grow(self, name: str, size: int, encrypted: bool) -> None:
        """Let the data of an image have ``size`` GB, unless they have more."""
        self.pool.grow(name, size * GIB + (self._header(name) if encrypted else 0))

    def _header(self, name: str) -> int:
        """Return the bytes before the data of an encrypted image."""
        info = self.pool.rbd.info(self.pool.spec(name))
        return 0 if info is None else info.size % GIB

    def _write_encrypted(self, volume_id: str, image: Image | None, part: str, size: int) -> None:
        """Make ``part`` a volume of LUKS, of an image or empty."""
        key = self.volume_key(volume_id)
        with self._scratch() as file:
            with open(file, "wb") as header:
                header.write(luks.new_header(key.passphrase.encode(), key.key_size))
            if image is not None:
                with self.fetched(image, file) as (fetched, info):
                    require_fits(image, info.virtual_size, size)
                    self.room.require(os.path.dirname(file), info.virtual_size, "encrypted data of a volume")
                    os.truncate(file, luks.data_offset(file) + size * GIB)
                    qemu_img = disk_images.QemuImg(self.conf)
                    qemu_img.encrypt(fetched, info.format, file, key.passphrase, self.room_kept(file))
            self.pool.import_file(file, part)
        self._grow(part, size, encrypted=True)

    def _write_image(self, image: Image, part: str, size: int) -> None:
        """Make ``part`` a clone of an image, which the pool gets at its first use."""
        base, info = self.pool.require_base(image.id, lambda name: self._import_image(image, name, size))
        require_fits(image, info.size, size)
        self.pool.clone_now(base, part)
        self.pool.grow(part, size * GIB)

    def _import_image(self, image: Image, name: str, size: int) -> None:
        with self._scratch() as part, self.fetched(image, part) as (fetched, info):
            require_fits(image, info.virtual_size, size)
            if info.format != "raw":
                disk_images.QemuImg(self.conf).convert(fetched, info, part, self.room_kept(part))
                fetched = part
            self.pool.import_file(fetched, name)

    def delete(self, volume_id: str) -> None:
        for name in (_volume(volume_id), LUKS + _volume(volume_id)):
            self.pool.delete(name)
            self.pool.delete(OLD + name)

    def extend(self, volume_id: str, size: int) -> None:
        name = self._required(volume_id)
        self._grow(name, size, name.startswith(LUKS))

    @contextlib.contextmanager
    def exported(self, volume_id: str, disk_format: str) -> Iterator[str]:
        name = self._required(volume_id)
        if name.startswith(LUKS):
            raise exceptions.NotImplementedByDriver(operation="an image of an encrypted volume")
        with contextlib.ExitStack() as stack:
            part = stack.enter_context(self._scratch())
            self._export(name, part)
            if disk_format != "raw":
                target = stack.enter_context(self._scratch())
                self.require_room_of(part, target)
                disk_images.QemuImg(self.conf).flatten(part, "raw", target, self.room_kept(target))
                part = target
            yield part

    def reimage(self, volume_id: str, image: Image, size: int) -> None:
        """Replace the volume's image in the pool, once the new one is complete."""
        name = self._required(volume_id)
        with self.pool.unfinished(name) as part:
            if name.startswith(LUKS):
                self._write_encrypted(volume_id, image, part, size)
            else:
                self._write_image(image, part, size)
            self.pool.replace(name, part)

    # --- snapshots

    def create_snapshot(self, volume_id: str, snapshot_id: str) -> None:
        if self.pool.exists(self._existing(_snapshot(snapshot_id))):
            return
        name = self._required(volume_id)
        with self.pool.new(_snapshot_of(name, snapshot_id)) as part, self.pool.moment(name) as moment:
            self.pool.clone(moment, part)

    def create_snapshots_in_use(self, snapshots: Mapping[str, str], copy: CopyVolumes, hold: HoldVolumes) -> None:
        found = [name for name in snapshots.values() if self.pool.exists(self._existing(_snapshot(name)))]
        if len(found) == len(snapshots):
            return
        names = {volume_id: self._required(volume_id) for volume_id in snapshots}
        # A killed daemon has named these. The new ones are of another moment.
        for snapshot_id in found:
            self.delete_snapshot(snapshot_id)
        targets = [_snapshot_of(names[volume_id], snapshot_id) for volume_id, snapshot_id in snapshots.items()]
        # The names come last, when all are complete.
        with contextlib.ExitStack() as finish:
            parts = [finish.enter_context(self.pool.new(target)) for target in targets]
            with self.pool.moments(list(names.values()), hold(list(snapshots))) as moments:
                for moment, part in zip(moments, parts, strict=True):
                    self.pool.clone(moment, part)

    def delete_snapshot(self, snapshot_id: str) -> None:
        for beginning in ("", LUKS):
            self.pool.delete(beginning + _snapshot(snapshot_id))

    # --- backups

    def create_backup(self, work: VolumeWork) -> None:
        if work.source_snapshot is not None:
            source = self._existing(_snapshot(work.source_snapshot))
            if not self.pool.exists(source):
                raise exceptions.VolumeFileMissing(volume_id=work.volume_id)
        else:
            source = self._required(work.volume_id)
        self.back_up(str(work.backup_id), lambda part: self._export(source, part))

    def create_backup_in_use(self, work: VolumeWork, copy: CopyVolumes, hold: HoldVolumes) -> None:
        name = self._required(work.volume_id)

        def fill(part: str) -> None:
            with self.pool.moments([name], hold([work.volume_id])) as (moment,):
                self._export(moment, part)

        self.back_up(str(work.backup_id), fill)

    def restore_backup(self, work: VolumeWork) -> None:
        """Copy a backup into an image, and compare the image with the backup's sum, before the volume gets it."""
        source = self.backup_path(str(work.data_id))
        if work.is_new and self.has(work.volume_id):
            return
        target = _target(work) if work.is_new else self._required(work.volume_id)
        with (self.pool.new if work.is_new else self.pool.unfinished)(target) as part:
            with as_driver_errors():
                size = check_backup(str(work.data_id), source)
                self.pool.import_file(source, part)
                # The file ends with the sum, which is not part of the data.
                self.pool.resize(part, size, SHRINK)
                if self._sum_of(part, size) != recorded_sum(source):
                    raise exceptions.BackupDamaged(
                        backup_id=str(work.data_id), reason="the copy of its data differs from them"
                    )
            self._grow(part, work.size, target.startswith(LUKS))
            if not work.is_new:
                self.pool.replace(target, part)

    def _sum_of(self, name: str, size: int) -> str:
        """Return the sum of an image's data, as backups have it."""
        with self.pool.output(name) as stream:
            return content_sum(
                size, ((start, stream.read(min(CHUNK, size - start))) for start in range(0, size, CHUNK))
            )

    # --- leftovers

    def sweep(self) -> None:
        """Remove abandoned files, and start to remove abandoned images (`RbdPool.sweep`), which may take long."""
        for directory in (self.conf.volume.store_path, self.conf.volume.backup_path):
            for path in files.abandoned_parts(os.path.abspath(directory), PART, OLD_SECONDS):
                remove_part(path)
        threading.Thread(target=self.pool.sweep, name="rbd-sweep", daemon=True).start()

    # --- data

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[str]:
        """Yield the path of a file for data on their way."""
        store = os.path.abspath(self.conf.volume.store_path)
        with as_driver_errors():
            self.prepare_directory(store)
            with self.part(os.path.join(store, "scratch")) as part:
                yield part

    def _export(self, name: str, path: str) -> None:
        """Write the data of an image, or of a snapshot, into the existing file ``path``, without blocks of zeros."""
        exported = f"{path}.exported"
        try:
            check = self.room_kept(path)
            check()
            self.pool.export(name, exported, check)
            os.rename(exported, path)
        finally:
            files.remove(exported)


def _volume(volume_id: str) -> str:
    return f"{VOLUME}{uuid.UUID(volume_id)}"


def _snapshot(snapshot_id: str) -> str:
    return f"{SNAPSHOT}{uuid.UUID(snapshot_id)}"


def _target(work: VolumeWork) -> str:
    """Return the name of a new volume."""
    return f"{LUKS if work.encrypted else ''}{_volume(work.volume_id)}"


def _snapshot_of(name: str, snapshot_id: str) -> str:
    """Return the name of a new snapshot of a volume with this name."""
    return f"{LUKS if name.startswith(LUKS) else ''}{_snapshot(snapshot_id)}"

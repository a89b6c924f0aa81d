"""Backend ``rbd``: volumes are images in the pool ``[volume] rbd_pool`` of a Ceph, which all hosts reach.

`nova_lite.virt.rbd_pool` makes, renames and removes the images.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Iterator, Mapping

from oslo_config import cfg

from nova_lite.base import exceptions, files
from nova_lite.base.timing import TIMING, ClientTiming
from nova_lite.objects import Image, NetworkDisk, VolumeWork
from nova_lite.virt import images as disk_images
from nova_lite.virt.rbd_pool import OLD, SHRINK, SNAPSHOT, VOLUME, network_disk, open_pool
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
        return network_disk(self.conf, self.pool.spec(_volume(volume_id)))

    def require(self, volume_id: str) -> NetworkDisk:
        if not self.has(volume_id):
            raise exceptions.VolumeFileMissing(volume_id=volume_id)
        return self.path(volume_id)

    def has(self, volume_id: str) -> bool:
        """Check whether the volume exists. Complete a replacement of its data that was interrupted."""
        name = _volume(volume_id)
        return self.pool.exists(name) or self.pool.rename(OLD + name, name, missing_ok=True)

    # --- volumes

    def create(self, work: VolumeWork) -> None:
        if work.encrypted:
            raise exceptions.InvalidInput(reason="volumes in RBD cannot be encrypted")
        target = _volume(work.volume_id)
        if self.has(work.volume_id):
            return
        with self.pool.new(target) as part:
            if work.source_snapshot is not None:
                self._copy(_snapshot(work.source_snapshot), part, work)
            elif work.source_volume is not None:
                self._copy(_volume(work.source_volume), part, work)
            elif work.image is not None:
                self._write_image(work.image, part, work.size)
            else:
                self.pool.create(part, work.size)

    def _copy(self, source: str, part: str, work: VolumeWork) -> None:
        if not self.pool.exists(source):
            raise exceptions.VolumeFileMissing(volume_id=work.volume_id)
        self.pool.clone_now(source, part)
        self.pool.grow(part, work.size * GIB)

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
        for name in (_volume(volume_id), OLD + _volume(volume_id)):
            self.pool.delete(name)

    def extend(self, volume_id: str, size: int) -> None:
        self.require(volume_id)
        self.pool.grow(_volume(volume_id), size * GIB)

    @contextlib.contextmanager
    def exported(self, volume_id: str, disk_format: str) -> Iterator[str]:
        self.require(volume_id)
        with contextlib.ExitStack() as stack:
            part = stack.enter_context(self._scratch())
            self._export(_volume(volume_id), part)
            if disk_format != "raw":
                target = stack.enter_context(self._scratch())
                self.require_room_of(part, target)
                disk_images.QemuImg(self.conf).flatten(part, "raw", target, self.room_kept(target))
                part = target
            yield part

    def reimage(self, volume_id: str, image: Image, size: int) -> None:
        """Replace the volume's image in the pool, once the new one is complete."""
        self.require(volume_id)
        with self.pool.unfinished(_volume(volume_id)) as part:
            self._write_image(image, part, size)
            self.pool.replace(_volume(volume_id), part)

    # --- snapshots

    def create_snapshot(self, volume_id: str, snapshot_id: str) -> None:
        if self.pool.exists(_snapshot(snapshot_id)):
            return
        self.require(volume_id)
        with self.pool.new(_snapshot(snapshot_id)) as part, self.pool.moment(_volume(volume_id)) as moment:
            self.pool.clone(moment, part)

    def create_snapshots_in_use(self, snapshots: Mapping[str, str], copy: CopyVolumes, hold: HoldVolumes) -> None:
        found = [name for name in snapshots.values() if self.pool.exists(_snapshot(name))]
        if len(found) == len(snapshots):
            return
        for volume_id in snapshots:
            self.require(volume_id)
        # A killed daemon has named these. The new ones are of another moment.
        for name in found:
            self.delete_snapshot(name)
        # The names come last, when all are complete.
        with contextlib.ExitStack() as finish:
            parts = [finish.enter_context(self.pool.new(_snapshot(name))) for name in snapshots.values()]
            with self.pool.moments([_volume(volume_id) for volume_id in snapshots], hold(list(snapshots))) as moments:
                for moment, part in zip(moments, parts, strict=True):
                    self.pool.clone(moment, part)

    def delete_snapshot(self, snapshot_id: str) -> None:
        self.pool.delete(_snapshot(snapshot_id))

    # --- backups

    def create_backup(self, work: VolumeWork) -> None:
        if work.source_snapshot is not None:
            source = _snapshot(work.source_snapshot)
            if not self.pool.exists(source):
                raise exceptions.VolumeFileMissing(volume_id=work.volume_id)
        else:
            self.require(work.volume_id)
            source = _volume(work.volume_id)
        self.back_up(str(work.backup_id), lambda part: self._export(source, part))

    def create_backup_in_use(self, work: VolumeWork, copy: CopyVolumes, hold: HoldVolumes) -> None:
        self.require(work.volume_id)

        def fill(part: str) -> None:
            with self.pool.moments([_volume(work.volume_id)], hold([work.volume_id])) as (moment,):
                self._export(moment, part)

        self.back_up(str(work.backup_id), fill)

    def restore_backup(self, work: VolumeWork) -> None:
        """Copy a backup into an image, and compare the image with the backup's sum, before the volume gets it."""
        source = self.backup_path(str(work.data_id))
        if work.is_new and self.has(work.volume_id):
            return
        if not work.is_new:
            self.require(work.volume_id)
        target = _volume(work.volume_id)
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
            self.pool.grow(part, work.size * GIB)
            if not work.is_new:
                self.pool.replace(_volume(work.volume_id), part)

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

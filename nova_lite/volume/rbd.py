"""Backend ``rbd``: volumes are images in the pool ``[volume] rbd_pool`` of a Ceph, which all hosts reach.

::

    volume-<volume id>
    snapshot-<snapshot id>       a clone of its volume
    image-<image id>             an image of the image service, which volumes are clones of
    old-volume-<volume id>       a volume's data that are being replaced
    part-…                       an incomplete image

A clone shares the blocks of its parent. The RBD snapshot between both exists only while the clone is made. Ceph keeps
a deleted image that has clones in its trash. The data go when its last clone does.

An image gets its name by a rename when it is complete, which fails if the name exists. So two hosts with the same work
never write to an image that a guest may use already.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence

from oslo_config import cfg

from nova_lite.base import exceptions, files
from nova_lite.base.timing import TIMING, ClientTiming
from nova_lite.objects import Image, NetworkDisk, VolumeWork
from nova_lite.virt import images as disk_images
from nova_lite.virt.rbd import FEATURES, PROTOCOL, ImageInfo, Parent, Rbd, RbdFailure, Trashed, moment_of
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

LOG = logging.getLogger(__name__)

#: Beginnings of names.
VOLUME, SNAPSHOT, BASE, OLD, UNFINISHED = "volume-", "snapshot-", "image-", "old-", "part-"

#: A clone of a clone of … this many images gets all its data: each of them makes reading slower.
MAX_PARENTS = 8

#: Seconds in which Ceph has to take a snapshot, while a guest waits.
HOLD_SECONDS = 20.0

#: Bytes that an image in the trash keeps beside its clones' data. An image of size 0 would no longer name its parent.
TRASHED_SIZE = 1

#: Ceph's words for images in the trash that were deleted, also as parents of others, or whose removal was interrupted.
_DELETED = ("USER", "USER_PARENT", "REMOVING")

_FEATURES = tuple(word for feature in FEATURES for word in ("--image-feature", feature))
_QUIET = "--no-progress"
_SHRINK = "--allow-shrink"


class RbdVolumes(BuiltInVolumes):
    """Volumes in a pool of Ceph."""

    def __init__(self, conf: cfg.ConfigOpts, fetch_image: FetchImage, timing: ClientTiming = TIMING.clients) -> None:
        super().__init__(conf, fetch_image)
        self._pool = str(conf.volume.rbd_pool)
        self._user = str(conf.volume.rbd_user) or None
        self._rbd = Rbd(conf.volume.rbd_ceph_conf, self._user)
        self._long = TIMING.volumes.task
        self._timing = timing

    # --- names

    def path(self, volume_id: str) -> NetworkDisk:
        return NetworkDisk(
            protocol=PROTOCOL,
            name=self._spec(_volume(volume_id)),
            config=self.conf.volume.rbd_ceph_conf,
            user=self._user if self.conf.volume.rbd_secret_uuid else None,
            secret=self.conf.volume.rbd_secret_uuid or None,
        )

    def require(self, volume_id: str) -> NetworkDisk:
        if not self.has(volume_id):
            raise exceptions.VolumeFileMissing(volume_id=volume_id)
        return self.path(volume_id)

    def has(self, volume_id: str) -> bool:
        """Check whether the volume exists. Complete a replacement of its data that was interrupted."""
        name = _volume(volume_id)
        return self._exists(name) or self._rename(OLD + name, name, missing_ok=True)

    def _spec(self, name: str) -> str:
        return f"{self._pool}/{name}"

    def _exists(self, name: str) -> bool:
        return self._rbd.info(self._spec(name)) is not None

    # --- volumes

    def create(self, work: VolumeWork) -> None:
        if work.encrypted:
            raise exceptions.InvalidInput(reason="volumes in RBD cannot be encrypted")
        target = _volume(work.volume_id)
        if self.has(work.volume_id):
            return
        with self._new(target) as part:
            if work.source_snapshot is not None:
                self._copy(_snapshot(work.source_snapshot), part, work)
            elif work.source_volume is not None:
                self._copy(_volume(work.source_volume), part, work)
            elif work.image is not None:
                self._write_image(work.image, part, work.size)
            else:
                self._rbd.run("create", "--size", f"{work.size}G", *_FEATURES, self._spec(part))

    def _copy(self, source: str, part: str, work: VolumeWork) -> None:
        if not self._exists(source):
            raise exceptions.VolumeFileMissing(volume_id=work.volume_id)
        with self._moment(source) as moment:
            self._clone(moment, part)
        self._grow(part, work.size * GIB)

    def _grow(self, name: str, size: int) -> None:
        """Let an image have at least ``size`` bytes. Ceph refuses to shrink it if another host extends it meanwhile."""
        info = self._rbd.info(self._spec(name))
        if info is None or info.size >= size:
            return
        try:
            self._resize(name, size)
        except RbdFailure as error:
            info = self._rbd.info(self._spec(name)) if error.status == errno.EINVAL else None
            if info is None or info.size < size:
                raise

    def _resize(self, name: str, size: int, *options: str) -> None:
        self._rbd.run("resize", _QUIET, "--size", f"{size}B", *options, self._spec(name), timeout=self._long)

    def _write_image(self, image: Image, part: str, size: int) -> None:
        """Make ``part`` a clone of an image, which the pool gets at its first use."""
        base = f"{BASE}{uuid.UUID(image.id)}"
        if not self._exists(base):
            with self._new(base) as unfinished:
                self._import_image(image, unfinished, size)
        info = self._rbd.info(self._spec(base))
        if info is None:
            raise exceptions.VirtDriverError(reason=f"image {image.id} was removed from the pool meanwhile")
        require_fits(image, info.size, size)
        with self._moment(base) as moment:
            self._clone(moment, part)
        self._grow(part, size * GIB)

    def _import_image(self, image: Image, name: str, size: int) -> None:
        with self._scratch() as part, self.fetched(image, part) as (fetched, info):
            require_fits(image, info.virtual_size, size)
            if info.format != "raw":
                disk_images.QemuImg(self.conf).convert(fetched, info, part, self.room_kept(part))
                fetched = part
            self._import(fetched, name)

    def delete(self, volume_id: str) -> None:
        for name in (_volume(volume_id), OLD + _volume(volume_id)):
            self._delete(name)

    def extend(self, volume_id: str, size: int) -> None:
        self.require(volume_id)
        self._grow(_volume(volume_id), size * GIB)

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
        with self._unfinished(_volume(volume_id)) as part:
            self._write_image(image, part, size)
            self._replace(volume_id, part)

    def _replace(self, volume_id: str, part: str) -> None:
        """Give an image the name of a volume, whose data until now are deleted. `has` completes what is interrupted."""
        name = _volume(volume_id)
        self._wait_until_unused(name)
        self._remove_old(name)
        self._rename(name, OLD + name)
        try:
            if not self._rename(part, name):
                raise exceptions.VirtDriverError(reason=f"another host works on volume {volume_id}")
        except exceptions.VirtDriverError:
            self._rename(OLD + name, name, missing_ok=True)
            raise
        with _logged(f"Image {OLD}{name} was not removed"):
            self._remove_old(name)

    def _remove_old(self, name: str) -> None:
        """Remove the replaced data of a volume. Raises `VirtDriverError` if they may be its data now.

        ``rbd rename`` makes the new name, and removes the other one last. No command removes one name of two.
        """
        old = self._rbd.info(self._spec(OLD + name))
        if old is None:
            return
        current = self._rbd.info(self._spec(name))
        if current is None:
            raise exceptions.VirtDriverError(reason=f"{self._spec(name)} has just been set aside")
        if current.id == old.id:
            raise exceptions.VirtDriverError(
                reason=f"{self._spec(name)} (id {old.id}) also has the name {OLD}{name} after an interrupted rename"
            )
        self._remove(OLD + name)

    # --- snapshots

    def create_snapshot(self, volume_id: str, snapshot_id: str) -> None:
        if self._exists(_snapshot(snapshot_id)):
            return
        self.require(volume_id)
        with self._new(_snapshot(snapshot_id)) as part, self._moment(_volume(volume_id)) as moment:
            self._clone(moment, part)

    def create_snapshots_in_use(self, snapshots: Mapping[str, str], copy: CopyVolumes, hold: HoldVolumes) -> None:
        found = [name for name in snapshots.values() if self._exists(_snapshot(name))]
        if len(found) == len(snapshots):
            return
        for volume_id in snapshots:
            self.require(volume_id)
        # A killed daemon has named these. The new ones are of another moment.
        for name in found:
            self.delete_snapshot(name)
        # The names come last, when all are complete.
        with contextlib.ExitStack() as finish:
            parts = [finish.enter_context(self._new(_snapshot(name))) for name in snapshots.values()]
            with self._moments([_volume(volume_id) for volume_id in snapshots], hold(list(snapshots))) as moments:
                for moment, part in zip(moments, parts, strict=True):
                    self._clone(moment, part)

    def delete_snapshot(self, snapshot_id: str) -> None:
        self._delete(_snapshot(snapshot_id))

    # --- backups

    def create_backup(self, work: VolumeWork) -> None:
        if work.source_snapshot is not None:
            source = _snapshot(work.source_snapshot)
            if not self._exists(source):
                raise exceptions.VolumeFileMissing(volume_id=work.volume_id)
        else:
            self.require(work.volume_id)
            source = _volume(work.volume_id)
        self.back_up(str(work.backup_id), lambda part: self._export(source, part))

    def create_backup_in_use(self, work: VolumeWork, copy: CopyVolumes, hold: HoldVolumes) -> None:
        self.require(work.volume_id)

        def fill(part: str) -> None:
            with self._moments([_volume(work.volume_id)], hold([work.volume_id])) as (moment,):
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
        with (self._new if work.is_new else self._unfinished)(target) as part:
            with as_driver_errors():
                size = check_backup(str(work.data_id), source)
                self._import(source, part)
                # The file ends with the sum, which is not part of the data.
                self._resize(part, size, _SHRINK)
                if self._sum_of(part, size) != recorded_sum(source):
                    raise exceptions.BackupDamaged(
                        backup_id=str(work.data_id), reason="the copy of its data differs from them"
                    )
            self._grow(part, work.size * GIB)
            if not work.is_new:
                self._replace(work.volume_id, part)

    def _sum_of(self, name: str, size: int) -> str:
        """Return the sum of an image's data, as backups have it."""
        with self._rbd.output("export", _QUIET, self._spec(name), "-", timeout=self._long) as stream:
            return content_sum(
                size, ((start, stream.read(min(CHUNK, size - start))) for start in range(0, size, CHUNK))
            )

    # --- leftovers

    def sweep(self) -> None:
        """Remove abandoned files, and start to remove abandoned images (`sweep_pool`), which may take long."""
        for directory in (self.conf.volume.store_path, self.conf.volume.backup_path):
            for path in files.abandoned_parts(os.path.abspath(directory), PART, OLD_SECONDS):
                remove_part(path)
        threading.Thread(target=self.sweep_pool, name="rbd-sweep", daemon=True).start()

    def sweep_pool(self) -> None:
        """Remove abandoned images of any host, and images of the image service that no volume is a clone of.

        Hosts share the pool, so a newer image may be in use. A host that does not reach Ceph says so.
        """
        try:
            names = self._rbd.images(self._pool)
            with _logged("Old RBD snapshots were not removed"):
                for name in self._rbd.with_snapshots(self._pool, UNFINISHED, self._long):
                    if name.startswith((VOLUME, SNAPSHOT, BASE, OLD)):
                        self._drop_old(name)
            for name in names:
                if name.startswith((UNFINISHED, OLD, BASE)):
                    self._sweep(name)
            for trashed in self._rbd.trash(self._pool, self._long):
                if trashed.name.startswith((VOLUME, SNAPSHOT, BASE, OLD, UNFINISHED)):
                    self._sweep_trashed(trashed)
        except exceptions.VirtDriverError as error:
            LOG.error("[volume] rbd_pool %s cannot be used by this host: %s", self._pool, error.kwargs["reason"])

    def _sweep_trashed(self, trashed: Trashed) -> None:
        """Delete an image from the trash, unless a mirror or a migration has put it there."""
        found = Parent(pool=self._pool, id=trashed.id, trash=True)
        if trashed.source in _DELETED or (not trashed.source and self._by_id(found) is None):
            self._purge(found)

    def _sweep(self, name: str) -> None:
        info = self._rbd.info(self._spec(name))
        if info is None or info.age() < OLD_SECONDS:
            return
        if name.startswith(BASE):
            with _but(errno.ENOTEMPTY, errno.EBUSY, errno.ENOENT):
                self._rbd.run("rm", _QUIET, self._spec(name), timeout=self._long)
            return
        if name.startswith(OLD):
            volume = name.removeprefix(OLD)
            if self._exists(volume) or not self._rename(name, volume, missing_ok=True):
                with _logged(f"Image {name} was not removed"):
                    self._remove_old(volume)
            return
        self._remove_unfinished(name)

    # --- images of the pool

    @contextlib.contextmanager
    def _new(self, target: str) -> Iterator[str]:
        """Yield the name of an image to make. It gets the name ``target`` at the end, unless that exists."""
        with self._unfinished(target) as part:
            yield part
            self._rename(part, target)

    @contextlib.contextmanager
    def _unfinished(self, target: str) -> Iterator[str]:
        """Yield the name of an image to make. If it has no other name at the end, it is removed."""
        part = f"{UNFINISHED}{target}-{uuid.uuid4().hex[:8]}"
        try:
            yield part
        finally:
            with _logged(f"Image {part} was not removed"):
                self._remove_unfinished(part)

    def _remove_unfinished(self, part: str) -> None:
        """Remove an incomplete image. A rename that was interrupted may have left both names: then it stays."""
        info = self._rbd.info(self._spec(part))
        if info is None:
            return
        target = self._rbd.info(self._spec(part.removeprefix(UNFINISHED).rpartition("-")[0]))
        if target is None or target.id != info.id:
            self._remove(part)

    @contextlib.contextmanager
    def _moment(self, name: str) -> Iterator[str]:
        """Yield a snapshot of an image, as `_moments` does."""
        with self._moments([name], contextlib.nullcontext()) as (moment,):
            yield moment

    @contextlib.contextmanager
    def _moments(self, names: Sequence[str], hold: contextlib.AbstractContextManager[None]) -> Iterator[list[str]]:
        """Yield a snapshot of each image, taken in the context ``hold``. They exist inside the context; clones stay.

        All are taken at once, since a guest waits meanwhile.
        """
        moments = [f"{name}@{UNFINISHED}{uuid.uuid4().hex[:8]}" for name in names]
        try:
            with hold, concurrent.futures.ThreadPoolExecutor(len(moments), thread_name_prefix="rbd-snapshot") as pool:
                list(pool.map(self._take, moments))
            yield moments
        finally:
            for moment in moments:
                with _logged(f"RBD snapshot {moment} was not removed"):
                    self._drop(moment)

    def _take(self, moment: str) -> None:
        self._rbd.run("snap create", _QUIET, self._spec(moment), timeout=HOLD_SECONDS)

    def _drop(self, moment: str) -> None:
        """Remove an RBD snapshot, and what killed daemons have left there a day ago."""
        with _but(errno.ENOENT):
            self._rbd.run("snap rm", _QUIET, self._spec(moment))
        self._drop_old(moment.partition("@")[0])

    def _drop_old(self, name: str) -> None:
        """Remove the RBD snapshots of an image that killed daemons have left a day ago."""
        for found in self._rbd.snapshots(self._spec(name)):
            if found.name.startswith(UNFINISHED) and moment_of(found.timestamp) < time.time() - OLD_SECONDS:
                with _but(errno.ENOENT):
                    self._rbd.run("snap rm", _QUIET, self._spec(f"{name}@{found.name}"))

    def _clone(self, moment: str, name: str) -> None:
        self._rbd.run("clone", "--rbd-default-clone-format", "2", *_FEATURES, self._spec(moment), self._spec(name))
        if len(list(self._parents(name))) > MAX_PARENTS:
            self._rbd.run("flatten", _QUIET, self._spec(name), timeout=self._long)

    def _parents(self, name: str) -> Iterator[Parent]:
        info = self._rbd.info(self._spec(name))
        while info is not None and info.parent is not None:
            yield info.parent
            info = self._by_id(info.parent)

    def _by_id(self, parent: Parent) -> ImageInfo | None:
        return self._rbd.info("--pool", parent.pool, "--image-id", parent.id)

    def _rename(self, name: str, target: str, missing_ok: bool = False) -> bool:
        """Rename an image. Return False if the ``target`` exists, or perhaps if the image does not."""
        try:
            self._rbd.run("rename", self._spec(name), self._spec(target))
        except RbdFailure as error:
            if error.status == errno.EEXIST or (missing_ok and error.status == errno.ENOENT):
                return False
            raise
        return True

    def _delete(self, name: str) -> None:
        """Delete an image, if it exists, as `_remove` does. Complete a deletion that was interrupted."""
        if self._exists(name):
            self._remove(name)
            return
        # Ceph has the image in its trash then, and a killed program may have it open for a while.
        deadline = time.monotonic() + self._timing.rbd_watch_wait
        while True:
            try:
                with _but(errno.ENOENT):
                    self._rbd.run("rm", _QUIET, self._spec(name), timeout=self._long)
                return
            except RbdFailure as error:
                if error.status != errno.EBUSY or time.monotonic() >= deadline:
                    raise
            time.sleep(self._timing.rbd_watch_poll)

    def _remove(self, name: str) -> None:
        """Delete an image, if it exists. With clones it is emptied, and stays in the trash until they are deleted."""
        info = self._rbd.info(self._spec(name))
        if info is None:
            return
        self._wait_until_unused(name)
        with _but(errno.ENOENT):
            self._rbd.run("snap purge", _QUIET, self._spec(name), timeout=self._long)
            try:
                self._rbd.run("rm", _QUIET, self._spec(name), timeout=self._long)
            except RbdFailure as error:
                if error.status != errno.ENOTEMPTY:
                    raise
                self._resize(name, TRASHED_SIZE, _SHRINK)
                self._rbd.run("trash mv", self._spec(name))
                return
        self._purge(info.parent)

    def _purge(self, parent: Parent | None) -> None:
        """Delete an image in the trash that has no clones any more, and then its parents in the trash."""
        while parent is not None and parent.trash and parent.pool == self._pool:
            info = self._by_id(parent)
            try:
                self._rbd.run("trash rm", _QUIET, self._spec(parent.id), timeout=self._long)
            except RbdFailure as error:
                if error.status not in (errno.ENOTEMPTY, errno.ENOENT):
                    LOG.warning("Image %s stays in the trash: %s", parent.id, error.kwargs["reason"])
                return
            parent = None if info is None else info.parent

    def _wait_until_unused(self, name: str) -> None:
        """Wait until no program has the image open. Raises `VirtDriverError` if one keeps it."""
        deadline = time.monotonic() + self._timing.rbd_watch_wait
        while watchers := self._rbd.watchers(self._spec(name)):
            if time.monotonic() >= deadline:
                raise exceptions.VirtDriverError(reason=f"{self._spec(name)} is in use by {', '.join(watchers)}")
            time.sleep(self._timing.rbd_watch_poll)

    # --- data

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[str]:
        """Yield the path of a file for data on their way."""
        store = os.path.abspath(self.conf.volume.store_path)
        with as_driver_errors():
            self.prepare_directory(store)
            with self.part(os.path.join(store, "scratch")) as part:
                yield part

    def _import(self, path: str, name: str) -> None:
        self._rbd.run("import", _QUIET, *_FEATURES, path, self._spec(name), timeout=self._long)

    def _export(self, name: str, path: str) -> None:
        """Write the data of an image, or of a snapshot, into the existing file ``path``, without blocks of zeros."""
        exported = f"{path}.exported"
        try:
            check = self.room_kept(path)
            check()
            self._rbd.run("export", _QUIET, self._spec(name), exported, timeout=self._long, check=check)
            os.rename(exported, path)
        finally:
            files.remove(exported)


def _volume(volume_id: str) -> str:
    return f"{VOLUME}{uuid.UUID(volume_id)}"


def _snapshot(snapshot_id: str) -> str:
    return f"{SNAPSHOT}{uuid.UUID(snapshot_id)}"


@contextlib.contextmanager
def _but(*accepted: int) -> Iterator[None]:
    """Ignore a failure of ``rbd`` with one of these statuses."""
    try:
        yield
    except RbdFailure as error:
        if error.status not in accepted:
            raise


@contextlib.contextmanager
def _logged(text: str) -> Iterator[None]:
    """Log a failure. It is harmless, or another one is on its way."""
    try:
        yield
    except exceptions.VirtDriverError as error:
        LOG.warning("%s: %s", text, error.kwargs["reason"])

"""Images in a pool of Ceph: volumes and their snapshots, disks of servers, and images of the image service.

::

    volume-<volume id>
    snapshot-<snapshot id>       a clone of its volume
    server-<uuid>-…              a disk of a server (`nova_lite.virt.libvirt.disks.pool_disks`)
    image-<image id>             an image of the image service, which volumes and servers' disks are clones of
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
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.timing import TIMING, ClientTiming
from nova_lite.objects import NetworkDisk
from nova_lite.virt.rbd import FEATURES, PROTOCOL, ImageInfo, Parent, Rbd, RbdFailure, Trashed, moment_of

LOG = logging.getLogger(__name__)

#: Beginnings of names.
VOLUME, SNAPSHOT, SERVER, BASE, OLD, UNFINISHED = "volume-", "snapshot-", "server-", "image-", "old-", "part-"
#: Beginning of the names of encrypted volumes and their snapshots, before `VOLUME` and `SNAPSHOT`.
LUKS = "luks-"
_OURS = (VOLUME, SNAPSHOT, LUKS, SERVER, BASE, OLD)

#: Age in seconds at which an incomplete image is abandoned, and an unused image of the image service is removed.
OLD_SECONDS = 86400.0

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
SHRINK = "--allow-shrink"


def open_pool(conf: cfg.ConfigOpts, name: str, timing: ClientTiming = TIMING.clients) -> RbdPool:
    """Return a pool of the Ceph that ``[volume]`` names."""
    return RbdPool(name, Rbd(conf.volume.rbd_ceph_conf, conf.volume.rbd_user or None), timing)


def network_disk(conf: cfg.ConfigOpts, spec: str) -> NetworkDisk:
    """Return an image of the Ceph that ``[volume]`` names, as libvirt opens it. ``spec``: pool and name."""
    secret = conf.volume.rbd_secret_uuid or None
    return NetworkDisk(
        protocol=PROTOCOL,
        name=spec,
        config=conf.volume.rbd_ceph_conf,
        user=(conf.volume.rbd_user or None) if secret else None,
        secret=secret,
    )


class RbdPool:
    """Images of the pool ``name``."""

    def __init__(self, name: str, rbd: Rbd, timing: ClientTiming) -> None:
        self.name = name
        self.rbd = rbd
        self.timing = timing
        self._long = TIMING.volumes.task

    # --- names

    def spec(self, name: str) -> str:
        return f"{self.name}/{name}"

    def exists(self, name: str) -> bool:
        return self.rbd.info(self.spec(name)) is not None

    def room(self) -> tuple[int, int]:
        """Return the bytes that the pool can have, and the free bytes: what Ceph can store, copies deducted."""
        found = self.rbd.stats(self.name)
        return found.stored + found.max_avail, found.max_avail

    # --- make

    def create(self, name: str, gigabytes: int) -> None:
        self.rbd.run("create", "--size", f"{gigabytes}G", *_FEATURES, self.spec(name))

    @contextlib.contextmanager
    def new(self, target: str) -> Iterator[str]:
        """Yield the name of an image to make. It gets the name ``target`` at the end, unless that exists."""
        with self.unfinished(target) as part:
            yield part
            self.rename(part, target)

    @contextlib.contextmanager
    def unfinished(self, target: str) -> Iterator[str]:
        """Yield the name of an image to make. If it has no other name at the end, it is removed."""
        part = f"{UNFINISHED}{target}-{uuid.uuid4().hex[:8]}"
        try:
            yield part
        finally:
            with _logged(f"Image {part} was not removed"):
                self._remove_unfinished(part)

    def _remove_unfinished(self, part: str) -> None:
        """Remove an incomplete image. A rename that was interrupted may have left both names: then it stays."""
        info = self.rbd.info(self.spec(part))
        if info is None:
            return
        target = self.rbd.info(self.spec(part.removeprefix(UNFINISHED).rpartition("-")[0]))
        if target is None or target.id != info.id:
            self._remove(part)

    def clone(self, moment: str, name: str) -> None:
        self.rbd.run("clone", "--rbd-default-clone-format", "2", *_FEATURES, self.spec(moment), self.spec(name))
        if len(list(self._parents(name))) > MAX_PARENTS:
            self.rbd.run("flatten", _QUIET, self.spec(name), timeout=self._long)

    def _parents(self, name: str) -> Iterator[Parent]:
        info = self.rbd.info(self.spec(name))
        while info is not None and info.parent is not None:
            yield info.parent
            info = self._by_id(info.parent)

    def _by_id(self, parent: Parent) -> ImageInfo | None:
        return self.rbd.info("--pool", parent.pool, "--image-id", parent.id)

    def import_file(self, path: str, name: str) -> None:
        self.rbd.run("import", _QUIET, *_FEATURES, path, self.spec(name), timeout=self._long)

    def export(self, name: str, path: str, check: Callable[[], None]) -> None:
        """Write the data of an image, or of a snapshot, into a new file. ``check`` may end it by an error."""
        self.rbd.run("export", _QUIET, self.spec(name), path, timeout=self._long, check=check)

    def output(self, name: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        """Open the data of an image as a stream."""
        return self.rbd.output("export", _QUIET, self.spec(name), "-", timeout=self._long)

    def grow(self, name: str, size: int) -> None:
        """Let an image have at least ``size`` bytes. Ceph refuses to shrink it if another host extends it meanwhile."""
        info = self.rbd.info(self.spec(name))
        if info is None or info.size >= size:
            return
        try:
            self.resize(name, size)
        except RbdFailure as error:
            info = self.rbd.info(self.spec(name)) if error.status == errno.EINVAL else None
            if info is None or info.size < size:
                raise

    def resize(self, name: str, size: int, *options: str) -> None:
        self.rbd.run("resize", _QUIET, "--size", f"{size}B", *options, self.spec(name), timeout=self._long)

    # --- images of the image service

    def require_base(self, image_id: str, fill: Callable[[str], None]) -> tuple[str, ImageInfo]:
        """Return the name and the properties of an image, which ``fill`` makes at the pool's first use of it."""
        base = f"{BASE}{uuid.UUID(image_id)}"
        if not self.exists(base):
            with self.new(base) as unfinished:
                fill(unfinished)
        info = self.rbd.info(self.spec(base))
        if info is None:
            raise exceptions.VirtDriverError(reason=f"image {image_id} was removed from the pool meanwhile")
        return base, info

    def clone_now(self, source: str, name: str) -> None:
        """Make a clone of an image as it is now."""
        with self.moment(source) as moment:
            self.clone(moment, name)

    # --- moments

    @contextlib.contextmanager
    def moment(self, name: str) -> Iterator[str]:
        """Yield a snapshot of an image, as `_moments` does."""
        with self.moments([name], contextlib.nullcontext()) as (moment,):
            yield moment

    @contextlib.contextmanager
    def moments(self, names: Sequence[str], hold: contextlib.AbstractContextManager[None]) -> Iterator[list[str]]:
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
        self.rbd.run("snap create", _QUIET, self.spec(moment), timeout=HOLD_SECONDS)

    def _drop(self, moment: str) -> None:
        """Remove an RBD snapshot, and what killed daemons have left there a day ago."""
        with _but(errno.ENOENT):
            self.rbd.run("snap rm", _QUIET, self.spec(moment))
        self._drop_old(moment.partition("@")[0])

    def _drop_old(self, name: str) -> None:
        """Remove the RBD snapshots of an image that killed daemons have left a day ago."""
        for found in self.rbd.snapshots(self.spec(name)):
            if found.name.startswith(UNFINISHED) and moment_of(found.timestamp) < time.time() - OLD_SECONDS:
                with _but(errno.ENOENT):
                    self.rbd.run("snap rm", _QUIET, self.spec(f"{name}@{found.name}"))

    # --- rename and delete

    def rename(self, name: str, target: str, missing_ok: bool = False) -> bool:
        """Rename an image. Return False if the ``target`` exists, or perhaps if the image does not."""
        try:
            self.rbd.run("rename", self.spec(name), self.spec(target))
        except RbdFailure as error:
            if error.status == errno.EEXIST or (missing_ok and error.status == errno.ENOENT):
                return False
            raise
        return True

    def replace(self, name: str, part: str) -> None:
        """Give an image the name of a volume, whose data until now are deleted.

        `RbdVolumes.has` completes a replacement that was interrupted.
        """
        self.wait_until_unused(name)
        self._remove_old(name)
        self.rename(name, OLD + name)
        try:
            if not self.rename(part, name):
                raise exceptions.VirtDriverError(reason=f"another host works on volume {name.removeprefix(VOLUME)}")
        except exceptions.VirtDriverError:
            self.rename(OLD + name, name, missing_ok=True)
            raise
        with _logged(f"Image {OLD}{name} was not removed"):
            self._remove_old(name)

    def _remove_old(self, name: str) -> None:
        """Remove the replaced data of a volume. Raises `VirtDriverError` if they may be its data now.

        ``rbd rename`` makes the new name, and removes the other one last. No command removes one name of two.
        """
        old = self.rbd.info(self.spec(OLD + name))
        if old is None:
            return
        current = self.rbd.info(self.spec(name))
        if current is None:
            raise exceptions.VirtDriverError(reason=f"{self.spec(name)} has just been set aside")
        if current.id == old.id:
            raise exceptions.VirtDriverError(
                reason=f"{self.spec(name)} (id {old.id}) also has the name {OLD}{name} after an interrupted rename"
            )
        self._remove(OLD + name)

    def delete(self, name: str) -> None:
        """Delete an image, if it exists, as `_remove` does. Complete a deletion that was interrupted."""
        if self.exists(name):
            self._remove(name)
            return
        # Ceph has the image in its trash then, and a killed program may have it open for a while.
        deadline = time.monotonic() + self.timing.rbd_watch_wait
        while True:
            try:
                with _but(errno.ENOENT):
                    self.rbd.run("rm", _QUIET, self.spec(name), timeout=self._long)
                return
            except RbdFailure as error:
                if error.status != errno.EBUSY or time.monotonic() >= deadline:
                    raise
            time.sleep(self.timing.rbd_watch_poll)

    def _remove(self, name: str) -> None:
        """Delete an image, if it exists. With clones it is emptied, and stays in the trash until they are deleted."""
        info = self.rbd.info(self.spec(name))
        if info is None:
            return
        self.wait_until_unused(name)
        with _but(errno.ENOENT):
            self.rbd.run("snap purge", _QUIET, self.spec(name), timeout=self._long)
            try:
                self.rbd.run("rm", _QUIET, self.spec(name), timeout=self._long)
            except RbdFailure as error:
                if error.status != errno.ENOTEMPTY:
                    raise
                self.resize(name, TRASHED_SIZE, SHRINK)
                self.rbd.run("trash mv", self.spec(name))
                return
        self._purge(info.parent)

    def _purge(self, parent: Parent | None) -> None:
        """Delete an image in the trash that has no clones any more, and then its parents in the trash."""
        while parent is not None and parent.trash and parent.pool == self.name:
            info = self._by_id(parent)
            try:
                self.rbd.run("trash rm", _QUIET, self.spec(parent.id), timeout=self._long)
            except RbdFailure as error:
                if error.status not in (errno.ENOTEMPTY, errno.ENOENT):
                    LOG.warning("Image %s stays in the trash: %s", parent.id, error.kwargs["reason"])
                return
            parent = None if info is None else info.parent

    def wait_until_unused(self, name: str) -> None:
        """Wait until no program has the image open. Raises `VirtDriverError` if one keeps it."""
        deadline = time.monotonic() + self.timing.rbd_watch_wait
        while watchers := self.rbd.watchers(self.spec(name)):
            if time.monotonic() >= deadline:
                raise exceptions.VirtDriverError(reason=f"{self.spec(name)} is in use by {', '.join(watchers)}")
            time.sleep(self.timing.rbd_watch_poll)

    # --- leftovers

    def sweep(self) -> None:
        """Remove abandoned images of any host, and images of the image service without clones.

        Hosts share the pool, so a newer image may be in use. A host that does not reach Ceph says so.
        """
        try:
            names = self.rbd.images(self.name)
            with _logged("Old RBD snapshots were not removed"):
                for name in self.rbd.with_snapshots(self.name, UNFINISHED, self._long):
                    if name.startswith(_OURS):
                        self._drop_old(name)
            for name in names:
                if name.startswith((UNFINISHED, OLD, BASE)):
                    self._sweep_image(name)
            for trashed in self.rbd.trash(self.name, self._long):
                if trashed.name.startswith((*_OURS, UNFINISHED)):
                    self._sweep_trashed(trashed)
        except exceptions.VirtDriverError as error:
            LOG.error("Pool %s of Ceph cannot be used by this host: %s", self.name, error.kwargs["reason"])

    def _sweep_image(self, name: str) -> None:
        info = self.rbd.info(self.spec(name))
        if info is None or info.age() < OLD_SECONDS:
            return
        if name.startswith(BASE):
            with _but(errno.ENOTEMPTY, errno.EBUSY, errno.ENOENT):
                self.rbd.run("rm", _QUIET, self.spec(name), timeout=self._long)
            return
        if name.startswith(OLD):
            volume = name.removeprefix(OLD)
            if self.exists(volume) or not self.rename(name, volume, missing_ok=True):
                with _logged(f"Image {name} was not removed"):
                    self._remove_old(volume)
            return
        self._remove_unfinished(name)

    def _sweep_trashed(self, trashed: Trashed) -> None:
        """Delete an image from the trash, unless a mirror or a migration has put it there."""
        found = Parent(pool=self.name, id=trashed.id, trash=True)
        if trashed.source in _DELETED or (not trashed.source and self._by_id(found) is None):
            self._purge(found)


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

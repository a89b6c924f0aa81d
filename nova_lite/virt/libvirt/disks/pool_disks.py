"""Disks of servers in a pool of Ceph (``[libvirt] images_type = rbd``).

::

    server-<key>-<disk>    key: ``<instance uuid>-<generation>``; disk: the name that a file would have

The generation in the name says whose a disk is: each build, move and evacuation has its own. A host removes disks of
its own generations only, so a host that returns cannot remove what another one uses. Root disks are clones of their
image, which the pool gets once. A cold move or an evacuation clones the disks of the earlier generation. A live
migration renames them, because the guest has them open at both hosts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable

from oslo_config import cfg

from nova_lite.base import exceptions, files
from nova_lite.objects import Image, PooledDisks
from nova_lite.objects import block_device as devices
from nova_lite.virt import images
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt import records
from nova_lite.virt.libvirt.disks import disks
from nova_lite.virt.libvirt.disks.disks import Disk, DiskMaker, DiskSet
from nova_lite.virt.libvirt.disks.image_cache import ImageCache
from nova_lite.virt.rbd_pool import SERVER, RbdPool, network_disk

LOG = logging.getLogger(__name__)

#: Disks of a rescue system, which no other host gets.
RESCUE = (disks.RESCUE, disks.RESCUE_CONFIG_DRIVE)

_MIB = 1024**2
_NAME = re.compile(rf"{SERVER}(.{{36}})-([0-9]+)-([a-z0-9.]+)")


class PoolDisks(records.PoolRemover):
    """Disks in ``pool``. ``is_used``: new disks are made there."""

    def __init__(self, conf: cfg.ConfigOpts, pool: RbdPool, maker: DiskMaker, cache: ImageCache) -> None:
        self._conf = conf
        self._maker = maker
        self._cache = cache
        self.pool = pool
        self.is_used = conf.libvirt.images_type == "rbd"

    def spec(self, key: str, disk: str) -> str:
        """Return pool and name of a disk's image."""
        return self.pool.spec(_image(key, disk))

    def ids(self, key: str) -> dict[str, str]:
        """Return Ceph's ids of a guest's disks, by their names."""
        return {disk: self._id(_image(key, disk)) for disk in self._found(key)}

    def _id(self, image: str) -> str:
        info = self.pool.rbd.info(self.pool.spec(image))
        return "" if info is None else info.id

    def _found(self, key: str) -> list[str]:
        """Return the names of a guest's disks in the pool."""
        return [disk for found, disk in self._all(key) if found == key]

    def _all(self, key: str) -> list[tuple[str, str]]:
        """Return key and name of all disks in the pool that are of the same server, of any generation."""
        matches = (_NAME.fullmatch(name) for name in sorted(self.pool.rbd.images(self.pool.name)))
        uuid = records.parts_of(key)[0]
        return [(records.key_of(match[1], int(match[2])), match[3]) for match in matches if match and match[1] == uuid]

    # --- make

    def make(self, key: str, directory: str, spec: SpawnSpec) -> DiskSet:
        """Make all disks of the flavor, as `DiskMaker.make` does."""
        _require_plain(spec)
        flavor, requested = spec.instance.flavor, spec.instance.block_devices
        if devices.root_volume(requested) is None:
            assert spec.image is not None
            self._clone_image(_image(key, disks.ROOT), spec.image, _root_size(spec.image, flavor.root_gb))
        return self.adopt(key, directory, spec)

    def adopt(self, key: str, directory: str, spec: SpawnSpec) -> DiskSet:
        """Return the disks, after they have grown to the flavor. Make missing ones, except a root disk."""
        disks.require_root(spec)
        _require_plain(spec)
        flavor, requested = spec.instance.flavor, spec.instance.block_devices
        names, here, found = disks.local_names(requested), self._found(key), []
        if devices.root_volume(requested) is None:
            assert spec.image is not None
            self._grow_root(_image(key, disks.ROOT), _root_size(spec.image, flavor.root_gb))
            found.append(self._disk(key, disks.ROOT, next(names)))
        wanted = disks.ephemerals(flavor, requested)
        if swap := devices.swap_mb(flavor, requested) * _MIB:
            wanted.append((disks.SWAP, swap, disks.SWAP_AREA))
        for name, size, command in wanted:
            self._make_formatted(key, directory, name, size, command, name in here)
            found.append(self._disk(key, name, next(names)))
        if disks.CONFIG_DRIVE in here or self._maker.config_drives.is_wanted(spec):
            if disks.CONFIG_DRIVE not in here:
                self.make_config_drive(key, directory, spec)
            found.append(self._disk(key, disks.CONFIG_DRIVE, next(names), read_only=True))
        kept = [name for name, _, _ in wanted]
        self._remove(key, [name for name in here if name in (*disks.EPHEMERALS, disks.SWAP) and name not in kept])
        return DiskSet(
            disks=[*found, *self._maker.volumes(spec)],
            direct_boot=self._maker.direct_boot(spec.image, spec.images),
        )

    def make_rescue(self, key: str, directory: str, spec: SpawnSpec) -> DiskSet:
        """Make the disks of a rescue system, as `DiskMaker.make_rescue` does."""
        assert spec.image is not None
        here = self._found(key)
        self._remove(key, RESCUE)
        self._clone_image(_image(key, disks.RESCUE), spec.image, 0)
        found = [self._disk(key, disks.RESCUE, "vda")]
        if disks.CONFIG_DRIVE in here:
            self.make_config_drive(key, directory, spec, disks.RESCUE_CONFIG_DRIVE)
            found.append(self._disk(key, disks.RESCUE_CONFIG_DRIVE, "", read_only=True))
        return DiskSet(disks=found, direct_boot=self._maker.direct_boot(spec.image, spec.images))

    def make_config_drive(self, key: str, directory: str, spec: SpawnSpec, name: str = disks.CONFIG_DRIVE) -> None:
        """Make the config drive, in place of an earlier one."""
        path = os.path.join(directory, name)
        try:
            self._maker.config_drives.make(path, spec)
            self._remove(key, [name])
            self._import(path, _image(key, name))
        finally:
            files.remove(path)

    def _disk(self, key: str, name: str, device: str, read_only: bool = False) -> Disk:
        where = network_disk(self._conf, self.spec(key, name))
        return Disk(path=name, device=device, format="raw", read_only=read_only, direct=True, network=where)

    def _clone_image(self, image_name: str, image: Image, size: int) -> None:
        """Make a clone of an image, of at least ``size`` bytes. The pool gets the image at its first use."""

        def fill(part: str) -> None:
            self.pool.import_file(self._cache.raw(image).path, part)

        base, info = self.pool.require_base(image.id, fill)
        images.check_fits(info.size, size // images.GIB)
        with self.pool.new(image_name) as part:
            self.pool.clone_now(base, part)
            self.pool.grow(part, size)

    def _grow_root(self, name: str, size: int) -> None:
        info = self.pool.rbd.info(self.pool.spec(name))
        if info is None:
            raise exceptions.VirtDriverError(reason=f"its root disk {self.pool.spec(name)} is missing")
        images.check_fits(info.size, size // images.GIB)
        self.pool.grow(name, size)

    def _make_formatted(
        self, key: str, directory: str, name: str, size: int, command: tuple[str, ...], exists: bool
    ) -> None:
        image = _image(key, name)
        if exists and name != disks.SWAP:
            self.pool.grow(image, size)
            return
        if exists:
            info = self.pool.rbd.info(self.pool.spec(image))
            if info is not None and info.size == size:
                return
            self._remove(key, [name])
        try:
            disks.make_formatted(directory, name, size, "", command)
            self._import(os.path.join(directory, name), image)
        finally:
            files.remove(os.path.join(directory, name))

    def _import(self, path: str, image: str) -> None:
        with self.pool.new(image) as part:
            self.pool.import_file(path, part)

    # --- move

    def offer(self, key: str) -> PooledDisks:
        """Return a guest's disks, as the destination of a move finds them."""
        return PooledDisks(key=key, images=self.ids(key))

    def require_same(self, offered: PooledDisks, instance_uuid: str) -> None:
        """Raise `VirtDriverError` unless this host's pool has the disks that another one offers for a server."""
        if records.parts_of(offered.key)[0] != instance_uuid:
            raise exceptions.VirtDriverError(reason=f"{offered.key} is not the name of its disks")
        if self.ids(offered.key) != offered.images:
            raise exceptions.VirtDriverError(reason=f"pool {self.pool.name} of this host does not have its disks")

    def clone(self, old: str, key: str) -> None:
        """Make clones of all disks of an earlier generation, once no program has them open."""
        here = self._found(key)
        for disk in self._found(old):
            if disk not in (*here, *RESCUE):
                self.pool.wait_until_unused(_image(old, disk))
                with self.pool.new(_image(key, disk)) as part:
                    self.pool.clone_now(_image(old, disk), part)

    def rename(self, old: str, key: str) -> None:
        """Give all disks of one generation to another one. A guest that has them open keeps them."""
        for disk in self._found(old):
            if not self.pool.rename(_image(old, disk), _image(key, disk), missing_ok=True):
                LOG.warning("%s exists, so %s keeps its name", _image(key, disk), _image(old, disk))

    def has_any(self, key: str) -> bool:
        return bool(self._found(key))

    # --- remove

    def remove(self, key: str) -> None:
        self._remove(key, self._found(key))

    def remove_rescue(self, key: str) -> None:
        self._remove(key, RESCUE)

    def remove_until(self, key: str) -> None:
        number = records.parts_of(key)[1]
        for old in {found for found, _ in self._all(key) if records.parts_of(found)[1] <= number}:
            self.remove(old)

    def give_back(self, key: str, old: str) -> None:
        self.rename(key, old)
        self.remove(key)

    def _remove(self, key: str, names: Iterable[str]) -> None:
        """Remove disks. One with two names after an interrupted rename stays, as it may be another host's."""
        others = [_image(found, disk) for found, disk in self._all(key) if found != key]
        for name in names:
            image = _image(key, name)
            same = [other for other in others if other.endswith(f"-{name}") and self._id(other) == self._id(image)]
            if same:
                LOG.warning("%s stays, because it is also %s after an interrupted rename", image, same[0])
            else:
                self.pool.delete(image)

    def sweep(self) -> None:
        """Start to remove unused images, and abandoned ones of any host (`RbdPool.sweep`), which may take long."""
        if self.is_used:
            threading.Thread(target=self.pool.sweep, name="rbd-sweep", daemon=True).start()

    # --- read

    def export(
        self,
        key: str,
        path: str,
        hold: contextlib.AbstractContextManager[None],
        check: Callable[[], None],
    ) -> None:
        """Write the root disk, as it is at one moment in the context ``hold``, into the new raw file ``path``."""
        files.remove(path)
        with self.pool.moments([_image(key, disks.ROOT)], hold) as (moment,):
            self.pool.export(moment, path, check)


def _image(key: str, disk: str) -> str:
    return f"{SERVER}{key}-{disk}"


def _root_size(image: Image, root_gb: int) -> int:
    """Return the size of the root disk in bytes. 0: that of the image, as that of a CD."""
    return 0 if image.disk_format == disks.ISO else root_gb * images.GIB


def _require_plain(spec: SpawnSpec) -> None:
    if disks.encrypts(spec):
        raise exceptions.NotImplementedByDriver(operation="encrypted disks in Ceph")

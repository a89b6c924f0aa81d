"""Disks of a guest that came from another host: adapted to this host and to the new flavor."""

from __future__ import annotations

import logging
import os
from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, files
from nova_lite.base.timing import TIMING, LibvirtTiming
from nova_lite.image import qcow2
from nova_lite.objects import Image, LiveSource
from nova_lite.objects import block_device as devices
from nova_lite.virt import images
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt import records
from nova_lite.virt.libvirt.disks import disks, encrypted_disks, layers, transfer, volume_chains
from nova_lite.virt.libvirt.disks.disks import Disk, DiskMaker, DiskSet
from nova_lite.virt.libvirt.disks.image_cache import CachedImage, ImageCache
from nova_lite.virt.libvirt.disks.pool_disks import PoolDisks
from nova_lite.virt.libvirt.disks.transfer import Fetcher
from nova_lite.virt.libvirt.domain import guest_xml, live_migration

LOG = logging.getLogger(__name__)

#: The source's cached image, while it is merged into the disk.
BASE = "disk.base"

_MIB = 1024**2


class MovedDisks:
    def __init__(
        self,
        conf: cfg.ConfigOpts,
        maker: DiskMaker,
        cache: ImageCache,
        qemu_img: images.QemuImg,
        pool: PoolDisks,
        timing: LibvirtTiming = TIMING.libvirt,
    ) -> None:
        self._conf = conf
        self._pool = pool
        self._timing = timing
        self._maker = maker
        self._cache = cache
        self._qemu_img = qemu_img

    def adopt(self, directory: str, spec: SpawnSpec, fetcher: Fetcher | None, is_taken: bool = False) -> DiskSet:
        """Adapt the disks in the directory, and return them. No disk is ever shrunk.

        The root disk is rebased on this host's image and grown to the flavor; ephemeral disks are grown; swap is made
        again if its size changed. Without ``fetcher`` the disks were made on this host, and their images are here.
        ``is_taken``: another host has made them in this directory.
        """
        if (key := records.pooled_in(directory)) is not None:
            return self._pool.adopt(key, directory, spec)
        disks.require_root(spec)
        flavor, requested = spec.instance.flavor, spec.instance.block_devices
        names = disks.local_names(requested)
        found = []
        if devices.root_volume(requested) is None:
            assert spec.image is not None
            if is_taken:
                self._rebase_taken(directory, spec.image)
            found.append(self._root(directory, spec, spec.image, next(names), fetcher))
        ephemerals = disks.ephemerals(flavor, requested)
        for name, size, kind in ephemerals:
            found.append(self._ephemeral(directory, spec, name, size, next(names), kind))
        swap = devices.swap_mb(flavor, requested)
        if swap:
            found.append(self._swap(directory, spec, swap * _MIB, next(names)))
        path = os.path.join(directory, disks.CONFIG_DRIVE)
        if os.path.exists(path) or self._maker.config_drives.is_wanted(spec):
            if not os.path.exists(path):
                self._maker.config_drives.make(path, spec)
            found.append(Disk(path=path, device=next(names), format="raw", read_only=True))
        for name in {*disks.EPHEMERALS, disks.SWAP} - {name for name, _, _ in ephemerals}:
            if name != disks.SWAP or not swap:
                files.remove(os.path.join(directory, name))
        return DiskSet(
            disks=[*found, *self._maker.volumes(spec)], direct_boot=self._maker.direct_boot(spec.image, spec.images)
        )

    def make_ready(self, directory: str, spec: SpawnSpec, source: LiveSource) -> tuple[dict[str, str], bool]:
        """Prepare files for an incoming running guest: empty disks of its sizes.

        Returns the path of each by its name, and whether the migration has to copy the content of the root disk's
        image, too.
        """
        disks.require_root(spec)
        missing = sorted(
            volume_id
            for volume_id, source in spec.volumes.items()
            if (path := disks.local_path(source)) and not os.path.exists(path)
        )
        if missing:
            raise exceptions.MigrationPreCheckError(reason=f"volumes {', '.join(missing)} are not available there")
        self._maker.check_volumes(spec.volumes)
        paths: dict[str, str] = {}
        whole = False
        for name, size in source.disks.items():
            if name not in transfer.TRAVELLING:
                raise exceptions.VirtDriverError(reason=f"{name!r} is not a file of an instance")
            paths[name] = os.path.join(directory, name)
            if name == disks.ROOT:
                assert spec.image is not None
                whole = not self._begin_root(paths[name], spec.image, size, source.has_layers)
            elif disks.encrypts(spec):
                self._maker.make_encrypted(spec, paths[name], size)
            else:
                with open(paths[name], "wb", opener=files.private_opener) as file:
                    file.truncate(size)
        if source.files is not None:
            fetcher = transfer.Fetcher(self._conf, source.files, spec.instance.uuid, directory, self._timing)
            fetcher.fetch()
            names = [file.name for file in source.files.files if file.name != transfer.MARKER]
            if disks.ROOT in names:
                assert spec.image is not None
                self._set_base(directory, os.path.join(directory, disks.ROOT), spec.image, fetcher)
            paths |= {name: os.path.join(directory, name) for name in names}
        direct = self._maker.direct_boot(spec.image, spec.images)
        if direct is not None:
            paths[live_migration.KERNEL] = direct.kernel
            if direct.ramdisk:
                paths[live_migration.RAMDISK] = direct.ramdisk
        for name in (guest_xml.CONSOLE_LOG, disks.NVRAM):
            paths[name] = os.path.join(directory, name)
        return paths, whole

    def _begin_root(self, path: str, image: Image, size: int, has_layers: bool) -> bool:
        """Make the root disk, based on its image if that is available, else empty. Return whether it has its image.

        A disk that has layers is migrated whole, so that it needs none here.
        """
        base = None
        try:
            base = None if has_layers else self._cache.get(image)
        except exceptions.NovaLiteException as error:
            LOG.warning("Image %s is not available, so the whole disk is migrated: %s", image.id, error.message)
        if base is None:
            images.run("qemu-img", "create", "-q", "-f", "qcow2", path, str(size))
        else:
            self._qemu_img.create_overlay(path, base.path, base.format, size)
        os.chmod(path, 0o600)
        return base is not None

    def _root(self, directory: str, spec: SpawnSpec, image: Image, device: str, fetcher: Fetcher | None) -> Disk:
        path, kind = disks.root_file(directory)
        root_gb = spec.instance.flavor.root_gb
        if kind == disks.LUKS:
            images.check_fits(encrypted_disks.data_size(path), root_gb)
            encrypted_disks.grow(path, root_gb * images.GIB)
            return disks.encrypted_disk(spec, path, device)
        if kind == "raw":
            return _raw_root(path, image, root_gb, device)
        header = qcow2.read(path) if fetcher is None else None
        if header is None:
            header = _header(self._qemu_img, path)
        if header.backing and fetcher is not None:
            self._set_base(directory, path, image, fetcher)
        size = 0 if image.disk_format == disks.ISO else root_gb * images.GIB
        if fetcher is not None or size > header.size:
            # qemu-img does not resize a disk whose bitmaps a killed guest has left. A whole backup follows.
            self._qemu_img.remove_bitmaps(path)
        if size > header.size:
            images.run("qemu-img", "resize", "-q", "-f", "qcow2", path, str(size))
        elif size:
            images.check_fits(header.size, root_gb)
        return Disk(path=path, device=device, format="qcow2", below=self.below(path))

    def _ephemeral(
        self, directory: str, spec: SpawnSpec, name: str, size: int, device: str, kind: tuple[str, ...]
    ) -> Disk:
        path = os.path.join(directory, name)
        if not os.path.exists(path):
            return self._maker.formatted(directory, spec, name, size, device, kind)
        if disks.encrypts(spec):
            encrypted_disks.grow(path, size)
        elif os.path.getsize(path) < size:
            os.truncate(path, size)
        return _existing(spec, path, device)

    def _swap(self, directory: str, spec: SpawnSpec, size: int, device: str) -> Disk:
        path = os.path.join(directory, disks.SWAP)
        measure = encrypted_disks.data_size if disks.encrypts(spec) else os.path.getsize
        if os.path.exists(path) and measure(path) == size:
            return _existing(spec, path, device)
        files.remove(path)
        return self._maker.formatted(directory, spec, disks.SWAP, size, device, disks.SWAP_AREA)

    @staticmethod
    def below(path: str) -> tuple[volume_chains.File, ...]:
        """Return the files below a root disk of this host's."""
        return layers.below(path)

    def _rebase_taken(self, directory: str, image: Image) -> None:
        """Let a taken root disk refer to the image by this host's path, which may differ from that of the other host.

        Raises `VirtDriverError` if it is based on another image: then its content would be garbage. It is also raised
        if there are layers, and the paths differ.
        """
        layers.take(directory, disks.ROOT)
        path, kind = disks.root_file(directory)
        header = None if kind != "qcow2" else _header(self._qemu_img, path)
        if header is None or not header.backing:
            return
        below = layers.below(path)
        if below[-1].name != image.id:
            raise exceptions.VirtDriverError(reason=f"its disk is based on {below[-1].path}, not on image {image.id}")
        base = self._cache.get(image)
        if base.path == below[-1].path:
            return
        if len(below) > 1:
            raise exceptions.VirtDriverError(reason=f"its layers are based on {below[-1].path}, not on {base.path}")
        _rebase(path, base)

    def _set_base(self, directory: str, path: str, image: Image, fetcher: Fetcher, above: tuple[str, ...] = ()) -> None:
        """Rebase an overlay, which names a file of the source, on this host's copy of the same image or layer.

        If the image exists only on the source any more, its content is merged into the overlay. ``above``: the layers
        on top of it.
        """
        header = qcow2.read(path)
        if header is not None and layers.is_layer(header.backing):
            name = os.path.basename(header.backing)
            if name in above or len(above) >= layers.MOST:
                raise exceptions.VirtDriverError(reason=f"its disk lies on more than {layers.MOST} layers")

            def fetch(part: str) -> None:
                fetcher.fetch_base(name, part)
                _header(self._qemu_img, part)
                self._set_base(directory, part, image, fetcher, (*above, name))

            _rebase(path, self._cache.layer(name, fetch))
            return
        try:
            base = self._cache.get(image)
        except exceptions.NovaLiteException as error:
            LOG.warning("Image %s is not available, so it is merged into the disk: %s", image.id, error.message)
            self._flatten(directory, path, image, fetcher)
        else:
            _rebase(path, base)

    def _flatten(self, directory: str, path: str, image: Image, fetcher: Fetcher) -> None:
        header = qcow2.read(path)
        if header is not None and header.snapshots:
            raise exceptions.VirtDriverError(reason=f"its snapshot points need image {image.id}, which is gone")
        base = os.path.join(directory, BASE)
        disk_format = images.qemu_format(image) if images.qemu_format(image) in images.DISK_FORMATS else "raw"
        try:
            fetcher.fetch_base(image.id, base)
            if disk_format != "raw" and self._qemu_img.info(base, disk_format).data_files:
                raise exceptions.ImageUnacceptable(image_id=image.id, reason="it refers to other files")
            _rebase(path, CachedImage(path=base, format=disk_format, virtual_size=0))
            images.run("qemu-img", "rebase", "-q", "-f", "qcow2", "-b", "", path)
        finally:
            files.remove(base)


def _rebase(path: str, base: CachedImage) -> None:
    images.run("qemu-img", "rebase", "-q", "-u", "-f", "qcow2", "-b", base.path, "-F", base.format, path)


def _header(qemu_img: images.QemuImg, path: str) -> qcow2.Header:
    """Return the header of another host's disk. Raises `VirtDriverError` if it refers to anything but a backing
    file."""
    qemu_img.info(path, "qcow2")  # with limits, before anything else reads it
    output = images.run("qemu-img", "info", "--output=json", "-f", "qcow2", path)
    header: dict[str, Any] = msgspec.json.decode(output)
    if ((header.get("format-specific") or {}).get("data") or {}).get("data-file"):
        raise exceptions.VirtDriverError(reason="the root disk refers to another file")
    return qcow2.Header(size=header["virtual-size"], backing=header.get("backing-filename") or "")


def _raw_root(path: str, image: Image, root_gb: int, device: str) -> Disk:
    size = 0 if image.disk_format == disks.ISO else root_gb
    images.check_fits(os.path.getsize(path), size)
    if size:
        os.truncate(path, size * images.GIB)
    return Disk(path=path, device=device, format="raw")


def _existing(spec: SpawnSpec, path: str, device: str) -> Disk:
    if disks.encrypts(spec):
        return disks.encrypted_disk(spec, path, device)
    return Disk(path=path, device=device, format="raw")

"""A guest's disks: made from its images and its flavor, in the instance's directory."""

from __future__ import annotations

import os
import string

import msgspec

from nova_lite import exception, files
from nova_lite.objects import Image
from nova_lite.virt import images
from nova_lite.virt.configdrive import ConfigDrives
from nova_lite.virt.driver import SpawnSpec
from nova_lite.virt.libvirt.imagecache import ImageCache

ROOT = "disk"
EPHEMERAL = "disk.eph0"
SWAP = "disk.swap"
CONFIG_DRIVE = "disk.config"
RESCUE = "disk.rescue"
RESCUE_CONFIG_DRIVE = "disk.config.rescue"

_MIB = 1024**2


class Disk(msgspec.Struct, frozen=True):
    """``device``: what the guest is meant to call it (vda). ``format``: qemu's name."""

    path: str
    device: str
    format: str
    read_only: bool = False


class DirectBoot(msgspec.Struct, frozen=True):
    """A kernel that the hypervisor starts itself (AMI style)."""

    kernel: str
    ramdisk: str | None
    command_line: str


class DiskSet(msgspec.Struct, frozen=True):
    disks: list[Disk]
    direct_boot: DirectBoot | None


class DiskMaker:
    def __init__(self, cache: ImageCache, qemu_img: images.QemuImg, config_drives: ConfigDrives) -> None:
        self._cache = cache
        self._qemu_img = qemu_img
        self.config_drives = config_drives

    def make(self, directory: str, spec: SpawnSpec) -> DiskSet:
        """Make all disks of the flavor, root first; raises `Invalid` children where image or flavor are at fault."""
        if spec.image is None:
            raise exception.ImageUnacceptable(image_id="", reason="a server without an image has nothing to boot from")
        flavor = spec.instance.flavor
        names = (f"vd{letter}" for letter in string.ascii_lowercase)
        disks = [self._root(directory, spec.image, flavor.root_gb, next(names))]
        if flavor.ephemeral_gb:
            disks.append(formatted(directory, EPHEMERAL, flavor.ephemeral_gb * images.GIB, next(names), EXT4))
        if flavor.swap:
            disks.append(formatted(directory, SWAP, flavor.swap * _MIB, next(names), SWAP_AREA))
        if self.config_drives.is_wanted(spec):
            path = os.path.join(directory, CONFIG_DRIVE)
            self.config_drives.make(path, spec)
            disks.append(Disk(path=path, device=next(names), format="raw", read_only=True))
        return DiskSet(disks=disks, direct_boot=self.direct_boot(spec.image, spec.images))

    def make_rescue(self, directory: str, spec: SpawnSpec) -> DiskSet:
        """A root disk of the rescue image, as big as that is, and a config drive if the guest has one. What an earlier
        try has left is replaced."""
        assert spec.image is not None
        for name in (RESCUE, RESCUE_CONFIG_DRIVE):
            files.remove(os.path.join(directory, name))
        disks = [self._overlay(os.path.join(directory, RESCUE), spec.image, 0, "vda")]
        if os.path.exists(os.path.join(directory, CONFIG_DRIVE)):
            path = os.path.join(directory, RESCUE_CONFIG_DRIVE)
            self.config_drives.make(path, spec)
            disks.append(Disk(path=path, device="", format="raw", read_only=True))
        return DiskSet(disks=disks, direct_boot=self.direct_boot(spec.image, spec.images))

    def _root(self, directory: str, image: Image, root_gb: int, device: str) -> Disk:
        return self._overlay(os.path.join(directory, ROOT), image, root_gb, device)

    def _overlay(self, path: str, image: Image, root_gb: int, device: str) -> Disk:
        """An overlay as big as the flavor says (0: as the image is), so that all guests share the image's blocks."""
        base = self._cache.get(image)
        images.check_fits(base.virtual_size, root_gb)
        size = root_gb * images.GIB or base.virtual_size
        self._qemu_img.create_overlay(path, base.path, base.format, size)
        os.chmod(path, 0o600)
        return Disk(path=path, device=device, format="qcow2")

    def direct_boot(self, image: Image, others: dict[str, Image]) -> DirectBoot | None:
        """How the image says that it is started: its kernel and ramdisk, from the cache."""
        if image.kernel_id is None:
            return None
        ramdisk = self._boot_file(others, image.ramdisk_id) if image.ramdisk_id else None
        options = ["root=/dev/vda", "console=ttyS0", image.properties.get("os_command_line", "")]
        command_line = " ".join(options).strip()
        if not command_line.isprintable():
            raise exception.ImageUnacceptable(image_id=image.id, reason="os_command_line has control characters")
        return DirectBoot(kernel=self._boot_file(others, image.kernel_id), ramdisk=ramdisk, command_line=command_line)

    def _boot_file(self, others: dict[str, Image], image_id: str) -> str:
        if image_id not in others:
            raise exception.ImageGone(image_id=image_id, reason="there is no such kernel or ramdisk image")
        return self._cache.get(others[image_id]).path


EXT4 = ("mkfs.ext4", "-q", "-F", "-L", "ephemeral0")
SWAP_AREA = ("mkswap", "-L", "swap")


def formatted(directory: str, name: str, size: int, device: str, command: tuple[str, ...]) -> Disk:
    """A sparse file of ``size`` bytes, with an empty file system or swap area in it."""
    path = os.path.join(directory, name)
    with open(path, "wb", opener=files.private_opener) as file:
        file.truncate(size)
    images.run(*command, path)
    return Disk(path=path, device=device, format="raw")

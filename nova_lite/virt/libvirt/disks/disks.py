"""Disks of a guest, made from its images and its flavor in the instance's directory."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from nova_lite import hardware
from nova_lite.base import exceptions, files
from nova_lite.image import qcow2
from nova_lite.objects import (
    BlockDevice,
    EncryptedDisk,
    Flavor,
    Image,
    NetworkDisk,
    Qcow2Disk,
    VolumeSource,
    disk_key_id,
    is_encrypted,
)
from nova_lite.objects import block_device as devices
from nova_lite.virt import images
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.configdrive import ConfigDrives
from nova_lite.virt.libvirt.disks import layers, volume_chains
from nova_lite.virt.libvirt.disks.encrypted_disks import EncryptedDisks
from nova_lite.virt.libvirt.disks.image_cache import ImageCache
from nova_lite.virt.libvirt.disks.overlays import Overlays

ROOT = "disk"
#: Root disk while it is frozen for a clone: see `layers`.
NEW_ROOT = ROOT + layers.NEW
#: Root disk in raw format. Its name alone says so: the guest writes the content, also what looks like a header.
RAW_ROOT = "disk.raw"
#: Encrypted root disk, a LUKS file.
LUKS_ROOT = "disk.luks"
ROOTS = (ROOT, RAW_ROOT, LUKS_ROOT)
#: Name of the format of an encrypted root disk. Nothing but qemu for its guest reads it.
LUKS = "luks"
#: Maximum number of ephemeral disks of an instance.
EPHEMERALS = ("disk.eph0", "disk.eph1", "disk.eph2")
SWAP = "disk.swap"
CONFIG_DRIVE = "disk.config"
RESCUE = "disk.rescue"
#: Firmware variables of a UEFI guest. libvirt creates the file.
NVRAM = "nvram.fd"
RESCUE_CONFIG_DRIVE = "disk.config.rescue"
#: Roles of local disks, by the names of their files.
ROLES = dict.fromkeys(ROOTS, "root") | {SWAP: "swap", RESCUE: "rescue"}
ROLES |= {name: f"ephemeral{number}" for number, name in enumerate(EPHEMERALS)}

#: Image format whose root disk is a CD-ROM drive.
ISO = "iso"

_MIB = 1024**2
#: Suffix of an empty file system that is about to be encrypted.
_PLAIN = ".plain"


class Disk(msgspec.Struct, frozen=True):
    """A disk of a guest.

    ``device``: the intended name in the guest (vda). ``format``: qemu's name. ``serial``: of a volume, its id.
    ``direct``: bypass the host's page cache, so that another host sees the writes. ``network``: location of a disk
    without a path. ``secret``: uuid of the libvirt secret that has the passphrase of a LUKS file; None: it is plain.
    ``shareable``: guests here and at other hosts write to it, too.
    ``below``: the files below it, so that libvirt guesses nothing by their content; None: nothing below a raw disk, and
    unknown below another one.
    """

    path: str
    device: str
    format: str
    read_only: bool = False
    bus: str = "virtio"
    serial: str | None = None
    direct: bool = False
    network: NetworkDisk | None = None
    secret: str | None = None
    below: tuple[volume_chains.File, ...] | None = None
    shareable: bool = False


class DirectBoot(msgspec.Struct, frozen=True):
    """A kernel that the hypervisor starts itself (AMI style)."""

    kernel: str
    ramdisk: str | None
    command_line: str


class DiskSet(msgspec.Struct, frozen=True):
    disks: list[Disk]
    direct_boot: DirectBoot | None


class DiskMaker:
    """Maker of disks. ``raw``: root disks are raw files, reflinks of their images if the file system supports that.
    ``encrypted`` None: the driver has no encrypted disks."""

    def __init__(
        self,
        cache: ImageCache,
        qemu_img: images.QemuImg,
        config_drives: ConfigDrives,
        raw: bool = False,
        encrypted: EncryptedDisks | None = None,
    ) -> None:
        self._cache = cache
        self._qemu_img = qemu_img
        self._overlays = Overlays(qemu_img)
        self.config_drives = config_drives
        self._raw = raw
        self._encrypted = encrypted

    def make(self, directory: str, spec: SpawnSpec) -> DiskSet:
        """Make all disks of the flavor, root first. Raises `Invalid` subclasses for a fault of the image or the
        flavor."""
        require_root(spec)
        flavor, requested = spec.instance.flavor, spec.instance.block_devices
        names = local_names(requested)
        disks = []
        if devices.root_volume(requested) is None:
            assert spec.image is not None
            disks.append(self._root(directory, spec, spec.image, next(names)))
        for name, size, kind in ephemerals(spec.instance.flavor, requested):
            disks.append(self.formatted(directory, spec, name, size, next(names), kind))
        swap = devices.swap_mb(flavor, requested)
        if swap:
            disks.append(self.formatted(directory, spec, SWAP, swap * _MIB, next(names), SWAP_AREA))
        if self.config_drives.is_wanted(spec):
            path = os.path.join(directory, CONFIG_DRIVE)
            self.config_drives.make(path, spec)
            disks.append(Disk(path=path, device=next(names), format="raw", read_only=True))
        return DiskSet(disks=[*disks, *self.volumes(spec)], direct_boot=self.direct_boot(spec.image, spec.images))

    def volumes(self, spec: SpawnSpec) -> list[Disk]:
        """Return the disks of the volumes. Raises as `files_below` does."""
        requested = [device for device in spec.instance.block_devices if device.volume_id is not None]
        sources = [spec.volumes[str(device.volume_id)] for device in requested]
        return [
            volume_disk(device, source, self.files_below(str(device.volume_id), source))
            for device, source in zip(requested, sources, strict=True)
        ]

    def check_volumes(self, sources: Mapping[str, VolumeSource]) -> None:
        """Raise as `files_below` does."""
        for volume_id, source in sources.items():
            self.files_below(volume_id, source)

    def files_below(self, volume_id: str, source: VolumeSource) -> tuple[volume_chains.File, ...]:
        """Return the files below a volume's. Raises `VolumeNotInFiles` if Cinder cannot have put them there."""
        if not isinstance(source, Qcow2Disk):
            return ()
        top = volume_chains.File(source.path, volume_chains.QCOW2)
        return tuple(volume_chains.unused(self._qemu_img, volume_id, top)[1:])

    def make_rescue(self, directory: str, spec: SpawnSpec, encrypted: bool = False) -> DiskSet:
        """Make a root disk of the rescue image's size, and a config drive if the guest has one. Replaces earlier
        ones. ``encrypted``: the server's own disks are, so this one is, too."""
        assert spec.image is not None
        for name in (RESCUE, RESCUE_CONFIG_DRIVE):
            files.remove(os.path.join(directory, name))
        path = os.path.join(directory, RESCUE)
        make = functools.partial(self._encrypted_copy, spec) if encrypted else self._overlay
        disks = [make(path, spec.image, 0, "vda")]
        if os.path.exists(os.path.join(directory, CONFIG_DRIVE)):
            path = os.path.join(directory, RESCUE_CONFIG_DRIVE)
            self.config_drives.make(path, spec)
            disks.append(Disk(path=path, device="", format="raw", read_only=True))
        return DiskSet(disks=disks, direct_boot=self.direct_boot(spec.image, spec.images))

    def _root(self, directory: str, spec: SpawnSpec, image: Image, device: str) -> Disk:
        """Make the root disk. A CD has the size of its image, and the guest does not write to it."""
        if spec.clone_of is not None:
            return self._on_layer(directory, spec, device)
        size = 0 if image.disk_format == ISO else spec.instance.flavor.root_gb
        if encrypts(spec) and image.disk_format != ISO:
            return self._encrypted_copy(spec, os.path.join(directory, LUKS_ROOT), image, size, device)
        if self._raw:
            return self._copy(os.path.join(directory, RAW_ROOT), image, size, device)
        return self._overlay(os.path.join(directory, ROOT), image, size, device)

    def _on_layer(self, directory: str, spec: SpawnSpec, device: str) -> Disk:
        """Make the root disk of a clone, of its layer's size, and copy the firmware variables. Raises OSError."""
        layer = self._cache.path(layers.name_of(spec.instance.uuid))
        path, variables = os.path.join(directory, ROOT), layer + layers.NVRAM
        header = qcow2.read(layer)
        if header is None:
            raise exceptions.VirtDriverError(reason=f"{layer} is no layer")
        self._qemu_img.create_overlay(path, layer, "qcow2", header.size)
        os.chmod(path, 0o600)
        if os.path.exists(variables):
            with open(variables, "rb") as file:
                files.write_atomically(os.path.join(directory, NVRAM), file.read())
        return Disk(path=path, device=device, format="qcow2", below=layers.below(path))

    def _encrypted_copy(self, spec: SpawnSpec, path: str, image: Image, root_gb: int, device: str) -> Disk:
        """Make an encrypted disk of the flavor's size (0: the image's)."""
        base = self._cache.get(image)
        images.check_fits(base.virtual_size, root_gb)
        size = root_gb * images.GIB or base.virtual_size
        self.make_encrypted(spec, path, size, (base.path, base.format))
        return encrypted_disk(spec, path, device)

    def make_encrypted(self, spec: SpawnSpec, path: str, size: int, content: tuple[str, str] | None = None) -> None:
        """Call `EncryptedDisks.make`. Raises `NotImplementedByDriver` without this ability."""
        if self._encrypted is None:
            raise exceptions.NotImplementedByDriver(operation="encrypted disks")
        owner = (spec.instance.uuid, ROLES[os.path.basename(path)])
        self._encrypted.make(path, owner, size, content, spec.still_wanted)

    def formatted(
        self, directory: str, spec: SpawnSpec, name: str, size: int, device: str, command: tuple[str, ...]
    ) -> Disk:
        """Make a disk of ``size`` bytes with an empty file system or swap area. All of an encrypted one is written."""
        if not encrypts(spec):
            return make_formatted(directory, name, size, device, command)
        plain = make_formatted(directory, name + _PLAIN, size, device, command)
        try:
            path = os.path.join(directory, name)
            self.make_encrypted(spec, path, size, (plain.path, "raw"))
            return encrypted_disk(spec, path, device)
        finally:
            files.remove(plain.path)

    def _copy(self, path: str, image: Image, root_gb: int, device: str) -> Disk:
        """Make a raw disk of the flavor's size (0: the image's). It survives a power cut."""
        base = self._cache.raw(image)
        images.check_fits(base.virtual_size, root_gb)
        self._cache.copy(base, path)
        with open(path, "r+b") as file:
            file.truncate(root_gb * images.GIB or base.virtual_size)
            os.fsync(file.fileno())
        return Disk(path=path, device=device, format="raw")

    def _overlay(self, path: str, image: Image, root_gb: int, device: str) -> Disk:
        """Make an overlay of the flavor's size (0: the image's), so that all guests share the image's blocks."""
        base = self._cache.get(image)
        images.check_fits(base.virtual_size, root_gb)
        size = root_gb * images.GIB or base.virtual_size
        self._overlays.make(path, base.path, base.format, size)
        return Disk(path=path, device=device, format="qcow2", below=(volume_chains.File(base.path, base.format),))

    def direct_boot(self, image: Image | None, others: dict[str, Image]) -> DirectBoot | None:
        """Return the cached kernel and ramdisk that the image names, if any."""
        if image is None or image.kernel_id is None:
            return None
        ramdisk = self._boot_file(others, image.ramdisk_id) if image.ramdisk_id else None
        console = "ttyAMA0" if hardware.is_arm(image) else "ttyS0"
        options = [f"root={hardware.root_device(image)}", f"console={console}"]
        options.append(image.properties.get("os_command_line", ""))
        command_line = " ".join(options).strip()
        if not command_line.isprintable():
            raise exceptions.ImageUnacceptable(image_id=image.id, reason="os_command_line has control characters")
        return DirectBoot(kernel=self._boot_file(others, image.kernel_id), ramdisk=ramdisk, command_line=command_line)

    def _boot_file(self, others: dict[str, Image], image_id: str) -> str:
        if image_id not in others:
            raise exceptions.ImageGone(image_id=image_id, reason="there is no such kernel or ramdisk image")
        return self._cache.get(others[image_id]).path


def root_file(directory: str) -> tuple[str, str]:
    """Return the path and the format of the root disk in an instance's directory."""
    for name, kind in ((RAW_ROOT, "raw"), (LUKS_ROOT, LUKS)):
        if os.path.exists(path := os.path.join(directory, name)):
            return path, kind
    return os.path.join(directory, ROOT), "qcow2"


def readable_root_file(directory: str) -> tuple[str, str]:
    """Return `root_file`. Raises `NotImplementedByDriver` if it is encrypted: a copy would be plain."""
    path, kind = root_file(directory)
    if kind == LUKS:
        raise exceptions.NotImplementedByDriver(operation="an image of an encrypted disk")
    return path, kind


def encrypts(spec: SpawnSpec) -> bool:
    """Check whether the guest's own disks are encrypted. Not for a rescue, whose image is another one."""
    properties = {} if spec.image is None else spec.image.properties
    return hardware.encrypts_disks(spec.instance.flavor.extra_specs, properties)


def encrypted_disk(spec: SpawnSpec, path: str, device: str) -> Disk:
    """Return an encrypted disk that exists."""
    secret = disk_key_id(spec.instance.uuid, ROLES[os.path.basename(path)])
    return Disk(path=path, device=device, format="raw", secret=secret)


#: Commands that format an ephemeral disk, by the requested format.
FORMATS = {name: (f"mkfs.{name}", "-q", "-F", "-L", "ephemeral0") for name in ("ext2", "ext3", "ext4")}
EXT4 = FORMATS["ext4"]
SWAP_AREA = ("mkswap", "-L", "swap")


def make_formatted(directory: str, name: str, size: int, device: str, command: tuple[str, ...]) -> Disk:
    """Make a sparse file of ``size`` bytes with an empty file system or swap area."""
    path = os.path.join(directory, name)
    with open(path, "wb", opener=files.private_opener) as file:
        file.truncate(size)
    images.run(*command, path)
    return Disk(path=path, device=device, format="raw")


def require_root(spec: SpawnSpec) -> None:
    """Raise `ImageUnacceptable` if there is nothing to boot from."""
    if spec.image is None and devices.root_volume(spec.instance.block_devices) is None:
        raise exceptions.ImageUnacceptable(image_id="", reason="a server without an image has nothing to boot from")


def local_names(requested: Iterable[BlockDevice]) -> Iterator[str]:
    """Yield the names of disks that are not volumes."""
    taken = [device.device_name for device in devices.volumes(requested)]
    return (f"vd{letter}" for letter in devices.letters(taken))


def ephemerals(flavor: Flavor, requested: list[BlockDevice]) -> list[tuple[str, int, tuple[str, ...]]]:
    """Return file name, size in bytes and format command of each ephemeral disk."""
    formats = [FORMATS.get(device.guest_format or "", EXT4) for device in requested if device.is_ephemeral] or [EXT4]
    sizes = [size * images.GIB for size in devices.ephemeral_gb(flavor, requested)]
    return list(zip(EPHEMERALS, sizes, formats, strict=False))


def volume_disk(device: BlockDevice, source: VolumeSource, below: tuple[volume_chains.File, ...] | None = None) -> Disk:
    """Return the disk of a volume. Raises `VirtDriverError` if guests cannot share it as the volume requires."""
    network = source if isinstance(source, NetworkDisk) else None
    path = local_path(source)
    is_direct = network is not None or path.startswith("/dev/") or supports_direct_io(os.path.dirname(path))
    if device.multiattach and (not is_direct or isinstance(source, Qcow2Disk)):
        why = "its files lie on top of each other" if is_direct else "its file system has no direct access to files"
        raise exceptions.VirtDriverError(reason=f"several servers cannot write to volume {device.volume_id}: {why}")
    return Disk(
        path=path,
        network=network,
        device=(device.device_name or "").removeprefix("/dev/"),
        format="qcow2" if isinstance(source, Qcow2Disk) else "raw",
        bus=device.disk_bus or "virtio",
        serial=device.volume_id,
        secret=device.volume_id if is_encrypted(source) else None,
        below=below,
        direct=is_direct,
        shareable=device.multiattach,
        read_only=device.read_only,
    )


def local_path(source: VolumeSource) -> str:
    """Return the path of a volume's file or device. Empty for a volume that is reached over the network."""
    if isinstance(source, NetworkDisk):
        return ""
    return source.path if isinstance(source, EncryptedDisk | Qcow2Disk) else source


def supports_direct_io(directory: str) -> bool:
    """Check whether files there can bypass the page cache. Not every file system supports that."""
    # The same name each time, so that the next check removes what a kill leaves.
    path = os.path.join(directory, ".direct")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600))
    except OSError:
        return False
    finally:
        files.remove(path)
    return True

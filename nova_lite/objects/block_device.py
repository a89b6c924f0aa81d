"""Disks of an instance beyond those of its flavor: block device mappings, in the words of Nova."""

from __future__ import annotations

import enum
import string
from collections.abc import Iterable

import msgspec

from nova_lite.objects.flavor import Flavor
from nova_lite.objects.guest_device import GuestReport


class DeviceSource(enum.StrEnum):
    VOLUME = "volume"
    IMAGE = "image"
    SNAPSHOT = "snapshot"
    BLANK = "blank"


class DeviceState(enum.StrEnum):
    """State of an attachment. ATTACHING, DETACHING: the host has the command and has not reported its result."""

    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"


#: ``guest_format`` of a local disk that is used as swap.
SWAP = "swap"

#: Prefix of disk names in a guest, by bus.
PREFIXES = {"virtio": "vd", "scsi": "sd", "sata": "sd", "ide": "hd"}


class BlockDevice(msgspec.Struct, kw_only=True):
    """Block device of an instance.

    ``volume_size``: GB; MB for a local swap disk. ``image_id`` and ``snapshot_id``: the source of the volume or of the
    local root disk. ``volume_id`` is set if the device is a volume. ``device_name``: the name in the guest (/dev/vdb).
    ``swap_id``: the volume that is to replace this one; the server has both until then. ``encrypted``: the host makes
    the volume together with the guest, encrypted. Then ``made_from`` is its source in commands, and ``source_type`` is
    VOLUME. ``multiattach``: other servers may have the volume, too. ``read_only``: the guest may not write to it.

    ``uuid``: of the attachment. A volume of Cinder also has an ``attachment_id``, which changes when the server moves.
    """

    uuid: str
    source_type: DeviceSource
    destination_type: str
    boot_index: int | None = None
    device_name: str | None = None
    device_type: str | None = None
    disk_bus: str | None = None
    guest_format: str | None = None
    volume_size: int | None = None
    volume_id: str | None = None
    image_id: str | None = None
    snapshot_id: str | None = None
    volume_type: str | None = None
    delete_on_termination: bool = False
    tag: str | None = None
    state: DeviceState = DeviceState.ATTACHED
    swap_id: str | None = None
    attachment_id: str | None = None
    encrypted: bool = False
    made_from: DeviceSource | None = None
    multiattach: bool = False
    read_only: bool = False

    @property
    def is_volume(self) -> bool:
        return self.destination_type == "volume"

    @property
    def is_swap(self) -> bool:
        return not self.is_volume and self.source_type == DeviceSource.BLANK and self.guest_format == SWAP

    @property
    def is_ephemeral(self) -> bool:
        return not self.is_volume and self.source_type == DeviceSource.BLANK and self.guest_format != SWAP

    @property
    def is_root(self) -> bool:
        return self.boot_index == 0


def root_volume(devices: Iterable[BlockDevice]) -> BlockDevice | None:
    """Return the volume that the instance boots from, or None."""
    return next((device for device in devices if device.is_volume and device.is_root), None)


def volumes(devices: Iterable[BlockDevice]) -> list[BlockDevice]:
    return [device for device in devices if device.is_volume]


def ephemeral_gb(flavor: Flavor, devices: Iterable[BlockDevice]) -> list[int]:
    """Return the sizes of the ephemeral disks. Without requested ones, one disk has all that the flavor grants."""
    requested = [device.volume_size or flavor.ephemeral_gb for device in devices if device.is_ephemeral]
    return requested or ([flavor.ephemeral_gb] if flavor.ephemeral_gb else [])


def swap_mb(flavor: Flavor, devices: Iterable[BlockDevice]) -> int:
    """Return the size of the swap disk: the requested one, else that of the flavor; 0 means none."""
    return next((device.volume_size or flavor.swap for device in devices if device.is_swap), flavor.swap)


def local_count(flavor: Flavor, devices: Iterable[BlockDevice]) -> int:
    """Return how many disks, besides volumes, the instance may have. This includes a config drive."""
    devices = list(devices)
    root = 0 if root_volume(devices) else 1
    return root + len(ephemeral_gb(flavor, devices)) + bool(swap_mb(flavor, devices)) + 1


class LocalDisk(msgspec.Struct, frozen=True):
    """Disk on the host. ``role``: "root", "ephemeral0" and so on, or "swap". ``letter``: the last one of its name.

    ``device``: the requested block device; None: the flavor alone requests it.
    """

    role: str
    letter: str
    device: BlockDevice | None


def local_disks(flavor: Flavor, devices: Iterable[BlockDevice]) -> list[LocalDisk]:
    """Return the disks that are not volumes, in the order of their names. A config drive is not among them."""
    devices = list(devices)
    local = [device for device in devices if not device.is_volume]
    roles: list[tuple[str, BlockDevice | None]] = []
    if root_volume(devices) is None:
        roles.append(("root", next((device for device in local if device.is_root), None)))
    requested: list[BlockDevice | None] = [device for device in local if device.is_ephemeral]
    for number, device in enumerate(requested or [None] * len(ephemeral_gb(flavor, devices))):
        roles.append((f"ephemeral{number}", device))
    if swap_mb(flavor, devices):
        roles.append(("swap", next((device for device in local if device.is_swap), None)))
    free = letters(device.device_name for device in volumes(devices))
    return [LocalDisk(role, letter, device) for (role, device), letter in zip(roles, free, strict=False)]


def without_untagged(found: GuestReport, flavor: Flavor, devices: Iterable[BlockDevice]) -> GuestReport:
    """Return the report without the places of disks that have no tag."""
    devices = list(devices)
    named: dict[str, BlockDevice | None] = {disk.role: disk.device for disk in local_disks(flavor, devices)}
    named |= {str(device.volume_id): device for device in volumes(devices)}
    places = [
        place
        for place in found.devices
        if ":" in place.key or ((device := named.get(place.key)) is not None and device.tag is not None)
    ]
    return msgspec.structs.replace(found, devices=places)


def letters(taken: Iterable[str | None]) -> Iterable[str]:
    """Return the last letters of disk names that are free, in order: b stands for /dev/vdb."""
    used = {name[-1] for name in taken if name}
    return (letter for letter in string.ascii_lowercase if letter not in used)


def next_name(flavor: Flavor, devices: list[BlockDevice], bus: str | None) -> str:
    """Return the name of another volume. It follows those of local disks. Raises `StopIteration` if no name is left."""
    free = list(letters(device.device_name for device in volumes(devices)))[local_count(flavor, devices) :]
    return f"/dev/{PREFIXES.get(bus or 'virtio', 'vd')}{next(iter(free))}"

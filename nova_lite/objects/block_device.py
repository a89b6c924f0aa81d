"""The disks of an instance beside what its flavor gives it by itself: Nova's block device mappings."""

from __future__ import annotations

import enum
import string
from collections.abc import Iterable

import msgspec

from nova_lite.objects.flavor import Flavor


class DeviceSource(enum.StrEnum):
    VOLUME = "volume"
    IMAGE = "image"
    SNAPSHOT = "snapshot"
    BLANK = "blank"


class DeviceState(enum.StrEnum):
    """ATTACHING: its host was asked to attach it, and has not said that it did; DETACHING likewise."""

    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"


#: Of local devices: what is in an ephemeral disk that was made as swap.
SWAP = "swap"

#: Prefix of a guest's names of its disks, by bus.
PREFIXES = {"virtio": "vd", "scsi": "sd", "sata": "sd", "ide": "hd"}


class BlockDevice(msgspec.Struct, kw_only=True):
    """One device. ``volume_size``: GB (of a local swap disk: MB). ``image``: what to make the volume of, or the local
    root disk; ``snapshot_id`` likewise. ``volume_id`` is set wherever it is a volume. ``uuid``: of the attachment, but
    for volumes of Cinder's, whose attachments have an ``attachment_id`` of their own, which changes when they move.
    ``device_name``: /dev/vdb, what its guest is meant to call it. ``swap_id``: the volume that is to take its volume's
    place; the server has both meanwhile."""

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
    """What the instance boots from, if that is a volume."""
    return next((each for each in devices if each.is_volume and each.is_root), None)


def volumes(devices: Iterable[BlockDevice]) -> list[BlockDevice]:
    return [each for each in devices if each.is_volume]


def ephemeral_gb(flavor: Flavor, devices: Iterable[BlockDevice]) -> list[int]:
    """Sizes of the ephemeral disks: those that were asked for, else one of all that the flavor has."""
    asked = [each.volume_size or flavor.ephemeral_gb for each in devices if each.is_ephemeral]
    return asked or ([flavor.ephemeral_gb] if flavor.ephemeral_gb else [])


def swap_mb(flavor: Flavor, devices: Iterable[BlockDevice]) -> int:
    """Size of the swap disk: what was asked for, else the flavor's; 0: none."""
    return next((each.volume_size or flavor.swap for each in devices if each.is_swap), flavor.swap)


def local_count(flavor: Flavor, devices: Iterable[BlockDevice]) -> int:
    """How many disks the instance may have that are no volumes, a config drive included."""
    known = list(devices)
    root = 0 if root_volume(known) else 1
    return root + len(ephemeral_gb(flavor, known)) + bool(swap_mb(flavor, known)) + 1


def letters(taken: Iterable[str | None]) -> Iterable[str]:
    """Last letters of names of disks that none of these names has, in order: b for /dev/vdb."""
    used = {name[-1] for name in taken if name}
    return (letter for letter in string.ascii_lowercase if letter not in used)


def next_name(flavor: Flavor, devices: list[BlockDevice], bus: str | None) -> str:
    """A name for one more volume: behind those of the disks that are no volumes, which get theirs first. Raises
    `StopIteration` when there is none left."""
    free = list(letters(each.device_name for each in volumes(devices)))[local_count(flavor, devices) :]
    return f"/dev/{PREFIXES.get(bus or 'virtio', 'vd')}{next(iter(free))}"

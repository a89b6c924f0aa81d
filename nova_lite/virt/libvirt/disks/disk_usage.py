"""Disk space and cached images that the files of all instances below one directory use.

The owner of the files does not matter: several daemons, and machines, may share the directory.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import msgspec

from nova_lite.base import disk_room
from nova_lite.image import qcow2
from nova_lite.virt.libvirt import records
from nova_lite.virt.libvirt.disks import disks, layers, reflinks

_SECTOR = 512

#: Files of an instance that may be based on a cached image.
OVERLAYS = (disks.ROOT, disks.NEW_ROOT, disks.RESCUE)
_GROWING = (*OVERLAYS, disks.RAW_ROOT, disks.LUKS_ROOT, *disks.EPHEMERALS, disks.SWAP)


class _Images(msgspec.Struct):
    """The part of an instance's record that is read here."""

    images: list[str] = []


def growth(instances_path: str) -> int:
    """Return the number of bytes by which the disks below this path can still grow."""
    total = 0
    for directory in _directories(instances_path):
        for name in _GROWING:
            with contextlib.suppress(FileNotFoundError):
                total += _growth(os.path.join(directory, name))
    return total


def _growth(path: str) -> int:
    found = os.stat(path)
    header = qcow2.read(path) if os.path.basename(path) in OVERLAYS else None
    size = found.st_size if header is None else header.size
    # A disk takes new blocks for all that it shares with a snapshot point.
    own = 0 if header is not None and header.snapshots else found.st_blocks * _SECTOR
    if os.path.basename(path) == disks.RAW_ROOT:
        own -= reflinks.shared_bytes(path)
    return max(0, size - own)


def root_data(path: str) -> int:
    """Return the most bytes of data that a copy of a guest's root disk has, with those of its image. Raises OSError.

    An image in qcow2 format may be compressed, so it counts as large as its disk.
    """
    header = None if os.path.basename(path) == disks.RAW_ROOT else qcow2.read(path)
    own = disk_room.data_in(path) or 0
    if header is None:
        return own
    return min(header.size, own + (_image_data(header.backing) if header.backing else 0))


def _image_data(path: str) -> int:
    header = qcow2.read(path)
    return (disk_room.data_in(path) or 0) if header is None else header.size


def raw_data(path: str, capacity: int) -> int:
    """Return the most bytes of data that a copy of a raw disk has. ``capacity``: the answer for a device."""
    try:
        found = disk_room.data_in(path)
    except OSError:
        return capacity
    return capacity if found is None else min(found, capacity)


def used_images(instances_path: str) -> set[str]:
    """Return the names of cached images and layers that instances and layers there are based on, or that instances
    boot or are being built from.

    Raises OSError if that is unknown.
    """
    used: set[str] = set()
    for directory in _directories(instances_path):
        with contextlib.suppress(FileNotFoundError):
            used |= _recorded(os.path.join(directory, records.RECORD))
        for name in OVERLAYS:
            with contextlib.suppress(FileNotFoundError):
                header = qcow2.read(os.path.join(directory, name))
                if header is not None and header.backing:
                    used.add(os.path.basename(header.backing))
    base = os.path.join(instances_path, records.BASE)
    for name in filter(layers.is_layer, os.listdir(base) if os.path.isdir(base) else ()):
        with contextlib.suppress(FileNotFoundError):
            header = qcow2.read(os.path.join(base, name))
            if header is not None and header.backing:
                used.add(os.path.basename(header.backing))
    return used


def _recorded(path: str) -> set[str]:
    with open(path, "rb") as file:
        try:
            return set(msgspec.json.decode(file.read(), type=_Images).images)
        except ValueError as error:
            raise OSError(f"{path} cannot be read: {error}") from error


def _directories(instances_path: str) -> Iterator[str]:
    """Yield the instance directories, including incomplete ones, since their records already name the images."""
    with os.scandir(instances_path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and (
                records.uuid_of(entry.name) is not None or entry.name.startswith(records.UNFINISHED)
            ):
                yield entry.path

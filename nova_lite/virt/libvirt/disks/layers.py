"""Layers: disks of servers as they were when they were cloned. The disks of source and clone lie on them.

::

    <instances_path>/_base/layer-<uuid of the clone>        the layer, on top of an earlier one, or of the image
    <instances_path>/_base/layer-<uuid of the clone>.nvram  the firmware variables of the source
    <instances_path>/<uuid of the source>/disk.new          its disk until it has its old name again

A layer never changes. The headers of disks and layers name the file below them. Clones of a disk that was not written
meanwhile have layers that are links to one file.
"""

from __future__ import annotations

import os
import re
import uuid

from nova_lite.base import exceptions
from nova_lite.image import qcow2
from nova_lite.virt.libvirt.disks import volume_chains

#: Most layers below a disk: each one costs time at reads.
MOST = 16
NVRAM = ".nvram"
#: Suffix of a disk on top of a new layer.
NEW = ".new"

_LAYER = re.compile(r"layer-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def name_of(clone_uuid: str) -> str:
    """Return the name of the layer of a clone. Raises ValueError for an invalid uuid."""
    return f"layer-{uuid.UUID(clone_uuid)}"


def is_layer(path: str) -> bool:
    return _LAYER.fullmatch(os.path.basename(path)) is not None


def belongs_to_clone(name: str) -> bool:
    """Check whether this file of the image cache is a layer, or the firmware variables beside one."""
    return is_layer(name.removesuffix(NVRAM))


def below(path: str) -> tuple[volume_chains.File, ...]:
    """Return the files below a root disk of this host's: layers, then the image, if it has one.

    Raises `VirtDriverError` if there are too many, and OSError.
    """
    found: list[volume_chains.File] = []
    header = qcow2.read(path)
    while header is not None and header.backing:
        if len(found) > MOST:
            raise exceptions.VirtDriverError(reason=f"{path} lies on more than {MOST} layers")
        found.append(volume_chains.File(header.backing, header.backing_format or "raw"))
        header = qcow2.read(header.backing) if is_layer(header.backing) else None
    return tuple(found)


def names_below(path: str) -> list[str]:
    """Return the names of the layers below a root disk. A disk that is missing or raw has none."""
    return [file.name for file in below(path) if is_layer(file.path)] if os.path.exists(path) else []


def is_as_new(path: str, new: str) -> bool:
    """Check whether a disk is on top of a layer, and as empty as the file ``new``.

    qcow2 files grow with the first write, and do not shrink.
    """
    header = qcow2.read(path)
    return header is not None and is_layer(header.backing) and os.path.getsize(path) == os.path.getsize(new)


def take(directory: str, name: str) -> None:
    """Give the disk in an instance's directory its name again after a host was lost while it froze the disk."""
    path = os.path.join(directory, name)
    if os.path.exists(path + NEW):
        os.replace(path + NEW, path)

"""Files of snapshot points in the directory of an instance. See `nova_lite.virt.libvirt.domain.points`."""

from __future__ import annotations

import os
import re
import uuid

from nova_lite.base import files
from nova_lite.virt.libvirt.disks import disks, tpm_states

MEMORY = "memory"

_NAME = re.compile(r"point-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-(.*)")


def prefix(point_id: str) -> str:
    """Return the start of the names of a point's files. Raises ValueError for an invalid id."""
    return f"point-{uuid.UUID(point_id)}-"


def travels(name: str) -> bool:
    """Check whether this is a file of a point that moves to another host with the disk."""
    found = _NAME.fullmatch(name)
    return found is not None and found[1] in (disks.NVRAM, *tpm_states.NAMES)


def copy_variables(directory: str, source: str, target: str) -> None:
    """Give the firmware variables with the prefix ``target`` the content of those with ``source``, which may be
    missing."""
    origin, path = (os.path.join(directory, start + disks.NVRAM) for start in (source, target))
    if not os.path.exists(origin):
        files.remove(path)
        return
    owner = os.stat(origin)
    with open(origin, "rb") as file:
        files.write_atomically(path, file.read(), owner=(owner.st_uid, owner.st_gid))


def remove(directory: str, point_id: str) -> None:
    for name in os.listdir(directory):
        if name.startswith(prefix(point_id)):
            files.remove(os.path.join(directory, name))

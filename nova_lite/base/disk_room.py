"""Free space on the disks of a host. Work that writes much data leaves a floor of it free, because guests share it.

Such work checks before that the most it can take fits. It repeats the check while it writes, because other work and the
disks of guests grow at the same time.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from oslo_config import cfg

from nova_lite.base import exceptions

MIB = 1024**2
#: Bytes that work may write between two checks.
STEP = 64 * MIB
#: Bytes of a block, as ``stat`` counts them.
_SECTOR = 512


def free_bytes(directory: str) -> int:
    """Return the bytes that are free on the file system of a directory."""
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize


class DiskRoom:
    """Free space on disks of this host. ``floor``: bytes that stay free. ``free``: reads the free bytes of a
    directory."""

    def __init__(self, floor: int, free: Callable[[str], int] = free_bytes) -> None:
        self._floor = floor
        self._free = free

    def require(self, directory: str, size: int, purpose: str) -> None:
        """Raise `VirtDriverError` if ``size`` bytes more in the directory would leave less than the floor.

        ``purpose``: a plural, the data that need the room.
        """
        free = self._free(directory)
        if free - size < self._floor:
            raise exceptions.VirtDriverError(
                reason=f"{purpose} need {-(-size // MIB)} MiB more, {free // MIB} MiB are free on the disk, and "
                f"{-(-self._floor // MIB)} MiB have to stay free"
            )

    def kept(self, directory: str, check: Callable[[], None], purpose: str) -> Callable[[], None]:
        """Return a check that also raises `VirtDriverError` when less than the floor is free. Call it often."""

        def check_both() -> None:
            check()
            self.require(directory, 0, purpose)

        return check_both


def of_host(conf: cfg.ConfigOpts) -> DiskRoom:
    """Return the room of a compute host: it keeps free what images leave free, or what is reserved for the host."""
    return DiskRoom(max(conf.image.min_free_mb, conf.reserved_host_disk_mb) * MIB)


def data_in(path: str) -> int | None:
    """Return the bytes that a file takes on its disk. None: it is no plain file. Raises OSError."""
    found = os.stat(path)
    return found.st_blocks * _SECTOR if stat.S_ISREG(found.st_mode) else None

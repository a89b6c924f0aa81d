"""Locks of open files (OFD locks), which belong to an open file and not to a process, and which qemu uses, too."""

from __future__ import annotations

import fcntl
import struct

#: ``struct flock``: type, whence, start, length (0: to the end), pid.
_FLOCK = "hhqqi4x"


def lock(descriptor: int) -> None:
    """Lock a whole file until its last descriptor is closed. Raises OSError if another open file has a lock on it, or
    if its file system has no locks."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0))


def is_locked(descriptor: int, start: int = 0, length: int = 0) -> bool:
    """Check whether another open file, of any process or host, has a lock on these bytes. Raises OSError."""
    request = struct.pack(_FLOCK, fcntl.F_WRLCK, 0, start, length, 0)
    found: int = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, request))[0]
    return found != fcntl.F_UNLCK

"""Locks that qemu holds on the files of disks: no other process may open such a disk.

qemu locks a byte for each permission that it has (from 100), and for each that it denies to others (from 200). Over
NFS 4, CephFS and other shared file systems with locks, all hosts see them. This is the second line of defence: fencing
and generations have decided before that no other guest has the disk.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from nova_lite.base import exceptions, ofd_locks
from nova_lite.base.timing import LibvirtTiming
from nova_lite.virt.libvirt.disks import disks

LOG = logging.getLogger(__name__)

#: Disks in an instance's directory that guests write to.
DISKS = (*disks.ROOTS, disks.NEW_ROOT, *disks.EPHEMERALS, disks.SWAP)

#: Bytes of a file that qemu locks while it may write, and while it lets no other process write.
WRITES, DENIES_WRITES = 101, 201


def is_open_elsewhere(path: str) -> bool:
    """Check whether a process, here or at another host, has the disk open so that a guest cannot have it, too.

    A file that does not exist is free.

    Without locks at its file system, qemu does not lock it, either.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        return any(ofd_locks.is_locked(descriptor, byte, 1) for byte in (WRITES, DENIES_WRITES))
    except OSError as error:
        LOG.debug("Locks of %s cannot be read: %s", path, error)
        return False
    finally:
        os.close(descriptor)


def require_free(instance_uuid: str, directory: str) -> None:
    """Raise `DiskInUse` if a disk in the instance's directory is open elsewhere."""
    for name in DISKS:
        if is_open_elsewhere(os.path.join(directory, name)):
            raise exceptions.DiskInUse(instance_uuid=instance_uuid, disk=name)


def wait_until_free(instance_uuid: str, directory: str, check: Callable[[], None], timing: LibvirtTiming) -> None:
    """Wait until no process has the disks in the directory open. Raises `DiskInUse` after ``timing.disk_lock_wait``.

    ``check`` may end it by raising.
    """
    deadline = time.monotonic() + timing.disk_lock_wait
    while True:
        try:
            require_free(instance_uuid, directory)
            return
        except exceptions.DiskInUse:
            if time.monotonic() >= deadline:
                raise
        check()
        time.sleep(timing.disk_lock_poll)

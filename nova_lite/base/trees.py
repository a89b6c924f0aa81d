"""Removal of directories with their content, which never enters a mount and never follows a link."""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

MOUNTED = "something is mounted there"


class Left(NamedTuple):
    """A path that stays, and why. ``is_error``: it should have gone."""

    path: str
    reason: str
    is_error: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def remove(path: str | os.PathLike[str]) -> list[Left]:
    """Remove a file, a link, or a directory with its content, as far as possible. Return what stays.

    A directory on which something is mounted stays with its content, and so do the directories above it, up to
    ``path``. The directories are open meanwhile, so that no process can put a link or a mount in their place.
    """
    parent, name = os.path.split(os.path.abspath(path))
    left: list[Left] = []
    try:
        descriptor = _open(parent)
    except FileNotFoundError:
        return left
    try:
        _remove(descriptor, name, os.path.join(parent, name), left)
    finally:
        os.close(descriptor)
    return left


def discard(path: str | os.PathLike[str]) -> None:
    """Remove a file, a link, or a directory with its content. Raises OSError if anything stays."""
    for left in remove(path):
        raise OSError(errno.EBUSY, left.reason, left.path)


def is_mount(path: str | os.PathLike[str]) -> bool:
    """Check whether something is mounted on a directory: a file system, or another directory. Raises OSError."""
    parent, name = os.path.split(os.path.abspath(path))
    above = _open(parent)
    try:
        descriptor = _open(name, above)
        try:
            return _mount_of(descriptor) != _mount_of(above)
        finally:
            os.close(descriptor)
    finally:
        os.close(above)


def _remove(above: int, name: str, path: str, left: list[Left]) -> None:
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            _remove_directory(above, name, path, left)
        else:
            os.unlink(name, dir_fd=above)
    except FileNotFoundError:
        return
    except OSError as error:
        # The kernel keeps a file on which another one is mounted.
        is_busy = error.errno == errno.EBUSY
        left.append(Left(path, MOUNTED if is_busy else error.strerror or str(error), not is_busy))


def _remove_directory(above: int, name: str, path: str, left: list[Left]) -> None:
    descriptor = _open(name, above)
    try:
        if _mount_of(descriptor) != _mount_of(above):
            left.append(Left(path, MOUNTED))
            return
        before = len(left)
        for entry in os.listdir(descriptor):
            _remove(descriptor, entry, os.path.join(path, entry), left)
    finally:
        os.close(descriptor)
    if len(left) == before:
        os.rmdir(name, dir_fd=above)


def _open(name: str, above: int | None = None) -> int:
    """Open a directory. Below another one, ``name`` must not be a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if above is None else os.O_NOFOLLOW)
    return os.open(name, flags, dir_fd=above)


def _mount_of(descriptor: int) -> tuple[str, int]:
    """Return the mount, and the device, of an open directory. Two mounts of one file system differ in the first."""
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
        number = next(line.split()[1] for line in file if line.startswith("mnt_id:"))
    return number, os.fstat(descriptor).st_dev

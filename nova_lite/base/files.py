"""Small files that have to be complete after a crash."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import tempfile
import time
from collections.abc import Callable, Iterator

from nova_lite.base import failpoints

#: Called with the number of bytes copied so far. Ends the copy by raising.
Progress = Callable[[int], None]

#: Prefix of the name of a file that is still being written. Readers of the directory skip it.
TEMPORARY = ".new-"

#: Suffix of the name of the file that its writer locks while it writes a large file (`large_part`).
LOCK = ".lock"


def exists(path: str) -> bool:
    """Check whether a file exists. Unlike `os.path.exists`, raise OSError if this user may not know."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def private_directory(path: str) -> str:
    """Make the directory ``path`` (mode 0700) with its parents, unless it exists. Returns ``path``."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def write_atomically(
    path: str,
    data: bytes,
    durable: bool = True,
    mode: int = 0o600,
    owner: tuple[int, int] | None = None,
    writer: str = "",
) -> None:
    """Replace the content of ``path``. A reader sees the old or the new content, never a part, also after a crash.

    ``owner``: user and group of the file, if root writes it. ``durable``: sync file and directory, so that the new
    content survives a power cut. Without it a power cut, unlike a kill, may leave neither content. ``writer``: the
    host that writes, if daemons of several hosts write to the directory (`remove_unfinished`).
    """
    directory = os.path.dirname(path)
    if durable:
        failpoints.check_disk()
    descriptor, temporary = tempfile.mkstemp(prefix=_unfinished(writer), dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if owner is not None and os.geteuid() == 0:
                os.fchown(descriptor, *owner)
            os.fchmod(descriptor, mode)
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        remove(temporary)
        raise
    if durable:
        sync_directory(directory)


def private_opener(path: str, flags: int) -> int:
    """Open a file for `open(opener=...)`; a new file has mode 0600."""
    return os.open(path, flags, 0o600)


def sync_directory(path: str) -> None:
    """Make names that were added to or removed from a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_unfinished(directory: str, writer: str = "") -> None:
    """Remove the files that a killed daemon left half written. No process may be writing to the directory now.

    ``writer``: remove only the files of this host, which may not be writing now. Other hosts may.
    """
    for name in os.listdir(directory):
        if name.startswith(_unfinished(writer)):
            remove(os.path.join(directory, name))


def _unfinished(writer: str) -> str:
    """Return the prefix of temporary names. The @, which no host name has, ends the host's."""
    return f"{TEMPORARY}{writer}@" if writer else TEMPORARY


@contextlib.contextmanager
def locked_directory(path: str) -> Iterator[None]:
    """Exclude other commands that write to a directory meanwhile, and remove what a killed one left half written."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        remove_unfinished(path)
        yield
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Remove a file, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


@contextlib.contextmanager
def large_part(directory: str, prefix: str) -> Iterator[str]:
    """Yield the path of a new, empty file with a name that begins with ``prefix``. It is removed at the end.

    Until then another file is locked, so that `abandoned_parts` leaves out this file, and files whose name begins with
    its name and a dot, whatever a clock says. The lock is not on the file itself, which qemu locks while it writes.
    """
    failpoints.check_disk()
    descriptor, lock = tempfile.mkstemp(prefix=prefix, suffix=LOCK, dir=directory)
    path = lock.removesuffix(LOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        yield path
    finally:
        remove(path)
        remove(lock)
        os.close(descriptor)


def abandoned_parts(directory: str, prefix: str, older_than: float) -> Iterator[str]:
    """Yield the paths in ``directory`` that begin with ``prefix``, are this old, and that no process writes.

    The age counts for files of earlier versions, which have no lock, and for the moment before a writer has its lock.
    """
    for path in sorted(glob.glob(os.path.join(glob.escape(directory), f"{glob.escape(prefix)}*"))):
        with contextlib.suppress(FileNotFoundError):
            stem = os.path.basename(path).removeprefix(prefix).partition(".")[0]
            lock = os.path.join(directory, f"{prefix}{stem}{LOCK}")
            if os.stat(path).st_mtime < time.time() - older_than and not _is_locked(lock):
                yield path


def _is_locked(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False

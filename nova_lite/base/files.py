"""Small files that have to be whole after a crash."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable

#: Hears how many bytes were copied so far, and may end that by raising.
Progress = Callable[[int], None]

#: How a file that is still being written begins; a reader of the directory skips it.
TEMPORARY = ".new-"


def private_directory(path: str) -> str:
    """Make ``path`` (mode 0700) with its parents, if it is not there; returns it."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def write_atomically(
    path: str, data: bytes, durable: bool = True, mode: int = 0o600, owner: tuple[int, int] | None = None
) -> None:
    """Replace ``path``: a reader, or a start after a crash, sees the old content or the new, never a part.

    ``owner``: the user and group that it belongs to when root writes it.

    ``durable``: on return the new content also survives a power cut (file and directory are synced). Without it a power
    cut, other than a kill, may leave neither content.
    """
    directory = os.path.dirname(path)
    descriptor, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=directory)
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
    """For `open`: the file it makes has mode 0600."""
    return os.open(path, flags, 0o600)


def sync_directory(path: str) -> None:
    """Make names that were added to or removed from a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_unfinished(directory: str) -> None:
    """What a daemon was writing there when it was killed; nobody writes there now."""
    for name in os.listdir(directory):
        if name.startswith(TEMPORARY):
            remove(os.path.join(directory, name))


def remove(path: str) -> None:
    """Unlink a file that may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)

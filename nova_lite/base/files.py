"""Small files that have to be complete after a crash."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable

#: Called with the number of bytes copied so far. Ends the copy by raising.
Progress = Callable[[int], None]

#: Prefix of the name of a file that is still being written. Readers of the directory skip it.
TEMPORARY = ".new-"


def private_directory(path: str) -> str:
    """Make the directory ``path`` (mode 0700) with its parents, unless it exists. Returns ``path``."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def write_atomically(
    path: str, data: bytes, durable: bool = True, mode: int = 0o600, owner: tuple[int, int] | None = None
) -> None:
    """Replace the content of ``path``. A reader sees the old or the new content, never a part, also after a crash.

    ``owner``: user and group of the file, if root writes it. ``durable``: sync file and directory, so that the new
    content survives a power cut. Without it a power cut, unlike a kill, may leave neither content.
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
    """Open a file for `open(opener=...)`; a new file has mode 0600."""
    return os.open(path, flags, 0o600)


def sync_directory(path: str) -> None:
    """Make names that were added to or removed from a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_unfinished(directory: str) -> None:
    """Remove the files that a killed daemon left half written. Nobody may be writing to the directory now."""
    for name in os.listdir(directory):
        if name.startswith(TEMPORARY):
            remove(os.path.join(directory, name))


def remove(path: str) -> None:
    """Remove a file, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)

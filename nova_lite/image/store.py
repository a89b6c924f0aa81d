"""The local backend's directory of image files: ``<store_path>/<image id>``, written once, never changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Callable
from typing import Protocol

from nova_lite.base import failpoints, files

CHUNK = 1024 * 1024
MODE = 0o640
#: How a file that is still being written begins.
TEMPORARY = ".import-"
#: Below the store: a directory for each host, the only one that it writes.
UPLOADS = "uploads"


def file_path(store_path: str, image_id: str) -> str:
    """``<store>/<image id>``; an id that is not a plain name never leaves the directory."""
    return os.path.join(store_path, os.path.basename(image_id))


def uploads_path(store_path: str, host: str) -> str:
    """Where this host puts what it uploads."""
    return os.path.join(store_path, UPLOADS, os.path.basename(host))


def prepare(store_path: str) -> None:
    """Make the directory if it is missing; made by root, it belongs to whoever its parent belongs to."""
    if os.path.isdir(store_path):
        return
    os.makedirs(store_path, mode=0o750, exist_ok=True)
    if os.geteuid() == 0:
        parent = os.stat(os.path.dirname(os.path.abspath(store_path)))
        os.chown(store_path, parent.st_uid, parent.st_gid)


def prepare_below(store_path: str, *names: str) -> str:
    """Make this directory below the store, for whom the store is: its owner, and its group where that may write.
    Returns its path."""
    prepare(store_path)
    path = store_path
    for name in names:
        path = os.path.join(path, name)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, mode=0o750)
            if os.geteuid() == 0:
                store = os.stat(store_path)
                os.chown(path, store.st_uid, store.st_gid)
                os.chmod(path, stat.S_IMODE(store.st_mode))
    return path


class StoredSource(Protocol):
    """What bytes are read from: a file, or the body of a request."""

    def read(self, size: int, /) -> bytes: ...


def add(
    store_path: str,
    image_id: str,
    source: StoredSource,
    progress: Callable[[int], None] | None = None,
    check: Callable[[str], None] | None = None,
) -> tuple[int, str]:
    """Copy ``source`` into the store; returns its size in bytes and its SHA-256 in hex.

    The file appears under its name only when it is whole and on disk. ``progress`` hears the bytes copied so far;
    ``check`` gets the path of the whole file before it has its name, and refuses it by raising. Raises OSError and
    whatever ``source`` and ``check`` do, and then leaves nothing behind.
    """
    digest = hashlib.sha256()
    size = 0
    descriptor, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=store_path)
    with contextlib.ExitStack() as undo:
        undo.callback(os.unlink, temporary)
        with os.fdopen(descriptor, "wb") as target:
            while chunk := source.read(CHUNK):
                failpoints.check_disk()
                target.write(chunk)
                digest.update(chunk)
                size += len(chunk)
                if progress is not None:
                    progress(size)
            target.flush()
            os.fchmod(target.fileno(), MODE)
            _give_to_owner_of(store_path, target.fileno())
            os.fsync(target.fileno())
        if check is not None:
            check(temporary)
        os.rename(temporary, file_path(store_path, image_id))
        undo.pop_all()
    files.sync_directory(store_path)
    return size, digest.hexdigest()


def sweep(store_path: str, older_than: float = 86400.0) -> None:
    """Remove what imports and uploads that were killed have left, if nobody wrote to it for so many seconds."""
    if not os.path.isdir(store_path):
        return
    with os.scandir(store_path) as entries:
        for entry in entries:
            if entry.name.startswith(TEMPORARY) and entry.stat().st_mtime < time.time() - older_than:
                files.remove(entry.path)


def checksum(path: str) -> str:
    """SHA-256 of a file in hex."""
    with open(path, "rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def remove(store_path: str, image_id: str) -> None:
    """Quiet when there is no such file; raises OSError when it cannot be removed."""
    files.remove(file_path(store_path, image_id))


def _give_to_owner_of(store_path: str, descriptor: int) -> None:
    """Root imports, but the daemons that read are somebody else: whoever the store belongs to."""
    if os.geteuid() == 0:
        store = os.stat(store_path)
        os.fchown(descriptor, store.st_uid, store.st_gid)

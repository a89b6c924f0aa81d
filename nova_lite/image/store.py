"""Directory of the local backend: ``<store_path>/<image id>``. Image files never change."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from typing import NamedTuple, Protocol

from nova_lite.base import files
from nova_lite.base.disk_room import free_bytes

_MIB = 1024 * 1024
CHUNK = _MIB
#: Bytes of an upload between two checks of the free space.
SPACE_STEP = 64 * _MIB
MODE = 0o640
#: Prefix of files that are incomplete.
TEMPORARY = ".import-"
#: Name of the directory below the store that has a directory for each host's uploads.
UPLOADS = "uploads"


def file_path(store_path: str, image_id: str) -> str:
    """Return the path of an image's file. It is in the store, even if the id contains slashes."""
    return os.path.join(store_path, os.path.basename(image_id))


def uploads_path(store_path: str, host: str) -> str:
    """Return the directory of this host's uploads."""
    return os.path.join(store_path, UPLOADS, os.path.basename(host))


def prepare(store_path: str) -> None:
    """Create the directory if it is missing. If root creates it, its owner is the owner of its parent."""
    if os.path.isdir(store_path):
        return
    os.makedirs(store_path, mode=0o750, exist_ok=True)
    if os.geteuid() == 0:
        parent = os.stat(os.path.dirname(os.path.abspath(store_path)))
        os.chown(store_path, parent.st_uid, parent.st_gid)


def require_room(store_path: str, size: int, floor: int) -> None:
    """Raise OSError if the store would have less than ``floor`` bytes free with ``size`` bytes more."""
    prepare(store_path)
    free = free_bytes(store_path)
    if free - size < floor:
        reason = f"{free // _MIB} MiB are free, and {floor // _MIB} MiB have to stay free"
        raise OSError(errno.ENOSPC, reason, store_path)


class Room:
    """Free space of the store that an upload of ``size`` bytes leaves. ``floor_mb``: MiB that stay free."""

    def __init__(self, store_path: str, floor_mb: int, size: int) -> None:
        self._store_path = store_path
        self._floor = floor_mb * _MIB
        self._size = size
        self._next_check = 0
        self.check(0)

    def check(self, done: int) -> None:
        """Raise OSError if the rest of the upload does not fit. ``done``: bytes that are stored already."""
        if done >= self._next_check:
            self._next_check = done + SPACE_STEP
            require_room(self._store_path, max(0, self._size - done), self._floor)


def prepare_below(store_path: str, *names: str) -> str:
    """Create a directory below the store, with the store's owner, group and mode. Return its path."""
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


class Sums(NamedTuple):
    """Size in bytes, SHA-256 and MD5 in hex of an image's data."""

    size: int
    checksum: str
    md5: str


class StoredSource(Protocol):
    """Source of data: a file or the body of a request."""

    def read(self, size: int, /) -> bytes: ...


def add(
    store_path: str,
    image_id: str,
    source: StoredSource,
    progress: Callable[[int], None] | None = None,
    check: Callable[[str], None] | None = None,
) -> Sums:
    """Copy ``source`` into the store.

    The file gets its name when it is complete and on disk. ``progress`` receives the number of bytes copied. ``check``
    receives the path of the complete file before it gets its name, and refuses it by raising. Raises OSError and the
    errors of ``source`` and ``check``. After an error no file remains.
    """
    target = IncompleteFile(store_path, image_id)
    try:
        while chunk := source.read(CHUNK):
            target.write(chunk)
            if progress is not None:
                progress(target.size)
        return target.publish(check)
    except BaseException:
        target.discard()
        raise


def adopt(store_path: str, image_id: str, path: str, check: Callable[[str], None] | None = None) -> Sums:
    """Give a complete file in the store's directory the name of an image. ``check`` is that of `add`."""
    with open(path, "rb") as file:
        found = Sums(os.fstat(file.fileno()).st_size, *sums(path))
        _name(store_path, image_id, path, file.fileno(), check)
    return found


def _name(
    store_path: str, image_id: str, path: str, descriptor: int, check: Callable[[str], None] | None = None
) -> None:
    """Give a complete file its name, when it is on disk and has the store's owner."""
    os.fchmod(descriptor, MODE)
    _give_to_owner_of(store_path, descriptor)
    os.fsync(descriptor)
    if check is not None:
        check(path)
    os.rename(path, file_path(store_path, image_id))
    files.sync_directory(store_path)


class IncompleteFile:
    """File of an image that is being written. It gets its name when it is complete and on disk."""

    def __init__(self, store_path: str, image_id: str) -> None:
        self.size = 0
        self._store_path = store_path
        self._image_id = image_id
        self._digest = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)
        with contextlib.ExitStack() as undo:
            self._temporary = undo.enter_context(files.large_part(store_path, TEMPORARY))
            self._file = undo.enter_context(open(self._temporary, "wb"))
            self._undo = undo.pop_all()

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._digest.update(chunk)
        self._md5.update(chunk)
        self.size += len(chunk)

    def publish(self, check: Callable[[str], None] | None = None) -> Sums:
        """Give the file its name. ``check`` is that of `add`."""
        self._file.flush()
        _name(self._store_path, self._image_id, self._temporary, self._file.fileno(), check)
        self.discard()
        return Sums(self.size, self._digest.hexdigest(), self._md5.hexdigest())

    def append(self, first: int) -> None:
        """Add what was written to the image's file, which has ``first`` bytes that count; others are replaced."""
        self._file.flush()
        with open(self._temporary, "rb") as source, open(file_path(self._store_path, self._image_id), "r+b") as target:
            target.truncate(first)
            target.seek(first)
            shutil.copyfileobj(source, target, CHUNK)
            target.flush()
            os.fsync(target.fileno())
        self.discard()

    def discard(self) -> None:
        """Close the file, and remove it if it has not got its name."""
        with contextlib.suppress(OSError):  # the disk is full; what could not be written is not needed
            self._undo.close()


def sweep(store_path: str, older_than: float = 86400.0) -> None:
    """Remove leftovers of interrupted imports and uploads that were not written for ``older_than`` seconds."""
    for path in files.abandoned_parts(store_path, TEMPORARY, older_than):
        files.remove(path)


def sums(path: str) -> tuple[str, str]:
    """Return the SHA-256 and the MD5 of a file in hex."""
    digest, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as source:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            md5.update(chunk)
    return digest.hexdigest(), md5.hexdigest()


def remove(store_path: str, image_id: str) -> None:
    """Remove an image's file, if it exists. Raises OSError."""
    files.remove(file_path(store_path, image_id))


def _give_to_owner_of(store_path: str, descriptor: int) -> None:
    """Change the owner to the store's owner if this is root, so that daemons can read the file."""
    if os.geteuid() == 0:
        store = os.stat(store_path)
        os.fchown(descriptor, store.st_uid, store.st_gid)

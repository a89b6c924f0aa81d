"""Starts a reader for the file of an image, and checks what it answers: a hostile disk may have taken it over."""

from __future__ import annotations

import collections
import os
import sys
import time
from typing import IO, Any, Self, TypeVar

import msgspec

from nova_lite.base import concurrency, exceptions

#: Readers at a time in this process, and those of a project. Each may block a thread that sends responses.
MAX_READERS, MAX_OF_PROJECT = 4, 2
#: Most bytes of an answer.
_MAX_ANSWER = 32 * 1024**2
_CHUNK = 1024**2
#: Directory that has the package.
_TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BUSY = "Too many files of backups are being read. Please try again."

T = TypeVar("T")


class DiskPartition(msgspec.Struct):
    """Partition of a disk. Number 0 is a disk without partitions. ``size``: bytes."""

    number: int
    size: int
    file_system: str | None
    label: str | None
    readable: bool


class DiskFile(msgspec.Struct):
    """Entry of a directory. ``target``: of a symbolic link. ``modified``: seconds since 1970."""

    name: str
    type: str
    size: int
    mode: int
    uid: int
    gid: int
    modified: int
    target: str | None


class Partitions(msgspec.Struct):
    partitions: list[DiskPartition]


class Listing(msgspec.Struct):
    """Entries of a directory. ``truncated``: some are left out."""

    entries: list[DiskFile]
    truncated: bool


class Found(msgspec.Struct):
    """A file or directory whose data follow. ``size``: bytes, None for the archive of a directory."""

    kind: str
    size: int | None


class _Refusal(msgspec.Struct):
    refused: str
    missing: bool


class Readers:
    """Readers of this process. Methods raise `BackupFileNotFound`, `BackupFilesUnreadable`, `ServiceUnavailable`.

    ``seconds``: time within which a reader answers, or gives the next data.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self.seconds = seconds
        self._lock: Any = concurrency.native("threading").Lock()
        self._projects: collections.Counter[str] = collections.Counter()

    def ask(self, disk: DiskImage, request: dict[str, Any], answer: type[T]) -> T:
        """Return the answer of a reader without data."""
        with Reader(self, disk, request) as reader:
            found: T = concurrency.call_blocking(reader.answer, answer)
        return found

    def download(self, disk: DiskImage, request: dict[str, Any]) -> tuple[Found, Reader]:
        """Return what is found, and its data. The caller closes them."""
        reader = Reader(self, disk, request)
        try:
            return concurrency.call_blocking(reader.answer, Found), reader
        except BaseException:
            reader.close()
            raise

    def enter(self, project_id: str) -> None:
        with self._lock:
            if self._projects.total() >= MAX_READERS or self._projects[project_id] >= MAX_OF_PROJECT:
                raise exceptions.ServiceUnavailable(BUSY)
            self._projects[project_id] += 1

    def leave(self, project_id: str) -> None:
        with self._lock:
            self._projects[project_id] -= 1


class DiskImage(msgspec.Struct):
    """Image of a backup's disk: a file of this machine in a format of Glance's."""

    backup_id: str
    project_id: str
    path: str
    format: str


class Reader:
    """A running reader, and its data as an iterator. It is killed when it is closed."""

    def __init__(self, readers: Readers, disk: DiskImage, request: dict[str, Any]) -> None:
        self._readers: Readers | None = readers
        self._seconds = readers.seconds
        self._disk = disk
        self._rest = b""
        self._left: int | None = None
        readers.enter(disk.project_id)
        try:
            with open(disk.path, "rb") as image:
                self._process = _start(image, {"format": disk.format, **request})
        except OSError as error:
            self._readers = None
            readers.leave(disk.project_id)
            raise self._unreadable("its image has no data on this controller") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(self, kind: type[T]) -> T:
        """Wait for the answer."""
        deadline = time.monotonic() + self._seconds
        line, chunk = bytearray(), b""
        while b"\n" not in chunk:
            chunk = self._read(deadline - time.monotonic())
            line += chunk
            if not chunk or len(line) > _MAX_ANSWER:
                raise self._unreadable("its file system is damaged")
        text, _, self._rest = bytes(line).partition(b"\n")
        try:
            found = msgspec.json.decode(text, type=dict[str, Any])
            if "refused" in found:
                refusal = msgspec.convert(found, _Refusal)
                if refusal.missing:
                    raise exceptions.BackupFileNotFound(backup_id=self._disk.backup_id, reason=refusal.refused)
                raise self._unreadable(refusal.refused)
            made = msgspec.convert(found, kind)
        except msgspec.MsgspecError as error:
            raise self._unreadable("its file system is damaged") from error
        if isinstance(made, Found):
            self._left = made.size
        return made

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        """Return the next data. Raises an error if they end early: then the response does, too."""
        chunk, self._rest = self._rest or self._read(self._seconds), b""
        if self._left is not None:
            self._left -= len(chunk)
        if not chunk:
            if self._process.wait() != 0 or self._left:
                raise self._unreadable("its file system is damaged")
            raise StopIteration
        return chunk

    def close(self) -> None:
        """End the reader. It may have ended, or be closed, already."""
        if self._readers is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            self._readers.leave(self._disk.project_id)
            self._readers = None

    def _read(self, seconds: float) -> bytes:
        number = self._process.stdout.fileno()
        poll = concurrency.native("select").poll()
        poll.register(number)
        if not poll.poll(max(0.0, seconds) * 1000):
            raise self._unreadable(f"nothing was found within {self._seconds:g} seconds")
        return bytes(concurrency.native("os").read(number, _CHUNK))

    def _unreadable(self, reason: str) -> exceptions.BackupFilesUnreadable:
        return exceptions.BackupFilesUnreadable(backup_id=self._disk.backup_id, reason=reason)


def _start(image: IO[bytes], request: dict[str, Any]) -> Any:
    """Start a reader, which has nothing of this process but the image and a pipe."""
    subprocess = concurrency.native("subprocess")
    command = [sys.executable, "-P", "-m", "nova_lite.backups.files.reader", msgspec.json.encode(request).decode()]
    return subprocess.Popen(
        command,
        bufsize=0,
        stdin=image,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PYTHONPATH": _TOP, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
    )

"""Paths, lists and archives of a file system.

Names and structures are the guest's. So directories are walked once each and to a limited depth, and no archive has two
members of one name, or a member outside of its directory.
"""

from __future__ import annotations

import enum
import io
import stat
import tarfile
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, Protocol

from nova_lite.backups.files.disk import Refused

CHUNK = 1024**2
#: Most entries of a list, most names of a directory that are looked at, and deepest directory.
MAX_ENTRIES, _MAX_NAMES, _MAX_DEPTH = 10_000, 1_000_000, 64
#: Most members of an archive, most bytes of a link's target, and of a directory.
_MAX_MEMBERS, _MAX_TARGET, _MAX_DIRECTORY = 1_000_000, 4096, 1024**3


class Kind(enum.StrEnum):
    """Kind of a file. OTHER: a device, a socket, or a file that cannot be read here."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"


class Inode(NamedTuple):
    """A file. ``modified``: seconds since 1970."""

    number: int
    kind: Kind
    size: int
    mode: int
    uid: int
    gid: int
    modified: int


class Extent(NamedTuple):
    """Data of a file: ``length`` bytes at its ``offset`` are at ``place`` of the file system, or are ``data``."""

    offset: int
    place: int
    length: int
    data: bytes | None = None


class FileSystem(Protocol):
    """A file system that is read. Its methods raise `Refused` if it is damaged."""

    name: str
    label: bytes
    root: int

    def inode(self, number: int) -> Inode: ...

    def link(self, inode: Inode) -> bytes:
        """Return the target of a symbolic link."""

    def extents(self, inode: Inode) -> Iterator[Extent]:
        """Yield where the data of a file are, by their offsets. The rest is zero."""

    def names(self, inode: Inode) -> Iterator[tuple[bytes, int]]:
        """Yield the names in a directory with their inodes."""

    def read(self, offset: int, length: int) -> bytes: ...


def kind_of(mode: int) -> Kind:
    kinds = {stat.S_IFREG: Kind.FILE, stat.S_IFDIR: Kind.DIRECTORY, stat.S_IFLNK: Kind.LINK}
    return kinds.get(stat.S_IFMT(mode), Kind.OTHER)


def find(system: FileSystem, path: bytes) -> Inode:
    """Return the file of a path. No link is followed. Raises `Refused`."""
    inode = system.inode(system.root)
    for name in path.split(b"/"):
        if name in (b"", b"."):
            continue
        if inode.kind is not Kind.DIRECTORY:
            raise Refused(f"a part of the path is a {inode.kind}, not a directory")
        number = next((number for known, number in children(system, inode) if known == name), None)
        if number is None:
            raise Refused("there is no such file", missing=True)
        inode = system.inode(number)
    return inode


def children(system: FileSystem, directory: Inode) -> Iterator[tuple[bytes, int]]:
    """Yield the names in a directory that may be names, each once."""
    seen: set[bytes] = set()
    if directory.size > _MAX_DIRECTORY:
        raise Refused("a directory is too large")
    for name, number in system.names(directory):
        if name not in (b"", b".", b"..") and b"/" not in name and b"\0" not in name and name not in seen:
            seen.add(name)
            if len(seen) > _MAX_NAMES:
                raise Refused("a directory has too many names")
            yield name, number


def entries(system: FileSystem, directory: Inode) -> tuple[list[dict[str, object]], bool]:
    """Return the entries of a directory by name, and whether some are left out because they are too many."""
    found: list[tuple[bytes, int]] = []
    for name, number in children(system, directory):
        if len(found) == MAX_ENTRIES:
            return [_entry(system, *item) for item in sorted(found)], True
        found.append((name, number))
    return [_entry(system, *item) for item in sorted(found)], False


def _entry(system: FileSystem, name: bytes, number: int) -> dict[str, object]:
    inode = system.inode(number)
    target = text(_target(system, inode)) if inode.kind is Kind.LINK else None
    return {
        "name": text(name),
        "type": inode.kind,
        "size": inode.size,
        "mode": inode.mode,
        "uid": inode.uid,
        "gid": inode.gid,
        "modified": inode.modified,
        "target": target,
    }


def text(name: bytes) -> str:
    """Return a name for JSON. Bytes that are not UTF-8 are shown as ``\\xff``."""
    return name.decode(errors="backslashreplace")


def _target(system: FileSystem, inode: Inode) -> bytes:
    if not inode.size <= _MAX_TARGET:
        raise Refused("the target of a link is too long")
    return system.link(inode)


def data(system: FileSystem, inode: Inode) -> Iterator[bytes]:
    """Yield all data of a file, and zeros where it has none."""
    at = 0
    for extent in system.extents(inode):
        if extent.offset < at:
            raise Refused("its file system is damaged")
        if extent.offset >= inode.size:
            break
        yield from _zeros(extent.offset - at)
        at, end = extent.offset, min(inode.size, extent.offset + extent.length)
        while at < end:
            wanted = min(CHUNK, end - at)
            inside = at - extent.offset
            chunk = extent.data[inside : inside + wanted] if extent.data else system.read(extent.place + inside, wanted)
            if len(chunk) < wanted:
                raise Refused("its file system is damaged")
            yield chunk
            at += wanted
    yield from _zeros(inode.size - at)


def _zeros(length: int) -> Iterator[bytes]:
    while length > 0:
        yield bytes(min(CHUNK, length))
        length -= CHUNK


def require_size(inode: Inode, limit: int) -> None:
    """Raise `Refused` for a file that is larger than the disk, as a hostile one may seem to be."""
    if inode.size > limit:
        raise Refused("the file has more bytes than the disk")


class _Reader:
    """The data of a file as tarfile reads them."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = io.BytesIO()

    def read(self, size: int) -> bytes:
        found = self._rest.read(size)
        while len(found) < size and (chunk := next(self._chunks, b"")):
            self._rest = io.BytesIO(chunk)
            found += self._rest.read(size - len(found))
        return found


class Archive:
    """Archive of a directory. ``limit``: most bytes of its files in sum."""

    def __init__(self, system: FileSystem, limit: int) -> None:
        self._system = system
        self._left = limit
        self._members = 0
        self._walked: set[int] = set()

    def write(self, directory: Inode, name: bytes, output: BinaryIO) -> None:
        with tarfile.open(fileobj=output, mode="w|", bufsize=CHUNK, encoding="utf-8") as archive:
            self._add(archive, directory, name, 0)

    def _add(self, archive: tarfile.TarFile, inode: Inode, name: bytes, depth: int) -> None:
        """Add a file, with all below it. Devices, sockets and directories that were added before are left out."""
        self._members += 1
        if self._members > _MAX_MEMBERS or depth > _MAX_DEPTH:
            raise Refused("the directory has too many files, or is too deep")
        member = tarfile.TarInfo(name.decode(errors="surrogateescape"))
        member.mode, member.uid, member.gid, member.mtime = inode.mode, inode.uid, inode.gid, inode.modified
        if inode.kind is Kind.FILE:
            require_size(inode, self._left)
            self._left -= inode.size
            member.size = inode.size
            archive.addfile(member, _Reader(data(self._system, inode)))  # type: ignore[arg-type]
        elif inode.kind is Kind.LINK:
            member.type, member.linkname = (
                tarfile.SYMTYPE,
                _target(self._system, inode).decode(errors="surrogateescape"),
            )
            archive.addfile(member)
        elif inode.kind is Kind.DIRECTORY and inode.number not in self._walked:
            self._walked.add(inode.number)
            member.type = tarfile.DIRTYPE
            archive.addfile(member)
            for child, number in children(self._system, inode):
                self._add(archive, self._system.inode(number), name + b"/" + child, depth + 1)

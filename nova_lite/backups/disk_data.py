"""Data of a disk as one stream: a header with the extents that have data, and then these data.

A stream without a ``base`` is a whole disk: what no extent covers is zero. A stream with a ``base`` is an increment:
what no extent covers is as in the base. The header is padded, so that no data look like the header of an image.

A stream may have several disks of a server (`nova_lite.backups.disk_parts`). They lie one after the other, as parts of
one large disk, with gaps between them. Then the stream begins differently, and older versions refuse it.

Streams come from hosts and from the repository. `read_header` checks everything that a reader relies on.
"""

from __future__ import annotations

import array
import bisect
import hashlib
import heapq
import itertools
import operator
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, overload

import msgspec

from nova_lite.base import exceptions

MAGIC, MAGIC_OF_PARTS = b"NLDISK1\n", b"NLDISK2\n"
CHUNK = 1024**2
#: Largest disk, in bytes, and most bytes of a header.
_MAX_SIZE = 1 << 46
_MAX_HEADER = 64 * 1024**2
_ALIGNMENT = 4096
#: Most disks of a stream.
MAX_PARTS = 64
#: The first byte of each part is at a multiple of this, and at least one byte is between two parts.
_PART_ALIGNMENT = 1024**2
_LENGTH = struct.Struct(">Q")

Extent = tuple[int, int]


class Extents(Sequence[Extent]):
    """Sequence of extents in 16 bytes each. A list of tuples takes 8 times as much; fragmented disks have millions."""

    def __init__(self, extents: Iterable[Extent] = ()) -> None:
        self._numbers = array.array("Q")
        for extent in extents:
            self._numbers.extend(extent)

    def __len__(self) -> int:
        return len(self._numbers) // 2

    @overload
    def __getitem__(self, index: int) -> Extent: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Extent]: ...

    def __getitem__(self, index: int | slice) -> Extent | Sequence[Extent]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        return self._numbers[2 * number], self._numbers[2 * number + 1]

    def __iter__(self) -> Iterator[Extent]:
        numbers = iter(self._numbers)
        return zip(numbers, numbers, strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(operator.eq, self, other))


class Source(Protocol):
    """Stream that is read."""

    def read(self, size: int, /) -> bytes: ...


class Target(Protocol):
    """Stream that is written."""

    def write(self, data: bytes, /) -> object: ...


class DiskPart(msgspec.Struct, frozen=True):
    """Disk among several in a stream. ``volume_id``: "" is the server's own root disk. ``size``: bytes."""

    volume_id: str
    size: int


class DiskHeader(msgspec.Struct, frozen=True):
    """Header of a stream. ``size``: of the disk, in bytes. ``base``: the backup that an increment belongs to.

    ``data`` and ``zero``: offset and length of the extents with data, and of extents that have become zero. ``parts``:
    the disks in it; none is the server's own root disk alone.
    """

    size: int
    data: Sequence[Extent]
    zero: Sequence[Extent] = []
    base: str | None = None
    parts: list[DiskPart] = []

    @property
    def length(self) -> int:
        """Number of bytes with data."""
        return sum(length for _, length in self.data)


def offsets(parts: Sequence[DiskPart]) -> list[int]:
    """Return where each disk begins in the stream's large disk, and at the end the size of that disk."""
    found: list[int] = []
    end = 0
    for part in parts:
        start = -(-(end + 1) // _PART_ALIGNMENT) * _PART_ALIGNMENT if found else 0
        found.append(start)
        end = start + part.size
    return [*found, end]


def write_header(target: Target, header: DiskHeader) -> None:
    text = msgspec.json.encode(header, enc_hook=list)
    magic = MAGIC_OF_PARTS if header.parts else MAGIC
    padding = -(len(magic) + _LENGTH.size + len(text)) % _ALIGNMENT
    target.write(magic + _LENGTH.pack(len(text) + padding) + text + b" " * padding)


def read_header(source: Source) -> DiskHeader:
    """Read and check a header. Raises `BackupDataInvalid`."""
    magic = _exactly(source, len(MAGIC))
    if magic not in (MAGIC, MAGIC_OF_PARTS):
        raise exceptions.BackupDataInvalid(reason="they do not begin as the data of a disk")
    (length,) = _LENGTH.unpack(_exactly(source, _LENGTH.size))
    if length > _MAX_HEADER:
        raise exceptions.BackupDataInvalid(reason="their header is too long")
    try:
        header = msgspec.json.decode(_exactly(source, length), type=DiskHeader)
    except ValueError as error:
        raise exceptions.BackupDataInvalid(reason=f"their header cannot be read: {error}") from error
    if bool(header.parts) != (magic == MAGIC_OF_PARTS):
        raise exceptions.BackupDataInvalid(reason="they do not begin as what they are")
    _check(header)
    if header.parts:
        _check_parts(header)
    return msgspec.structs.replace(header, data=Extents(header.data), zero=Extents(header.zero))


def _check_parts(header: DiskHeader) -> None:
    """Check that the disks fill the large disk, and that each extent lies in one disk. Raises `BackupDataInvalid`."""
    parts = header.parts
    if len(parts) > MAX_PARTS or len({part.volume_id for part in parts}) < len(parts):
        raise exceptions.BackupDataInvalid(reason="their disks are too many, or one is there twice")
    starts = offsets(parts)
    if any(part.size < 0 for part in parts) or starts[-1] != header.size:
        raise exceptions.BackupDataInvalid(reason="the sizes of their disks do not fit")
    for offset, length in itertools.chain(header.data, header.zero):
        number = bisect.bisect_right(starts[:-1], offset) - 1
        if offset + length > starts[number] + parts[number].size:
            raise exceptions.BackupDataInvalid(reason="their extents leave their disks")


def _check(header: DiskHeader) -> None:
    """Check that the extents lie in the disk, in order, and do not overlap. Raises `BackupDataInvalid`."""
    if not 0 <= header.size <= _MAX_SIZE:
        raise exceptions.BackupDataInvalid(reason="the size of their disk is impossible")
    for extents in (header.data, header.zero, heapq.merge(header.data, header.zero)):
        end = 0
        for offset, length in extents:
            if offset < end or length <= 0:
                raise exceptions.BackupDataInvalid(reason="their extents overlap, or are not in order")
            end = offset + length
        if end > header.size:
            raise exceptions.BackupDataInvalid(reason="their extents leave the disk")


def _exactly(source: Source, length: int) -> bytes:
    """Read this many bytes. Raises `BackupDataInvalid` if the stream ends earlier."""
    parts = []
    while length:
        part = source.read(min(length, CHUNK))
        if not part:
            raise exceptions.BackupDataInvalid(reason="they end early")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def coalesced(extents: Iterable[Extent]) -> Extents:
    """Return extents that are in order, with adjacent or overlapping ones joined."""
    return Extents(_joined(extents))


def _joined(extents: Iterable[Extent]) -> Iterator[Extent]:
    start = end = -1
    for offset, length in extents:
        if offset <= end:
            end = max(end, offset + length)
            continue
        if end > start:
            yield start, end - start
        start, end = offset, offset + length
    if end > start:
        yield start, end - start


def union(*extents: Iterable[Extent]) -> Extents:
    """Return extents that cover what any of ``extents`` covers. All are in order."""
    return coalesced(heapq.merge(*extents))


def without(extents: Iterable[Extent], removed: Iterable[Extent]) -> Extents:
    """Return the parts of ``extents`` that ``removed`` does not cover. Both are in order."""
    return Extents(_remaining(extents, removed))


def _remaining(extents: Iterable[Extent], removed: Iterable[Extent]) -> Iterator[Extent]:
    rest = iter(removed)
    gone = next(rest, None)
    for offset, length in extents:
        end = offset + length
        while gone is not None and gone[0] < end:
            if gone[0] > offset:
                yield offset, gone[0] - offset
            offset = max(offset, sum(gone))
            if offset >= end:
                break
            gone = next(rest, None)
        if offset < end:
            yield offset, end - offset


class Digested:
    """Stream whose bytes are hashed while they are read or written."""

    def __init__(self, stream: Source | Target) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        data: bytes = self._stream.read(size)  # type: ignore[union-attr]
        self._digest.update(data)
        return data

    def write(self, data: bytes, /) -> int:
        self._digest.update(data)
        self._stream.write(data)  # type: ignore[union-attr]
        return len(data)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


class DataReader:
    """Reader of the data of a stream after its header, by offsets of the disk that increase."""

    def __init__(self, source: Source, header: DiskHeader) -> None:
        self._source = source
        self._extents = iter(header.data)
        self._offset, self._left = 0, 0

    def read(self, offset: int, length: int) -> Iterator[bytes]:
        """Yield the data of a part of an extent."""
        while self._offset + self._left <= offset:
            self._skip(self._left)
            self._offset, self._left = next(self._extents)
        self._skip(offset - self._offset)
        while length:
            chunk = _exactly(self._source, min(length, CHUNK))
            self._advance(len(chunk))
            length -= len(chunk)
            yield chunk

    def finish(self) -> None:
        """Read the rest. Raises `BackupDataInvalid` if the stream does not end with the last extent."""
        self._skip(self._left)
        for offset, length in self._extents:
            self._offset, self._left = offset, length
            self._skip(length)
        if self._source.read(1):
            raise exceptions.BackupDataInvalid(reason="there are more of them than their header says")

    def _skip(self, length: int) -> None:
        while length:
            chunk = _exactly(self._source, min(length, CHUNK))
            self._advance(len(chunk))
            length -= len(chunk)

    def _advance(self, length: int) -> None:
        self._offset += length
        self._left -= length


def extents_of(header: DiskHeader, source: Source) -> Iterator[tuple[int, bytes]]:
    """Yield offset and data of the parts of a stream whose header was read. Raises `BackupDataInvalid`."""
    reader = DataReader(source, header)
    for offset, length in header.data:
        for chunk in reader.read(offset, length):
            yield offset, chunk
            offset += len(chunk)
    reader.finish()


def copy(header: DiskHeader, source: Source, target: Target) -> None:
    """Copy a stream whose header was read, and check that it is complete."""
    write_header(target, header)
    for _, chunk in extents_of(header, source):
        target.write(chunk)


def fold(layers: Sequence[tuple[DiskHeader, Source]]) -> tuple[DiskHeader, Iterator[tuple[int, bytes]]]:
    """Return the disk that a whole stream makes with its increments, the oldest first, whose headers were read.

    The iterator yields offset and data, and reads all streams to their ends. Raises `BackupDataInvalid`.
    """
    headers = [header for header, _ in layers]
    if headers[0].base is not None or any(header.base is None for header in headers[1:]):
        raise exceptions.BackupDataInvalid(reason="they are no whole disk with its increments")
    if any((header.size, header.parts) != (headers[0].size, headers[0].parts) for header in headers):
        raise exceptions.BackupDataInvalid(reason="their disks have different sizes")
    visible: list[Extents] = []
    covered = Extents()
    for header in reversed(headers):
        visible.insert(0, without(header.data, covered))
        covered = union(covered, header.data, header.zero)
    data = union(*visible)
    parts = heapq.merge(*(zip(extents, itertools.repeat(number)) for number, extents in enumerate(visible)))
    whole = DiskHeader(size=headers[0].size, data=data, parts=headers[0].parts)
    return whole, _folded(parts, [DataReader(source, header) for header, source in layers])


def _folded(parts: Iterable[tuple[Extent, int]], readers: Sequence[DataReader]) -> Iterator[tuple[int, bytes]]:
    for (offset, length), number in parts:
        for chunk in readers[number].read(offset, length):
            yield offset, chunk
            offset += len(chunk)
    for reader in readers:
        reader.finish()

"""Several disks of a server in one stream: takes them apart, and puts them together.

The disks are parts of one large disk (`nova_lite.backups.disk_data.offsets`). So increments, their order and their
checks are those of a single disk. Between two disks is a gap, so that no extent belongs to two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from nova_lite.backups import disk_data
from nova_lite.backups.disk_data import DiskHeader, DiskPart, Extent, Extents
from nova_lite.base import exceptions


class Disk(NamedTuple):
    """A disk of a stream. ``volume_id``: "" is the server's own root disk. ``chunks``: offset and data, in order."""

    volume_id: str
    header: DiskHeader
    chunks: Iterator[tuple[int, bytes]]


def of(header: DiskHeader) -> list[DiskPart]:
    """Return the disks of a stream."""
    return header.parts or [DiskPart(volume_id="", size=header.size)]


def joined(disks: Sequence[tuple[DiskPart, DiskHeader]], base: str | None) -> DiskHeader:
    """Return the header of a stream of several disks. Their data follow in the same order."""
    parts = [part for part, _ in disks]
    starts = disk_data.offsets(parts)
    data = Extents(_moved(starts, [header.data for _, header in disks]))
    zero = Extents(_moved(starts, [header.zero for _, header in disks]))
    return DiskHeader(size=starts[-1], data=data, zero=zero, base=base, parts=parts)


def _moved(starts: Sequence[int], extents: Sequence[Iterable[Extent]]) -> Iterator[Extent]:
    for start, extents_of_disk in zip(starts, extents, strict=False):
        for offset, length in extents_of_disk:
            yield start + offset, length


def split(header: DiskHeader, chunks: Iterable[tuple[int, bytes]]) -> Iterator[Disk]:
    """Yield each disk of a whole stream. What is not read of one is skipped when the next one is wanted."""
    rest = iter(chunks)
    parts = of(header)
    for start, part in zip(disk_data.offsets(parts), parts, strict=False):
        data = Extents((at - start, length) for at, length in header.data if start <= at < start + part.size)
        taken = _take(rest, start, sum(length for _, length in data))
        yield Disk(part.volume_id, DiskHeader(size=part.size, data=data), taken)
        for _ in taken:
            pass
    if next(rest, None) is not None:
        raise exceptions.BackupDataInvalid(reason="there are more of them than their header says")


def _take(chunks: Iterator[tuple[int, bytes]], start: int, length: int) -> Iterator[tuple[int, bytes]]:
    while length:
        offset, chunk = next(chunks)
        length -= len(chunk)
        yield offset - start, chunk

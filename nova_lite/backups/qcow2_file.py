"""Writer of qcow2 files (version 3, clusters of 64 KiB) from the data of a disk. What has no data takes no room."""

from __future__ import annotations

import array
import bisect
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from nova_lite.backups.disk_data import DiskHeader

_BITS = 16
_CLUSTER = 1 << _BITS
#: Entries of a table of offsets, and of a block of reference counts.
_ENTRIES = _CLUSTER // 8
_COUNTS = _CLUSTER // 2
#: Bit of an entry: nothing else refers to this cluster.
_COPIED = 1 << 63
_HEADER = struct.Struct(">4sIQIIQIIQQIIQQQQII")
_HEADER_LENGTH = 104
_REFCOUNT_ORDER = 4


class _Clusters:
    """The clusters of a disk that have data, as runs. Their data lie one after the other in the file.

    A disk of many TiB has millions of clusters, but far fewer runs.
    """

    def __init__(self, extents: Iterable[tuple[int, int]]) -> None:
        #: First cluster of each run, and the number of clusters in the runs before it.
        self._firsts, self._before = array.array("Q"), array.array("Q")
        self.number = end = 0
        for offset, length in extents:
            first, last = max(offset // _CLUSTER, end), (offset + length - 1) // _CLUSTER
            if first > last:
                continue
            if first > end or not self._firsts:
                self._firsts.append(first)
                self._before.append(self.number)
            self.number += last + 1 - first
            end = last + 1

    def place(self, cluster: int, last: int) -> int:
        """Return the number of clusters with data before ``cluster``. It is in one run with ``last``."""
        run = bisect.bisect_right(self._firsts, cluster) - 1
        if run < 0 or last - self._firsts[run] >= self._length(run):
            raise ValueError(f"clusters {cluster} to {last} are not all in the extents")
        return self._before[run] + cluster - self._firsts[run]

    def tables(self) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
        """Yield the number of each L2 table, and its parts of runs: index of the first entry, place, and length."""
        table, parts = -1, list[tuple[int, int, int]]()
        for run, (cluster, place) in enumerate(zip(self._firsts, self._before, strict=True)):
            left = self._length(run)
            while left:
                if cluster // _ENTRIES != table:
                    if parts:
                        yield table, parts
                    table, parts = cluster // _ENTRIES, []
                index = cluster % _ENTRIES
                length = min(left, _ENTRIES - index)
                parts.append((index, place, length))
                cluster, place, left = cluster + length, place + length, left - length
        if parts:
            yield table, parts

    def _length(self, run: int) -> int:
        end = self._before[run + 1] if run + 1 < len(self._before) else self.number
        return end - self._before[run]


def write(header: DiskHeader, chunks: Iterable[tuple[int, bytes]], file: BinaryIO) -> None:
    """Write a disk to an empty file. ``chunks``: offset and data of all parts of the extents of ``header``."""
    clusters = _Clusters(header.data)
    l1_entries = max(1, _blocks(header.size, _CLUSTER * _ENTRIES))
    l1_clusters = _blocks(l1_entries, _ENTRIES)
    tables = sum(1 for _ in clusters.tables())
    count_blocks, count_table = _count_clusters(1 + l1_clusters + tables + clusters.number)
    # Order in the file: header, table and blocks of reference counts, L1 table, L2 tables, data.
    l1_at = 1 + count_table + count_blocks
    l2_at = l1_at + l1_clusters
    data_at = l2_at + tables
    total = data_at + clusters.number
    file.truncate(total * _CLUSTER)
    _write_at(
        file,
        0,
        _HEADER.pack(
            b"QFI\xfb",
            3,
            0,
            0,
            _BITS,
            header.size,
            0,
            l1_entries,
            l1_at * _CLUSTER,
            _CLUSTER,
            count_table,
            0,
            0,
            0,
            0,
            0,
            _REFCOUNT_ORDER,
            _HEADER_LENGTH,
        ),
    )
    _write_at(file, 1, _big_endian(_numbers((1 + count_table) * _CLUSTER, count_blocks)))
    for block in range(count_blocks):
        counts = min(_COUNTS, total - block * _COUNTS)
        _write_at(file, 1 + count_table + block, b"\x00\x01" * max(0, counts))
    l1 = array.array("Q", bytes(8 * l1_entries))
    for index, (table, parts) in enumerate(clusters.tables()):
        l1[table] = (l2_at + index) * _CLUSTER | _COPIED
        entries = array.array("Q", bytes(_CLUSTER))
        for first, place, length in parts:
            entries[first : first + length] = _numbers((data_at + place) * _CLUSTER | _COPIED, length)
        _write_at(file, l2_at + index, _big_endian(entries))
    _write_at(file, l1_at, _big_endian(l1))
    for offset, chunk in chunks:
        cluster, inside = divmod(offset, _CLUSTER)
        place = clusters.place(cluster, (offset + len(chunk) - 1) // _CLUSTER)
        file.seek((data_at + place) * _CLUSTER + inside)
        file.write(chunk)


def _count_clusters(others: int) -> tuple[int, int]:
    """Return the numbers of clusters of the reference counts' blocks, and of their table, beside ``others``."""
    blocks, table = 1, 1
    while (needed := _blocks(others + blocks + table, _COUNTS)) > blocks or _blocks(blocks, _ENTRIES) > table:
        blocks, table = max(needed, blocks), _blocks(max(needed, blocks), _ENTRIES)
    return blocks, table


def _blocks(number: int, size: int) -> int:
    return -(-number // size)


def _numbers(first: int, length: int) -> array.array[int]:
    """Return the positions of clusters that lie one after the other."""
    return array.array("Q", range(first, first + length * _CLUSTER, _CLUSTER))


def _big_endian(numbers: array.array[int]) -> bytes:
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


def _write_at(file: BinaryIO, cluster: int, data: bytes) -> None:
    file.seek(cluster * _CLUSTER)
    file.write(data)

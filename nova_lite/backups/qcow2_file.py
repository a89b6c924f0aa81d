"""Writer of qcow2 files (version 3, clusters of 64 KiB) from the data of a disk. What has no data takes no room."""

from __future__ import annotations

import array
import struct
import sys
from collections.abc import Iterable
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


def write(header: DiskHeader, chunks: Iterable[tuple[int, bytes]], file: BinaryIO) -> None:
    """Write a disk to an empty file. ``chunks``: offset and data of all parts of the extents of ``header``."""
    clusters = _clusters(header)
    places = {cluster: index for index, cluster in enumerate(clusters)}
    l1_entries = max(1, _blocks(header.size, _CLUSTER * _ENTRIES))
    l1_clusters = _blocks(l1_entries, _ENTRIES)
    tables = sorted({cluster // _ENTRIES for cluster in clusters})
    count_blocks, count_table = _count_clusters(1 + l1_clusters + len(tables) + len(clusters))
    # Order in the file: header, table and blocks of reference counts, L1 table, L2 tables, data.
    l1_at = 1 + count_table + count_blocks
    l2_at = l1_at + l1_clusters
    data_at = l2_at + len(tables)
    total = data_at + len(clusters)
    file.truncate(total * _CLUSTER)
    _write_at(
        file,
        0,
        _HEADER.pack(
            *(b"QFI\xfb", 3, 0, 0, _BITS, header.size, 0, l1_entries, l1_at * _CLUSTER, _CLUSTER, count_table),
            *(0, 0, 0, 0, 0, _REFCOUNT_ORDER, _HEADER_LENGTH),
        ),
    )
    _write_at(file, 1, _numbers("Q", [(1 + count_table + block) * _CLUSTER for block in range(count_blocks)]))
    _write_at(file, 1 + count_table, _numbers("H", [1] * total))
    l1 = [0] * l1_entries
    for index, table in enumerate(tables):
        l1[table] = (l2_at + index) * _CLUSTER | _COPIED
        first = table * _ENTRIES
        entries = [
            0 if (place := places.get(cluster)) is None else (data_at + place) * _CLUSTER | _COPIED
            for cluster in range(first, first + _ENTRIES)
        ]
        _write_at(file, l2_at + index, _numbers("Q", entries))
    _write_at(file, l1_at, _numbers("Q", l1))
    for offset, chunk in chunks:
        position = 0
        while position < len(chunk):
            cluster, inside = divmod(offset + position, _CLUSTER)
            length = min(len(chunk) - position, _CLUSTER - inside)
            file.seek((data_at + places[cluster]) * _CLUSTER + inside)
            file.write(chunk[position : position + length])
            position += length


def _clusters(header: DiskHeader) -> list[int]:
    """Return the numbers of the disk's clusters that have data, in order."""
    found: list[int] = []
    for offset, length in header.data:
        first, last = offset // _CLUSTER, (offset + length - 1) // _CLUSTER
        if found and found[-1] == first:
            first += 1
        found.extend(range(first, last + 1))
    return found


def _count_clusters(others: int) -> tuple[int, int]:
    """Return the numbers of clusters of the reference counts' blocks, and of their table, beside ``others``."""
    blocks, table = 1, 1
    while (needed := _blocks(others + blocks + table, _COUNTS)) > blocks or _blocks(blocks, _ENTRIES) > table:
        blocks, table = max(needed, blocks), _blocks(max(needed, blocks), _ENTRIES)
    return blocks, table


def _blocks(number: int, size: int) -> int:
    return -(-number // size)


def _numbers(kind: str, values: list[int]) -> bytes:
    """Return numbers as big-endian bytes."""
    found = array.array(kind, values)
    if sys.byteorder == "little":
        found.byteswap()
    return found.tobytes()


def _write_at(file: BinaryIO, cluster: int, data: bytes) -> None:
    file.seek(cluster * _CLUSTER)
    file.write(data)

"""Writer of qcow2 files whose clusters come in any order, so that zeros of a large disk take no room."""

from __future__ import annotations

import array
import os
import struct
import sys
from collections.abc import Callable

CLUSTER_BITS = 16
CLUSTER = 1 << CLUSTER_BITS
#: Clusters that an L2 table maps, and that a block of reference counts of 16 bits counts.
_MAPPED, _COUNTED = CLUSTER // 8, CLUSTER // 2
#: Flag of an offset: the cluster has one reference.
_SOLE = 1 << 63
_HEADER = struct.Struct(">4sIQIIQIIQQIIQQQQII")


class Qcow2File:
    """New qcow2 file of a disk of ``size`` bytes. `finish` makes it valid. ``descriptor``: of an empty file.

    ``check_room`` receives the size of the file before it grows, and may raise.
    """

    def __init__(self, descriptor: int, size: int, check_room: Callable[[int], None]) -> None:
        self._descriptor = descriptor
        self._size = size
        self._check_room = check_room
        self._l1 = array.array("Q", bytes(8 * -(-size // (CLUSTER * _MAPPED))))
        #: The header has the first cluster, and the L1 table the next ones.
        self._next = 1 + _clusters(8 * len(self._l1))

    def write(self, cluster: int, data: bytes) -> None:
        """Write a cluster, once. Missing bytes are zeros."""
        index, entry = divmod(cluster, _MAPPED)
        if not self._l1[index]:
            self._l1[index] = self._allocate() | _SOLE
        offset = self._allocate()
        os.pwrite(self._descriptor, data, offset)
        os.pwrite(self._descriptor, (offset | _SOLE).to_bytes(8, "big"), (self._l1[index] ^ _SOLE) + 8 * entry)

    def finish(self) -> None:
        """Write header, L1 table, and reference counts."""
        used, blocks = self._next, 0
        while blocks * _COUNTED < used + blocks + _clusters(8 * blocks):
            blocks += 1
        table = _clusters(8 * blocks)
        total = used + table + blocks
        self._check_room(total * CLUSTER)
        os.ftruncate(self._descriptor, total * CLUSTER)
        first = (used + table) * CLUSTER
        self._put(used * CLUSTER, array.array("Q", [first + block * CLUSTER for block in range(blocks)]))
        for block in range(blocks):
            count = min(_COUNTED, total - block * _COUNTED)
            os.pwrite(self._descriptor, b"\0\1" * count, first + block * CLUSTER)
        self._put(CLUSTER, self._l1)
        places = (len(self._l1), CLUSTER, used * CLUSTER, table)
        header = _HEADER.pack(b"QFI\xfb", 3, 0, 0, CLUSTER_BITS, self._size, 0, *places, 0, 0, 0, 0, 0, 4, _HEADER.size)
        os.pwrite(self._descriptor, header, 0)

    def _allocate(self) -> int:
        """Return the offset of a new cluster of zeros."""
        offset = self._next * CLUSTER
        self._next += 1
        self._check_room(offset + CLUSTER)
        os.ftruncate(self._descriptor, offset + CLUSTER)
        return offset

    def _put(self, offset: int, values: array.array[int]) -> None:
        """Write numbers in big-endian order."""
        copy = array.array("Q", values)
        if sys.byteorder == "little":
            copy.byteswap()
        os.pwrite(self._descriptor, copy, offset)


def _clusters(size: int) -> int:
    return -(-size // CLUSTER)

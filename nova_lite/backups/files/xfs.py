"""File system XFS, versions 4 and 5, read only. The log is not replayed."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from nova_lite.backups.files.disk import Disk, Refused
from nova_lite.backups.files.tree import Extent, Inode, Kind, kind_of

#: Features that this reader does not know, although they may change where data are. It knows: types in directories,
#: sparse inodes, another UUID, big times, needed repair, many extents, exchanged ranges, and parent pointers.
_UNKNOWN = ~0xFF
_TYPES, _TYPES_4 = 0x1, 0x200
#: Forms of the data of an inode.
_LOCAL, _EXTENTS, _TREE = 1, 2, 3
#: Flags of an inode: times since 1901 in nanoseconds, counters of 64 bits, data on a realtime device.
_BIG_TIME, _MANY_EXTENTS, _REALTIME = 0x8, 0x10, 0x1
_MAX_LEVEL = 12
#: Byte of a directory's data from which on it has no names.
_LEAVES = 1 << 35
#: Most bytes of the target of a link, and of the header before it.
_MAX_TARGET, _LINK_HEADER = 1024, 56


class Xfs:
    """An opened file system. ``label``: its name."""

    name = "xfs"

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        head = disk.read(0, 512).ljust(512, b"\0")
        self._block: int = struct.unpack_from(">I", head, 4)[0]
        (self.root,) = struct.unpack_from(">Q", head, 56)
        self._group_blocks: int = struct.unpack_from(">I", head, 84)[0]
        self._groups: int = struct.unpack_from(">I", head, 88)[0]
        (version,) = struct.unpack_from(">H", head, 100)
        (self._inode_size,) = struct.unpack_from(">H", head, 104)
        self._per_block_log, self._group_log = head[123], head[124]
        self._directory_block = self._block << head[192] if head[192] <= 8 else 0
        self._is_5 = version & 0xF == 5
        features = struct.unpack_from(">I", head, 216)[0] if self._is_5 else 0
        if features & _UNKNOWN:
            raise Refused("its file system xfs has features that are not known here")
        old = struct.unpack_from(">I", head, 200)[0]
        self._has_types = bool(features & _TYPES if self._is_5 else old & _TYPES_4)
        is_sound = self._block in (1 << bits for bits in range(9, 17)) and 256 <= self._inode_size <= 2048
        if not is_sound or not self._group_blocks or not 0 < self._directory_block <= 65536:
            raise Refused("its file system is damaged")
        self.label = head[108:120].rstrip(b"\0")

    @staticmethod
    def is_on(disk: Disk) -> bool:
        return disk.read(0, 4) == b"XFSB"

    def inode(self, number: int) -> Inode:
        raw = self._raw(number)
        mode, uid, gid = struct.unpack_from(">H4xII", raw, 2)
        seconds, size = struct.unpack_from(">i12xQ", raw, 40)
        if raw[4] >= 3 and self._flags(raw) & _BIG_TIME:
            seconds = struct.unpack_from(">Q", raw, 40)[0] // 10**9 - 2**31
        (flags,) = struct.unpack_from(">H", raw, 90)
        kind = kind_of(mode)
        if kind is Kind.FILE and flags & _REALTIME:
            kind = Kind.OTHER
        return Inode(number, kind, size, mode & 0o777, uid, gid, seconds)

    def link(self, inode: Inode) -> bytes:
        raw = self._raw(inode.number)
        if raw[5] == _LOCAL:
            return self._fork(raw)[: inode.size]
        if inode.size > _MAX_TARGET:
            raise Refused("its file system is damaged")
        found = b""
        for extent in self.extents(inode):
            for at in range(0, extent.length, self._block):
                block = self._disk.read(extent.place + at, self._block)
                found += block[_LINK_HEADER if block[:4] == b"XSLM" else 0 :]
        return found[: inode.size]

    def extents(self, inode: Inode) -> Iterator[Extent]:
        raw = self._raw(inode.number)
        fork = self._fork(raw)
        if raw[5] == _EXTENTS:
            many = raw[4] >= 3 and self._flags(raw) & _MANY_EXTENTS
            number = struct.unpack_from(">Q", raw, 24)[0] if many else struct.unpack_from(">I", raw, 76)[0]
            if 16 * number > len(fork):
                raise Refused("its file system is damaged")
            yield from self._records(fork[: 16 * number])
        elif raw[5] == _TREE:
            level, number = struct.unpack_from(">HH", fork)
            yield from self._nodes(fork, 4, level, number, set())
        elif inode.size:
            raise Refused("its file system is damaged")

    def names(self, inode: Inode) -> Iterator[tuple[bytes, int]]:
        raw = self._raw(inode.number)
        if raw[5] == _LOCAL:
            yield from self._short_names(self._fork(raw))
            return
        for extent in self.extents(inode):
            for at in range(0, extent.length, self._directory_block):
                if extent.offset + at < _LEAVES:
                    yield from self._block_names(self._disk.read(extent.place + at, self._directory_block))

    def read(self, offset: int, length: int) -> bytes:
        return self._disk.read(offset, length)

    def _raw(self, number: int) -> bytes:
        block, index = number >> self._per_block_log, number & ((1 << self._per_block_log) - 1)
        raw = self._disk.read(self._place(block) + index * self._inode_size, self._inode_size)
        if raw[:2] != b"IN" or len(raw) < self._inode_size:
            raise Refused("its file system is damaged")
        return raw

    def _place(self, block: int) -> int:
        """Return where a block is, whose number has the number of its group in its upper bits."""
        group, inside = block >> self._group_log, block & ((1 << self._group_log) - 1)
        if group >= self._groups:
            raise Refused("its file system is damaged")
        return (group * self._group_blocks + inside) * self._block

    @staticmethod
    def _flags(raw: bytes) -> int:
        return int(struct.unpack_from(">Q", raw, 120)[0])

    def _fork(self, raw: bytes) -> bytes:
        """Return the part of an inode that has its data, or says where they are."""
        start = 176 if raw[4] >= 3 else 100
        return raw[start : start + 8 * raw[82] if raw[82] else self._inode_size]

    def _records(self, records: bytes) -> Iterator[Extent]:
        for at in range(0, len(records) - 15, 16):
            bits = int.from_bytes(records[at : at + 16], "big")
            offset, block, count = bits >> 73 & ((1 << 54) - 1), bits >> 21 & ((1 << 52) - 1), bits & ((1 << 21) - 1)
            if not bits >> 127:  # else no data were written
                yield Extent(offset * self._block, self._place(block), count * self._block)

    def _nodes(self, node: bytes, header: int, level: int, number: int, seen: set[int]) -> Iterator[Extent]:
        """Yield the extents below a node of a tree. No node is in it twice."""
        pointers = header + (len(node) - header) // 16 * 8
        if not 0 < level <= _MAX_LEVEL or pointers + 8 * number > len(node):
            raise Refused("its file system is damaged")
        for (block,) in struct.iter_unpack(">Q", node[pointers : pointers + 8 * number]):
            child = self._disk.read(self._place(block), self._block)
            below, entries = struct.unpack_from(">HH", child.ljust(8, b"\0"), 4)
            if block in seen or child[:4] != (b"BMA3" if self._is_5 else b"BMAP") or below != level - 1:
                raise Refused("its file system is damaged")
            seen.add(block)
            start = 72 if self._is_5 else 24
            if below:
                yield from self._nodes(child, start, below, entries, seen)
            else:
                yield from self._records(child[start : start + 16 * entries])

    def _short_names(self, fork: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield the names of a directory that is in its inode."""
        width = 8 if fork[1] else 4
        at = 2 + width
        for _ in range(fork[1] or fork[0]):
            length = fork[at] if at < len(fork) else 0
            name = fork[at + 3 : at + 3 + length]
            at += 3 + length + self._has_types
            yield name, int.from_bytes(fork[at : at + width], "big")
            at += width

    def _block_names(self, block: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield the names of a block of a directory, which are followed by their hashes if it is the only one."""
        at, end = 64 if self._is_5 else 16, len(block)
        if block[:4] in (b"XD2B", b"XDB3"):
            end -= 8 + 8 * struct.unpack_from(">I", block, end - 8)[0]
        elif block[:4] not in (b"XD2D", b"XDD3"):
            raise Refused("its file system is damaged")
        while at + 9 <= end:
            if block[at : at + 2] == b"\xff\xff":  # free
                length = struct.unpack_from(">H", block, at + 2)[0]
            else:
                number, named = struct.unpack_from(">QB", block, at)
                yield block[at + 9 : at + 9 + named], number
                length = 9 + named + self._has_types + 2
            at += max(8, -(-length // 8) * 8)

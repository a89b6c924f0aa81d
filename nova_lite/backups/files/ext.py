"""File systems ext2, ext3 and ext4, read only. The journal is not replayed."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from nova_lite.backups.files.disk import Disk, Refused
from nova_lite.backups.files.tree import Extent, Inode, Kind, kind_of

ROOT = 2
_SUPERBLOCK = 1024
#: Features that this reader does not know, although they may change where data are. It knows: file types, recovery,
#: extents, 64 bits, multiple mounts, flexible groups, attributes in inodes, seeds of checksums, large directories,
#: data in inodes, encryption and folded case.
_UNKNOWN = ~(0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x2000 | 0x4000 | 0x8000 | 0x10000 | 0x20000)
_64_BITS = 0x80
#: Flags of an inode.
_ENCRYPTED, _EXTENTS, _INLINE = 0x800, 0x80000, 0x10000000
_EXTENT_MAGIC, _MAX_DEPTH = 0xF30A, 5
#: Lengths of extents that are more are those of extents without data.
_WRITTEN = 32768


class Ext:
    """An opened file system. ``label``: its name."""

    name = "ext"

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        head = disk.read(_SUPERBLOCK, 1024)
        self._inodes, blocks_low, first, block_size = struct.unpack_from("<II12xII", head)[:4]
        (per_group,) = struct.unpack_from("<I", head, 40)
        revision, inode_size = struct.unpack_from("<I8xH", head, 76)
        _, incompatible, _ = struct.unpack_from("<III", head, 92)
        if block_size > 6 or not per_group or not blocks_low:
            raise Refused("its file system is damaged")
        if revision and incompatible & _UNKNOWN:
            raise Refused("its file system ext4 has features that are not known here")
        self._block = 1024 << block_size
        self._per_group = per_group
        self._inode_size = inode_size if revision else 128
        wide = revision and incompatible & _64_BITS
        self._descriptor = struct.unpack_from("<H", head, 254)[0] if wide else 32
        if self._inode_size < 128 or self._descriptor < (64 if wide else 32):
            raise Refused("its file system is damaged")
        self._descriptors = (first + 1) * self._block
        self.label = head[120:136].rstrip(b"\0")
        self.root = ROOT

    @staticmethod
    def is_on(disk: Disk) -> bool:
        return disk.read(_SUPERBLOCK + 56, 2) == b"\x53\xef"

    def inode(self, number: int) -> Inode:
        raw = self._raw(number)
        mode, uid, low, _, _, modified, _, gid = struct.unpack_from("<HHIIIIIH", raw)
        (flags,) = struct.unpack_from("<I", raw, 32)
        high, uid_high, gid_high = struct.unpack_from("<I8xHH", raw, 108)
        kind = kind_of(mode)
        size = low | high << 32
        if flags & (_ENCRYPTED | _INLINE):
            kind = Kind.OTHER if kind is not Kind.DIRECTORY else kind
        return Inode(number, kind, size, mode & 0o777, uid | uid_high << 16, gid | gid_high << 16, modified)

    def link(self, inode: Inode) -> bytes:
        raw = self._raw(inode.number)
        (flags,) = struct.unpack_from("<I", raw, 32)
        if inode.size < 60 and not flags & _EXTENTS:
            return raw[40 : 40 + inode.size]
        return next(self._data(inode, self._block))[: inode.size]

    def extents(self, inode: Inode) -> Iterator[Extent]:
        raw = self._raw(inode.number)
        (flags,) = struct.unpack_from("<I", raw, 32)
        if flags & (_ENCRYPTED | _INLINE):
            raise Refused("a directory is encrypted, or its data are in its inode")
        blocks = -(-inode.size // self._block)
        places = self._tree(raw[40:100], _MAX_DEPTH, set()) if flags & _EXTENTS else self._mapped(raw[40:100], blocks)
        for logical, physical, count in places:
            yield Extent(logical * self._block, physical * self._block, count * self._block)

    def names(self, inode: Inode) -> Iterator[tuple[bytes, int]]:
        for block in self._data(inode, self._block):
            at = 0
            while at + 8 <= len(block):
                number, length, name = struct.unpack_from("<IHB", block, at)
                if length < 8:
                    break
                if number:
                    yield block[at + 8 : at + 8 + name], number
                at += length

    def read(self, offset: int, length: int) -> bytes:
        return self._disk.read(offset, length)

    def _data(self, inode: Inode, step: int) -> Iterator[bytes]:
        """Yield the blocks of a directory or link. Holes are left out."""
        for extent in self.extents(inode):
            for at in range(0, extent.length, step):
                if extent.offset + at < inode.size:
                    yield self._disk.read(extent.place + at, step)

    def _raw(self, number: int) -> bytes:
        if not 0 < number <= self._inodes:
            raise Refused("its file system is damaged")
        group, index = divmod(number - 1, self._per_group)
        entry = self._disk.read(self._descriptors + group * self._descriptor, self._descriptor).ljust(64, b"\0")
        (table,) = struct.unpack_from("<I", entry, 8)
        if self._descriptor >= 64:
            table |= struct.unpack_from("<I", entry, 40)[0] << 32
        return self._disk.read(table * self._block + index * self._inode_size, 128).ljust(128, b"\0")

    def _tree(self, node: bytes, depth: int, seen: set[int]) -> Iterator[tuple[int, int, int]]:
        """Yield logical block, block and number of blocks of the extents in a tree. No node is in it twice."""
        magic, entries, _, level = struct.unpack_from("<HHHH", node)
        if magic != _EXTENT_MAGIC or level > depth or 12 * (entries + 1) > len(node):
            raise Refused("its file system is damaged")
        for at in range(12, 12 * (entries + 1), 12):
            _, low, high, _ = struct.unpack_from("<IIHH", node, at)
            if level:
                block = low | high << 32
                if block in seen:
                    raise Refused("its file system is damaged")
                seen.add(block)
                yield from self._tree(self._disk.read(block * self._block, self._block), level - 1, seen)
                continue
            logical, length, high, low = struct.unpack_from("<IHHI", node, at)
            if length <= _WRITTEN:
                yield logical, low | high << 32, length

    def _mapped(self, pointers: bytes, blocks: int) -> Iterator[tuple[int, int, int]]:
        """Yield the blocks of a file of ext2 or ext3: 12 of its own, and three trees of pointers."""
        numbers = struct.unpack("<15I", pointers)
        for logical, block in enumerate(numbers[:12]):
            if block and logical < blocks:
                yield logical, block, 1
        start = 12
        for level, block in enumerate(numbers[12:], 1):
            yield from self._pointers(block, level, start, blocks)
            start += (self._block // 4) ** level

    def _pointers(self, block: int, level: int, start: int, blocks: int) -> Iterator[tuple[int, int, int]]:
        if not block or start >= blocks:
            return
        if not level:
            yield start, block, 1
            return
        each = (self._block // 4) ** (level - 1)
        data = self._disk.read(block * self._block, self._block)
        for index in range(len(data) // 4):
            (pointer,) = struct.unpack_from("<I", data, 4 * index)
            yield from self._pointers(pointer, level - 1, start + index * each, blocks)

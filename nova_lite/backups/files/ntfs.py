"""File system NTFS, read only. Its log is not replayed. Compressed and encrypted files are left out."""

from __future__ import annotations

import codecs
import struct
from collections.abc import Iterator
from typing import NamedTuple

from nova_lite.backups.files.disk import Disk, Refused
from nova_lite.backups.files.tree import Extent, Inode, Kind

#: Number of the root directory, and of the first file of a user.
_ROOT, _FIRST = 5, 24
#: Types of attributes.
_TIMES, _LIST, _NAME, _LABEL, _DATA, _INDEX, _BLOCKS, _REPARSE = 0x10, 0x20, 0x30, 0x60, 0x80, 0x90, 0xA0, 0xC0
_COMPRESSED_OR_ENCRYPTED = 0x40FF
_INDEX_NAME = "$I30".encode("utf-16-le")
#: Flags of a record: in use, directory. Of an entry of an index: has a node below, last. Space of names of MS-DOS.
_USED, _DIRECTORY, _BELOW, _LAST, _DOS = 1, 2, 1, 2, 2
_MAX_RECORDS, _MAX_DEPTH = 4096, 32
#: Seconds from 1601 to 1970.
_EPOCH = 11_644_473_600
codecs.lookup("utf-16-le")  # the confined process opens no module


class _Attribute(NamedTuple):
    """Attribute of a file. ``value``: data in the record, None if they are elsewhere; then ``runs`` says where."""

    kind: int
    name: bytes
    flags: int
    value: bytes | None
    size: int
    written: int
    runs: list[Extent]


class Ntfs:
    """An opened file system. ``label``: its name."""

    name = "ntfs"

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        head = disk.read(0, 512).ljust(512, b"\0")
        sector, clusters = struct.unpack_from("<HB", head, 11)
        self._cluster: int = sector * (clusters if clusters <= 128 else 1 << (256 - clusters))
        (place,) = struct.unpack_from("<Q", head, 48)
        self._record, self._block = (self._length(struct.unpack_from("<b", head, at)[0]) for at in (64, 68))
        is_sound = 512 <= self._cluster <= 2**21 and 512 <= self._record <= 65536 and 512 <= self._block <= 65536
        if not is_sound or sector not in (512, 1024, 2048, 4096):
            raise Refused("its file system is damaged")
        self._table = [Extent(0, place * self._cluster, self._record)]
        self._table = self._attribute(0, _DATA).runs
        found = [item.value for item in self._attributes(3) if item.kind == _LABEL]
        self.label = _text(found[0]) if found and found[0] else b""
        self.root = _ROOT

    @staticmethod
    def is_on(disk: Disk) -> bool:
        return disk.read(3, 8) == b"NTFS    "

    def inode(self, number: int) -> Inode:
        (flags,) = struct.unpack_from("<H", self._raw(number), 22)
        attributes = self._attributes(number)
        times = next((item.value for item in attributes if item.kind == _TIMES and item.value), b"").ljust(16, b"\0")
        modified = struct.unpack_from("<Q", times, 8)[0] // 10**7 - _EPOCH
        data = [item for item in attributes if item.kind == _DATA and not item.name]
        if not flags & _USED or any(item.kind == _REPARSE for item in attributes):
            kind = Kind.OTHER
        elif flags & _DIRECTORY:
            return Inode(number, Kind.DIRECTORY, 0, 0o755, 0, 0, modified)
        else:
            is_plain = len(data) == 1 and not data[0].flags & _COMPRESSED_OR_ENCRYPTED
            kind = Kind.FILE if is_plain else Kind.OTHER
        return Inode(number, kind, data[0].size if data else 0, 0o644, 0, 0, modified)

    def link(self, inode: Inode) -> bytes:
        raise Refused("a link of NTFS cannot be read")

    def extents(self, inode: Inode) -> Iterator[Extent]:
        data = self._attribute(inode.number, _DATA)
        if data.value is not None:
            yield Extent(0, 0, len(data.value), data.value)
        for run in data.runs:
            if run.offset < data.written:
                yield run._replace(length=min(run.length, data.written - run.offset))

    def names(self, inode: Inode) -> Iterator[tuple[bytes, int]]:
        root = self._attribute(inode.number, _INDEX, _INDEX_NAME).value
        if root is None or len(root) < 32:
            raise Refused("its file system is damaged")
        blocks = [
            item.runs for item in self._attributes(inode.number) if item.kind == _BLOCKS and item.name == _INDEX_NAME
        ]
        for name, number in self._entries(root[16:], blocks[0] if blocks else [], set(), 0):
            if number >= _FIRST:
                yield name, number

    def read(self, offset: int, length: int) -> bytes:
        return self._disk.read(offset, length)

    def _length(self, number: int) -> int:
        return self._cluster * number if number > 0 else 1 << min(-number, 31)

    def _raw(self, number: int) -> bytes:
        """Return a record of the table of files."""
        return self._checked(self._at(self._table, number * self._record, self._record), b"FILE")

    def _at(self, runs: list[Extent], offset: int, length: int) -> bytes:
        """Return ``length`` bytes of a file, whose clusters may be apart."""
        found = b""
        while len(found) < length:
            at = offset + len(found)
            run = next((run for run in runs if run.offset <= at < run.offset + run.length), None)
            if run is None:
                raise Refused("its file system is damaged")
            part = self._disk.read(run.place + at - run.offset, min(length - len(found), run.offset + run.length - at))
            if not part:
                raise Refused("its file system is damaged")
            found += part
        return found

    def _checked(self, block: bytes, magic: bytes) -> bytes:
        """Return a block with the last bytes of its sectors, in place of the numbers that show a whole write."""
        at, number = struct.unpack_from("<HH", block, 4)
        if block[:4] != magic or at + 2 * number > len(block) or (number - 1) * 512 > len(block):
            raise Refused("its file system is damaged")
        whole = bytearray(block)
        for index in range(1, number):
            end = index * 512
            if block[end - 2 : end] != block[at : at + 2]:
                raise Refused("its file system is damaged")
            whole[end - 2 : end] = block[at + 2 * index : at + 2 * index + 2]
        return bytes(whole)

    def _attribute(self, number: int, kind: int, name: bytes = b"") -> _Attribute:
        found = next((item for item in self._attributes(number) if item.kind == kind and item.name == name), None)
        if found is None:
            raise Refused("its file system is damaged")
        return found

    def _attributes(self, number: int) -> list[_Attribute]:
        """Return the attributes of a file. Its parts in several records are joined."""
        parts = list(self._parts(self._raw(number)))
        lists = [self._content(part) for part in parts if part.kind == _LIST]
        numbers = dict.fromkeys(other for text in lists for other in _listed(text) if other != number)
        if len(numbers) > _MAX_RECORDS:
            raise Refused("its file system is damaged")
        for other in numbers:
            parts += self._parts(self._raw(other))
        found: dict[tuple[int, bytes], _Attribute] = {}
        for part in sorted(parts, key=lambda item: item.runs[0].offset if item.runs else 0):
            first = found.setdefault((part.kind, part.name), part)
            if first is not part:
                first.runs.extend(part.runs)
        return list(found.values())

    def _content(self, attribute: _Attribute) -> bytes:
        if attribute.value is not None:
            return attribute.value
        return self._at(attribute.runs, 0, min(attribute.size, 2**20))

    def _parts(self, record: bytes) -> Iterator[_Attribute]:
        (at,) = struct.unpack_from("<H", record, 20)
        while at + 24 <= len(record):
            kind, length, is_apart, name_length, name_at, flags = struct.unpack_from("<IIBBHH", record, at)
            part = record[at : at + length]
            if kind == 0xFFFFFFFF or length < 24 or len(part) < length:
                return
            name = part[name_at : name_at + 2 * name_length]
            if is_apart:
                first, _, runs_at = struct.unpack_from("<QQH", part, 16)
                size, written = struct.unpack_from("<QQ", part, 48) if not first else (0, 0)
                yield _Attribute(kind, name, flags, None, size, written, list(self._runs(part[runs_at:], first)))
            else:
                value_length, value_at = struct.unpack_from("<IH", part, 16)
                value = part[value_at : value_at + value_length]
                yield _Attribute(kind, name, flags, value, len(value), len(value), [])
            at += length

    def _runs(self, text: bytes, cluster: int) -> Iterator[Extent]:
        at = place = 0
        while at < len(text) and text[at]:
            length_bytes, place_bytes = text[at] & 15, text[at] >> 4
            middle, end = at + 1 + length_bytes, at + 1 + length_bytes + place_bytes
            length = int.from_bytes(text[at + 1 : middle], "little")
            if place_bytes:  # else a hole
                place += int.from_bytes(text[middle:end], "little", signed=True)
                yield Extent(cluster * self._cluster, place * self._cluster, length * self._cluster)
            cluster, at = cluster + length, end

    def _entries(self, node: bytes, runs: list[Extent], seen: set[int], depth: int) -> Iterator[tuple[bytes, int]]:
        """Yield the names in a node of an index, and below it. No node is in an index twice."""
        at, end = struct.unpack_from("<II", node)
        while at + 16 <= min(end, len(node)):
            reference, length, key, flags = struct.unpack_from("<QHHI", node, at)
            entry = node[at : at + length]
            if flags & _BELOW and len(entry) >= 24:
                below = int.from_bytes(entry[-8:], "little")
                if below in seen or depth > _MAX_DEPTH:
                    raise Refused("its file system is damaged")
                seen.add(below)
                place = below * (self._cluster if self._cluster <= self._block else 512)
                block = self._checked(self._at(runs, place, self._block), b"INDX")
                yield from self._entries(block[24:], runs, seen, depth + 1)
            if flags & _LAST or length < 16:
                return
            if key >= 66 and len(entry) >= 82 and entry[81] != _DOS:
                yield _text(entry[82 : 82 + 2 * entry[80]]), reference & ((1 << 48) - 1)
            at += length


def _listed(text: bytes) -> Iterator[int]:
    """Yield the numbers of the records that a list of attributes names."""
    at = 0
    while at + 26 <= len(text):
        length, reference = struct.unpack_from("<H", text, at + 4)[0], struct.unpack_from("<Q", text, at + 16)[0]
        yield reference & ((1 << 48) - 1)
        if length < 26:
            return
        at += length


def _text(name: bytes) -> bytes:
    return name.decode("utf-16-le", "surrogatepass").encode("utf-8", "surrogatepass")

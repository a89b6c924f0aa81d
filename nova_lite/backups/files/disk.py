"""Bytes of a disk image, and the partitions in it."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol

SECTOR = 512
#: Most partitions that are looked at, and most bytes of an entry of GPT.
_MAX_PARTITIONS, _MAX_ENTRY = 128, 4096
#: Types of MBR: of a protective one, and of containers of others.
_GPT, _EXTENDED = 0xEE, (0x05, 0x0F, 0x85)
_QCOW2 = b"QFI\xfb"
#: Bits of a qcow2 table that are the offset of a cluster; and of an entry: compressed, all zero.
_OFFSET, _COMPRESSED, _ZERO = 0x00FFFFFFFFFFFE00, 1 << 62, 1
#: Features of qcow2 that this reader knows: dirty, corrupt.
_KNOWN_FEATURES = 0b11


class Refused(Exception):
    """A request that cannot be met. ``missing``: because there is no such file."""

    def __init__(self, reason: str, missing: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.missing = missing


class Disk(Protocol):
    """Bytes that are read by offset. What is beyond the end is missing."""

    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes: ...


class RawDisk:
    """A file as it is."""

    def __init__(self, file: int) -> None:
        self._file = file
        self.size = os.lseek(file, 0, os.SEEK_END)

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._file, length, offset)


class Qcow2Disk:
    """A qcow2 file without a backing file, and without compressed clusters, as backups are."""

    def __init__(self, file: int) -> None:
        self._file = file
        head = os.pread(file, 104, 0).ljust(104, b"\0")
        version, backing, _, self._bits, self.size, encryption, _, self._l1 = struct.unpack_from(">IQIIQIIQ", head, 4)
        features = struct.unpack_from(">Q", head, 72)[0] if version > 2 else 0
        if head[:4] != _QCOW2 or backing or encryption or not 9 <= self._bits <= 21 or features & ~_KNOWN_FEATURES:
            raise Refused("its image has a form that files cannot be read from")

    def read(self, offset: int, length: int) -> bytes:
        found = bytearray()
        length = max(0, min(length, self.size - offset))
        while len(found) < length:
            at = offset + len(found)
            inside = at & ((1 << self._bits) - 1)
            wanted = min(length - len(found), (1 << self._bits) - inside)
            place = self._cluster(at >> self._bits)
            data = os.pread(self._file, wanted, place + inside) if place else b""
            found += data.ljust(wanted, b"\0")
        return bytes(found)

    def _cluster(self, number: int) -> int:
        """Return the place of a cluster in the file, or 0 for zeros."""
        entries = self._bits - 3
        table = self._entry(self._l1 + 8 * (number >> entries)) & _OFFSET
        if not table:
            return 0
        entry = self._entry(table + 8 * (number & ((1 << entries) - 1)))
        if entry & _COMPRESSED:
            raise Refused("its image is compressed")
        return 0 if entry & _ZERO else entry & _OFFSET

    def _entry(self, place: int) -> int:
        return int.from_bytes(os.pread(self._file, 8, place), "big")


def open_disk(file: int, disk_format: str) -> Disk:
    return Qcow2Disk(file) if disk_format == "qcow2" else RawDisk(file)


class Partition(NamedTuple):
    """Part of a disk. Number 0 is the whole disk, without a partition table. It is a `Disk` itself."""

    number: int
    disk: Disk
    start: int
    size: int

    def read(self, offset: int, length: int) -> bytes:
        return self.disk.read(self.start + offset, max(0, min(length, self.size - offset)))


def partitions(disk: Disk) -> list[Partition]:
    """Return the partitions by their numbers in the guest. A disk without a table is its only partition."""
    sector = disk.read(0, SECTOR)
    entries = list(_entries(sector)) if sector[510:] == b"\x55\xaa" else []
    is_gpt = any(kind == _GPT for _, kind, _, _ in entries)
    found = list(_gpt(disk) if is_gpt else _mbr(disk, entries))
    return found if found or is_gpt else [Partition(0, disk, 0, disk.size)]


def _mbr(disk: Disk, entries: list[tuple[int, int, int, int]]) -> Iterator[Partition]:
    for number, kind, start, size in entries:
        if kind in _EXTENDED:
            yield from _logical(disk, start)
        elif kind and start and size and (start + size) * SECTOR <= disk.size:
            yield Partition(number, disk, start * SECTOR, size * SECTOR)


def _entries(sector: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, type, first sector and sectors of the entries of an MBR."""
    for number in range(4):
        kind, start, size = struct.unpack_from("<B3xII", sector, 446 + 16 * number + 4)
        yield number + 1, kind, start, size


def _gpt(disk: Disk) -> Iterator[Partition]:
    header = disk.read(SECTOR, SECTOR)
    table, number, length = struct.unpack_from("<QII", header.ljust(SECTOR, b"\0"), 72)
    if header[:8] != b"EFI PART" or not 128 <= length <= _MAX_ENTRY:
        raise Refused("its partition table is damaged")
    for index in range(min(number, _MAX_PARTITIONS)):
        entry = disk.read(table * SECTOR + index * length, 48).ljust(48, b"\0")
        first, last = struct.unpack_from("<QQ", entry, 32)
        if any(entry[:16]) and first <= last and (last + 1) * SECTOR <= disk.size:
            yield Partition(index + 1, disk, first * SECTOR, (last + 1 - first) * SECTOR)


def _logical(disk: Disk, extended: int) -> Iterator[Partition]:
    """Yield the partitions in one of type extended. Each has a table, which names the next one."""
    at = extended
    for number in range(5, _MAX_PARTITIONS):
        sector = disk.read(at * SECTOR, SECTOR)
        if sector[510:] != b"\x55\xaa":
            return
        (_, kind, start, size), (_, following, next_start, _), *_ = _entries(sector)
        if kind and size and (at + start + size) * SECTOR <= disk.size:
            yield Partition(number, disk, (at + start) * SECTOR, size * SECTOR)
        if following not in _EXTENDED or extended + next_start <= at:
            return
        at = extended + next_start

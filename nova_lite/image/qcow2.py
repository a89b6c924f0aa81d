"""Headers of qcow2 files.

`find_defect` judges a file of a stranger before any program of the host opens it. The limits are those of qemu itself,
so a file beyond them can only do harm. `read` is for files that this cloud has made. It takes no lock, so it also reads
the files of running guests. A guest writes the contents of its disk, but never the header.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

import msgspec

MAGIC = b"QFI\xfb"
#: Magic, version, offset and length of the backing file's name, cluster bits, size, encryption, entries and offset of
#: the L1 table, offset and clusters of the refcount table, number and offset of the snapshots.
_HEADER = struct.Struct(">4sIQIIQIIQQIIQ")
#: The part of `_HEADER` up to the size.
_START = struct.Struct(">4sIQIIQ")

_MAX_NAME = 1023
#: Place of the number of snapshots.
_SNAPSHOTS_AT = 60
#: Length of the header of version 2, the place of later lengths, and the extension that names the backing format.
_V2_LENGTH, _LENGTH_AT, _BACKING_FORMAT = 72, 100, 0xE2792ACA
_MAX_EXTENSIONS = 16
_MAX_REFCOUNT_TABLE = 8 * 1024**2
_MAX_L1_TABLE = 32 * 1024**2
_MAX_SNAPSHOTS = 65536
#: Offsets have 56 bits.
_MAX_OFFSET = 1 << 56
#: Names of incompatible features that no image may use, by bit. Bits 0 to 3 are known to all programs.
_FEATURES = {4: "extended L2 entries (subclusters)"}
_KNOWN_FEATURES = range(4)
#: Clusters have 512 bytes to 2 MiB.
_CLUSTER_BITS = range(9, 22)


class Header(msgspec.Struct, frozen=True):
    """``size``: of the disk that the guest sees, in bytes. ``backing``: path of the backing file, empty if none, and
    ``backing_format`` its format, as the header names it. ``snapshots``: their number."""

    size: int
    backing: str
    backing_format: str = ""
    snapshots: int = 0


def read(path: str) -> Header | None:
    """Return the header of a file, or None if it is not in qcow2 format. Raises OSError."""
    with open(path, "rb") as file:
        start = file.read(_START.size)
        if len(start) < _START.size:
            return None
        magic, version, offset, length, _bits, size = _START.unpack(start)
        if magic != MAGIC:
            return None
        file.seek(_SNAPSHOTS_AT)
        snapshots = int.from_bytes(file.read(4), "big")
        backing = kind = b""
        if offset and 0 < length <= _MAX_NAME:
            kind = _extension(file, version, _BACKING_FORMAT)
            file.seek(offset)
            backing = file.read(length)
    return Header(size, backing.decode(errors="surrogateescape"), kind.decode(errors="replace"), snapshots)


def _extension(file: BinaryIO, version: int, wanted: int) -> bytes:
    """Return the data of an extension of the header, or nothing."""
    file.seek(_LENGTH_AT)
    position = _V2_LENGTH if version == 2 else int.from_bytes(file.read(4), "big")
    for _ in range(_MAX_EXTENSIONS):
        file.seek(position)
        start = file.read(8)
        kind, length = int.from_bytes(start[:4], "big"), int.from_bytes(start[4:], "big")
        if kind == 0 or length > _MAX_NAME:
            break
        if kind == wanted:
            return file.read(length)
        position += 8 + -(-length // 8) * 8
    return b""


def has_bitmaps(path: str) -> bool:
    """Check whether a qcow2 file of this cloud has bitmaps of changes, usable or not. Raises OSError."""
    with open(path, "rb") as file:
        header = file.read(96)
    # Version 2 has none. A program that does not know bitmaps clears the bit.
    return len(header) == 96 and header[4:8] == b"\0\0\0\3" and bool(header[95] & 1)


def find_defect(header: bytes) -> str | None:
    """Return the reason to refuse a file by its first 112 bytes or more, or None if there is none."""
    if len(header) < _HEADER.size:
        return "its header ends early"
    (
        _magic,
        version,
        _name_offset,
        _name_length,
        bits,
        size,
        encryption,
        l1_entries,
        l1_offset,
        refcount_offset,
        refcount_clusters,
        snapshots,
        snapshots_offset,
    ) = _HEADER.unpack_from(header)
    if version not in (2, 3):
        return "its version is unknown"
    if bits not in _CLUSTER_BITS:
        return "its clusters have an impossible size"
    if encryption:
        return "it is encrypted"
    if version == 3 and not _is_length_valid(header, bits):
        return "its header has an impossible size"
    if max(l1_offset, refcount_offset, snapshots_offset) >= _MAX_OFFSET or snapshots > _MAX_SNAPSHOTS:
        return "its tables have impossible positions"
    bytes_per_entry = 1 << (2 * bits - 3)
    needed = -(-size // bytes_per_entry)
    refcount_bytes = refcount_clusters << bits
    is_l1_valid = l1_entries * 8 <= _MAX_L1_TABLE and needed <= l1_entries
    if not is_l1_valid or refcount_bytes > max(_MAX_REFCOUNT_TABLE, 1 << bits):
        return "its tables have a wrong size"
    return None


def unsupported_features(header: bytes) -> str:
    """Return the names of the incompatible features of a header of version 3 that this cloud does not support."""
    bits = int.from_bytes(header[72:80], "big")
    unknown = [bit for bit in range(64) if bits >> bit & 1 and bit not in _KNOWN_FEATURES]
    return " and ".join(_FEATURES.get(bit, f"the unknown feature {bit}") for bit in unknown)


def _is_length_valid(header: bytes, bits: int) -> bool:
    """Check the header's own length, which version 3 has. A header fits into one cluster."""
    length = int.from_bytes(header[100:104], "big")
    return 104 <= length <= 1 << bits

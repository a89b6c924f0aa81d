"""The header of a qcow2 image, as far as qemu would act on it before anybody can judge what the image holds.

The limits are those within which qemu itself opens an image; beyond them its header has no meaning but to harm.
"""

from __future__ import annotations

import struct

_HEADER = struct.Struct(">4sIQIIQIIQQIIQ")
_MOST_TABLE = 8 * 1024**2
_MOST_L1 = 32 * 1024**2
_MOST_SNAPSHOTS = 65536
#: Offsets have 56 bits, and clusters 512 bytes to 2 MiB.
_MOST_OFFSET = 1 << 56
_CLUSTER_BITS = range(9, 22)


def problem(header: bytes) -> str | None:
    """What is wrong with the first bytes of a qcow2 file (112 are enough), or None."""
    if len(header) < _HEADER.size:
        return "its header ends early"
    (
        _,
        version,
        _,
        _,
        bits,
        size,
        crypt,
        l1_entries,
        l1_offset,
        table_offset,
        table_clusters,
        snapshots,
        snapshots_at,
    ) = _HEADER.unpack_from(header)
    if version not in (2, 3):
        return "its version is unknown"
    if bits not in _CLUSTER_BITS:
        return "its clusters have an impossible size"
    if crypt:
        return "it is encrypted"
    if version == 3 and not _fits(header, bits):
        return "its header has an impossible size"
    if max(l1_offset, table_offset, snapshots_at) >= _MOST_OFFSET or snapshots > _MOST_SNAPSHOTS:
        return "its tables are where no file has any"
    per_entry = 1 << (2 * bits - 3)
    needed = -(-size // per_entry)
    if l1_entries * 8 > _MOST_L1 or needed > l1_entries or table_clusters << bits > max(_MOST_TABLE, 1 << bits):
        return "its tables do not have the size that it needs"
    return None


def _fits(header: bytes, bits: int) -> bool:
    length = int.from_bytes(header[100:104], "big")
    return 104 <= length <= 1 << bits

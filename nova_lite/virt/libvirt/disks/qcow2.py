"""The head of qcow2 files that we have made: how big they are, and what they begin as.

A guest writes what is in its disk, never this. It is read without a lock, as files of running guests are.
"""

from __future__ import annotations

import struct

import msgspec

_MAGIC = b"QFI\xfb"
#: Magic, version, where the name of the file below is and how long, cluster bits, size.
_HEAD = struct.Struct(">4sIQIIQ")
_LONGEST_NAME = 1023


class Header(msgspec.Struct, frozen=True):
    """``size`` in bytes, as the guest sees it; ``backing``: the path of the file below, empty for none."""

    size: int
    backing: str


def read(path: str) -> Header | None:
    """None for a file that is no qcow2 one. Raises OSError."""
    with open(path, "rb") as file:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return None
        magic, _version, offset, length, _bits, size = _HEAD.unpack(head)
        if magic != _MAGIC:
            return None
        backing = b""
        if offset and 0 < length <= _LONGEST_NAME:
            file.seek(offset)
            backing = file.read(length)
    return Header(size=size, backing=backing.decode(errors="surrogateescape"))

"""Headers of VMDK files, as far as qemu would follow them to other files, or would not read all data."""

from __future__ import annotations

import re

MAGIC = b"KDMV"

_SECTOR = 512
#: Part of a file in which qemu looks for the name of a parent, whatever size the header gives the descriptor.
_DESCRIPTOR = slice(_SECTOR, 21 * _SECTOR)
_NO_PARENT = b"ffffffff"


def find_defect(head: bytes) -> str | None:
    """Return the reason to refuse a file by its first 64 KiB, or None if there is none."""
    if not head.startswith(MAGIC):
        return "its data are in other files"
    # qemu opens the files that the descriptor names if the size is 0.
    if len(head) < _SECTOR or not any(head[12:20]):
        return "its header has no size"
    descriptor = head[_DESCRIPTOR].lower()
    parents = set(re.findall(rb"parentcid\s*=\s*\"?([0-9a-z]*)", descriptor))
    if b"parentfilenamehint" in descriptor or parents - {_NO_PARENT}:
        return "it needs another file, its parent"
    return None

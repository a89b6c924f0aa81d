"""Process that reads files of one disk. Its standard input is the image, its argument the request.

It answers with a line of JSON: what it found, or why it refuses. Data of a file, or an archive, follow. It ends with
status 0 only if they are whole.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from nova_lite.backups.files import disk, sandbox, tree
from nova_lite.backups.files.disk import Disk, Partition, Refused
from nova_lite.backups.files.ext import Ext
from nova_lite.backups.files.ntfs import Ntfs
from nova_lite.backups.files.tree import FileSystem, Kind
from nova_lite.backups.files.xfs import Xfs

#: Other contents of a partition: offset and bytes by which each is known.
_OTHERS = (
    ("btrfs", 65600, b"_BHRfS_M"),
    ("luks", 0, b"LUKS\xba\xbe"),
    ("lvm", 536, b"LVM2 001"),
    ("fat", 54, b"FAT1"),
    ("fat", 82, b"FAT32"),
    ("swap", 4086, b"SWAPSPACE2"),
)
_OPENED: tuple[type[Ext] | type[Xfs] | type[Ntfs], ...] = (Ext, Xfs, Ntfs)


#: Content of the line of JSON, and a function that writes the data behind it.
_Answer = tuple[dict[str, object], Callable[[BinaryIO], None]]


def main() -> int:
    request = json.loads(sys.argv[1])
    output = os.fdopen(os.dup(1), "wb", buffering=tree.CHUNK)
    sandbox.enter()
    try:
        answer, write = _answer(request)
    except Refused as error:
        answer, write = {"refused": error.reason, "missing": error.missing}, _nothing
    output.write(json.dumps(answer).encode() + b"\n")
    output.flush()
    write(output)
    output.flush()
    return 0


def _nothing(output: BinaryIO) -> None:
    """Write no data."""


def _answer(request: dict[str, Any]) -> _Answer:
    image = disk.open_disk(0, request["format"])
    if request["verb"] == "partitions":
        return {"partitions": [_shown(part) for part in disk.partitions(image)]}, _nothing
    system, path = _opened(image, request["partition"]), request["path"].encode()
    inode = tree.find(system, path)
    if request["verb"] == "list":
        if inode.kind is not Kind.DIRECTORY:
            raise Refused(f"it is a {inode.kind}, not a directory")
        entries, is_cut = tree.entries(system, inode)
        return {"entries": entries, "truncated": is_cut}, _nothing
    if inode.kind is Kind.FILE:
        tree.require_size(inode, image.size)
        data = tree.data(system, inode)
        return {"kind": inode.kind, "size": inode.size}, lambda output: output.writelines(data)
    if inode.kind is Kind.DIRECTORY:
        name = path.rstrip(b"/").rpartition(b"/")[2] or b"disk"
        archive = tree.Archive(system, image.size)
        return {"kind": inode.kind, "size": None}, lambda output: archive.write(inode, name, output)
    raise Refused(f"it is a {inode.kind}, whose data cannot be read")


def _shown(partition: Partition) -> dict[str, object]:
    """Return number, size and file system of a partition, and whether it can be read here."""
    kind, label = next((name for name, at, mark in _OTHERS if partition.read(at, len(mark)) == mark), None), None
    is_readable = False
    for opened in _OPENED:
        if opened.is_on(partition):
            kind = opened.name
            try:
                label, is_readable = tree.text(opened(partition).label), True
            except Refused:
                label = None
    return {
        "number": partition.number,
        "size": partition.size,
        "file_system": kind,
        "label": label,
        "readable": is_readable,
    }


def _opened(image: Disk, number: int) -> FileSystem:
    partition = next((part for part in disk.partitions(image) if part.number == number), None)
    if partition is None:
        raise Refused(f"the disk has no partition {number}", missing=True)
    for opened in _OPENED:
        if opened.is_on(partition):
            return opened(partition)
    kind = _shown(partition)["file_system"]
    raise Refused(f"files of {kind} cannot be read here" if kind else "no file system is known on this partition")


if __name__ == "__main__":
    sys.exit(main())

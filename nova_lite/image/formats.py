"""Checks of image files, before any program of the host opens them.

oslo.utils detects the format from the bytes, in Python. An image whose bytes differ from its declared format could make
a program open other files of the host, so it is refused.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import struct
from collections.abc import Iterable, Iterator
from typing import IO, cast

from oslo_utils.imageutils import format_inspector

from nova_lite.base import exceptions
from nova_lite.image import ova, qcow2, vmdk

DISK_FORMATS = ("raw", "qcow2", "vmdk", "vhd", "vhdx", "vdi", "ami", "aki", "ari", "iso")
CONTAINER_FORMATS = ("bare", ova.OVA, "ami", "aki", "ari")

#: Formats that the bytes of a raw disk may look like: a partition table, a file system, an encrypted disk.
_PLAIN = frozenset({"raw", "gpt", "iso", "luks"})

#: oslo.utils' formats that are allowed for each disk format. A VHD file of fixed size has no header.
_CONTENTS = {
    **dict.fromkeys(("raw", "ami", "aki", "ari", "iso"), _PLAIN),
    "qcow2": frozenset({"qcow2"}),
    "vmdk": frozenset({"vmdk"}),
    "vdi": frozenset({"vdi"}),
    "vhd": frozenset({"vhd", "raw"}),
    "vhdx": frozenset({"vhdx"}),
}

#: Disk formats that hosts convert.
_CONVERTED = ("vmdk", "vhd", "vhdx", "vdi")

#: Reasons for refusals by the name of oslo.utils' safety check.
_REASONS = {
    "backing_file": "it has a backing file",
    "data_file": "its data are in another file",
    "descriptor": "it is not a VMDK file of the type monolithicSparse or streamOptimized",
    "footer": "its footer contradicts its header",
}

#: Bytes to read at a time.
_CHUNK = 65536
#: Bytes to read at most. Every header is within them.
_MOST = 64 * 1024**2
#: Bytes of a disk at most, by its header. qemu takes no more.
_MAX_SIZE = 2**63 - 1
#: Bytes at the end of a file that may be a footer.
_FOOTER = 1536
#: Start of a VHD file's footer, and bytes of the footer.
_VHD_MAGIC, _VHD_FOOTER = b"conectix", 512
#: Type in the header of a VHD file that has only the differences to another one, and its position.
_VHD_DIFFERENCING, _VHD_TYPE = b"\0\0\0\4", slice(60, 64)

# Its messages about files are for its developers.
logging.getLogger(format_inspector.__name__).setLevel(logging.CRITICAL)


def check(path: str, disk_format: str, image_id: str = "", container_format: str = "bare") -> None:
    """Check that a file has the declared format and refers to no other file, which could be any file of the host.

    The file that counts in an OVA archive is its first disk. Raises `ImageUnacceptable` or OSError.
    """
    with _opened(path, container_format, image_id or path) as source:
        check_disk(source, disk_format, image_id or path)


def check_disk(source: ova.Part, disk_format: str, image_id: str) -> None:
    """Check as `check` a disk that is open."""
    inspectors = _inspect(source, image_id)
    expected = _CONTENTS.get(disk_format, frozenset())
    unexpected = sorted({str(inspector) for inspector in inspectors} - expected)
    if unexpected:
        actual = f"it is {', '.join(unexpected)}" if unexpected != ["raw"] else "its content is something else"
        raise exceptions.ImageUnacceptable(
            image_id=image_id, reason=f"it was declared as {disk_format or 'nothing'}, and {actual}"
        )
    source.seek(0)
    head = source.read(_CHUNK)
    for inspector in inspectors:
        if str(inspector) not in _PLAIN:
            _check_safe(inspector, image_id, head)
    _check_head(head, disk_format, image_id)
    if disk_format == "vdi" and source.size < _vdi_bytes(head):
        raise exceptions.ImageUnacceptable(image_id=image_id, reason="it ends early")
    if disk_format == "vhd" and not head.startswith(_VHD_MAGIC):
        source.seek(max(0, source.size - _VHD_FOOTER))
        if not source.read(_VHD_FOOTER).startswith(_VHD_MAGIC):
            raise exceptions.ImageUnacceptable(image_id=image_id, reason="it was declared as vhd, and has no footer")
    size = _size(inspectors, disk_format, image_id)
    if disk_format in _CONVERTED and size is not None and not 0 < size <= _MAX_SIZE:
        raise exceptions.ImageUnacceptable(image_id=image_id, reason="its disk has an impossible size")


def virtual_size(path: str, disk_format: str, container_format: str = "bare") -> int | None:
    """Return the bytes of the disk that a guest sees, None for other files. Call this after `check`. Raises OSError."""
    with _opened(path, container_format, path) as source:
        return disk_size(source, disk_format)


def disk_size(source: ova.Part, disk_format: str) -> int | None:
    """Return the `virtual_size` of a disk that is open."""
    if disk_format in ("raw", "ami", "iso"):
        return source.size
    size = None if disk_format in ("aki", "ari") else _size(_inspect(source, ""), disk_format, "")
    return source.size - _VHD_FOOTER if size is None and disk_format == "vhd" else size


@contextlib.contextmanager
def _opened(path: str, container_format: str, image_id: str) -> Iterator[ova.Part]:
    """Open a file, or the first disk in an archive."""
    with open(open_regular(path), "rb") as file:
        if container_format == ova.OVA:
            yield ova.disks(file.fileno(), image_id)[0].part
        else:
            yield ova.Part(file.fileno(), 0, os.fstat(file.fileno()).st_size)


def open_regular(path: str) -> int:
    """Open an untrusted path for reading and return the descriptor. It is a regular file, and opening it never blocks.

    Raises OSError, also for a FIFO or another special file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "it is not a regular file", path)
    return descriptor


def _inspect(source: ova.Part, image_id: str) -> list[format_inspector.FileInspector]:
    """Return the inspectors of all formats that recognise a disk's bytes."""
    wrapper = format_inspector.InspectWrapper(cast("IO[bytes]", source))  # `read` is all that it calls
    source.seek(0)
    try:
        read = 0
        while wrapper.formats is None and read < _MOST and (chunk := wrapper.read(_CHUNK)):
            read += len(chunk)
        if wrapper.formats is None and read < source.size:
            source.seek(max(read, source.size - _FOOTER))
            wrapper.read(_FOOTER)
        wrapper.close()
        return list(wrapper.formats or ())
    except format_inspector.ImageFormatError as error:
        raise exceptions.ImageUnacceptable(image_id=image_id, reason="its header is damaged") from error


def _size(inspectors: Iterable[format_inspector.FileInspector], disk_format: str, image_id: str) -> int | None:
    """Return the size in a disk's header, None if it has none."""
    try:
        sizes = [int(inspector.virtual_size) for inspector in inspectors if str(inspector) == disk_format]
    except (format_inspector.ImageFormatError, struct.error) as error:
        raise exceptions.ImageUnacceptable(image_id=image_id, reason="its header is damaged") from error
    return sizes[0] if sizes else None


def _check_head(head: bytes, disk_format: str, image_id: str) -> None:
    """Refuse what oslo.utils does not check: other files that a VMDK or VHD file names, impossible qcow2 headers."""
    reason = None
    if disk_format == "vmdk":
        reason = vmdk.find_defect(head)
    elif _is_descriptor(head):
        reason = f"it was declared as {disk_format}, and it is vmdk"
    elif disk_format == "qcow2":
        reason = qcow2.find_defect(head)
    elif disk_format == "vhd" and head.startswith(_VHD_MAGIC) and head[_VHD_TYPE] == _VHD_DIFFERENCING:
        reason = "it needs another file, its parent"
    if reason is not None:
        raise exceptions.ImageUnacceptable(image_id=image_id, reason=reason)


def _vdi_bytes(head: bytes) -> int:
    """Return the bytes of a VDI file by its header. qemu would take missing blocks for zeros."""
    start, block, blocks = (int.from_bytes(head[at : at + 4], "little") for at in (0x158, 0x178, 0x184))
    return start + block * blocks


def _is_descriptor(head: bytes) -> bool:
    """Return whether qemu would detect a VMDK descriptor: comments, empty lines, then a version."""
    lines = (line.strip() for line in head.split(b"\n"))
    first = next((line for line in lines if line and not line.startswith(b"#")), b"")
    return re.match(rb"version\s*=\s*\d", first) is not None


def _check_safe(inspector: format_inspector.FileInspector, image_id: str, head: bytes) -> None:
    try:
        inspector.safety_check()
    except format_inspector.SafetyCheckFailed as error:
        reasons = [_REASONS.get(name) or _feature_reason(str(inspector), head) for name in sorted(error.failures)]
        raise exceptions.ImageUnacceptable(image_id=image_id, reason=" and ".join(dict.fromkeys(reasons))) from error
    except format_inspector.ImageFormatError as error:
        raise exceptions.ImageUnacceptable(image_id=image_id, reason="its header is damaged") from error


def _feature_reason(file_format: str, head: bytes) -> str:
    """Return the reason to refuse a file whose header needs what oslo.utils does not know."""
    if file_format == "qcow2":
        features = qcow2.unsupported_features(head)
        if features:
            return f"it uses {features} of qcow2, which is not supported; convert it without"
    return "its header needs an unsupported feature"

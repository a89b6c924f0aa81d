"""Checks of image files, before any program of the host opens them.

oslo.utils detects the format from the bytes, in Python. An image whose bytes differ from its declared format could make
a program open other files of the host, so it is refused.
"""

from __future__ import annotations

import logging
import os
import re
import stat

from oslo_utils.imageutils import format_inspector

from nova_lite.base import exceptions
from nova_lite.image import qcow2

DISK_FORMATS = ("raw", "qcow2", "ami", "aki", "ari", "iso")
CONTAINER_FORMATS = ("bare", "ami", "aki", "ari")

#: Formats that the bytes of a raw disk may look like: a partition table, a file system, an encrypted disk.
_PLAIN = frozenset({"raw", "gpt", "iso", "luks"})

#: oslo.utils' formats that are allowed for each disk format. VMDK is not supported, since its descriptor may name any
#: file of the host. A VHD file of fixed size has no header.
_CONTENTS = {
    **dict.fromkeys(("raw", "ami", "aki", "ari", "iso"), _PLAIN),
    "qcow2": frozenset({"qcow2"}),
    "vdi": frozenset({"vdi"}),
    "vhd": frozenset({"vhd", "raw"}),
    "vhdx": frozenset({"vhdx"}),
}

#: Reasons for refusals by the name of oslo.utils' safety check.
_REASONS = {"backing_file": "it has a backing file", "data_file": "its data are in another file"}

#: Bytes to read at a time.
_CHUNK = 65536
#: Bytes to read at most. Every header is within them.
_MOST = 64 * 1024**2

# Its messages about files are for its developers.
logging.getLogger(format_inspector.__name__).setLevel(logging.CRITICAL)


def check(path: str, disk_format: str, image_id: str = "") -> None:
    """Check that a file has the declared format and refers to no other file, which could be any file of the host.

    Raises `ImageUnacceptable` or OSError.
    """
    inspectors = _inspect(path, image_id or path)
    expected = _CONTENTS.get(disk_format, frozenset())
    unexpected = sorted({str(inspector) for inspector in inspectors} - expected)
    if unexpected:
        actual = f"it is {', '.join(unexpected)}" if unexpected != ["raw"] else "its content is something else"
        raise exceptions.ImageUnacceptable(
            image_id=image_id or path, reason=f"it was declared as {disk_format or 'nothing'}, and {actual}"
        )
    for inspector in inspectors:
        if str(inspector) not in _PLAIN:
            _check_safe(inspector, image_id or path, path)
    _check_head(path, disk_format, image_id or path)


def virtual_size(path: str, disk_format: str) -> int | None:
    """Return the bytes of the disk that a guest sees, None for other files. Call this after `check`. Raises OSError."""
    if disk_format == "qcow2":
        header = qcow2.read(path)
        return None if header is None else header.size
    return os.path.getsize(path) if disk_format in ("raw", "ami", "iso") else None


def open_regular(path: str) -> int:
    """Open an untrusted path for reading and return the descriptor. It is a regular file, and opening it never blocks.

    Raises OSError, also for a FIFO or another special file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "it is not a regular file", path)
    return descriptor


def _inspect(path: str, image_id: str) -> list[format_inspector.FileInspector]:
    """Return the inspectors of all formats that recognise the file's bytes."""
    with open(open_regular(path), "rb") as source:
        wrapper = format_inspector.InspectWrapper(source)
        try:
            read = 0
            while wrapper.formats is None and read < _MOST and (chunk := wrapper.read(_CHUNK)):
                read += len(chunk)
            wrapper.close()
            return list(wrapper.formats or ())
        except format_inspector.ImageFormatError as error:
            raise exceptions.ImageUnacceptable(image_id=image_id, reason="its header is damaged") from error


def _check_head(path: str, disk_format: str, image_id: str) -> None:
    """Refuse what oslo.utils does not check: a VMDK descriptor before other data, and impossible qcow2 headers."""
    with open(open_regular(path), "rb") as source:
        head = source.read(_CHUNK)
    reason = None
    if _is_descriptor(head):
        reason = f"it was declared as {disk_format}, and it is vmdk"
    elif disk_format == "qcow2":
        reason = qcow2.find_defect(head)
    if reason is not None:
        raise exceptions.ImageUnacceptable(image_id=image_id, reason=reason)


def _is_descriptor(head: bytes) -> bool:
    """Return whether qemu would detect a VMDK descriptor: comments, empty lines, then a version."""
    lines = (line.strip() for line in head.split(b"\n"))
    first = next((line for line in lines if line and not line.startswith(b"#")), b"")
    return re.match(rb"version\s*=\s*\d", first) is not None


def _check_safe(inspector: format_inspector.FileInspector, image_id: str, path: str) -> None:
    try:
        inspector.safety_check()
    except format_inspector.SafetyCheckFailed as error:
        reasons = [_REASONS.get(name) or _feature_reason(str(inspector), path) for name in sorted(error.failures)]
        raise exceptions.ImageUnacceptable(image_id=image_id, reason=" and ".join(dict.fromkeys(reasons))) from error
    except format_inspector.ImageFormatError as error:
        raise exceptions.ImageUnacceptable(image_id=image_id, reason="its header is damaged") from error


def _feature_reason(file_format: str, path: str) -> str:
    """Return the reason to refuse a file whose header needs what oslo.utils does not know."""
    if file_format == "qcow2":
        with open(open_regular(path), "rb") as source:
            features = qcow2.unsupported_features(source.read(_CHUNK))
        if features:
            return f"it uses {features} of qcow2, which is not supported; convert it without"
    return "its header needs an unsupported feature"

"""Formats of image files, and what may be let in.

What an image is, is read from its bytes by oslo.utils, in Python: nothing that an image says of itself makes a program
of the host open a file, before the bytes are known to be what was declared.
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

#: What the bytes of a disk that is used as it is may look like: a partition table, a file system, a locked disk.
_PLAIN = frozenset({"raw", "gpt", "iso", "luks"})

#: A disk format to what its bytes are, in oslo.utils' words. VMDK is none: its descriptor may name any file of the
#: host. A VHD file of fixed size has no header.
_CONTENTS = {
    **dict.fromkeys(("raw", "ami", "aki", "ari", "iso"), _PLAIN),
    "qcow2": frozenset({"qcow2"}),
    "vdi": frozenset({"vdi"}),
    "vhd": frozenset({"vhd", "raw"}),
    "vhdx": frozenset({"vhdx"}),
}

#: What a file is asked for besides its format, with what is wrong otherwise.
_REASONS = {"backing_file": "it has a backing file", "data_file": "it keeps its data in another file"}

#: Bytes that are read at a time, and at most: every header lies before that.
_CHUNK = 65536
_MOST = 64 * 1024**2

# What it logs of a file is for whoever develops it.
logging.getLogger(format_inspector.__name__).setLevel(logging.CRITICAL)


def check(path: str, disk_format: str, image_id: str = "") -> None:
    """Refuse a file whose bytes are not of the declared format, or that has another file read with it: on a compute
    host that could be any file of the host. Raises `ImageUnacceptable` or OSError."""
    found = _inspect(path, image_id or path)
    expected = _CONTENTS.get(disk_format, frozenset())
    wrong = sorted({str(each) for each in found} - expected)
    if wrong:
        what = f"it is {', '.join(wrong)}" if wrong != ["raw"] else "its content is something else"
        raise exceptions.ImageUnacceptable(
            image_id=image_id or path, reason=f"it was declared as {disk_format or 'nothing'}, and {what}"
        )
    for inspector in found:
        if str(inspector) not in _PLAIN:
            _check_safe(inspector, image_id or path)
    _check_head(path, disk_format, image_id or path)


def open_regular(path: str) -> int:
    """A descriptor to read a file that others may have put there: it is one, and opening it does not wait, as for a
    FIFO. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "it is not a regular file", path)
    return descriptor


def _inspect(path: str, image_id: str) -> list[format_inspector.FileInspector]:
    """What the file's bytes are, by all that recognise it."""
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
    """What oslo.utils does not look at: a VMDK descriptor that goes on with something else, and absurd numbers."""
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
    """Whether a program that guesses takes it for a VMDK descriptor: comments, empty lines, then a version."""
    lines = (line.strip() for line in head.split(b"\n"))
    first = next((line for line in lines if line and not line.startswith(b"#")), b"")
    return re.match(rb"version\s*=\s*\d", first) is not None


def _check_safe(inspector: format_inspector.FileInspector, image_id: str) -> None:
    try:
        inspector.safety_check()
    except format_inspector.SafetyCheckFailed as error:
        reasons = [_REASONS.get(name, "its header asks for what is not supported") for name in sorted(error.failures)]
        raise exceptions.ImageUnacceptable(image_id=image_id, reason=" and ".join(dict.fromkeys(reasons))) from error
    except format_inspector.ImageFormatError as error:
        raise exceptions.ImageUnacceptable(image_id=image_id, reason="its header is damaged") from error

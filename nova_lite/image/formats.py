"""Formats of image files, and what may be let in."""

from __future__ import annotations

import struct

from nova_lite import exception

DISK_FORMATS = ("raw", "qcow2", "ami", "aki", "ari", "iso")
CONTAINER_FORMATS = ("bare", "ami", "aki", "ari")

_QCOW2_MAGIC = b"QFI\xfb"
_QCOW2_HEADER = struct.Struct(">4sIQI")  # magic, version, offset and length of the backing file's name
_QCOW2_FEATURES_AT = 72
_EXTERNAL_DATA_FILE = 1 << 2


def check(path: str, disk_format: str) -> None:
    """Refuse a qcow2 file that is none, or that names another file to be read: on a compute host that could be any
    file of the host. Raises `ImageUnacceptable` or OSError."""
    with open(path, "rb") as source:
        start = source.read(104)
    if disk_format != "qcow2":
        return
    if len(start) < _QCOW2_FEATURES_AT or not start.startswith(_QCOW2_MAGIC):
        raise exception.ImageUnacceptable(image_id=path, reason="it is not a qcow2 file")
    _, version, backing_at, _ = _QCOW2_HEADER.unpack_from(start)
    if backing_at:
        raise exception.ImageUnacceptable(image_id=path, reason="it has a backing file")
    if version >= 3 and struct.unpack_from(">Q", start, _QCOW2_FEATURES_AT)[0] & _EXTERNAL_DATA_FILE:
        raise exception.ImageUnacceptable(image_id=path, reason="it keeps its data in another file")

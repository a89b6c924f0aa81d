"""Files of a volume of Cinder's that lie on top of each other, as their headers say.

Names in headers come from another service, and perhaps from a guest. A volume has only regular files of one directory.
"""

from __future__ import annotations

import os
import stat

import msgspec

from nova_lite.base import exceptions
from nova_lite.objects.volume import is_file_name
from nova_lite.virt import images

#: A volume with more files than this is refused, as qemu refuses it.
MAX_FILES = 200

QCOW2 = "qcow2"


class File(msgspec.Struct, frozen=True):
    """A file of a volume, and its format."""

    path: str
    format: str

    @property
    def name(self) -> str:
        """Its plain name."""
        return os.path.basename(self.path)


def unused(qemu_img: images.QemuImg, volume_id: str, top: File) -> list[File]:
    """Return the files of a volume, ``top`` first. Raises `VolumeNotInFiles` if Cinder cannot have made them."""
    chain = [top]
    while (below := _below(qemu_img, volume_id, chain[-1])) is not None:
        append(volume_id, chain, below)
    return chain


def append(volume_id: str, chain: list[File], file: File) -> None:
    """Append the next file below. Raises `VolumeNotInFiles` if Cinder cannot have made it."""
    is_beside = os.path.dirname(file.path) == os.path.dirname(chain[0].path) and is_file_name(file.name)
    if not is_beside or file.format not in images.DISK_FORMATS:
        reason = f"{chain[-1].name} is on top of {file.path or 'something'} ({file.format})"
        raise exceptions.VolumeNotInFiles(volume_id=volume_id, reason=reason)
    if file in chain or len(chain) >= MAX_FILES:
        raise exceptions.VolumeNotInFiles(volume_id=volume_id, reason=f"{chain[0].name} is on top of too many files")
    chain.append(file)


def require_regular(path: str) -> None:
    """Raise `VirtDriverError` unless this is a regular file: no link, and no device."""
    try:
        is_regular = stat.S_ISREG(os.lstat(path).st_mode)
    except OSError as error:
        raise exceptions.VirtDriverError(reason=f"{path}: {error.strerror}") from error
    if not is_regular:
        raise exceptions.VirtDriverError(reason=f"{path} is no regular file")


def _below(qemu_img: images.QemuImg, volume_id: str, file: File) -> File | None:
    """Return the file below, as the header names it. A raw file is at the bottom, whatever is in it."""
    try:
        require_regular(file.path)
        if file.format != QCOW2:
            return None
        info = qemu_img.info(file.path, QCOW2)
    except exceptions.VirtDriverError as error:
        raise exceptions.VolumeNotInFiles(volume_id=volume_id, reason=str(error.kwargs["reason"])) from error
    if info.data_files != ([info.backing] if info.backing else []):
        raise exceptions.VolumeNotInFiles(volume_id=volume_id, reason=f"{file.name} has its data in another file")
    if not info.backing:
        return None
    return File(os.path.join(os.path.dirname(file.path), info.backing), info.backing_format)

"""Encrypted disks of guests: LUKS files in the instance's directory, as those of encrypted volumes.

A key is in this process while a disk is made. Later qemu alone has it, as a secret of libvirt (`secrets`). The file's
data begin after the header, so that it grows and moves without its key.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from nova_lite.base import exceptions, files
from nova_lite.image import luks
from nova_lite.virt import images
from nova_lite.virt.abilities import GetDiskKey

#: Suffix of a disk that is being written.
_PART = ".part"


class EncryptedDisks:
    """Maker of encrypted disks."""

    def __init__(self, qemu_img: images.QemuImg, get_key: GetDiskKey) -> None:
        self._qemu_img = qemu_img
        self._get_key = get_key

    def make(
        self,
        path: str,
        owner: tuple[str, str],
        size: int,
        content: tuple[str, str] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Write a disk with ``size`` bytes of data. It appears when it is complete, and survives a power cut.

        ``owner``: uuid of the server and role of the disk. ``content``: path and format of a plain disk. Without it,
        the guest reads random data. ``check`` may cancel it by raising. Raises `DiskKeyUnavailable`.
        """
        key = self._get_key(*owner)
        part = path + _PART
        with open(part, "wb", opener=files.private_opener) as file:
            file.write(luks.new_header(key.passphrase.encode(), key.key_size))
            file.truncate(file.tell() + size)
            file.flush()
            if content is not None:
                self._qemu_img.encrypt(*content, part, key.passphrase, check)
            os.fsync(file.fileno())
        os.rename(part, path)


def data_size(path: str) -> int:
    """Return the size of the data in bytes. Raises `VirtDriverError` if the file has no header."""
    return os.path.getsize(path) - _offset(path)


def grow(path: str, size: int) -> None:
    """Let the data have ``size`` bytes, unless they have more."""
    if data_size(path) < size:
        os.truncate(path, _offset(path) + size)


def _offset(path: str) -> int:
    try:
        return luks.data_offset(path)
    except luks.NotLuks as error:
        raise exceptions.VirtDriverError(reason=f"disk {os.path.basename(path)} is not encrypted") from error

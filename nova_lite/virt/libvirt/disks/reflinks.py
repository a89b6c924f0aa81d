"""Reflinks: files that share blocks until one of them is written, on XFS and btrfs."""

from __future__ import annotations

import errno
import fcntl
import struct

from nova_lite.base import files

_FICLONE, _FIEMAP = 0x40049409, 0xC020660B
#: Errors of file systems, and pairs of them, that cannot share blocks.
_UNABLE = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL)

#: First byte, bytes, flags, extents that were found, extents that fit.
_QUERY = struct.Struct("=QQIIIxxxx")
#: First byte in the file and on the disk, bytes, flags.
_EXTENT = struct.Struct("=QQQ16xI12x")
_EXTENTS = 512
_LAST, _SHARED = 0x0001, 0x2000


def make(origin: str, path: str) -> bool:
    """Make ``path`` (mode 0600) share the blocks of ``origin``. False: the file system cannot, and the file is empty.

    Raises OSError.
    """
    with open(origin, "rb") as source, open(path, "wb", opener=files.private_opener) as target:
        try:
            fcntl.ioctl(target, _FICLONE, source.fileno())
        except OSError as error:
            if error.errno not in _UNABLE:
                raise
            return False
        return True


def shared_bytes(path: str) -> int:
    """Return the bytes of a file that other files share: writing there takes new blocks. Raises OSError."""
    start = shared = 0
    with open(path, "rb") as file:
        while True:
            answer = bytearray(_QUERY.pack(start, 2**64 - 1 - start, 0, 0, _EXTENTS) + bytes(_EXTENT.size * _EXTENTS))
            try:
                fcntl.ioctl(file, _FIEMAP, answer)
            except OSError as error:
                if error.errno not in _UNABLE:
                    raise
                return 0
            found = _QUERY.unpack_from(answer)[3]
            flags = _LAST
            for number in range(found):
                first, _, length, flags = _EXTENT.unpack_from(answer, _QUERY.size + number * _EXTENT.size)
                shared += length if flags & _SHARED else 0
                start = first + length
            if flags & _LAST:
                return shared

"""Backups of Proxmox (VMA): a guest's configuration and its disks, read as a stream.

An archive has a header with configuration files and names of devices, and then extents. An extent has up to 59 clusters
of 64 KiB, of any device and in any order. A mask shows which 4 KiB blocks of a cluster follow; the others are zeros.
Numbers are big-endian, but not the lengths of the header's blobs. An archive is a stranger's file: each size is checked
before it is used, and each cluster may come once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, NoReturn, Protocol

from nova_lite.base import exceptions
from nova_lite.image import formats

CLUSTER = 65536
_BLOCK = 4096
#: Magic, version, uuid, time, MD5 of the header, offset and length of the blobs, length of the header.
_HEADER = struct.Struct(">4sI16sq16sIII")
_HEADER_LENGTH, _MAX_HEADER = 12288, 4 * 1024**2
#: Offsets of configuration files' names and of their contents among the blobs, and names and sizes of devices.
_FILES, _FILES_AT = struct.Struct(">256I256I"), 2044
_DEVICE, _DEVICES_AT = struct.Struct(">I4xQ16x"), 4096
#: Magic, blocks, uuid, and MD5 of the extent's header; then mask, device, and cluster of each cluster.
_EXTENT, _CLUSTER_INFO = struct.Struct(">4s2xH16s16s"), struct.Struct(">HxBI")
_EXTENT_LENGTH = 512
_MAX_DISK = 16 * 1024**4

_NAME = re.compile(r"drive-([a-z]+[0-9]*)(-backup)?")
#: Programs that decompress a file with these first bytes, and bytes of memory that they may use.
_PROGRAMS = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip", b"\x89LZO": "lzop"}
_MEMORY = 1024**3


class Source(Protocol):
    """Stream of bytes. `read` returns fewer than ``size`` at the end only."""

    def read(self, size: int, /) -> bytes: ...


class Target(Protocol):
    """Disk that an archive's clusters are written to."""

    def write(self, cluster: int, data: bytes) -> None: ...


class Device(NamedTuple):
    """Disk in an archive. ``key``: its key in the configuration, for example scsi0. ``size``: in bytes."""

    key: str
    size: int

    @property
    def clusters(self) -> int:
        return -(-self.size // CLUSTER)


@contextlib.contextmanager
def opened(path: str) -> Iterator[Source]:
    """Yield the bytes of an archive, to be read to their end. The program that decompresses them can write no file.

    Raises `ImageUnacceptable` or OSError.
    """
    with open(formats.open_regular(path), "rb") as file:
        head = os.pread(file.fileno(), 4, 0)
        program = next((name for magic, name in _PROGRAMS.items() if head.startswith(magic)), None)
        if program is None:
            yield file
            return
        if shutil.which(program) is None:
            raise exceptions.ConfigurationError(reason=f"{program} is not installed, which {path} needs")
        command = ["prlimit", f"--as={_MEMORY}", "--fsize=0", program, "--decompress", "--stdout"]
        with subprocess.Popen(command, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                assert process.stdout is not None
                yield process.stdout
                if process.stdout.read(1) or process.wait():
                    raise exceptions.ImageUnacceptable(image_id=path, reason=f"{program} finds that it is damaged")
            finally:
                process.kill()


class Archive:
    """Archive whose header has been read. ``files``: contents by name. ``devices``: by number.

    All methods raise `ImageUnacceptable` for an archive that is damaged. ``name``: of the archive, for messages.
    """

    def __init__(self, source: Source, name: str) -> None:
        self._source = source
        self._name = name
        head = self._read(_HEADER_LENGTH)
        magic, version, self._uuid, _time, digest, start, length, size = _HEADER.unpack_from(head)
        if magic != b"VMA\0" or version != 1:
            self._refuse("it is no VMA archive of version 1")
        if not _HEADER_LENGTH <= size <= _MAX_HEADER or start + length > size:
            self._refuse("its header has a wrong size")
        head += self._read(size - _HEADER_LENGTH)
        if hashlib.md5(head[:32] + bytes(16) + head[48:], usedforsecurity=False).digest() != digest:
            self._refuse("the checksum of its header is wrong")
        self._blobs = head[start : start + length]
        offsets = _FILES.unpack_from(head, _FILES_AT)
        self.files = {
            self._text(name_at): self._blob(data_at)
            for name_at, data_at in zip(offsets[:256], offsets[256:], strict=True)
            if name_at and data_at
        }
        self.devices: dict[int, Device] = {}
        for number in range(1, 256):
            name_at, size = _DEVICE.unpack_from(head, _DEVICES_AT + number * _DEVICE.size)
            if name_at:
                self.devices[number] = self._device(self._text(name_at), size)
        if len({device.key for device in self.devices.values()}) < len(self.devices):
            self._refuse("two of its devices have the same name")

    def extract(self, targets: Mapping[int, Target], progress: Callable[[int], None]) -> None:
        """Write the disks of ``targets``, by number. ``progress`` receives the clusters read, and may raise."""
        seen = {number: bytearray(-(-device.clusters // 8)) for number, device in self.devices.items()}
        count = 0
        for number, cluster, data in self._clusters():
            device = self.devices.get(number)
            if device is None or cluster >= device.clusters:
                self._refuse("it has a cluster of a device, or a place, that it does not name")
            place, bit = cluster // 8, 1 << cluster % 8
            if seen[number][place] & bit:
                self._refuse("it has a cluster twice")
            seen[number][place] |= bit
            if data and number in targets:
                targets[number].write(cluster, data[: device.size - cluster * CLUSTER])
            count += 1
            progress(count)
        if count < self.clusters:
            self._refuse("it ends early")

    @property
    def clusters(self) -> int:
        return sum(device.clusters for device in self.devices.values())

    def _clusters(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield number of the device, number of the cluster, and data, none for a cluster of zeros."""
        for _ in range(self.clusters + 2):  # The last extent may have no cluster, and the end comes after it.
            head = self._source.read(_EXTENT_LENGTH)
            if not head:
                return
            if len(head) < _EXTENT_LENGTH:
                self._refuse("it ends early")
            magic, blocks, uuid, digest = _EXTENT.unpack_from(head)
            if magic != b"VMAE" or uuid != self._uuid:
                self._refuse("it has bytes that are no extent")
            if hashlib.md5(head[:24] + bytes(16) + head[40:], usedforsecurity=False).digest() != digest:
                self._refuse("the checksum of an extent is wrong")
            infos = [info for info in _CLUSTER_INFO.iter_unpack(head[_EXTENT.size :]) if info[1]]
            if sum(mask.bit_count() for mask, _, _ in infos) != blocks:
                self._refuse("an extent has another number of blocks than its clusters")
            for mask, number, cluster in infos:
                yield number, cluster, _spread(mask, self._read(_BLOCK * mask.bit_count()))
        self._refuse("it has more extents than clusters")

    def _read(self, size: int) -> bytes:
        data = self._source.read(size)
        if len(data) < size:
            self._refuse("it ends early")
        return data

    def _blob(self, offset: int) -> bytes:
        """Return a blob of the header, which begins with its length."""
        length = int.from_bytes(self._blobs[offset : offset + 2], "little")
        data = self._blobs[offset + 2 : offset + 2 + length]
        if offset + 2 + length > len(self._blobs):
            self._refuse("its header names bytes beyond its end")
        return data

    def _text(self, offset: int) -> str:
        return self._blob(offset).rstrip(b"\0").decode(errors="replace")

    def _device(self, name: str, size: int) -> Device:
        match = _NAME.fullmatch(name)
        if match is None:
            self._refuse(f"it has a device {name[:64]!r}, which is no disk")
        if not 0 < size <= _MAX_DISK or size % 512:
            self._refuse(f"its disk {match[1]} has a size that no disk has")
        return Device(match[1], size)

    def _refuse(self, reason: str) -> NoReturn:
        raise exceptions.ImageUnacceptable(image_id=self._name, reason=reason)


def _spread(mask: int, data: bytes) -> bytes:
    """Return a cluster of blocks that follow each other in ``data``, each at the place of its bit."""
    if mask in (0, 0xFFFF):
        return data
    cluster = bytearray(CLUSTER)
    position = 0
    for block in range(16):
        if mask >> block & 1:
            cluster[block * _BLOCK : (block + 1) * _BLOCK] = data[position : position + _BLOCK]
            position += _BLOCK
    return bytes(cluster)

"""OVA archives: virtual machines as VMware, VirtualBox and others export them.

An OVA is a tar archive with a descriptor in XML (OVF), disks, and mostly a manifest with their sums. Nothing is
extracted to a path that the archive names: files are found in it by their names, and read in place.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
import urllib.parse
import xml.etree.ElementTree as ET
from collections.abc import Mapping

from nova_lite.base import exceptions

#: Container format of an image that is such an archive.
OVA = "ova"

_CHUNK = 1024**2
_BLOCK = tarfile.BLOCKSIZE
#: Headers that an archive may have.
_MAX_HEADERS = 512
#: Bytes of a descriptor or manifest, and of a header that extends the next one.
_MAX_TEXT, _MAX_EXTENSION = 1024**2, 65536

#: Records of a header that extends the next one, as far as they matter.
_RECORD = re.compile(rb"^\d+ (path|size|GNU\.sparse\.[^=]*)=([^\n]*)\n", re.MULTILINE)
_NAME = re.compile(r"[^/\x00-\x1f\x7f]{1,255}")
_SUM = re.compile(r"(SHA1|SHA256|SHA512)\s*\(([^()]+)\)\s*=\s*([0-9a-f]+)", re.IGNORECASE)


class Part:
    """Bytes of an open file that are read as a file of their own."""

    def __init__(self, descriptor: int, start: int, size: int) -> None:
        self.size = size
        self._descriptor = descriptor
        self._start = start
        self._position = 0

    def seek(self, position: int) -> None:
        self._position = position

    def read(self, size: int, /) -> bytes:
        data = os.pread(self._descriptor, min(size, self.size - self._position), self._start + self._position)
        self._position += len(data)
        return data


class Disk:
    """Disk of an archive. ``part``: its bytes. `read` compares them with the sum of the manifest, if there is one."""

    def __init__(self, image_id: str, name: str, part: Part, checksum: tuple[str, str] | None) -> None:
        self.part = part
        self._image_id = image_id
        self.name = name
        self._checksum = checksum
        self._digest = hashlib.new(checksum[0] if checksum else "sha256", usedforsecurity=False)

    def read(self, size: int, /) -> bytes:
        """Return the next bytes. Raises `ImageUnacceptable` at the end if their sum is another one."""
        data = self.part.read(size)
        self._digest.update(data)
        if not data and self._checksum is not None and self._digest.hexdigest() != self._checksum[1]:
            reason = f"its file {self.name} does not have the sum that its manifest names"
            raise exceptions.ImageUnacceptable(image_id=self._image_id, reason=reason)
        return data


def unpack(path: str, image_id: str) -> None:
    """Replace an archive by its first disk, in place. Raises `ImageUnacceptable` or OSError."""
    with open(path, "r+b") as file:
        disk = disks(file.fileno(), image_id)[0]
        while chunk := disk.read(_CHUNK):  # A header is before the disk, so no byte is overwritten before it is read.
            file.write(chunk)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def disks(descriptor: int, image_id: str) -> list[Disk]:
    """Return the disks of an archive, at least one, in the order of its OVF. Raises `ImageUnacceptable`."""
    try:
        files = _files(descriptor)
        manifest = _sole(files, ".mf")
        sums = None if manifest is None else _sums(_text(files[manifest]))
        name = _sole(files, ".ovf")
        if name is None:
            raise _DefectError("it has no descriptor (.ovf)")

        def disk_of(name: str) -> Disk:
            if sums is not None and name not in sums:
                raise _DefectError(f"its manifest does not name {name}")
            return Disk(image_id, name, files[name], None if sums is None else sums[name])

        descriptor_file = disk_of(name)
        text = _text(descriptor_file)
        return [disk_of(name) for name in _disk_names(text, files)]
    except _DefectError as error:
        raise exceptions.ImageUnacceptable(image_id=image_id, reason=str(error)) from error


class _DefectError(Exception):
    """Reason to refuse an archive."""


def _files(descriptor: int) -> dict[str, Part]:
    """Return the files of a tar archive by name. It may have regular files only, and headers of a limited size."""
    end = os.fstat(descriptor).st_size
    files: dict[str, Part] = {}
    records: dict[bytes, bytes] = {}
    position = 0
    for _ in range(_MAX_HEADERS + 1):
        block = os.pread(descriptor, _BLOCK, position)
        if not any(block):
            return files
        name, kind, size = _header(block, records)
        part = Part(descriptor, position + _BLOCK, size)
        position += _BLOCK + size
        if size < 0 or position > end:
            raise _DefectError("it ends early")
        position += -position % _BLOCK
        if kind in (tarfile.XHDTYPE, tarfile.XGLTYPE):
            records = dict(_RECORD.findall(part.read(_MAX_EXTENSION))) if kind == tarfile.XHDTYPE else {}
            if size > _MAX_EXTENSION or any(name.startswith(b"GNU.") for name in records):
                raise _DefectError("it has a sparse file, or a header that is too long")
            continue
        records = {}
        if kind not in (tarfile.REGTYPE, tarfile.AREGTYPE) or name in files or not _NAME.fullmatch(name):
            raise _DefectError("it may have regular files only, each with a plain name of its own")
        files[name] = part
    raise _DefectError(f"it has more than {_MAX_HEADERS} headers")


def _header(block: bytes, records: Mapping[bytes, bytes]) -> tuple[str, bytes, int]:
    """Return name, type and size of a file. ``records``: of the header that extends this one."""
    try:
        member = tarfile.TarInfo.frombuf(block, "utf-8", "replace")
        size = int(records.get(b"size", b"%d" % member.size))
    except (tarfile.HeaderError, ValueError) as error:
        raise _DefectError("it is not a tar archive, or it is damaged") from error
    return records.get(b"path", member.name.encode()).decode(errors="replace"), member.type, size


def _sole(files: Mapping[str, Part], ending: str) -> str | None:
    names = [name for name in files if name.lower().endswith(ending)]
    if len(names) > 1:
        raise _DefectError(f"it has more than one {ending} file")
    return names[0] if names else None


def _text(source: Part | Disk) -> str:
    """Return the text of a descriptor or manifest. Reads it to its end, where its own sum is compared."""
    try:
        text = source.read(_MAX_TEXT).decode()
    except UnicodeDecodeError as error:
        raise _DefectError("its descriptor or manifest is not UTF-8") from error
    if source.read(1):
        raise _DefectError(f"its descriptor or manifest has more than {_MAX_TEXT} bytes")
    return text


def _sums(manifest: str) -> dict[str, tuple[str, str]]:
    """Return algorithm and sum in hex by the name of a file."""
    lines = [line.strip() for line in manifest.splitlines() if line.strip()]
    found = [_SUM.fullmatch(line) for line in lines]
    if None in found:
        raise _DefectError("its manifest has a line that is no SHA1, SHA256 or SHA512 sum")
    return {match[2]: (match[1].lower(), match[3].lower()) for match in found if match}


def _disk_names(text: str, files: Mapping[str, Part]) -> list[str]:
    """Return the names of the files that an OVF names as disks. It may have no document type, so no entities."""
    try:
        if "<!DOCTYPE" in text:
            raise _DefectError("its descriptor has a document type")
        root = ET.fromstring(text)  # noqa: S314 without a document type there are no entities
    except (ET.ParseError, ValueError) as error:
        raise _DefectError("its descriptor is no XML") from error
    space = root.tag[: root.tag.find("}") + 1]
    references = {item.get(f"{space}id"): item for item in root.iterfind(f"{space}References/{space}File")}
    names = []
    for disk in root.iterfind(f"{space}DiskSection/{space}Disk"):
        reference = disk.get(f"{space}fileRef")
        if reference is None:  # an empty disk
            continue
        if disk.get(f"{space}parentRef") is not None:
            raise _DefectError("it has a disk that needs another disk, its parent")
        file = references.get(reference)
        name = "" if file is None else urllib.parse.unquote(file.get(f"{space}href", ""))
        if file is None or name not in files:
            raise _DefectError("its descriptor names a disk that the archive does not have")
        if file.get(f"{space}compression", "identity") != "identity" or file.get(f"{space}chunkSize") is not None:
            raise _DefectError(f"its disk {name} is compressed or split, which is not supported")
        names.append(name)
    if not names:
        raise _DefectError("its descriptor names no disk")
    return list(dict.fromkeys(names))

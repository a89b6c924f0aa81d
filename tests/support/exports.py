"""Files as other platforms export them: streamOptimized VMDK as VMware writes it, OVF descriptors, OVA archives."""

from __future__ import annotations

import hashlib
import io
import struct
import tarfile
import zlib
from collections.abc import Mapping, Sequence

SECTOR = 512
_GRAIN = 128 * SECTOR
_ENTRIES = 512
_AT_END = 2**64 - 1
_TABLE, _DIRECTORY, _FOOTER = 1, 2, 3

DESCRIPTOR = (
    '# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType="{kind}"\n\n'
    '# Extent description\n{extent}\n\n# The Disk Data Base\n#DDB\nddb.virtualHWVersion = "4"\n'
    'ddb.adapterType = "lsilogic"\n'
)


def stream_optimized(data: bytes, capacity: int | None = None, shared: bytes | None = None) -> bytes:
    """Return a disk of ``data`` with its grain directory and a footer at the end, as VMware's ovftool writes it.

    ``capacity``: bytes of the disk. ``shared``: a grain that all grains are.
    """
    sectors = (len(data) if capacity is None else capacity) // SECTOR
    text = DESCRIPTOR.format(kind="streamOptimized", extent=f'RW {sectors} SPARSE "vm-disk1.vmdk"').encode()
    out = io.BytesIO()
    out.write(_header(sectors, _AT_END))
    out.write(text.ljust(20 * SECTOR, b"\0"))
    _pad(out, _GRAIN)
    grains = -(-sectors * SECTOR // _GRAIN)
    count = -(-grains // _ENTRIES)
    if shared is not None:
        tables = [_write_table(out, [_write_grain(out, 0, shared)] * _ENTRIES)] * count
    else:
        places = [0] * (count * _ENTRIES)
        for index in range(grains):
            grain = data[index * _GRAIN : (index + 1) * _GRAIN]
            if any(grain):
                places[index] = _write_grain(out, index * 128, grain)
        tables = [_write_table(out, places[start : start + _ENTRIES]) for start in range(0, len(places), _ENTRIES)]
    directory = struct.pack(f"<{len(tables)}I", *tables)
    _write_marker(out, -(-len(directory) // SECTOR), _DIRECTORY)
    place = out.tell() // SECTOR
    out.write(directory)
    _pad(out, SECTOR)
    _write_marker(out, 1, _FOOTER)
    out.write(_header(sectors, place))
    out.write(bytes(SECTOR))
    return out.getvalue()


def _header(sectors: int, directory: int) -> bytes:
    fields = (b"KDMV", 3, 0x30001, sectors, 128, 1, 20, _ENTRIES, 0, directory, 128, 0, b"\n \r\n", 1)
    return struct.pack("<4sIIQQQQIQQQB4sH", *fields).ljust(SECTOR, b"\0")


def _write_grain(out: io.BytesIO, sector: int, grain: bytes) -> int:
    place = out.tell() // SECTOR
    packed = zlib.compress(grain.ljust(_GRAIN, b"\0"))
    out.write(struct.pack("<QI", sector, len(packed)) + packed)
    _pad(out, SECTOR)
    return place


def _write_table(out: io.BytesIO, places: list[int]) -> int:
    _write_marker(out, 4, _TABLE)
    place = out.tell() // SECTOR
    out.write(struct.pack(f"<{_ENTRIES}I", *places))
    return place


def _write_marker(out: io.BytesIO, sectors: int, kind: int) -> None:
    out.write(struct.pack("<QII", sectors, 0, kind).ljust(SECTOR, b"\0"))


def _pad(out: io.BytesIO, unit: int) -> None:
    out.write(bytes(-out.tell() % unit))


def ovf(names: Sequence[str], attributes: str = "", before: str = "") -> bytes:
    """Return a descriptor that names disks. ``attributes``: of each file. ``before``: text before the envelope."""
    files = "".join(f'<File ovf:id="f{i}" ovf:href="{name}" {attributes}/>' for i, name in enumerate(names))
    disks = "".join(
        f'<Disk ovf:diskId="d{i}" ovf:fileRef="f{i}" ovf:capacity="8" ovf:capacityAllocationUnits="byte * 2^20"/>'
        for i, _ in enumerate(names)
    )
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>{before}'
        '<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1">'
        f"<References>{files}</References><DiskSection><Info>Disks</Info>{disks}</DiskSection>"
        '<VirtualSystem ovf:id="vm"/></Envelope>'
    ).encode()


def manifest(files: Mapping[str, bytes], algorithm: str = "SHA256") -> bytes:
    sums = {name: hashlib.new(algorithm.lower(), data).hexdigest() for name, data in files.items()}
    return "".join(f"{algorithm}({name})= {value}\n" for name, value in sums.items()).encode()


def ova(files: Mapping[str, bytes], kind: bytes = tarfile.REGTYPE, tar_format: int = tarfile.USTAR_FORMAT) -> bytes:
    """Return an archive of files. ``kind``: type of the last one."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tar_format) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            if name == list(files)[-1]:
                member.type = kind
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()

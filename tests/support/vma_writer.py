"""Backups as Proxmox writes them (VMA), and damaged ones."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence

CLUSTER, BLOCK = 65536, 4096
UUID = bytes(range(16))
#: Number of a device, number of a cluster, data of the cluster.
Cluster = tuple[int, int, bytes]


def archive(
    files: Mapping[str, bytes],
    disks: Mapping[str, bytes],
    *,
    sizes: Mapping[str, int] | None = None,
    clusters: Sequence[Cluster] | None = None,
) -> bytes:
    """Return an archive. ``disks``: contents by name of the device. ``sizes``, ``clusters``: others than theirs."""
    found = list(clusters_of(disks)) if clusters is None else clusters
    body = b"".join(extent(found[start : start + 59]) for start in range(0, len(found), 59))
    return header(files, {name: len(data) for name, data in disks.items()} | dict(sizes or {})) + body


def clusters_of(disks: Mapping[str, bytes]) -> Iterable[Cluster]:
    """Yield the clusters of all disks, interleaved, the last ones first."""
    places = [(at // CLUSTER, number, data) for number, data in enumerate(disks.values(), 1)
              for at in range(0, len(data), CLUSTER)]  # fmt: skip
    for cluster, number, data in sorted(places, reverse=True, key=lambda place: place[:2]):
        yield number, cluster, data[cluster * CLUSTER : (cluster + 1) * CLUSTER].ljust(CLUSTER, b"\0")


def header(files: Mapping[str, bytes], sizes: Mapping[str, int]) -> bytes:
    blobs = bytearray(1)

    def add(data: bytes) -> int:
        place = len(blobs)
        blobs.extend(struct.pack("<H", len(data)) + data)
        return place

    names = [add(name.encode() + b"\0") for name in files]
    contents = [add(data) for data in files.values()]
    devices = [struct.pack(">I4xQ16x", add(name.encode() + b"\0"), size) for name, size in sizes.items()]
    tables = b"".join(struct.pack(">256I", *places, *[0] * (256 - len(places))) for places in (names, contents))
    table = tables + bytes(4) + bytes(32) + b"".join(devices).ljust(255 * 32, b"\0")
    length = -(-(12288 + len(blobs)) // 512) * 512
    start = struct.pack(">4sI16sq16xIII", b"VMA\0", 1, UUID, 1700000000, 12288, len(blobs), length)
    return signed((start + bytes(1984) + table + blobs).ljust(length, b"\0"), 32)


def extent(clusters: Sequence[Cluster], blocks: int | None = None) -> bytes:
    """Return an extent. ``blocks``: another number than that of its blocks."""
    infos, data = b"", b""
    for number, cluster, content in clusters:
        pieces = [content[at : at + BLOCK] for at in range(0, len(content), BLOCK)]
        mask = sum(1 << index for index, piece in enumerate(pieces) if any(piece))
        infos += struct.pack(">HxBI", mask, number, cluster)
        data += b"".join(piece for piece in pieces if any(piece))
    count = len(data) // BLOCK if blocks is None else blocks
    return signed(struct.pack(">4s2xH16s16x", b"VMAE", count, UUID) + infos.ljust(472, b"\0"), 24) + data


def signed(data: bytes, place: int) -> bytes:
    """Return a header with its MD5 at a place."""
    return data[:place] + hashlib.md5(data).digest() + data[place + 16 :]

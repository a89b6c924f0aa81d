"""Backups of Proxmox, good and hostile ones, and the qcow2 files that their disks become."""

from __future__ import annotations

import gzip
import io
import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.image import formats
from nova_lite.image.sources import vma
from nova_lite.image.sources.qcow2_file import Qcow2File
from nova_lite.image.sources.vma import CLUSTER, Archive
from tests.support import vma_writer

RANDOM = random.Random(1)
FILES = {"qemu-server.conf": b"name: web\n", "qemu-server.fw": b""}


def disk(clusters: int, *, tail: int = 0) -> bytes:
    """Return a disk with whole, partly written, and empty clusters."""
    data = bytearray(clusters * CLUSTER + tail)
    for place in range(0, len(data), 3 * CLUSTER):
        data[place : place + CLUSTER] = RANDOM.randbytes(len(data[place : place + CLUSTER]))
    for place in range(CLUSTER + 5 * 4096, len(data), 3 * CLUSTER):
        data[place : place + 10] = b"some bytes"
    return bytes(data)


DISKS = {"drive-scsi0": disk(130), "drive-efidisk0": disk(2), "drive-virtio11": disk(3, tail=512)}
GOOD = vma_writer.archive(FILES, DISKS)


class Memory:
    """Disk in memory."""

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)

    def write(self, cluster: int, data: bytes) -> None:
        assert len(self.data) >= cluster * CLUSTER + len(data)
        self.data[cluster * CLUSTER : cluster * CLUSTER + len(data)] = data


def extracted(content: bytes) -> dict[str, bytes]:
    archive = Archive(io.BytesIO(content), "backup")
    targets = {number: Memory(device.size) for number, device in archive.devices.items()}
    archive.extract(targets, lambda count: None)
    return {device.key: bytes(targets[number].data) for number, device in archive.devices.items()}


def test_archive_has_files_and_disks() -> None:
    archive = Archive(io.BytesIO(GOOD), "backup")
    assert archive.files == FILES
    assert [device.key for device in archive.devices.values()] == ["scsi0", "efidisk0", "virtio11"]
    assert extracted(GOOD) == {name.removeprefix("drive-"): data for name, data in DISKS.items()}


def test_progress_counts_clusters() -> None:
    archive = Archive(io.BytesIO(GOOD), "backup")
    counts: list[int] = []
    archive.extract({}, counts.append)
    assert counts == list(range(1, archive.clusters + 1))
    assert archive.clusters == 130 + 2 + 4


def test_last_extent_may_be_empty() -> None:
    assert extracted(GOOD + vma_writer.extent([])) == extracted(GOOD)


SMALL = {"drive-scsi0": b"x" * CLUSTER + bytes(CLUSTER)}
ONE, ZEROS = (1, 0, b"x" * CLUSTER), (1, 1, bytes(CLUSTER))
HEAD = vma_writer.header(FILES, {"drive-scsi0": 2 * CLUSTER})


def changed(data: bytes, place: int, *, by: bytes = b"\xff", sign: int | None = None) -> bytes:
    data = data[:place] + by + data[place + len(by) :]
    return data if sign is None else vma_writer.signed(data[:sign] + bytes(16) + data[sign + 16 :], sign)


HOSTILE = {
    "no archive": (b"MZ".ljust(20_000, b"\0"), "no VMA archive"),
    "short header": (HEAD[:600], "ends early"),
    "version": (changed(HEAD, 7, by=b"\2", sign=32), "no VMA archive of version 1"),
    "header sum": (changed(HEAD, 100), "checksum of its header"),
    "long header": (changed(HEAD, 56, by=b"\x7f\xff\xff\xff", sign=32), "header has a wrong size"),
    "blobs outside": (changed(HEAD, 52, by=b"\0\x10\0\0", sign=32), "header has a wrong size"),
    "blob outside": (changed(HEAD, 2044, by=b"\0\0\xff\xff", sign=32), "beyond its end"),
    "name outside": (changed(HEAD, 4096 + 32, by=b"\xff\xff\xff\xff", sign=32), "beyond its end"),
    "huge disk": (vma_writer.header({}, {"drive-scsi0": 2**63}), "a size that no disk has"),
    "odd disk": (vma_writer.header({}, {"drive-scsi0": 1000}), "a size that no disk has"),
    "empty disk": (vma_writer.header({}, {"drive-scsi0": 0}), "a size that no disk has"),
    "path as a name": (vma_writer.header({}, {"drive-../etc": 512}), "which is no disk"),
    "memory of a guest": (vma_writer.header({}, {"vmstate": 2**40}), "which is no disk"),
    "same name": (vma_writer.header({}, {"drive-scsi0": 512, "drive-scsi0-backup": 512}), "the same name"),
    "no extent": (HEAD, "ends early"),
    "missing cluster": (HEAD + vma_writer.extent([ONE]), "ends early"),
    "cut extent": ((HEAD + vma_writer.extent([ZEROS, ONE]))[:-1], "ends early"),
    "cut extent header": ((HEAD + vma_writer.extent([ZEROS]))[:-1], "ends early"),
    "cluster twice": (HEAD + vma_writer.extent([ONE, ONE]), "a cluster twice"),
    "zeros twice": (HEAD + vma_writer.extent([ZEROS, ZEROS]), "a cluster twice"),
    "cluster outside": (HEAD + vma_writer.extent([(1, 2, b"")]), "that it does not name"),
    "far cluster": (HEAD + vma_writer.extent([(1, 2**32 - 1, b"")]), "that it does not name"),
    "unknown device": (HEAD + vma_writer.extent([(2, 0, b"")]), "that it does not name"),
    "extent sum": (HEAD + changed(vma_writer.extent([ONE, ZEROS]), 500), "checksum of an extent"),
    "another uuid": (HEAD + changed(vma_writer.extent([ONE, ZEROS]), 8, sign=24), "no extent"),
    "magic": (HEAD + changed(vma_writer.extent([ONE, ZEROS]), 0, sign=24), "no extent"),
    "block count": (HEAD + vma_writer.extent([ONE, ZEROS], blocks=15), "another number of blocks"),
    "bytes behind": (HEAD + vma_writer.extent([ONE, ZEROS]) + b"x" * 512, "no extent"),
    "endless extents": (HEAD + vma_writer.extent([]) * 9, "more extents than clusters"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archive_is_refused(case: str) -> None:
    content, reason = HOSTILE[case]
    with pytest.raises(exceptions.ImageUnacceptable, match=f"backup is unacceptable: .*{reason}"):
        extracted(content)


def test_good_archive_of_the_hostile_ones_is_accepted() -> None:
    assert extracted(HEAD + vma_writer.extent([ZEROS, ONE])) == {"scsi0": SMALL["drive-scsi0"]}


# --- compression


def compressed(program: str) -> bytes:
    if program == "gzip":
        return gzip.compress(GOOD)
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    return subprocess.run([program, "--stdout"], input=GOOD, stdout=subprocess.PIPE, check=True).stdout


@pytest.mark.parametrize("program", ["gzip", "zstd", "lzop"])
def test_compressed_archive_is_read(tmp_path: Path, program: str) -> None:
    (tmp_path / "backup").write_bytes(compressed(program))
    with vma.opened(str(tmp_path / "backup")) as source:
        assert extracted(source.read(len(GOOD) + 1)) == extracted(GOOD)


def test_damaged_compression_is_refused(tmp_path: Path) -> None:
    data = gzip.compress(GOOD)
    (tmp_path / "backup").write_bytes(data[:-8] + bytes(4) + data[-4:])
    with (
        pytest.raises(exceptions.ImageUnacceptable, match="gzip finds that it is damaged"),
        vma.opened(str(tmp_path / "backup")) as source,
    ):
        assert source.read(len(GOOD) + 1) == GOOD


def test_program_for_a_refused_archive_ends(tmp_path: Path) -> None:
    (tmp_path / "backup").write_bytes(gzip.compress(bytes(10_000_000)))
    with (
        pytest.raises(exceptions.ImageUnacceptable, match="no VMA archive"),
        vma.opened(str(tmp_path / "backup")) as source,
    ):
        Archive(source, "backup")


def test_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "backup").write_bytes(b"\x89LZO")
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(exceptions.ConfigurationError, match="lzop is not installed"),
        vma.opened(str(tmp_path / "backup")),
    ):
        pass


# --- qcow2 files


def written(path: Path, size: int, clusters: dict[int, bytes]) -> int:
    """Write a disk, and return the size of the file that was announced last."""
    sizes: list[int] = []
    with open(path, "w+b") as file:
        target = Qcow2File(file.fileno(), size, sizes.append)
        for cluster, data in clusters.items():
            target.write(cluster, data)
        target.finish()
    return sizes[-1]


@pytest.mark.parametrize("size", [512, CLUSTER, 3 * 1024**3 + 512])
def test_qcow2_file_is_accepted_as_an_image(tmp_path: Path, size: int) -> None:
    path = tmp_path / "disk"
    announced = written(path, size, {0: b"x" * 512})
    assert path.stat().st_size == announced
    assert path.read_bytes()[-CLUSTER:].count(b"\1") == announced // CLUSTER  # one reference for each cluster
    formats.check(str(path), "qcow2")
    assert formats.virtual_size(str(path), "qcow2") == size


@pytest.mark.skipif(shutil.which("qemu-img") is None, reason="needs qemu-img")
@pytest.mark.parametrize("size", [3 * CLUSTER + 512, 2 * 1024**3 + CLUSTER, 16 * 1024**4])
def test_qcow2_file_has_what_was_written(tmp_path: Path, size: int) -> None:
    path, raw = tmp_path / "disk", tmp_path / "raw"
    last = (size - 1) // CLUSTER
    clusters = {last: b"l" * 512, 0: RANDOM.randbytes(CLUSTER), 2: RANDOM.randbytes(CLUSTER)}
    written(path, size, clusters)
    subprocess.run(["qemu-img", "check", "-q", "-f", "qcow2", path], check=True)
    if size > 1024**4:
        return
    subprocess.run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", path, raw], check=True)
    assert raw.stat().st_size == size
    with raw.open("rb") as file:
        for cluster in (0, 1, 2, last):
            file.seek(cluster * CLUSTER)
            expected = clusters.get(cluster, b"").ljust(min(CLUSTER, size - cluster * CLUSTER), b"\0")
            assert file.read(CLUSTER) == expected


@pytest.mark.skipif(shutil.which("qemu-img") is None, reason="needs qemu-img")
def test_qcow2_file_with_many_clusters_counts_each_reference(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    written(path, 5 * 1024**3, {number: struct.pack(">I", number) for number in range(33_000)})
    subprocess.run(["qemu-img", "check", "-q", "-f", "qcow2", path], check=True)


def test_qcow2_file_ends_when_there_is_no_room(tmp_path: Path) -> None:
    def refuse(size: int) -> None:
        raise OSError(28, "no room")

    with open(tmp_path / "disk", "w+b") as file, pytest.raises(OSError, match="no room"):
        Qcow2File(file.fileno(), CLUSTER, refuse).write(0, b"x")
    assert (tmp_path / "disk").stat().st_size == 0

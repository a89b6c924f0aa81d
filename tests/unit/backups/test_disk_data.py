"""Streams of disks: whole ones, increments, and what they make together."""

from __future__ import annotations

import io
import itertools
import random
import shutil
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from nova_lite.backups import disk_data, qcow2_file
from nova_lite.backups.disk_data import DiskHeader, Extent
from nova_lite.base import exceptions

BASE = "5f4c0a0e-0000-4000-8000-000000000000"


def stream(disk: bytes, data: list[Extent], zero: list[Extent] = [], base: str | None = None) -> bytes:  # noqa: B006
    """Return the stream of some extents of a disk."""
    target = io.BytesIO()
    disk_data.write_header(target, DiskHeader(size=len(disk), data=data, zero=zero, base=base))
    for offset, length in data:
        target.write(disk[offset : offset + length])
    return target.getvalue()


def disk_of(text: bytes) -> bytes:
    """Return the disk of a whole stream."""
    source = io.BytesIO(text)
    header = disk_data.read_header(source)
    disk = bytearray(header.size)
    for offset, chunk in disk_data.extents_of(header, source):
        disk[offset : offset + len(chunk)] = chunk
    return bytes(disk)


def opened(text: bytes) -> tuple[DiskHeader, io.BytesIO]:
    source = io.BytesIO(text)
    return disk_data.read_header(source), source


def random_extents(rng: random.Random, size: int) -> list[Extent]:
    cuts = sorted(rng.sample(range(size), 2 * rng.randint(0, 6)))
    return [(first, last - first) for first, last in zip(cuts[::2], cuts[1::2], strict=True)]


@pytest.mark.parametrize("seed", range(80))
def test_increments_folded_into_their_base_are_the_disk(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(disk_data, "CHUNK", rng.choice([1, 7, 64, 100000]))
    size = rng.randint(20, 500)
    used = random_extents(rng, size)
    disk = bytearray(size)
    for offset, length in used:
        disk[offset : offset + length] = rng.randbytes(length)
    layers = [stream(bytes(disk), used)]
    for _ in range(rng.randint(0, 5)):
        changed = random_extents(rng, size)
        zero = changed[::2] if rng.random() < 0.5 else []
        data = [extent for extent in changed if extent not in zero]
        for offset, length in zero:
            disk[offset : offset + length] = bytes(length)
        for offset, length in data:
            disk[offset : offset + length] = rng.randbytes(length)
        layers.append(stream(bytes(disk), data, zero, BASE))
    header, chunks = disk_data.fold([opened(layer) for layer in layers])
    found = bytearray(header.size)
    for offset, chunk in chunks:
        found[offset : offset + len(chunk)] = chunk
        assert any(start <= offset and offset + len(chunk) <= start + length for start, length in header.data)
    assert bytes(found) == bytes(disk)


def test_header_is_padded_to_whole_blocks() -> None:
    text = stream(b"x" * 8192, [(4096, 4096)])
    assert text.startswith(disk_data.MAGIC)
    assert len(text) == 2 * 4096


@pytest.mark.parametrize(
    ("size", "data", "zero"),
    [
        (10, [(5, 6)], []),
        (10, [(-1, 2)], []),
        (10, [(0, 0)], []),
        (10, [(4, 2), (0, 2)], []),
        (10, [(0, 4), (2, 4)], []),
        (10, [(0, 4)], [(2, 4)]),
        (10, [], [(8, 4)]),
        (-1, [], []),
    ],
)
def test_impossible_extents_are_refused(size: int, data: list[Extent], zero: list[Extent]) -> None:
    target = io.BytesIO()
    disk_data.write_header(target, DiskHeader(size=size, data=data, zero=zero))
    with pytest.raises(exceptions.BackupDataInvalid):
        disk_data.read_header(io.BytesIO(target.getvalue()))


@pytest.mark.parametrize("text", [b"", b"QFI\xfb" * 10, disk_data.MAGIC + bytes(8), disk_data.MAGIC + b"\xff" * 8])
def test_other_data_are_refused(text: bytes) -> None:
    with pytest.raises(exceptions.BackupDataInvalid):
        disk_data.read_header(io.BytesIO(text))


@pytest.mark.parametrize("change", [lambda text: text[:-1], lambda text: text + b"x"])
def test_incomplete_or_longer_stream_is_refused(change: object) -> None:
    text = change(stream(b"abcdef", [(1, 4)]))  # type: ignore[operator]
    source = io.BytesIO(text)
    header = disk_data.read_header(source)
    with pytest.raises(exceptions.BackupDataInvalid):
        disk_data.copy(header, source, io.BytesIO())


@pytest.mark.parametrize("layers", [[BASE], [None, None], [None, BASE, None], [BASE, BASE]])
def test_layers_that_are_no_chain_are_refused(layers: list[str | None]) -> None:
    with pytest.raises(exceptions.BackupDataInvalid):
        disk_data.fold([opened(stream(b"abcdef", [(1, 4)], base=base)) for base in layers])


def test_layers_of_different_sizes_are_refused() -> None:
    with pytest.raises(exceptions.BackupDataInvalid):
        disk_data.fold([opened(stream(b"abcdef", [])), opened(stream(b"abcdefg", [(6, 1)], base=BASE))])


@pytest.mark.parametrize("number", [0, 1])
def test_layer_that_ends_early_is_noticed_even_if_its_end_is_replaced(number: int) -> None:
    layers = [stream(b"abcdef", [(0, 6)]), stream(b"abcdXY", [(4, 2)], base=BASE)]
    layers[number] = layers[number][:-1]
    _, chunks = disk_data.fold([opened(layer) for layer in layers])
    with pytest.raises(exceptions.BackupDataInvalid):
        list(chunks)


class Discarded:
    """File that keeps nothing but its size."""

    def __init__(self) -> None:
        self.size = 0

    def truncate(self, size: int) -> None:
        self.size = size

    def seek(self, position: int) -> None:
        assert position < self.size

    def write(self, data: bytes) -> int:
        return len(data)


def memory_of(function: Callable[[], Any]) -> tuple[int, int]:
    """Return how many bytes the result of a function has, and how many the function needed at most."""
    tracemalloc.start()
    try:
        result = function()
        held, peak = tracemalloc.get_traced_memory()
        del result
    finally:
        tracemalloc.stop()
    return held, peak


def test_qcow2_file_of_a_large_disk_needs_memory_for_its_extents_and_not_for_its_clusters() -> None:
    gib = 1024**3
    header = DiskHeader(size=1024 * gib, data=[(start * gib, gib) for start in range(0, 1024, 16)])
    file = Discarded()
    _, peak = memory_of(lambda: qcow2_file.write(header, [], cast(Any, file)))
    assert file.size > 64 * gib
    assert peak < 1024**2, "less than a byte for each of a million clusters"


def test_fold_of_fragmented_layers_needs_few_bytes_for_each_extent() -> None:
    number, layers = 5000, []
    for layer in range(4):
        target = io.BytesIO()
        data = [((8 * index + 2 * layer) << 16, 1 << 16) for index in range(number)]
        disk_data.write_header(target, DiskHeader(size=1 << 40, data=data, base=BASE if layer else None))
        layers.append(io.BytesIO(target.getvalue()))
    held, _ = memory_of(lambda: disk_data.fold([(disk_data.read_header(source), source) for source in layers]))
    assert held < 4 * number * 80


@pytest.mark.parametrize("extent", [(0, 65536), (4 * 65536, 1), (65536 + 7, 2 * 65536), (1 << 30, 1)])
def test_qcow2_file_takes_no_data_outside_of_the_extents(extent: Extent) -> None:
    header = DiskHeader(size=1 << 31, data=[(65536, 65536), (3 * 65536, 65536)])
    with pytest.raises(ValueError, match="not all in the extents"):
        qcow2_file.write(header, [(extent[0], bytes(extent[1]))], io.BytesIO())


def same(path: Path, raw: Path) -> bool:
    """Check that a qcow2 file is sound and has the data of a raw one."""
    checked = subprocess.run(["qemu-img", "check", "-q", str(path)], check=False).returncode == 0
    return (
        checked and subprocess.run(["qemu-img", "compare", "-q", "-F", "raw", path, raw], check=False).returncode == 0
    )


@pytest.mark.skipif(shutil.which("qemu-img") is None, reason="no qemu-img")
@pytest.mark.parametrize("size", [512, 3 * 1024**2 + 512, 700 * 1024**2, 1024**4])
def test_qcow2_file_of_a_stream_is_sound_and_has_its_data(tmp_path: Path, size: int) -> None:
    rng = random.Random(size)
    offsets = sorted({0, size - 512, *(512 * rng.randrange(size // 512) for _ in range(5))})
    header = DiskHeader(size=size, data=[(offset, 512) for offset in offsets])
    path, raw = tmp_path / "disk.qcow2", tmp_path / "raw"
    with path.open("wb") as file, raw.open("wb") as expected:
        expected.truncate(size)
        chunks = [(offset, rng.randbytes(512)) for offset in offsets]
        for offset, chunk in chunks:
            expected.seek(offset)
            expected.write(chunk)
        qcow2_file.write(header, chunks, file)
    assert same(path, raw)
    assert path.stat().st_size < 2 * 1024**2


@pytest.mark.skipif(shutil.which("qemu-img") is None, reason="no qemu-img")
@pytest.mark.parametrize("seed", range(5))
def test_qcow2_file_of_long_extents_is_sound_and_has_their_data(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    size, table = 1024**3, 512 * 1024**2
    cuts = sorted(
        {512 * rng.randrange(size // 512) for _ in range(6)} | {table - 512 * rng.randint(1, 999), table + 512}
    )
    extents = [(first, min(last - first, 512 * rng.randint(1, 2000))) for first, last in itertools.pairwise(cuts)]
    path, raw = tmp_path / "disk.qcow2", tmp_path / "raw"
    with path.open("wb") as file, raw.open("wb") as expected:
        expected.truncate(size)
        chunks = []
        for offset, length in extents:
            data, step = rng.randbytes(length), rng.choice([512, 100_000, disk_data.CHUNK])
            chunks += [(offset + start, data[start : start + step]) for start in range(0, length, step)]
            expected.seek(offset)
            expected.write(data)
        qcow2_file.write(DiskHeader(size=size, data=extents), chunks, file)
    assert same(path, raw)

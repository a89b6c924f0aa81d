"""Several disks of a server in one stream: they come back as they were, and impossible ones are refused."""

from __future__ import annotations

import io
import random

import pytest

from nova_lite.backups import disk_data, disk_parts
from nova_lite.backups.disk_data import DiskHeader, DiskPart, Extent
from nova_lite.base import exceptions

BASE = "5f4c0a0e-0000-4000-8000-000000000000"
MIB = 1024**2


def extents(rng: random.Random, size: int) -> list[Extent]:
    cuts = sorted(rng.sample(range(size + 1), 2 * rng.randint(0, 3)))
    return [(first, last - first) for first, last in zip(cuts[::2], cuts[1::2], strict=True)]


def stream(disks: dict[str, bytearray], data: dict[str, list[Extent]], zero: dict[str, list[Extent]], base: str | None):
    """Return the stream of some extents of several disks, after it was read again."""
    made = [
        (
            DiskPart(volume_id=name, size=len(disk)),
            DiskHeader(size=len(disk), data=data[name], zero=zero.get(name, [])),
        )
        for name, disk in disks.items()
    ]
    target = io.BytesIO()
    disk_data.write_header(target, disk_parts.joined(made, base))
    for name, disk in disks.items():
        for offset, length in data[name]:
            target.write(disk[offset : offset + length])
    target.seek(0)
    return disk_data.read_header(target), target


@pytest.mark.parametrize("seed", range(30))
def test_disks_of_increments_are_as_they_were(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(disk_data, "CHUNK", rng.choice([1, 7, 100000]))
    monkeypatch.setattr(disk_data, "_PART_ALIGNMENT", rng.choice([1, 16, 64]))
    sizes = [rng.randint(16, 200) for _ in range(rng.randint(1, 4))]
    disks = {f"volume-{number}" if number else "": bytearray(size) for number, size in enumerate(sizes)}
    layers = []
    for base in (None, *[BASE] * rng.randint(0, 3)):
        data: dict[str, list[Extent]] = {}
        zero: dict[str, list[Extent]] = {}
        for name, disk in disks.items():
            changed = extents(rng, len(disk))
            zero[name] = changed[::2] if base else []
            data[name] = [extent for extent in changed if extent not in zero[name]]
            for offset, length in zero[name]:
                disk[offset : offset + length] = bytes(length)
            for offset, length in data[name]:
                disk[offset : offset + length] = rng.randbytes(length)
        layers.append(stream(disks, data, zero, base))
    found = {}
    for disk in disk_parts.split(*disk_data.fold(layers)):
        content = bytearray(disk.header.size)
        if disk.volume_id != "volume-1":  # one disk is not wanted
            for offset, chunk in disk.chunks:
                content[offset : offset + len(chunk)] = chunk
        found[disk.volume_id] = content
    disks.pop("volume-1", None)
    found.pop("volume-1", None)
    assert found == disks


def test_stream_of_several_disks_is_none_for_an_older_version() -> None:
    part = (DiskPart(volume_id="", size=MIB), DiskHeader(size=MIB, data=[]))
    target = io.BytesIO()
    disk_data.write_header(target, disk_parts.joined([part, part], None))
    assert not target.getvalue().startswith(disk_data.MAGIC)
    disk_data.write_header(target := io.BytesIO(), DiskHeader(size=MIB, data=[]))
    assert target.getvalue().startswith(disk_data.MAGIC)


TWO = [DiskPart(volume_id="", size=10), DiskPart(volume_id="v", size=MIB)]
WRONG = {
    "extent in the gap": DiskHeader(size=2 * MIB, data=[(100, 4)], parts=TWO),
    "extent over the gap": DiskHeader(size=2 * MIB, data=[(5, MIB)], parts=TWO),
    "zeros over the end of the first disk": DiskHeader(size=2 * MIB, data=[], zero=[(5, 6)], parts=TWO),
    "a disk twice": DiskHeader(size=MIB + 10, data=[], parts=[TWO[0], TWO[0]]),
    "another size": DiskHeader(size=3 * MIB, data=[], parts=TWO),
    "a negative size": DiskHeader(size=5, data=[], parts=[DiskPart("", -MIB), DiskPart("v", 5)]),
    "too many disks": DiskHeader(size=64 * MIB, data=[], parts=[DiskPart(str(number), 0) for number in range(65)]),
}


@pytest.mark.parametrize("header", WRONG.values(), ids=WRONG)
def test_impossible_disks_are_refused(header: DiskHeader) -> None:
    target = io.BytesIO()
    disk_data.write_header(target, header)
    target.seek(0)
    with pytest.raises(exceptions.BackupDataInvalid):
        disk_data.read_header(target)


def test_increment_of_other_disks_is_refused() -> None:
    one = stream({"": bytearray(8), "v": bytearray(8)}, {"": [], "v": []}, {}, None)
    other = stream({"": bytearray(8), "w": bytearray(8)}, {"": [], "w": []}, {}, BASE)
    with pytest.raises(exceptions.BackupDataInvalid):
        disk_data.fold([one, other])

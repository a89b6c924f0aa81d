"""Overlays that are copies of an overlay of qemu-img. qemu-img verifies them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from nova_lite.virt import images
from nova_lite.virt.libvirt.disks import overlays
from nova_lite.virt.libvirt.disks.overlays import Overlays

MIB = 1024**2


class Counting:
    def __init__(self, qemu_img: images.QemuImg) -> None:
        self._qemu_img = qemu_img
        self.made: list[str] = []

    def create_overlay(self, path: str, backing: str, backing_format: str, size: int) -> None:
        self.made.append(os.path.basename(path))
        self._qemu_img.create_overlay(path, backing, backing_format, size)


@pytest.fixture
def qemu(qemu_img: images.QemuImg) -> Counting:
    return Counting(qemu_img)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base"
    path.write_bytes(os.urandom(MIB))
    return path


def test_second_overlay_of_a_kind_is_a_copy_without_qemu_img(tmp_path: Path, qemu: Counting, base: Path) -> None:
    made = Overlays(qemu)  # type: ignore[arg-type]
    for name in ("a", "b"):
        made.make(str(tmp_path / name), str(base), "raw", 40 * 1024 * MIB)
    assert qemu.made == ["a"]
    a, b = tmp_path / "a", tmp_path / "b"
    assert a.read_bytes() == b.read_bytes()
    assert b.stat().st_mode & 0o777 == 0o600
    assert b.stat().st_blocks * 512 < b.stat().st_size / 2, "zeros use disk space"
    subprocess.run(["qemu-img", "check", "-q", "-f", "qcow2", str(b)], check=True)
    made.make(str(tmp_path / "small"), str(base), "raw", MIB)
    made.make(str(tmp_path / "like it"), str(base), "raw", MIB)
    assert qemu.made == ["a", "small"], "another size is another kind"
    compare = ["qemu-img", "compare", "-q", "-f", "raw", "-F", "qcow2", str(base), str(tmp_path / "like it")]
    subprocess.run(compare, check=True)


def test_overlay_cache_is_bounded(tmp_path: Path, qemu: Counting, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Overlays(qemu)  # type: ignore[arg-type]
    monkeypatch.setattr(overlays, "MAX_CACHED", 1)
    for name, size in (("a", 1), ("b", 2), ("c", 2), ("d", 1)):
        made.make(str(tmp_path / name), str(base), "raw", size * MIB)
    assert qemu.made == ["a", "b", "d"]
    monkeypatch.setattr(overlays, "BIGGEST", 1000)
    for name in ("e", "f"):
        made.make(str(tmp_path / name), str(base), "raw", 3 * MIB)
    assert qemu.made[3:] == ["e", "f"], "too big for the cache"

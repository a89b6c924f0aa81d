"""Files of snapshot points, and what their snapshots inside of a disk mean for its host."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite.image import qcow2
from nova_lite.virt.libvirt.disks import disk_usage, point_files, transfer

POINT, OTHER = "11111111-1111-4111-8111-111111111111", "21111111-1111-4111-8111-111111111111"
GIB = 1024**3


@pytest.mark.parametrize(
    ("name", "travels"),
    [
        (f"point-{POINT}-nvram.fd", True),
        (f"point-{POINT}-tpm-2.0.state", True),
        (f"point-{POINT}-memory", False),
        (f"point-{POINT}-instance.json", False),
        (f"point-{POINT}-../nvram.fd", False),
        ("point-x-nvram.fd", False),
    ],
)
def test_variables_and_tpms_of_points_travel_and_nothing_else(name: str, travels: bool) -> None:
    assert point_files.travels(name) is travels


def test_files_of_points_are_offered_with_the_disk_except_their_memory(conf: cfg.ConfigOpts, tmp_path: Path) -> None:
    for name in ("disk", f"point-{POINT}-nvram.fd", f"point-{POINT}-memory", "other"):
        (tmp_path / name).write_bytes(b"x")
    offered = [file.name for file in transfer.offer(conf, str(tmp_path)).files]
    assert offered == ["disk", f"point-{POINT}-nvram.fd", transfer.MARKER]


def test_variables_are_copied_to_a_point_and_back(tmp_path: Path) -> None:
    start = point_files.prefix(POINT)
    (tmp_path / "nvram.fd").write_bytes(b"old")
    point_files.copy_variables(str(tmp_path), "", start)
    (tmp_path / "nvram.fd").write_bytes(b"new")
    point_files.copy_variables(str(tmp_path), start, "")
    assert (tmp_path / "nvram.fd").read_bytes() == b"old"
    point_files.copy_variables(str(tmp_path), point_files.prefix(OTHER), "")
    assert not (tmp_path / "nvram.fd").exists(), "the guest had no variables at this point"


def test_files_of_one_point_are_removed(tmp_path: Path) -> None:
    for name in ("disk", f"point-{POINT}-memory.new", f"point-{OTHER}-memory"):
        (tmp_path / name).touch()
    point_files.remove(str(tmp_path), POINT)
    assert sorted(os.listdir(tmp_path)) == ["disk", f"point-{OTHER}-memory"]


def test_disk_with_a_snapshot_can_grow_by_all_of_its_size(tmp_path: Path) -> None:
    directory = tmp_path / str(uuid.uuid4())
    directory.mkdir()
    disk = directory / "disk"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", disk, "1G"], check=True)
    assert GIB - 1024**2 < disk_usage.growth(str(tmp_path)) < GIB
    subprocess.run(["qemu-img", "snapshot", "-c", POINT, disk], check=True)
    header = qcow2.read(str(disk))
    assert header is not None and header.snapshots == 1
    assert disk_usage.growth(str(tmp_path)) == GIB

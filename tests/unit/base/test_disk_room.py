"""Free space on a host's disks: what work may take of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_lite.base import disk_room, exceptions
from nova_lite.base.disk_room import MIB, DiskRoom
from tests.support import make


def nothing() -> None: ...


def test_work_that_leaves_the_floor_has_room() -> None:
    DiskRoom(10 * MIB, lambda path: 30 * MIB).require("/disks", 20 * MIB, "copies")


def test_work_that_leaves_less_than_the_floor_names_what_it_needs_and_what_there_is() -> None:
    room = DiskRoom(10 * MIB, lambda path: 30 * MIB)
    with pytest.raises(exceptions.VirtDriverError) as caught:
        room.require("/disks", 20 * MIB + 1, "copies")
    assert "copies need 21 MiB more, 30 MiB are free on the disk, and 10 MiB have to stay free" in caught.value.message


def test_check_of_running_work_raises_when_the_floor_is_reached() -> None:
    free = [30 * MIB]
    check = DiskRoom(10 * MIB, lambda path: free[0]).kept("/disks", nothing, "copies")
    check()
    free[0] = 10 * MIB - 1
    with pytest.raises(exceptions.VirtDriverError, match="have to stay free"):
        check()


def test_room_of_a_host_is_read_from_its_file_system(tmp_path: Path) -> None:
    conf = make.conf("sqlite://", tmp_path)
    free = disk_room.free_bytes(str(tmp_path))
    conf.set_override("min_free_mb", 1, "image")
    disk_room.of_host(conf).require(str(tmp_path), 0, "copies")
    conf.set_override("reserved_host_disk_mb", 2 * free // MIB)
    with pytest.raises(exceptions.VirtDriverError):
        disk_room.of_host(conf).require(str(tmp_path), 0, "copies")


def test_sparse_file_has_the_data_that_were_written(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    with path.open("wb") as file:
        file.write(b"x" * 4096)
        file.truncate(1 << 30)
    assert 4096 <= (disk_room.data_in(str(path)) or 0) < MIB
    assert disk_room.data_in("/dev/null") is None

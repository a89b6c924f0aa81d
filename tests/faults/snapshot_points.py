"""Snapshot points in the fault matrix: a point is whole or absent, and a server has the disk of its point."""

from __future__ import annotations

from typing import Any

from tests.faults.arena import SETTLE_SECONDS, Arena
from tests.support.waiting import wait_for

AVAILABLE = ("point", "available", True)


def one_with_point(arena: Arena) -> None:
    """Make an active server with a point of its disk, whose content is another one now."""
    arena.create(1)
    arena.settle("ACTIVE", 1)
    create(arena)
    (disk,) = arena.cloud.path.glob(f"*/instances/fake-*/disks/{arena.one()}/disk")
    disk.write_text("changed\n")


def create(arena: Arena) -> None:
    """Create a point. 409: an earlier, unanswered try was accepted."""
    arena.insist("POST", _path(arena), {"snapshot_point": {"name": "point"}}, (202, 409))
    _settle(arena, "ACTIVE", [AVAILABLE])
    assert _disks(arena) == ["generation 1\n"] * 2


def delete(arena: Arena) -> None:
    arena.insist("DELETE", f"{_path(arena)}/{_points(arena)[0]['id']}", None, (202, 404, 409))
    _settle(arena, "ACTIVE", [])
    assert _disks(arena) == ["changed\n"]


def revert(arena: Arena) -> None:
    path = f"{_path(arena)}/{_points(arena)[0]['id']}/revert"
    arena.insist("POST", path, {"revert": {}}, (202, 409))
    _settle(arena, "ACTIVE", [AVAILABLE])
    assert _disks(arena) == ["generation 1\n"] * 2


def _path(arena: Arena) -> str:
    return f"/servers/{arena.one()}/os-snapshot-points"


def _points(arena: Arena) -> list[dict[str, Any]]:
    answer = wait_for("the points", lambda: arena.send("GET", _path(arena), None), SETTLE_SECONDS)
    found: list[dict[str, Any]] = answer.json()["snapshot_points"]
    return found


def _settle(arena: Arena, status: str, wanted: list[tuple[str, str, bool]]) -> None:
    """Wait until the server has this status and these points."""
    arena.settle(status, 1)
    arena.nothing_open()
    assert [(point["name"], point["status"], point["is_current"]) for point in _points(arena)] == wanted


def _disks(arena: Arena) -> list[str]:
    """Return the contents of the guest's disk and of its points."""
    paths = sorted(arena.cloud.path.glob(f"*/instances/fake-*/disks/{arena.one()}/*"))
    return [path.read_text() for path in paths if path.name == "disk" or path.name.startswith("point-")]

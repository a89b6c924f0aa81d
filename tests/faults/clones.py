"""Clones in the fault matrix: a clone is a whole server with the disk of its source, or there is none."""

from __future__ import annotations

from tests.faults.arena import Arena

CHANGED = "changed\n"


def one_changed(arena: Arena) -> None:
    """Make an active server whose disk has another content than a new one."""
    arena.create(1)
    arena.settle("ACTIVE", 1)
    (disk,) = arena.cloud.path.glob(f"*/instances/fake-*/disks/{arena.one()}/disk")
    disk.write_text(CHANGED)


def create(arena: Arena) -> None:
    """Create a clone. After an unanswered request the user looks for it first."""
    path = f"/servers/{arena.one()}/os-clones"
    arena.insist_until(
        lambda: arena.send("POST", path, {"clone": {"name": "clone"}}), lambda: len(arena.servers()) == 2
    )
    arena.settle("ACTIVE", 2)
    arena.nothing_open()
    disks = arena.cloud.path.glob("*/instances/fake-*/disks/*/disk")
    assert [disk.read_text() for disk in disks] == [CHANGED] * 2

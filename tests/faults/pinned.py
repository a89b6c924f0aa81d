"""Servers with CPUs of their own: whatever fails, no CPU is two guests', and none stays with no server."""

from __future__ import annotations

from tests.faults.arena import Arena, Site

#: Each of two hosts has two CPUs for that, which is one server's.
SITE = Site(dedicated_cpus="0-1")

PINNED = "pinned"
FLAVOR = {"id": PINNED, "name": PINNED, "ram": 64, "disk": 1, "vcpus": 2}


def flavor(arena: Arena) -> None:
    """Make a flavor with dedicated CPUs."""
    arena.insist("POST", "/flavors", {"flavor": FLAVOR}, (200, 409))
    specs = {"extra_specs": {"hw:cpu_policy": "dedicated"}}
    arena.insist("POST", f"/flavors/{PINNED}/os-extra_specs", specs, (200,))


def create(arena: Arena) -> None:
    """Create as many servers as fit. Each guest has the CPUs of its row."""
    arena.create(2, PINNED)
    arena.settle("ACTIVE", 2)
    arena.nothing_open()
    assert sorted(arena.own_cpus().values()) == [(host, [0, 1]) for host in sorted(arena.cloud.computes)]


def delete_while_building(arena: Arena) -> None:
    """Delete servers during their builds. Then as many fit again."""
    arena.create(2, PINNED)
    for server in arena.servers():
        arena.insist("DELETE", f"/servers/{server['id']}", None, (204, 404))
    arena.gone()
    arena.nothing_open()
    create(arena)

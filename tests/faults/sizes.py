"""Running guests that get more vCPUs and memory, or less: whatever fails, guest, row and claim have the same size."""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.db.core import models
from tests.faults.arena import Arena

SMALL, LARGE = "small", "large"
SIZES = {SMALL: (1, 64), LARGE: (2, 128)}
SPECS = {"hw:max_vcpus": "4", "hw:max_memory": "256"}


def one_to_grow(arena: Arena) -> None:
    for name, (vcpus, memory_mb) in SIZES.items():
        flavor = {"id": name, "name": name, "vcpus": vcpus, "ram": memory_mb, "disk": 1}
        arena.insist("POST", "/flavors", {"flavor": flavor}, (200, 409))
        arena.insist("POST", f"/flavors/{name}/os-extra_specs", {"extra_specs": SPECS}, (200,))
    arena.create(1, SMALL)
    arena.settle("ACTIVE", 1)


def decide(arena: Arena, body: dict[str, object], status: str, flavor: str) -> None:
    """Request an action, after which the server has this flavor. 409: an earlier, unanswered try was accepted."""
    arena.insist("POST", f"/servers/{arena.one()}/action", body, (202, 204, 409))
    arena.settle(status, 1)
    arena.nothing_open()
    server_id = arena.one()
    query = sa.select(models.Instance.flavorid, models.Allocation.vcpus, models.Allocation.memory_mb)
    query = query.join(models.Allocation, models.Allocation.instance_uuid == models.Instance.uuid)
    query = query.where(models.Instance.uuid == server_id, models.Allocation.generation == models.Instance.generation)
    row = arena.db.read(lambda uow: tuple(uow.session.execute(query).one()))
    assert row == (flavor, *SIZES[flavor])
    assert arena.size(server_id) == SIZES[flavor]


def grow(arena: Arena) -> None:
    decide(arena, {"resize": {"flavorRef": LARGE}}, "VERIFY_RESIZE", LARGE)


def grown(arena: Arena) -> None:
    one_to_grow(arena)
    grow(arena)


def confirm(arena: Arena) -> None:
    decide(arena, {"confirmResize": None}, "ACTIVE", LARGE)


def revert(arena: Arena) -> None:
    decide(arena, {"revertResize": None}, "ACTIVE", SMALL)


def refuse(arena: Arena) -> None:
    """Revert, and let the guest refuse: the owner can still confirm."""
    arena.control_hosts(refuses_unplug=True)
    try:
        decide(arena, {"revertResize": None}, "VERIFY_RESIZE", LARGE)
    finally:
        arena.control_hosts()
    confirm(arena)

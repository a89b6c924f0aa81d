"""Negative control: with a protection switched off (`tests.faults.without`), a fault does harm and the matrix's watch
sees it; the same scenario with nothing switched off passes. (The reconciler's control is in test_matrix.py.)
"""

from __future__ import annotations

from pathlib import Path

from tests.faults import matrix
from tests.faults.matrix import Arena, Fault, hooks
from tests.functional import cloud


def enable(arena: Arena, host: str, enabled: bool) -> None:
    body = {"host": host, "binary": "nova-compute"}
    answer = arena.cloud.request("PUT", f"/os-services/{'enable' if enabled else 'disable'}", body)
    assert answer.status_code == 200, answer.text


def standing_still(arena: Arena) -> None:
    """A host stands still right before its domain comes to exist, for longer than the lease; meanwhile there is another
    one to go to."""
    enable(arena, "compute-2", False)
    for host in arena.cloud.computes:
        arena.cloud.control_host(host, destroy_delay=1.0)
    (stands,) = arena.arm((Fault("compute-1", "fence/before", hooks.PAUSE),))
    arena.create(1)
    cloud.wait_for("the host stands still", stands.exists)
    enable(arena, "compute-2", True)
    arena.settle("ACTIVE", 1)


def test_a_build_that_moves_unconfirmed_is_seen_twice(tmp_path: Path) -> None:
    with matrix.arena(tmp_path, launcher=("tests.faults.without", "confirmation")) as arena:
        standing_still(arena)
        cloud.wait_for("it was on two hosts", lambda: "runs on" in arena.violated, 30)


def test_a_build_that_waits_for_confirmation_is_not(tmp_path: Path) -> None:
    with matrix.arena(tmp_path, launcher=("tests.faults.without", "nothing")) as arena:
        standing_still(arena)
        arena.check_hypervisors()
        assert not arena.violated

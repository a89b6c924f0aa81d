"""Negative controls: with a protection switched off (`tests.faults.without`), a fault does harm and the matrix's watch
sees it; the same scenario with nothing switched off passes. (The reconciler's control is in test_matrix.py.)

What has to come in an order is held (`hooks.HOLD`) until the other is seen, so no speed of the machine changes it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults import matrix
from tests.faults.matrix import Arena, Fault, hooks
from tests.faults.outages import release
from tests.functional import cloud


def enable(arena: Arena, host: str, enabled: bool) -> None:
    body = {"host": host, "binary": "nova-compute"}
    answer = arena.cloud.request("PUT", f"/os-services/{'enable' if enabled else 'disable'}", body)
    assert answer.status_code == 200, answer.text


def make_slow(arena: Arena, **control: Any) -> None:
    """What comes to exist twice lasts long enough to be seen."""
    for host in arena.cloud.computes:
        arena.cloud.control_host(host, destroy_delay=1.0, **control)


def standing_still(arena: Arena) -> None:
    """A host stands still right before its domain comes to exist, for longer than the lease; meanwhile there is another
    one to go to."""
    enable(arena, "compute-2", False)
    make_slow(arena)
    (stands,) = arena.arm((Fault("compute-1", "fence/before", hooks.PAUSE),))
    arena.create(1)
    cloud.wait_for("the host stands still", stands.exists)
    enable(arena, "compute-2", True)
    arena.settle("ACTIVE", 1)


def ordered_again(arena: Arena) -> None:
    """A build fails. Before the conductor takes in the report, the host's daemon is killed; back again, it gets the
    same order once more. Whatever it is at then, the build moves; only then it goes on."""
    enable(arena, "compute-2", False)
    make_slow(arena, fail_at=["image"])
    (report,) = arena.arm((Fault("conductor", "handle/finish_build/before", hooks.HOLD),))
    arena.create(1)
    cloud.wait_for("the failure is reported", report.exists)
    make_slow(arena)
    enable(arena, "compute-2", True)
    (again,) = arena.arm((Fault("compute-1", "send/start_build/after", hooks.HOLD),))
    arena.cloud.kill("compute-1")
    arena.cloud.start("compute-1")
    cloud.wait_for("it builds again, or refuses", lambda: again.exists() or arena.servers()[0]["status"] == "ACTIVE")
    release(report)
    arena.settle("ACTIVE", 1)
    release(again)


def last_place(arena: Arena) -> None:
    """Two requests for one place: the first is held between the choice of its host and its claim, until the other is
    there. What the host is ordered to build then is held as long as it is of interest."""
    (late,) = arena.arm((Fault("conductor", "send/select_destinations/after", hooks.HOLD),))
    arena.create(1)
    cloud.wait_for("a host is chosen", late.exists)
    arena.create(1)
    cloud.wait_for("the place is taken", arena.cloud.domains)
    (order,) = arena.arm((Fault("compute-1", "handle/build_and_run_instance/before", hooks.HOLD),))
    release(late)
    ids = [server["id"] for server in arena.servers()]
    cloud.wait_for("the claim is refused, or seen", lambda: arena.violated or len(states(arena) - {"BUILD"}) == 2)
    release(order)
    found = arena.cloud.wait_settled(ids)
    assert sorted(server["status"] for server in found.values()) == ["ACTIVE", "ERROR"]


def states(arena: Arena) -> set[str]:
    return {server["status"] for server in arena.servers()}


ONE_PLACE = {"computes": 1, "vcpus": 1, "extra_config": "[DEFAULT]\ncpu_allocation_ratio = 1.0\n"}

#: By protection: what happens, the cloud, and the harm without it.
SCENARIOS: dict[str, tuple[Callable[[Arena], None], dict[str, Any], str]] = {
    "confirmation": (standing_still, {}, "runs on"),
    "tombstone": (ordered_again, {}, "runs on"),
    "conditional claim": (last_place, ONE_PLACE, "more is used than there is"),
}


@pytest.mark.parametrize("protection", SCENARIOS)
def test_harm_is_seen_without(tmp_path: Path, protection: str) -> None:
    scenario, options, harm = SCENARIOS[protection]
    with matrix.arena(tmp_path, launcher=("tests.faults.without", protection), **options) as arena:
        scenario(arena)
        cloud.wait_for("the harm is seen", lambda: harm in arena.violated, 30)


@pytest.mark.parametrize("protection", SCENARIOS)
def test_no_harm_with(tmp_path: Path, protection: str) -> None:
    scenario, options, _ = SCENARIOS[protection]
    with matrix.arena(tmp_path, launcher=("tests.faults.without", "nothing"), **options) as arena:
        scenario(arena)
        active = {server["id"] for server in arena.servers() if server["status"] == "ACTIVE"}
        assert set(arena.cloud.domains()) == active
        assert not arena.violated

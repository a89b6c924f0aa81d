"""Negative controls: with a protection switched off (`tests.faults.without`) a case of the matrix fails, with the harm
that the protection is against. With all of them on it passes, as every case (test_matrix.py, `devstack/faults.sh`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_lite.base import failpoints
from tests.faults import arena, matrix, points, scenarios
from tests.faults.arena import Arena
from tests.support.waiting import wait_for

#: Case and expected harm, by protection.
CONTROLS = {
    "reconciler": (
        "create 1: drop conductor* at send/build_and_run_instance/before",
        "all servers are ACTIVE: not within 15 s",
    ),
    "confirmation": ("create, host stands still: by itself", "runs on"),
    "revocation": ("create, ordered again: by itself", "runs on"),
    "conditional claim": ("create 2, one place: by itself", "more is used than there is"),
}


@pytest.mark.parametrize("protection", CONTROLS)
def test_harm_is_seen_without(tmp_path: Path, protection: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "SETTLE_SECONDS", 15.0)
    # Another host has built before the paused one continues, on a busy machine, too.
    monkeypatch.setitem(points.SECONDS, failpoints.PAUSE, 20.0)
    monkeypatch.setitem(points.LASTING, failpoints.PAUSE, 20.5)
    name, harm = CONTROLS[protection]
    (case,) = [case for case in matrix.singles() if str(case) == name]
    with matrix.arena(tmp_path, case.site, launcher=("tests.faults.without", protection)) as ready:
        result = matrix.run_case(case, ready)
    assert harm in result.wrong


def first_build_fails(arena: Arena) -> None:
    """Create a server whose build fails at its first host. The other host is enabled meanwhile, and builds it."""
    arena.enable("compute-2", False)
    arena.cloud.control_host("compute-1", fail_at=["spawn_before_domain"], delays={"spawn_before_domain": 2.0})
    arena.create(1)
    wait_for("a host builds it", lambda: arena.servers()[0]["OS-EXT-SRV-ATTR:host"] == "compute-1")
    arena.enable("compute-2", True)
    arena.settle("ACTIVE", 1)
    arena.control_hosts()


@pytest.mark.parametrize("protection", ["", "fence before report"])
def test_trace_without_a_protection_is_refused(tmp_path: Path, protection: str) -> None:
    """All other judges of the matrix are content without this protection: no late message happens to do harm."""
    scenario = scenarios.Scenario("create, first build fails", scenarios.nothing, first_build_fails, {})
    launcher = {"launcher": ("tests.faults.without", protection)} if protection else {}
    with matrix.arena(tmp_path, **launcher) as ready:
        result = matrix.run_case(matrix.Case(scenario), ready)
    if protection:
        assert (
            "no step of the model makes the rows ('building', -1, 1, -1, False, 'create', 'schedule')" in result.wrong
        )
    else:
        assert not result.wrong and result.paths == 1

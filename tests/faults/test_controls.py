"""Negative controls: with a protection switched off (`tests.faults.without`) a case of the matrix fails, with the harm
that the protection is against. With all of them on it passes, as every case (test_matrix.py, `devstack/faults.sh`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import arena, matrix

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
    name, harm = CONTROLS[protection]
    (case,) = [case for case in matrix.singles() if str(case) == name]
    with matrix.arena(tmp_path, case.site, launcher=("tests.faults.without", protection)) as ready:
        result = matrix.run_case(case, ready)
    assert harm in result.wrong

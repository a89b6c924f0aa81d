"""A sample of the fault matrix (`devstack/faults.sh` runs all of it), and proof that it can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import matrix

#: So that each operation, daemon and effect is in the sample, and it takes a few minutes.
EVERY = 16


@pytest.mark.timeout(900)
def test_a_sample_of_the_matrix(tmp_path: Path) -> None:
    cases = matrix.singles()[::EVERY]
    assert {case.operation.name for case in cases} == {operation.name for operation in matrix.OPERATIONS}
    assert {case.fault for case in cases} == {case.fault for case in matrix.singles()}
    assert {case.faults[0].daemon for case in cases} == {"api", "conductor", "scheduler", "compute-*"}
    table = matrix.Table(len(cases))
    matrix.run_cases(cases, 2, tmp_path, table.add)
    table.print()
    assert not table.failures
    assert len(table.results) == len(cases)


def test_the_matrix_fails_without_the_reconciler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "SETTLE_SECONDS", 15.0)
    (create_one,) = [operation for operation in matrix.OPERATIONS if operation.name == "create 1"]
    lost = matrix.Fault("conductor", "send/build_and_run_instance/before", matrix.hooks.DROP)
    with matrix.arena(tmp_path, extra_config="[conductor]\nreconcile_interval = 3600\n") as ready:
        result = matrix.run_case(matrix.Case(create_one, (lost,)), ready)
    assert "all servers are ACTIVE: not within 15 s" in result.wrong

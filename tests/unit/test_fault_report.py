"""Report of the fault matrix on its cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import matrix
from tests.faults.report import Result, Table, passed_before


def test_the_table_of_a_run_with_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(3, "devstack/faults.sh --pairs 300 --seed 7")
    table.add(Result("stop", "kill", "stop: kill api at x", recovery=1.26, seconds=3, paths=4, unjudged=1))
    table.add(Result("stop", "kill", "stop: kill api at y", recovery=2.0, seconds=3))
    table.add(
        Result(
            "stop", "kill", "stop: kill api's z", seconds=9, wrong="AssertionError: it runs twice\nmore", logs="/l/case"
        )
    )
    capsys.readouterr()
    table.print()
    lines = capsys.readouterr().out.splitlines()
    assert "AssertionError: it runs twice" in lines
    assert "logs: /l/case" in lines
    assert "again: devstack/faults.sh --pairs 300 --seed 7 --only 'stop: kill api'\"'\"'s z'" in lines
    assert lines[-3].split() == ["stop", "kill", "3", "2", "2.0", "s"]
    assert lines[-2] == "4 traces are paths, 1 not judged"
    assert lines[-1] == "2 passed, 1 failed"


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """A failed case runs again, and the new result counts."""
    kept = tmp_path / "results"
    assert passed_before(kept) == {}
    table = Table(2, kept=kept)
    passed = Result("stop", "kill", "stop: kill api at x", recovery=1.0)
    table.add(passed)
    table.add(Result("stop", "kill", "stop: kill api at y", wrong="AssertionError: no"))
    assert passed_before(kept) == {passed.case: passed}
    Table(2, before=[passed], kept=kept).add(Result("stop", "kill", "stop: kill api at y"))
    assert set(passed_before(kept)) == {"stop: kill api at x", "stop: kill api at y"}


def test_a_seed_gives_the_same_pairs() -> None:
    assert list(map(str, matrix.pairs(20, 3))) == list(map(str, matrix.pairs(20, 3)))
    assert list(map(str, matrix.pairs(20, 3))) != list(map(str, matrix.pairs(20, 4)))


def test_each_case_has_a_description_of_its_own() -> None:
    """The command that repeats a case selects it alone."""
    cases = matrix.singles()
    assert len({str(case) for case in cases}) == len(cases)
    (pause,) = matrix.chosen(cases, ["pause: by itself"])
    assert str(pause) == "pause: by itself"
    assert len(matrix.chosen(cases, ["pause"])) > 2

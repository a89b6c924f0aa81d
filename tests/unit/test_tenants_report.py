"""Judgement of answers while a host is lost: who answered, how often none did, and for how long."""

from __future__ import annotations

import pytest

from tests.faults.tenants_report import LOST, Answer, Row, conflicts, line, problems, row_of

GUESTS = {"red-1": "red", "blue-1": "blue"}
ONE, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02"


def row(*texts: str, until: float | None = None) -> Row:
    """Return the row of answers that come each second, of which two come before the loss."""
    answers = [Answer("red", LOST, 98.5 + number, text) for number, text in enumerate(texts)]
    return row_of(answers, GUESTS, 100.0, until or 98.0 + len(texts))


def test_way_that_always_answers_has_no_failure() -> None:
    found = row("red-1", "red-1", "red-1", "red-1")
    assert found == Row(connections=2, failed=0, gap=1.0, back=0.0)
    assert problems({("red", LOST): found}, 9) == []
    assert line("red", LOST, found) == f"| red | {LOST} | 2 | 0 | 1.0 s | - | 0 |"


def test_way_is_back_with_the_first_answer_after_the_last_failure() -> None:
    found = row("red-1", "red-1", "", "red-1", "503", "TimeoutError", "red-1", "red-1")
    assert found == Row(connections=6, failed=3, gap=3.0, back=4.5)
    assert problems({("red", LOST): found}, 4) == [f"red, {LOST}: does not answer within 4 s"]
    assert line("red", LOST, found).endswith("| 6 | 3 | 3.0 s | 4 s | 0 |")


@pytest.mark.parametrize("texts", [("red-1", "red-1"), ("red-1", "red-1", "red-1", "")])
def test_way_without_an_answer_at_the_end_is_not_back(texts: tuple[str, ...]) -> None:
    found = row(*texts, until=110.0)
    assert found.back is None and found.gap > 9
    assert problems({("red", LOST): found}, 99) == [f"red, {LOST}: does not answer within 99 s"]


def test_answer_of_the_other_project_is_a_problem_whenever_it_comes() -> None:
    for texts in (("blue-1", "red-1", "red-1"), ("red-1", "red-1", "blue-1", "red-1")):
        found = row(*texts)
        assert found.foreign == 1
        assert problems({("red", LOST): found}, 99) == [f"red, {LOST}: 1 answers are of the other project"]


def test_lost_host_may_answer_until_another_one_has_the_address() -> None:
    owners = [(1.0, "a", ONE), (40.0, "a", OTHER), (41.0, "b", ONE)]
    assert conflicts(owners, ONE) == []
    assert conflicts([*owners, (50.0, "a", ONE), (51.5, "a", ONE)], ONE) == [
        "the lost host answers for a, which has moved, 50.0 to 51.5 s after the loss"
    ]

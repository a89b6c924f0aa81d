"""Waits of tests, by a clock that only their pauses move."""

from __future__ import annotations

import re

import pytest

from tests.support import waiting
from tests.support.clock import Clock
from tests.support.waiting import polls, wait_for, wait_for_none


class Time:
    """Stands for `time`. ``pauses``: the seconds of each sleep."""

    def __init__(self) -> None:
        self.monotonic = Clock()
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.monotonic.time += seconds


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(waiting, "time", made)
    return made


def test_wait_for_a_condition_that_is_true_returns_it_at_once(time: Time) -> None:
    assert wait_for("it", lambda: [1]) == [1]
    assert time.pauses == []


def test_wait_for_a_condition_that_comes_true_returns_its_value() -> None:
    values = iter([None, 0, [], "there"])
    assert wait_for("it", lambda: next(values)) == "there"


def test_wait_for_a_condition_that_stays_false_fails_with_its_last_value(time: Time) -> None:
    with pytest.raises(AssertionError, match=re.escape("it is there: not within 0.5 s; last seen: []")):
        wait_for("it is there", list, 0.5)
    assert time.monotonic() == pytest.approx(0.5)


def test_wait_for_none_of_something_that_goes_returns() -> None:
    left = [["a", "b"], ["b"], []]
    wait_for_none("all are gone", lambda: left.pop(0))
    assert left == []


def test_wait_for_none_of_something_that_stays_fails_with_the_rest() -> None:
    with pytest.raises(AssertionError, match=re.escape("all are gone: not within 2 s; left: ['a']")):
        wait_for_none("all are gone", lambda: ["a"], 2)


def test_pauses_between_polls_double_until_the_interval(time: Time) -> None:
    assert len(list(polls(0.3, 0.1))) == 10
    assert time.pauses == pytest.approx([0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.1, 0.073])


def test_polls_without_time_are_one() -> None:
    assert len(list(polls(0.0))) == 1

"""The checker finds what is there to be found."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.model.checker import Step, TooManyStates, explore


class Counter:
    """Counts to ``top``; ``trap``: from 2 one may also go to where nothing leads out."""

    def __init__(self, top: int, bad: int = -1, trap: bool = False) -> None:
        self.top, self.bad, self.trap = top, bad, trap

    def initial(self) -> int:
        return 0

    def steps(self, state: int) -> Iterable[Step]:
        if 0 <= state < self.top:
            yield f"to {state + 1}", True, state + 1
        if self.trap and state == 2:
            yield "into the trap", False, -9

    def violation(self, state: int) -> str | None:
        return "bad" if state == self.bad else None

    def unsettled(self, state: int) -> str | None:
        return None if state == self.top else "not at the top"

    def canonical(self, state: int) -> int:
        return state


def test_what_holds() -> None:
    result = explore(Counter(5))
    assert result.holds
    assert result.states == 6


def test_a_violation_has_the_shortest_trace() -> None:
    result = explore(Counter(5, bad=3))
    assert (result.kind, result.reason, result.trace) == ("violation", "bad", ("to 1", "to 2", "to 3"))


def test_a_state_that_cannot_settle_is_found() -> None:
    result = explore(Counter(5, trap=True))
    assert (result.kind, result.trace[-1]) == ("stuck", "into the trap")


def test_too_many_states_prove_nothing() -> None:
    with pytest.raises(TooManyStates):
        explore(Counter(100), limit=50)

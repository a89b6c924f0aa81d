"""The checker finds violations and states that cannot settle."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.model.checker import Step, TooManyStates, explore


class Counter:
    """Counts to ``top``. With ``trap`` a state after 2 leads nowhere."""

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


def test_model_that_holds_is_explored_completely() -> None:
    result = explore(Counter(5))
    assert result.holds
    assert result.states == 6


def test_violation_has_the_shortest_trace() -> None:
    result = explore(Counter(5, bad=3))
    assert (result.kind, result.reason, result.trace) == ("violation", "bad", ("to 1", "to 2", "to 3"))


def test_trap_state_is_found_as_stuck() -> None:
    result = explore(Counter(5, trap=True))
    assert (result.kind, result.trace[-1]) == ("stuck", "into the trap")


def test_search_over_the_limit_raises_too_many_states() -> None:
    with pytest.raises(TooManyStates):
        explore(Counter(100), limit=50)

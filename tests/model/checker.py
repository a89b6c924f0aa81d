"""A small explicit-state model checker.

It searches breadth-first, so every counterexample is a shortest one. It checks two kinds of properties:

- `Model.violation` is evaluated in every reachable state
- From every reachable state a settled state must be reachable by *progress* steps alone: steps that daemons take
  automatically, without users, faults, or messages that no daemon would send again. With strong fairness this means
  that every run settles once faults stop.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol

State = Hashable

#: Label, whether it is progress, and the state after it.
Step = tuple[str, bool, State]


class Model(Protocol):
    def initial(self) -> State: ...

    def steps(self, state: State) -> Iterable[Step]: ...

    def violation(self, state: State) -> str | None:
        """Return what is wrong with this state, if anything."""

    def unsettled(self, state: State) -> str | None:
        """Return what still has to happen in this state, or None."""

    def canonical(self, state: State) -> State:
        """Return the representative of all states that differ only in names."""


class TooManyStates(Exception):
    """Raised if there are more states than the limit, so that nothing is proven."""


@dataclass(frozen=True)
class Result:
    """Result of a search.

    ``kind``: "" (everything holds), "violation" or "stuck". ``trace``: labels from the start to the bad state.
    """

    states: int
    steps: int
    seconds: float
    kind: str = ""
    reason: str = ""
    trace: tuple[str, ...] = ()
    last: State = None

    @property
    def holds(self) -> bool:
        return not self.kind

    def __str__(self) -> str:
        size = f"{self.states:,} states, {self.steps:,} steps, {self.seconds:.1f} s"
        if self.holds:
            return f"holds ({size})"
        lines = [f"{self.kind}: {self.reason} ({size})"]
        lines += [f"  {number:2}. {label}" for number, label in enumerate(self.trace, 1)]
        return "\n".join(lines)


def explore(model: Model, limit: int = 5_000_000) -> Result:
    """Visit every state; stop at the first violation, otherwise look for states that cannot settle."""
    started = time.monotonic()
    first = model.canonical(model.initial())
    number = {first: 0}
    states = [first]
    parent = [-1]
    backwards: list[list[int]] = [[]]
    taken = 0

    def result(kind: str = "", reason: str = "", index: int = -1) -> Result:
        chain = []
        while index >= 0:
            chain.append(states[index])
            index = parent[index]
        trace, last = _replay(model, chain[::-1])
        if kind == "stuck":
            trace, last = _to_the_end(model, trace, last)
            reason = model.unsettled(last) or reason
        return Result(len(states), taken, time.monotonic() - started, kind, reason, trace, last)

    reason = model.violation(first)
    if reason is not None:
        return result("violation", reason, 0)
    position = 0
    while position < len(states):
        for _, progress, raw in model.steps(states[position]):
            taken += 1
            state = model.canonical(raw)
            index = number.get(state)
            if index is None:
                index = number[state] = len(states)
                if index >= limit:
                    raise TooManyStates(f"more than {limit} states")
                states.append(state)
                parent.append(position)
                backwards.append([])
                reason = model.violation(state)
                if reason is not None:
                    return result("violation", reason, index)
            if progress and index != position:
                backwards[index].append(position)
        position += 1
    settles = [model.unsettled(state) is None for state in states]
    stack = [index for index, good in enumerate(settles) if good]
    while stack:
        for index in backwards[stack.pop()]:
            if not settles[index]:
                settles[index] = True
                stack.append(index)
    for index, good in enumerate(settles):
        if not good:
            return result("stuck", model.unsettled(states[index]) or "", index)
    return result()


def _to_the_end(model: Model, trace: tuple[str, ...], state: State) -> tuple[tuple[str, ...], State]:
    """Let the daemons continue automatically until nothing new happens, to show the outcome."""
    seen = set()
    while state not in seen:
        seen.add(state)
        for label, progress, after in model.steps(state):
            if progress and after not in seen:
                trace, state = (*trace, label), after
                break
    return trace, state


def _replay(model: Model, chain: list[State]) -> tuple[tuple[str, ...], State]:
    """Return the labels of a path of representatives, as one run whose hosts keep their names."""
    if not chain:
        return (), None
    current, labels = model.initial(), []
    for wanted in chain[1:]:
        label, current = next(
            (label, state) for label, _, state in model.steps(current) if model.canonical(state) == wanted
        )
        labels.append(label)
    return tuple(labels), current

"""Model of claims: several conductors place instances on one host at the same time (`nova_lite.db.servers.claims`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.checker import Step

#: State of a thread: "" wants to place, "read" has seen room, "has", "full" (no room), "gone" (released).
DONE = ("has", "full", "gone")


class Placing(NamedTuple):
    used: int = 0
    threads: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Claims:
    """Threads that claim places. ``conditional``: the update itself checks the room; otherwise a read before does."""

    conditional: bool = True
    instances: int = 4
    capacity: int = 2

    def initial(self) -> Placing:
        return Placing(threads=(("", 0),) * self.instances)

    def steps(self, state: Placing) -> Iterable[Step]:
        for index, (at, seen) in enumerate(state.threads):
            if at == "" and self.conditional:
                fits = state.used < self.capacity
                yield (
                    f"{index}: claim, fits: {fits}",
                    True,
                    self._to(state, index, "has" if fits else "full", int(fits)),
                )
            elif at == "":
                fits = state.used < self.capacity
                after = self._to(state, index, "read" if fits else "full", 0, seen=state.used)
                yield f"{index}: reads {state.used} used", True, after
            elif at == "read":
                yield f"{index}: writes {seen + 1} used", True, self._to(state, index, "has", seen + 1 - state.used)
            elif at == "has":
                yield f"{index}: release", False, self._to(state, index, "gone", -1)

    def _to(self, state: Placing, index: int, at: str, more: int, seen: int = 0) -> Placing:
        threads = list(state.threads)
        threads[index] = (at, seen)
        return Placing(state.used + more, tuple(threads))

    def violation(self, state: Placing) -> str | None:
        given = sum(at == "has" for at, _ in state.threads)
        if given > self.capacity:
            return f"{given} instances on a host for {self.capacity}"
        if given != state.used:
            return f"{state.used} counted, {given} allocated"
        return None

    def unsettled(self, state: Placing) -> str | None:
        return None if all(at in DONE for at, _ in state.threads) else "not placed yet"

    def canonical(self, state: Placing) -> Placing:
        return state._replace(threads=tuple(sorted(state.threads)))

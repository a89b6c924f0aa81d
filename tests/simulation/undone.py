"""Protections of the protocol that are taken out of the code (`tests.model.unguarded`), to see which seeds find it."""

from __future__ import annotations

from tests.model.unguarded import GUARDS
from tests.simulation import plan as plans
from tests.simulation import runs
from tests.simulation.cloud import Template

#: The first seed that finds a missing protection, by rule, when the table was made: docs/contributing/replay.md.
FOUND: dict[str, int] = {}


def first_seed(made: Template, rule: str, first: int, last: int) -> runs.Result | None:
    """Return the first run of these seeds that finds the missing protection, if any does."""
    for seed in range(first, last + 1):
        result = runs.run(made, plans.make(seed, made.hosts), change=GUARDS[rule]())
        if result.problems:
            return result
    return None

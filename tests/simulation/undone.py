"""Protections of the protocol that are taken out of the code (`tests.model.unguarded`), to see which seeds find it."""

from __future__ import annotations

from tests.model.unguarded import GUARDS
from tests.simulation import plan as plans
from tests.simulation import runs
from tests.simulation.cloud import Template

#: A seed that finds a missing protection, by rule. It may be another one after a change of the code.
FOUND = {
    "fence before report": 4,
    "confirmation": 6,
    "action order": 19,
    "lasting delete": 44,
    "cleanup": 258,
    "revocation": 258,
}


def first_seed(made: Template, rule: str, first: int, last: int) -> runs.Result | None:
    """Return the first run of these seeds that finds the missing protection, if any does."""
    for seed in range(first, last + 1):
        result = runs.run(made, plans.make(seed, made.hosts), change=GUARDS[rule]())
        if result.problems:
            return result
    return None

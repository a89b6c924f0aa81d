"""Protections and past corrections that are taken out of the code, to see which seeds find it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

from nova_lite.base import files
from nova_lite.compute.fencing import FencingTokenStore
from nova_lite.compute.reconciler import DomainReconciler
from nova_lite.conductor.reconciler import Reconciler
from nova_lite.db.servers import claims
from tests.faults import without
from tests.model.unguarded import GUARDS, then
from tests.simulation import plan as plans
from tests.simulation import runs
from tests.simulation.cloud import Template
from tests.simulation.past_faults import PAST_FAULTS


def _durable_revocation() -> AbstractContextManager[object]:
    make = FencingTokenStore.__init__

    def unsynced(store: FencingTokenStore, directory: str, write: Any = None) -> None:
        make(store, directory, functools.partial(files.write_atomically, durable=False))

    return mock.patch.object(FencingTokenStore, "__init__", unsynced)


def _reconciler() -> AbstractContextManager[object]:
    return mock.patch.object(Reconciler, "sweep", lambda self: 0)


def _domain_reconciliation() -> AbstractContextManager[object]:
    return mock.patch.object(DomainReconciler, "run", lambda self: set())


def _conditional_claim() -> AbstractContextManager[object]:
    return then(mock.patch.object(claims, "claim", claims.claim), without.conditional_claim)


Undo = Callable[[], AbstractContextManager[object]]
#: Protections by rule: rules that a trace shows, and rules that only a run of a whole cloud shows.
PROTECTIONS: dict[str, Undo] = {
    **GUARDS,
    "conditional claim": _conditional_claim,
    "domain reconciliation": _domain_reconciliation,
    "durable revocation": _durable_revocation,
    "reconciler": _reconciler,
}
UNDONE: dict[str, Undo] = {**PROTECTIONS, **{name: fault.undo for name, fault in PAST_FAULTS.items()}}

#: The page that has the tables of seeds. Its rows begin with a name of `UNDONE`, and end with a seed and its problem.
PAGE = Path(__file__).resolve().parents[2] / "docs/contributing/replay.md"
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

#: Directory of a run.
_PLACE = re.compile(r"/\S*/cloud/")


def found() -> dict[str, int]:
    """Return the seeds of the page's tables, by name. They may be others after a change of the code."""
    rows = (_cells(line) for line in PAGE.read_text().splitlines())
    return {cells[0]: int(cells[-2]) for cells in rows if cells[0] in UNDONE and cells[-2].isdigit()}


def write(results: Mapping[str, runs.Result | None]) -> None:
    """Write seeds and problems into the tables of the page."""
    lines = PAGE.read_text().splitlines()
    for number, line in enumerate(lines):
        cells = _cells(line)
        if cells[0] in results:
            result = results[cells[0]]
            end = ["not yet", ""] if result is None else [str(result.seed), summary(result.problems[0])]
            lines[number] = f"| {' | '.join([*cells[:-2], *end])} |"
    PAGE.write_text("\n".join(lines) + "\n")


def summary(problem: str) -> str:
    """Return a problem in a line, without the ids of a run."""
    first, last = problem.splitlines()[0], problem.splitlines()[-1]
    text = last if first.endswith(":") else first
    return _PLACE.sub("", _ID.sub("it", text)).strip().replace("|", "/")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip()[1:-1].split("|")] if line.startswith("| ") else [""]


def first_seed(made: Template, name: str, first: int, last: int) -> runs.Result | None:
    """Return the first run of these seeds that shows what is undone, if any does."""
    for seed in range(first, last + 1):
        result = runs.run(made, plans.make(seed, made.hosts), change=UNDONE[name]())
        if result.problems:
            return result
    return None

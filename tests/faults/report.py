"""Report of the fault matrix: one line per case, then the failures, a table, and a summary line."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path


@dataclasses.dataclass
class Result:
    """``recovery``: seconds from the request to its end, with the fault; ``seconds``: of the whole case. ``wrong``: ""
    if it passed; then ``logs`` is the directory where they are kept. ``paths``: servers whose trace is a path of the
    model; ``unjudged``: those whose trace was not judged."""

    scenario: str
    fault: str
    case: str
    recovery: float = 0.0
    seconds: float = 0.0
    wrong: str = ""
    logs: str = ""
    paths: int = 0
    unjudged: int = 0


def passed_before(file: Path) -> dict[str, Result]:
    """Return the passed results that `Table` wrote to the file, by case; none without the file."""
    if not file.exists():
        return {}
    every = [Result(**json.loads(line)) for line in file.read_text().splitlines()]
    return {result.case: result for result in every if not result.wrong}


class Table:
    """Cases, passed and slowest recovery, by scenario and fault. ``command``: what these cases are run by. ``before``:
    results of an earlier run; ``kept``: a file to which each further one is added, a line of JSON."""

    def __init__(
        self,
        total: int,
        command: str = "devstack/faults.sh",
        before: list[Result] | None = None,
        kept: Path | None = None,
    ) -> None:
        self.total = total
        self.command = command
        self.results = list(before or ())
        self.kept = kept

    @property
    def failures(self) -> list[Result]:
        return [result for result in self.results if result.wrong]

    @property
    def unjudged(self) -> int:
        """Return the number of traces that were not judged."""
        return sum(result.unjudged for result in self.results)

    def add(self, result: Result) -> None:
        self.results.append(result)
        if self.kept is not None:
            with self.kept.open("a") as kept:
                kept.write(json.dumps(dataclasses.asdict(result)) + "\n")
        state = "FAILED " + result.wrong.splitlines()[0] if result.wrong else f"passed, {result.recovery:.1f} s"
        print(f"[{len(self.results)}/{self.total}] {result.case}: {state} (of {result.seconds:.1f} s)", flush=True)

    def print(self) -> None:
        for result in self.failures:
            again = f"{self.command} --only {shlex.quote(result.case)}"
            print(f"\n--- {result.case}\n{result.wrong}\nlogs: {result.logs}\nagain: {again}")
        print(f"\n{'scenario':40} {'fault':18} {'cases':>5} {'passed':>6} {'slowest recovery':>16}")
        for scenario, fault in sorted({(result.scenario, result.fault) for result in self.results}):
            self._print_row(scenario, fault)
        print(f"{sum(result.paths for result in self.results)} traces are paths, {self.unjudged} not judged")
        print(f"{len(self.results) - len(self.failures)} passed, {len(self.failures)} failed")

    def _print_row(self, scenario: str, fault: str) -> None:
        here = [result for result in self.results if (result.scenario, result.fault) == (scenario, fault)]
        passed = [item.recovery for item in here if not item.wrong]
        slowest = f"{max(passed):.1f} s" if passed else "-"
        print(f"{scenario:40} {fault:18} {len(here):5} {len(passed):6} {slowest:>16}")

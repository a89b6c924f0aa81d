"""Report of ``failover.sh --guests real``: a row and a line of JSON for each run, and a table of the kinds of loss."""

from __future__ import annotations

import collections
import dataclasses
import json
import statistics
import threading
from collections.abc import Sequence
from pathlib import Path

HEAD = (
    "| Run | Host is lost by | Guests | Came back | Seconds to running | To counting | Twice | Wrong counter |\n"
    "|---|---|---|---|---|---|---|---|"
)
TABLE = (
    "| Host is lost by | Runs | Guests | Came back | Seconds to running: half, worst | To counting: half, worst "
    "| Twice | Wrong counter |\n|---|---|---|---|---|---|---|---|"
)


@dataclasses.dataclass
class Outcome:
    """Outcome of a run.

    ``running``: seconds until the last guest has a process elsewhere. ``counting``: until it counts again. ``twice``:
    guests with two processes at once. ``wrong``: guests whose counter is wrong. ``failure``: why the run ended early.
    """

    how: str
    guests: int = 0
    back: int = 0
    running: float = 0.0
    counting: float = 0.0
    twice: int = 0
    wrong: int = 0
    failure: str = ""

    @property
    def is_good(self) -> bool:
        return not self.failure and self.back == self.guests and not self.twice and not self.wrong


def read(file: Path) -> list[Outcome]:
    """Return the outcomes that `Report` has written to a file; none without the file."""
    return [Outcome(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


class Report:
    """Outcomes of the runs, by several threads. ``kept``: a file with those of earlier runs; more are added to it."""

    def __init__(self, kept: Path | None = None) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self.outcomes = read(kept) if kept is not None else []

    def missing(self, ways: Sequence[str], runs: int) -> list[str]:
        """Return the losses that remain of so many runs, by turns. A run that ended early is repeated."""
        done = collections.Counter(item.how for item in self.outcomes if not item.failure)
        planned = [ways[number % len(ways)] for number in range(runs)]
        return [how for number, how in enumerate(planned) if planned[:number].count(how) >= done[how]]

    def add(self, item: Outcome) -> None:
        with self._lock:
            self.outcomes.append(item)
            if self._kept is not None:
                with self._kept.open("a") as file:
                    file.write(json.dumps(dataclasses.asdict(item)) + "\n")
            row = (len(self.outcomes), item.how, item.guests, item.back, f"{item.running:.0f}", f"{item.counting:.0f}")
            print(f"| {' | '.join(map(str, (*row, item.twice, item.wrong)))} |", flush=True)
            if item.failure:
                print(f"The run ended early: {item.failure}", flush=True)

    @property
    def is_good(self) -> bool:
        return all(item.is_good for item in self.outcomes)

    def summary(self) -> str:
        lost, back = (sum(getattr(item, name) for item in self.outcomes) for name in ("guests", "back"))
        twice, wrong = (sum(getattr(item, name) for item in self.outcomes) for name in ("twice", "wrong"))
        worst = max((item.running for item in self.outcomes), default=0.0)
        early = sum(bool(item.failure) for item in self.outcomes)
        return (
            f"{back} of {lost} guests came back with their disks, the last after {worst:.0f} s\n"
            f"{twice} ran twice, {wrong} counters are wrong, {early} runs ended early"
        )


def table(outcomes: Sequence[Outcome]) -> str:
    """Return a table with a row for each kind of loss. Times are of the runs whose guests came back."""
    rows = [TABLE]
    for how in dict.fromkeys(item.how for item in outcomes):
        here = [item for item in outcomes if item.how == how]
        whole = [item for item in here if item.guests and item.back == item.guests and not item.failure]
        guests, back, twice, wrong = (
            sum(getattr(item, name) for item in here) for name in ("guests", "back", "twice", "wrong")
        )
        times = [_half_and_worst([getattr(item, name) for item in whole]) for name in ("running", "counting")]
        rows.append(f"| {how} | {len(here)} | {guests} | {back} | {times[0]} | {times[1]} | {twice} | {wrong} |")
    early = sum(bool(item.failure) for item in outcomes)
    return "\n".join([*rows, f"\n{early} of {len(outcomes)} runs ended early."])


def _half_and_worst(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.0f}, {max(seconds):.0f}" if seconds else "-"

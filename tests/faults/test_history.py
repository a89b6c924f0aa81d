"""The short form of ``devstack/faults.sh --history``: half a minute of random requests and faults breaks no rule, and
with a protection off the checker finds the harm."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.faults.history import checker, events, run
from tests.model.daemons import MOST_UNJUDGED

#: Smallest number of servers of a meaningful history.
LEAST_SERVERS = 5


def history_of(plan: run.Plan, path: Path) -> tuple[checker.History, list[checker.Violation]]:
    file, made = path / "history.jsonl", path / "cloud"
    made.mkdir()
    run.make(plan, made, file)
    history = checker.History(events.read(file))
    return history, checker.judged(history)


def test_no_rule_is_broken(tmp_path: Path) -> None:
    history, found = history_of(run.Plan(seconds=25, seed=1, nemesis_rest=3.0), tmp_path)
    assert [str(violation) for violation in found] == []
    assert len(history.transactions) >= LEAST_SERVERS and history.faults and history.sightings
    assert set(history.marks) == {events.CALM, events.SETTLED, events.GONE}
    (traces,) = [event for event in history.events if isinstance(event, events.Traces)]
    assert traces.paths >= LEAST_SERVERS and traces.unjudged <= MOST_UNJUDGED * traces.paths


@pytest.mark.timeout(900)
def test_builds_that_move_unasked_are_found(tmp_path: Path) -> None:
    """The first build resumes after the second has started. The checker sees both guests, or a guest left after the
    delete.

    A pause meets a build by chance: builds take two seconds, so that most pauses do. One of several histories suffices.
    """
    plan = run.Plan(
        seconds=18,
        seed=1,
        mix={"create": 3, "delete": 1},
        effects={"pause": 1},
        targets="compute-*",
        lasts=(7.0, 9.0),
        nemesis_rest=1.0,
        bound=15.0,
        build_seconds=2.0,
        without="confirmation",
    )
    longer = [(7.0, 9.0), (9.0, 12.0), (12.0, 16.0), (16.0, 24.0)]
    found: set[str] = set()
    for seed, lasts in enumerate(longer, 1):
        path = tmp_path / str(seed)
        path.mkdir()
        _, violations = history_of(dataclasses.replace(plan, seed=seed, lasts=lasts, seconds=2 * lasts[1]), path)
        found |= {violation.rule for violation in violations}
        if {"twice", "ghost"} & found:
            return
    pytest.fail(f"of {len(longer)} histories none has a guest twice, or one that stays: {sorted(found)}")

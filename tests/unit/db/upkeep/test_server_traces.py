"""Traces are put together from what was recorded, whatever the clocks of the transactions said."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.db.core.engine import Database
from nova_lite.db.core.models import Instance
from nova_lite.db.core.server_changes import ServerChange
from nova_lite.db.upkeep import server_traces
from nova_lite.db.upkeep.server_traces import Trace, Verdict
from nova_lite.db.upkeep.transitions import Action
from tests.support import make

UUID = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
CLAIM = (("h1", 1),)


def at(seconds: float) -> datetime.datetime:
    return datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=seconds)


def change(seconds: float, row: float | None = None, **was: Any) -> ServerChange:
    """Return a change at a time. ``row``: the time of the row before it, if it has changed that."""
    return ServerChange(at(seconds), was if row is None else {"updated_at": at(row).isoformat(), **was})


def trace(updated: float, *changes: tuple[int, ServerChange], **now: Any) -> Trace:
    """Return the trace of a server that was created at 0, built from 1 to 3, and stopped from 5 to 6."""
    row = {"id": 1, "uuid": UUID, "created_at": at(0), "updated_at": at(updated), "vm_state": "stopped"}
    row |= {"task_state": None, "host": "h1", "generation": 1, "deleted": False, "power_state": 4} | now
    actions = (
        Action(1, "create", {}, "build", "h1", 1, at(0), at(3), built_at="h1"),
        Action(2, "stop", {}, "perform", "h1", 1, at(5), at(6)),
    )
    return Trace(UUID, row, actions, changes, CLAIM)


PLACED = 1, change(1, 0, host=None, generation=0, task_state="scheduling")
BUILT = 1, change(3, 1, vm_state="building", task_state="spawning", power_state=0)
ACCEPTED = 2, change(5, 3, task_state=None)
STOPPED = 2, change(6, 5, vm_state="active", task_state="powering-off", power_state=1)


def judged(*arguments: Any, since: float | None = None, **now: Any) -> Verdict:
    return server_traces._judged(trace(*arguments, **now), None if since is None else at(since))


def test_trace_of_all_changes_is_a_path() -> None:
    assert judged(6, PLACED, BUILT, ACCEPTED, STOPPED) == Verdict(UUID)


def test_trace_of_a_transaction_with_two_writes_is_a_path() -> None:
    """The first write leaves the row's time as it is. So both have the time of the first one, after the row's."""
    placed = 1, ServerChange(at(3.02), {"progress": 0})
    late = 1, ServerChange(at(3.02), BUILT[1].was)
    assert judged(6, PLACED, placed, late, ACCEPTED, STOPPED) == Verdict(UUID)


def test_trace_of_transactions_whose_clocks_overlap_is_a_path() -> None:
    """The stop was accepted with an older time than the build's end, for whose lock it waited."""
    accepted = 2, change(2.9, 3, task_state=None)
    stopped = 2, change(6, 2.9, vm_state="active", task_state="powering-off", power_state=1)
    whole = trace(6, PLACED, BUILT, accepted, stopped)
    assert [item.at for item in server_traces._history(whole)[0]] == [at(1), at(3), at(2.9), at(6)]


def test_trace_with_a_gap_is_judged_from_there_on() -> None:
    assert judged(6, PLACED, ACCEPTED, STOPPED) == Verdict(UUID, since=at(3))
    wrong = judged(6, PLACED, ACCEPTED, STOPPED, vm_state="paused")
    assert (wrong.at, wrong.action, wrong.since) == (at(6), 2, at(3))
    assert wrong.wrong == "it went from active to paused, which is no outcome of stop (action 2)"


@pytest.mark.parametrize(
    ("now", "wrong", "action"),
    [
        ({"host": "h2"}, "create ended at host h1, which is not that of the server then", 1),
        ({"generation": 0}, "it went from host none, generation 0 to host h1, generation 0 without a claim", 1),
        ({"task_state": "rebooting"}, "its task became rebooting, which is no task of stop (action 2)", 2),
    ],
)
def test_trace_names_the_first_step_that_is_none(now: dict[str, Any], wrong: str, action: int) -> None:
    verdict = judged(6, PLACED, BUILT, ACCEPTED, STOPPED, **now)
    assert verdict.wrong is not None and verdict.wrong.startswith(wrong)
    assert verdict.action == action


def test_trace_leaves_out_what_was_before_a_time() -> None:
    assert judged(6, PLACED, BUILT, ACCEPTED, STOPPED, since=4, host="h2").at is None, "only the claims of now"
    assert judged(6, ACCEPTED, STOPPED, since=4) == Verdict(UUID)


def test_trace_of_a_change_without_an_action_is_refused_unless_it_follows_the_guest() -> None:
    alone = 2, change(8, 6, vm_state="stopped", power_state=4)
    followed = judged(8, PLACED, BUILT, ACCEPTED, STOPPED, alone, vm_state="active", power_state=1)
    assert followed == Verdict(UUID)
    wrong = judged(8, PLACED, BUILT, ACCEPTED, STOPPED, alone, vm_state="rescued", power_state=1)
    assert wrong.wrong == "it went from stopped to rescued, and no action was open"


def test_servers_of_many_pages_are_each_judged_once(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_traces, "PAGE", 3)
    made = [db.write(make.instance) for _ in range(7)]
    assert [verdict.server for verdict in server_traces.judge(db)] == made
    db.write(lambda uow: uow.change(sa.update(Instance).where(Instance.uuid == made[4]).values(host="h1")))
    wrong = [verdict for verdict in server_traces.judge(db) if verdict.wrong]
    assert [(item.server, item.wrong) for item in wrong] == [(made[4], "it has no claim at host h1, generation 0")]
    assert list(server_traces.judge(db, at(10**9))) == []

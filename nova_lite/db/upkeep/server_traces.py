"""Traces of servers: their recorded changes, judged by `transitions`.

A trace has the changes of a server's row (`nova_lite.db.core.server_changes`), the actions with their times and steps,
and the claims of now. A server is read twice before it counts as wrong, because the daemons keep running.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from nova_lite import operations
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import Allocation, ComputeNode, Instance, InstanceAction
from nova_lite.db.core.server_changes import ServerChange
from nova_lite.db.upkeep import transitions
from nova_lite.db.upkeep.transitions import Action, Moment

#: Servers that are in memory at a time.
PAGE = 100

#: Longest transaction. A change without the time of its transaction may be that much later than the end of its action.
_LONGEST = datetime.timedelta(seconds=30)

_COLUMNS = (Instance.id, Instance.uuid, Instance.created_at, Instance.updated_at)
_ACTION = (
    InstanceAction.instance_uuid, InstanceAction.id, InstanceAction.action, InstanceAction.payload, InstanceAction.step,
    InstanceAction.host, InstanceAction.generation, InstanceAction.start_time, InstanceAction.finish_time,
    InstanceAction.message, InstanceAction.events, InstanceAction.changes,
)  # fmt: skip


class Verdict(NamedTuple):
    """The judgement of a server. ``wrong``: the first step that is none, in plain words; None: the trace is a path.

    ``at``, ``action``: when it was, and the action in whose row it is recorded. ``since``: from when on the changes
    are known without a gap; None: from the beginning.
    """

    server: str
    wrong: str | None = None
    at: datetime.datetime | None = None
    action: int | None = None
    since: datetime.datetime | None = None


class Change(NamedTuple):
    """A transition, with its time and the action in whose row it is recorded.

    ``is_timed``: the time is that of its transaction, which its other rows have. Otherwise it is when it was written.
    """

    at: datetime.datetime
    action: int
    before: Moment
    after: Moment
    is_timed: bool


class Trace(NamedTuple):
    """A server as it was read. ``now``: its row, by column."""

    uuid: str
    now: Mapping[str, Any]
    actions: tuple[Action, ...]
    changes: tuple[tuple[int, ServerChange], ...]
    claims: tuple[tuple[str, int], ...]


def judge(db: Database, since: datetime.datetime | None = None, server: str | None = None) -> Iterator[Verdict]:
    """Yield a verdict on each server, oldest first. It reads `PAGE` servers at a time.

    ``since``: only changes later than that, and servers that have any. ``server``: only this one, in any case.
    """
    last = 0
    while True:
        last, page = db.read(_page, last, None if server else since, server)
        for trace in page:
            verdict = _judged(trace, since)
            yield verdict if verdict.wrong is None else _again(db, trace, verdict, since)
        if len(page) < PAGE:
            return


def _again(db: Database, trace: Trace, verdict: Verdict, since: datetime.datetime | None) -> Verdict:
    """Read a wrong server until two readings are equal, at most some times. A busy one is judged as read last."""
    for _ in range(5):
        _, page = db.read(_page, 0, None, trace.uuid)
        if not page:
            return Verdict(trace.uuid)  # purged meanwhile
        if page[0] == trace:
            return verdict
        trace, verdict = page[0], _judged(page[0], since)
        if verdict.wrong is None:
            return verdict
    return verdict


# --- reading


def _page(uow: UnitOfWork, last: int, since: datetime.datetime | None, server: str | None) -> tuple[int, list[Trace]]:
    """Return the servers after the row ``last``, and the last row."""
    query = sa.select(*_COLUMNS, *(getattr(Instance, name) for name in Moment._fields)).where(Instance.id > last)
    if since is not None:
        query = query.where(sa.or_(Instance.updated_at > since, Instance.created_at > since))
    if server is not None:
        query = query.where(Instance.uuid == server)
    rows = [row._asdict() for row in uow.rows(query.order_by(Instance.id).limit(PAGE))]
    uuids = [row["uuid"] for row in rows]
    found: dict[str, tuple[list[Action], list[tuple[int, ServerChange]]]] = {uuid: ([], []) for uuid in uuids}
    for uuid, *values, changes in uow.rows(sa.select(*_ACTION).where(InstanceAction.instance_uuid.in_(uuids))):
        found[uuid][0].append(_action(*values))
        found[uuid][1].extend((values[0], change) for change in msgspec.convert(changes or [], list[ServerChange]))
    claims = _claims(uow, uuids)
    traces = [
        Trace(row["uuid"], row, tuple(sorted(found[row["uuid"]][0])), tuple(found[row["uuid"]][1]), claims[row["uuid"]])
        for row in rows
    ]
    return (rows[-1]["id"] if rows else last), traces


def _claims(uow: UnitOfWork, uuids: Sequence[str]) -> dict[str, tuple[tuple[str, int], ...]]:
    """Return hosts and generations of the claims of these servers."""
    query = sa.select(Allocation.instance_uuid, ComputeNode.host, Allocation.generation)
    query = query.join(ComputeNode, ComputeNode.id == Allocation.compute_node_id)
    found: dict[str, list[tuple[str, int]]] = {uuid: [] for uuid in uuids}
    for uuid, host, generation in uow.rows(query.where(Allocation.instance_uuid.in_(uuids))):
        found[uuid].append((host, generation))
    return {uuid: tuple(sorted(held)) for uuid, held in found.items()}


def _action(
    number: int,
    kind: str,
    payload: Mapping[str, Any],
    step: str,
    host: str | None,
    generation: int,
    began: datetime.datetime,
    ended: datetime.datetime | None,
    message: str | None,
    events: Sequence[Mapping[str, Any]] | None,
) -> Action:
    action = Action(number, kind, payload, step, host, generation, began, ended, message is not None)
    builds = (
        [item.event for item in action.definition.steps if item.name == operations.BUILD] if action.definition else []
    )
    done = [event["host"] for event in events or () if event["event"] in builds and event.get("result") == "Success"]
    return action._replace(built_at=done[-1] if done else None)


# --- judging


def _judged(trace: Trace, since: datetime.datetime | None) -> Verdict:
    changes, known_since = _history(trace)
    begin = max((time for time in (since, known_since) if time is not None), default=trace.now["created_at"])
    if known_since is not None and known_since < begin:
        known_since = None
    later = [change for change in changes if since is None or change.at > since]
    for change in later:
        wrong = _wrong(trace, change, later)
        if wrong is not None:
            return Verdict(trace.uuid, wrong, change.at, change.action, known_since)
    for action in trace.actions:
        if action.ended is not None and action.ended > begin and not _was_built(trace, action, changes):
            wrong = f"{action.kind} ended at host {action.built_at}, which is not that of the server then"
            return Verdict(trace.uuid, wrong, action.ended, action.id, known_since)
    running = [action for action in trace.actions if action.ended is None]
    wrong = transitions.standing(_moment(trace.now), trace.claims, running)
    newest = trace.actions[-1].id if trace.actions else None
    return Verdict(trace.uuid, wrong, None, newest if wrong else None, known_since)


def _wrong(trace: Trace, change: Change, changes: Sequence[Change]) -> str | None:
    """Return what is wrong with a transition, or with an action that began with it."""
    concerned = [action for action in trace.actions if _was_open(action, change)]
    for action in concerned:
        if action.began == change.at:
            # A clock of milliseconds may give the transaction before it the same time.
            refusals = [transitions.refusal(other.before, action) for other in changes if other.at == change.at]
            if all(refusals):
                return refusals[0]
    return transitions.problem(change.before, change.after, concerned)


def _was_open(action: Action, change: Change) -> bool:
    """Check whether an action was open at a change, or began or ended with it."""
    slack = datetime.timedelta() if change.is_timed or action.id != change.action else _LONGEST
    return action.began <= change.at and (action.ended is None or action.ended + slack >= change.at)


def _was_built(trace: Trace, action: Action, changes: Sequence[Change]) -> bool:
    """Check whether a server was at the host of its build when that ended, as far as it is known."""
    if action.built_at is None or action.has_failed or action.ended is None:
        return True
    later = [change.before for change in changes if change.at > action.ended] or [_moment(trace.now)]
    then = [moment for change in changes if change.at == action.ended for moment in (change.before, change.after)]
    return action.built_at in {moment.host for moment in (later[0], *then)}


def _history(trace: Trace) -> tuple[list[Change], datetime.datetime | None]:
    """Return the transitions of a server, first to last, and since when they are known without a gap.

    A row has the time of its newest change, and a change the time before it. So their order is known although the
    clocks of two transactions may differ from the order of their commits.
    """
    values, found = dict(trace.now), list[Change]()
    left = sorted(trace.changes, key=lambda item: item[1].at)
    while left and (index := _newest(left, values["updated_at"])) is not None:
        number, change = left.pop(index)
        after, is_timed = _moment(values), change.at == values["updated_at"]
        values |= change.was
        if isinstance(values["updated_at"], str):
            values["updated_at"] = datetime.datetime.fromisoformat(values["updated_at"])
        found.append(Change(change.at, number, _moment(values), after, is_timed))
    is_whole = values["updated_at"] in (None, values["created_at"])
    return found[::-1], None if is_whole else values["updated_at"]


def _newest(left: Sequence[tuple[int, ServerChange]], time: datetime.datetime | None) -> int | None:
    """Return the index of the change that made the row of this time; None if it was not recorded.

    A change that leaves the row's time as it is came later than that. In a transaction that began with such a change,
    the others have its time, which is a little later than that of the row.
    """
    for index in range(len(left) - 1, -1, -1):
        change = left[index][1]
        if change.at == time or ("updated_at" not in change.was and (time is None or change.at >= time)):
            return index
    late = [index for index, (_, change) in enumerate(left) if time is not None and time < change.at <= time + _LONGEST]
    return late[0] if late else None


def _moment(values: Mapping[str, Any]) -> Moment:
    return Moment(*(values[name] for name in Moment._fields))

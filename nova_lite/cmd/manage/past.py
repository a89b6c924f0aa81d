"""``server show`` and ``server replay``: servers as they were, and the decisions that placed them."""

from __future__ import annotations

import argparse
import datetime
from typing import Any, NamedTuple

import msgspec

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.cmd.manage import scheduler
from nova_lite.cmd.manage.app import App, utc_time
from nova_lite.conductor.engine.placement_request import placement_request_of
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, InstanceAction
from nova_lite.db.core.server_changes import RECORDED
from nova_lite.db.hosts import hosts
from nova_lite.db.servers import instances, past
from nova_lite.db.upkeep import request_trace
from nova_lite.objects import Flavor, HostState, Image, InstanceActionEvent, RequestSpec
from nova_lite.operations import ScheduleStep
from nova_lite.scheduler import core

_UNKNOWN = "not recorded"
_OTHER_TABLES = "interfaces, volumes, tags"
_HIDDEN = ("id", "flavor", "image", "boot_images")


def add_options(show_: argparse.ArgumentParser, replay_: argparse.ArgumentParser) -> None:
    show_.add_argument("--at", type=utc_time, metavar="TIME", help="in UTC unless it has an offset; default: now")
    replay_.add_argument(
        "--at",
        type=utc_time,
        metavar="TIME",
        help="the newest decision that was begun by then, in UTC unless it has an offset; default: the newest of all",
    )
    for parser in (show_, replay_):
        parser.add_argument("server", metavar="SERVER", help="uuid of a server, which may be deleted")


def show(app: App, args: argparse.Namespace) -> int:
    """Carry out ``server show``. Return 1 if that time is not recorded."""
    return app.db.read(_show, app, args)


def _show(uow: UnitOfWork, app: App, args: argparse.Namespace) -> int:
    row = instances.get_row(uow, app.context, args.server, deleted=True)
    time = args.at or uow.now
    if time > uow.now:
        raise exceptions.InvalidInput(reason=f"{time:%Y-%m-%d %H:%M:%S} lies ahead.")
    if time < row.created_at:
        raise exceptions.NotFound(f"Server {row.uuid} was created at {row.created_at}, later than {time}.")
    then = past.at(uow, row, time)
    is_known = past.is_known(then, time)
    names = sorted(RECORDED.difference(_HIDDEN), key=lambda name: (name not in past.FIXED, name))
    fields: list[tuple[str, Any]] = [
        (name.rstrip("_"), getattr(then, name) if is_known or name in past.FIXED else _UNKNOWN) for name in names
    ]
    running = [_described(action, time) for action in past.actions(uow, row.uuid) if _is_open(action, time)]
    app.show(("Field", "Value"), [*fields, ("operations", running), (_OTHER_TABLES, _UNKNOWN)])
    if not is_known:
        app.say("The server was changed at that time by a conductor that does not record changes.")
    return 0 if is_known else 1


def _is_open(action: InstanceAction, time: datetime.datetime) -> bool:
    return action.start_time <= time and (action.finish_time is None or time < action.finish_time)


def _described(action: InstanceAction, time: datetime.datetime) -> str:
    """Return the kind of an operation that was open, with its request, and its steps that were open."""
    steps = [
        f"{event.event} at {event.host}"
        for event in _events(action)
        if request_trace.naive(event.start_time) <= time
        and (event.finish_time is None or time < request_trace.naive(event.finish_time))
    ]
    return ", ".join([f"{action.action} {action.request_id}", *steps])


def _events(action: InstanceAction) -> list[InstanceActionEvent]:
    return msgspec.convert(action.events or [], list[InstanceActionEvent])


class Decision(NamedTuple):
    """A decision of the past. ``chosen``: the host, or None if the server got none. ``unsure``: servers whose use of
    hosts at that time is not recorded, or is of two hosts.
    """

    kind: str
    time: datetime.datetime
    spec: RequestSpec
    chosen: str | None
    states: list[HostState]
    unsure: int


def replay(app: App, args: argparse.Namespace) -> int:
    """Carry out ``server replay``. Return 1 if the decision does not repeat."""
    decision = app.db.read(_decision, app, args)
    why = None
    try:
        ranked = scheduler.ranking(app, decision.states, decision.spec)
    except exceptions.NoValidHost as error:
        ranked, why = [], error.message
    by_name = {state.host: state for state in decision.states}
    rows = [_ranked(rank, by_name[name], decision) for rank, name in enumerate(ranked, 1)]
    if decision.chosen is not None and decision.chosen not in ranked:
        rows.append((None, decision.chosen, True, None, None, None, why or _refusal(app, decision)))
    elif why is not None:
        rows.append((None, None, False, None, None, None, why))
    app.show(("Rank", "Host", "Chosen Then", "vCPUs Used", "Memory MB Used", "Disk GB Used", "Why Not"), rows)
    app.say(
        f"Decision of {decision.kind} at {decision.time:%Y-%m-%d %H:%M:%S}. The use of hosts is that of then"
        + (f", but for {decision.unsure} server(s) without a record or on two hosts" if decision.unsure else "")
        + ". Not recorded, so as of now: capacity, capabilities, states and aggregates of hosts, members of groups."
    )
    return 0 if (ranked[0] if ranked else None) == decision.chosen else 1


def _ranked(rank: int, state: HostState, decision: Decision) -> tuple[Any, ...]:
    used = state.vcpus_used, state.memory_mb_used, state.disk_gb_used
    return rank, state.host, state.host == decision.chosen, *used, None


def _refusal(app: App, decision: Decision) -> str:
    chosen = [state for state in decision.states if state.host == decision.chosen]
    try:
        scheduler.ranking(app, chosen, decision.spec)
    except exceptions.NoValidHost as error:
        return error.message
    return ""


def _decision(uow: UnitOfWork, app: App, args: argparse.Namespace) -> Decision:
    row = instances.get_row(uow, app.context, args.server, deleted=True)
    until = args.at or uow.now
    action = next((one for one in past.actions(uow, row.uuid)[::-1] if one.start_time <= until and _chose(one)), None)
    if action is None:
        raise exceptions.NotFound(f"No decision about server {row.uuid} is recorded by {until:%Y-%m-%d %H:%M:%S}.")
    asked = _asked(action)
    time = asked[-1] if asked else action.start_time
    then, end = _known(uow, row, time), _known(uow, row, action.finish_time or uow.now)
    spec = placement_request_of(uow, app.context, action, then).spec
    failed_later = action.payload.get("tried", [])[max(len(asked) - 1, 0) :]
    spec.ignore_hosts = [name for name in spec.ignore_hosts if name not in failed_later]
    chosen = (action.payload.get("destination") or {}).get("host")
    if chosen is None and end.generation != then.generation:  # each claim of a place has a new generation
        chosen = end.host or next(iter(failed_later), None)
    return Decision(action.action, time, spec, chosen, *states_then(uow, time))


def _known(uow: UnitOfWork, row: Instance, time: datetime.datetime) -> Instance:
    then = past.at(uow, row, time)
    if not past.is_known(then, time):
        raise exceptions.NotFound(f"How server {row.uuid} was at {time:%Y-%m-%d %H:%M:%S} is {_UNKNOWN}.")
    return then


def _chose(action: InstanceAction) -> bool:
    definition = operations.OPERATIONS.get(action.action)
    return definition is not None and definition.has_choice


def _asked(action: InstanceAction) -> list[datetime.datetime]:
    """Return the times at which the scheduler was asked."""
    steps = operations.get(action.action, action.payload).steps
    names = {step.event for step in steps if isinstance(step, ScheduleStep)}
    return [request_trace.naive(event.start_time) for event in _events(action) if event.event in names]


def states_then(uow: UnitOfWork, time: datetime.datetime) -> tuple[list[HostState], int]:
    """Return the hosts with the servers that they had at ``time``, and the number of servers that are not certain.

    Claims of now that are older than ``time`` count. So does the place that each server had, if it claims it no more.
    """
    new = past.new_hosts(uow, time)
    found = {(state.host, state.node): state for state in hosts.states(uow) if state.host not in new}
    rows = past.changed_since(uow, time)
    claimed = set()
    for uuid, since, host, node in past.claims(uow, rows):
        if since <= time:
            claimed.add((uuid, host, node))
        elif (host, node) in found:
            found[host, node] = core.without(found[host, node], _use(rows[uuid]))
    changes = past.changes(uow, rows, time)
    uncertain = past.with_two_places(uow, time)
    for uuid, row in rows.items():
        if row.created_at > time:
            continue
        then = past.then(row, changes[uuid])
        place = (str(then.host), str(then.node))
        if not past.is_known(then, time) or then.numa or then.pci:
            uncertain.add(uuid)
        elif not then.deleted and place in found and (uuid, *place) not in claimed:
            found[place] = core.consume_from_request(found[place], _use(then), uuid)
    return list(found.values()), len(uncertain)


def _use(row: Instance) -> RequestSpec:
    return RequestSpec(
        instance_uuids=[row.uuid],
        project_id=row.project_id,
        user_id=row.user_id,
        flavor=msgspec.convert(row.flavor, Flavor),
        image=None if row.image is None else msgspec.convert(row.image, Image),
    )

"""Checker of a history: ``check(events)`` returns the broken rules.

| rule | what is broken |
|---|---|
| accept, task, vm state, step, deleted, place | a transaction made a change that no definition allows (`rules`) |
| lost | an accepted request is in no row; a refused one is in a row |
| asked | an action or a server without a request; a server made twice by one key |
| open | an action that has not ended within the bound after the nemesis stopped |
| effect | an action succeeded without its effect; a failed one has no cause |
| guest | the hypervisor never had the state that an action should have made |
| twice | a server's guest ran at two hosts at one time; a generation was at two hosts |
| ghost | a domain of a server whose delete had ended |
| read | a response that was not true at any time between the call and its return |
| answer | an error of the server itself (500) |
| trace | the trace of a server is no path of the protocol's model (`tests.model.daemons`) |
| tables | at the end: used, quotas, addresses, volumes, hypervisors and rows do not add up |
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

from nova_lite.operations import states
from nova_lite.operations.states import PowerState
from tests.faults.history import rules
from tests.faults.history.events import (
    CALM,
    GONE,
    SETTLED,
    AnyEvent,
    Change,
    Fault,
    Mark,
    Request,
    Settings,
    Sighting,
    State,
    Tables,
    Traces,
)

#: A look at all hosts takes a while, and files of a domain are written one after the other.
LOOK = 0.5

#: Operations of clients that make no action.
NO_ACTION = ("show", "list", "metadata")


@dataclasses.dataclass(frozen=True)
class Violation:
    rule: str
    text: str
    server: str | None = None
    at: float = 0.0

    def __str__(self) -> str:
        return f"{self.rule}: {f'server {self.server}: ' if self.server else ''}{self.text}"


class History:
    """The events by kind, and what is made of them once."""

    def __init__(self, events: Iterable[AnyEvent]) -> None:
        self.events = list(events)
        self.requests = [event for event in self.events if isinstance(event, Request)]
        self.sightings = [event for event in self.events if isinstance(event, Sighting)]
        self.faults = [event for event in self.events if isinstance(event, Fault)]
        self.changes = sorted((e for e in self.events if isinstance(e, Change)), key=lambda change: change.order)
        self.tables = {event.what: event for event in self.events if isinstance(event, Tables)}
        self.marks = {event.what: event.at for event in self.events if isinstance(event, Mark)}
        self.settings = next((event for event in self.events if isinstance(event, Settings)), None)
        self.transactions: dict[str, list[rules.Transaction]] = collections.defaultdict(list)
        self.actions: dict[int, _Action] = {}
        self._replay()

    def proves(self) -> bool:
        """Check whether the history made something and broke something."""
        made = any(done.after["vm_state"] == states.ACTIVE for every in self.transactions.values() for done in every)
        return made and bool(self.faults)

    def _replay(self) -> None:
        """Put together what was written by one transaction of one server."""
        servers: dict[str, dict[str, Any]] = {}
        actions: dict[str, dict[int, dict[str, Any]]] = collections.defaultdict(dict)
        for changes in _by_transaction(self.changes):
            server = changes[0].server
            before, known = servers.get(server), dict(actions[server])
            for change in changes:
                if change.what == "instance":
                    servers[server] = change.row
                else:
                    actions[server][change.row["id"]] = change.row
            if server not in servers:
                continue  # it was made before its row was: nothing to judge yet
            after = dict(actions[server])
            wrote = any(change.what == "instance" for change in changes)
            done = rules.Transaction(changes[0].at, wrote, before, servers[server], known, after)
            at = done.at
            self.transactions[server].append(done)
            for key, row in after.items():
                if key not in self.actions:
                    self.actions[key] = _Action(server, row, at)
                action = self.actions[key]
                if row != known.get(key) or key not in known:
                    action.touched.append(done)
                if action.ended is None and not rules.is_open(row):
                    action.ended = at
                action.row = row


@dataclasses.dataclass
class _Action:
    server: str
    row: dict[str, Any]
    began: float
    ended: float | None = None
    touched: list[rules.Transaction] = dataclasses.field(default_factory=list)


def _by_transaction(changes: list[Change]) -> list[list[Change]]:
    """Group the changes of each server by transaction, in the order of their commits."""
    groups: dict[tuple[str, str], list[Change]] = collections.defaultdict(list)
    for change in changes:
        groups[change.server, change.transaction].append(change)
    return sorted(groups.values(), key=lambda group: group[-1].order)


def check(events: Iterable[AnyEvent]) -> list[Violation]:
    """Return all violations, in the order of time."""
    return judged(History(events))


def judged(history: History) -> list[Violation]:
    found = [violation for rule in RULES for violation in rule(history)]
    return sorted(found, key=lambda violation: violation.at)


# --- what transactions made


def _of_rows(history: History) -> Iterator[Violation]:
    for server, transactions in history.transactions.items():
        for done in transactions:
            for rule, wrong in rules.judge(done):
                yield Violation(rule, wrong, server, done.at)


# --- nothing accepted is lost, nothing is done unasked


def _lost(history: History) -> Iterator[Violation]:
    by_request = {(action.row["request_id"], action.row["action"]): action for action in history.actions.values()}
    kinds = collections.Counter((action.server, action.row["action"]) for action in history.actions.values())
    for request in history.requests:
        if request.operation in NO_ACTION or request.status is None:
            continue
        known = (request.request_id, request.operation) in by_request
        if request.accepted and request.operation == "create":
            if request.server not in history.transactions:
                yield Violation("lost", f"{request.name} was accepted and is in no row", request.server, request.called)
        elif request.accepted and not known and request.operation not in _JOINS:
            text = f"{request.operation} was accepted ({request.request_id}) and is in no row"
            yield Violation("lost", text, request.server, request.called)
        elif request.accepted and request.operation in _JOINS and not kinds[str(request.server), request.operation]:
            text = f"{request.operation} was accepted, and none was ever begun"
            yield Violation("lost", text, request.server, request.called)
        elif not request.unknown and not request.accepted and known:
            text = f"{request.operation} was refused with {request.status} ({request.request_id}) and was begun"
            yield Violation("lost", text, request.server, request.called)


#: A request may be the same as an earlier one, or change nothing.
_JOINS = ("delete", "lock")


def _asked(history: History) -> Iterator[Violation]:
    asked = {(r.request_id, r.operation) for r in history.requests if r.request_id}
    unknown = collections.defaultdict(list)
    names = collections.defaultdict(list)
    for request in history.requests:
        if request.unknown:
            unknown[request.server, request.operation].append(request.called)
        if request.operation == "create":
            names[request.name].append(request)
    for action in history.actions.values():
        row = action.row
        if row["action"] == "create" or (row["request_id"], row["action"]) in asked:
            continue
        if row["action"] in rules.BY_ITSELF and row["user"] is None:
            continue
        if not any(called <= action.began for called in unknown[action.server, row["action"]]):
            yield Violation(
                "asked", f"nobody asked for {row['action']} ({row['request_id']})", action.server, action.began
            )
    made = collections.defaultdict(list)
    for server, transactions in history.transactions.items():
        made[transactions[0].after["display_name"]].append((transactions[0].at, server))
    for name, servers in made.items():
        requests = [request for request in names[name] if request.accepted or request.unknown]
        if not requests:
            yield Violation("asked", f"nobody asked for {name}, or was refused", servers[0][1], servers[0][0])
        if len(servers) > 1:
            text = f"{name} was asked for once, and is {', '.join(server for _, server in servers)}"
            yield Violation("asked", text, servers[1][1], servers[1][0])


def _open(history: History) -> Iterator[Violation]:
    bound = history.settings.bound if history.settings is not None else 0.0
    latest = history.marks.get(CALM, float("inf")) + bound
    for action in history.actions.values():
        late = action.ended is None or (action.began < history.marks.get(CALM, 0.0) and action.ended > latest)
        if late:
            at = (
                f"is open at {action.row['step']}"
                if action.ended is None
                else f"ended {action.ended - latest:.0f} s late"
            )
            yield Violation("open", f"{action.row['action']} ({action.row['id']}) {at}", action.server, action.began)
    if CALM in history.marks and SETTLED not in history.marks:
        yield Violation("open", f"not all has settled within {bound:.0f} s after the nemesis stopped")


def _effect(history: History) -> Iterator[Violation]:
    causes = _causes(history)
    for action in history.actions.values():
        if action.ended is None:
            continue
        row = action.row
        if row["message"]:
            if row["id"] in causes and not causes[row["id"]]:
                yield Violation("effect", f"{row['action']} failed without a cause", action.server, action.ended)
            continue
        wanted = rules.last_outcome(row)
        if wanted is not None and not any(done.after["vm_state"] in wanted for done in action.touched):
            text = f"{row['action']} is done, and the server never was {' or '.join(wanted)}"
            yield Violation("effect", text, action.server, action.ended)
    for name in (SETTLED, GONE):
        for instance in _rows(history, name, "instances"):
            if instance["vm_state"] == states.ERROR and not instance["fault"]:
                yield Violation("effect", "it is in ERROR without a fault", instance["uuid"])


def _causes(history: History) -> dict[int, bool]:
    """Return, by action, whether one of its events has a cause. An action that ended before any event has none."""
    found = {}
    for row in _rows(history, GONE, "instance_actions") or _rows(history, SETTLED, "instance_actions"):
        told = json.loads(row["events"] or "[]")
        found[row["id"]] = not told or any(item["result"] == "Error" for item in told)
    return found


# --- guests


def _guest(history: History) -> Iterator[Violation]:
    """Check that a successful stop, start or pause was visible at the hypervisor. It was not if a sighting of
    another state spans the whole action.
    """
    sightings = collections.defaultdict(list)
    for sighting in history.sightings:
        sightings[sighting.server].append(sighting)
    for action in history.actions.values():
        row = rules.row_of(action.row)
        if action.ended is None or action.row["message"] or not rules.touches_guest(row):
            continue
        is_now = states.EXPECTED_POWER_STATES[str(row.steps[0].becomes)]
        for seen in sightings[action.server]:
            spans = seen.first <= action.began and seen.last >= action.ended + LOOK
            if spans and seen.power_state not in is_now:
                power = PowerState(seen.power_state).name
                text = f"{row.kind} is done, and its guest on {seen.host} was {power} all the time"
                yield Violation("guest", text, action.server, action.ended)


def _twice(history: History) -> Iterator[Violation]:
    by_server = collections.defaultdict(list)
    for sighting in history.sightings:
        by_server[sighting.server].append(sighting)
    for server, sightings in by_server.items():
        running = sorted((s for s in sightings if s.power_state == PowerState.RUNNING), key=lambda s: s.first)
        for one, other in itertools.combinations(running, 2):
            if one.host != other.host and max(one.first, other.first) < min(one.last, other.last):
                text = f"it runs on {one.host} ({one.generation}) and on {other.host} ({other.generation})"
                yield Violation("twice", text, server, max(one.first, other.first))
        homes: dict[int, str] = {}
        for seen in sightings:
            if homes.setdefault(seen.generation, seen.host) != seen.host:
                text = f"generation {seen.generation} is on {seen.host} and was on {homes[seen.generation]}"
                yield Violation("twice", text, server, seen.first)


def _ghost(history: History) -> Iterator[Violation]:
    """Check that a finished delete has removed everything."""
    ended = {}
    for action in history.actions.values():
        if action.row["action"] == "delete" and action.ended is not None and not action.row["message"]:
            ended[action.server] = min(action.ended, ended.get(action.server, action.ended))
    for seen in history.sightings:
        if seen.server in ended and seen.last > ended[seen.server] + LOOK:
            text = f"a domain on {seen.host}, {seen.last - ended[seen.server]:.1f} s after its delete had ended"
            yield Violation("ghost", text, seen.server, seen.last)


# --- reads


@dataclasses.dataclass
class _Period:
    """The server's row was so from some time after ``since`` to some time before ``until``."""

    since: float
    until: float
    state: State | None


class _Past:
    """All that a server's row has been, in order."""

    def __init__(self, transactions: list[rules.Transaction]) -> None:
        self.periods = periods(transactions)
        self._untils = [period.until for period in self.periods]

    def during(self, called: float, returned: float) -> list[_Period]:
        """Return the periods that a request between these times may have met."""
        found = []
        for period in itertools.islice(self.periods, bisect.bisect_left(self._untils, called), None):
            if period.since > returned:
                break
            found.append(period)
        return found


def periods(transactions: list[rules.Transaction]) -> list[_Period]:
    """Return the states that a read may have found, with their periods. A commit lies between the write of the row
    and the next transaction's write.
    """
    transactions = [done for done in transactions if done.wrote]
    found = [_Period(float("-inf"), _at(transactions, 1), None)]
    for index, done in enumerate(transactions):
        found.append(_Period(done.at, _at(transactions, index + 2), _state(done.after)))
    return found


def _at(transactions: list[rules.Transaction], index: int) -> float:
    return transactions[index].at if index < len(transactions) else float("inf")


def _state(row: dict[str, Any]) -> State | None:
    return None if row["deleted"] else (row["vm_state"], row["task_state"], (row["metadata"] or {}).get("n"))


def _read(history: History) -> Iterator[Violation]:
    """Check that each response was true between the call and its return, that lists are complete, and that writers
    find their metadata.
    """
    known = {server: _Past(transactions) for server, transactions in history.transactions.items()}
    for request in history.requests:
        if request.returned is None or not request.accepted:
            if request.status == 404 and request.server in known and request.operation == "show":
                yield from _one_read(request, str(request.server), None, known[str(request.server)])
            continue
        for server, state in request.states.items():
            if server not in known:
                yield Violation("read", "it is shown, and never was in a row", server, request.called)
                continue
            yield from _one_read(request, server, state, known[server])
        if request.complete:
            for server in known.keys() - request.states.keys():
                yield from _one_read(request, server, None, known[server])
        if request.value is not None and not _written(request, known.get(str(request.server))):
            text = f"metadata {request.value} was accepted, and was not there before the answer"
            yield Violation("read", text, request.server, request.called)


def _one_read(request: Request, server: str, state: State | None, known: _Past) -> Iterator[Violation]:
    assert request.returned is not None
    then = known.during(request.called, request.returned)
    if not any(period.state == state for period in then):
        was = ", ".join(str(period.state) for period in then[:4])
        yield Violation("read", f"a {request.operation} found {state}, and it was {was}", server, request.called)


def _written(request: Request, known: _Past | None) -> bool:
    assert request.returned is not None
    return known is not None and any(
        period.state is not None and period.state[2] == request.value and period.since <= request.returned
        for period in known.periods
    )


def _answer(history: History) -> Iterator[Violation]:
    for request in history.requests:
        if request.status is not None and request.status >= 500 and request.status != 503:
            text = f"{request.operation} was answered {request.status}: {request.text[:200]}"
            yield Violation("answer", text, request.server, request.called)


# --- the tables at the end


def _trace(history: History) -> Iterator[Violation]:
    for event in history.events:
        if isinstance(event, Traces):
            for server, text in event.refused.items():
                yield Violation("trace", text, server)


def _rows(history: History, what: str, table: str) -> list[dict[str, Any]]:
    return history.tables[what].rows.get(table, []) if what in history.tables else []


def _tables(history: History) -> Iterator[Violation]:
    for what, tables in history.tables.items():
        yield from (Violation("tables", f"{what}: {wrong}") for wrong in of_tables(tables))


def of_tables(tables: Tables) -> Iterator[str]:
    """Yield each disagreement between tables."""
    yield from tables.problems
    for part in (_amounts, _alone, _hosts):
        yield from part(tables)


def _amounts(tables: Tables) -> Iterator[str]:
    """Check that used counters equal the sums of allocations and stay within capacity, and that quotas equal the
    rows.
    """
    used: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for allocation in tables.rows.get("allocations", []):
        for name in ("vcpus", "memory_mb", "disk_gb"):
            used[allocation["compute_node_id"]][name] += allocation[name]
    for node in tables.rows.get("compute_nodes", []):
        for name in ("vcpus", "memory_mb", "disk_gb"):
            counted, really = node[f"{name}_used"], used[node["id"]][name]
            if counted != really:
                yield f"{node['host']} has {name}_used {counted}, and allocations of {really}"
            if really > node[name]:
                yield f"{node['host']} has {node[name]} {name}, and allocations of {really}"
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    for row in tables.rows.get("instances", []):
        if not row["deleted"]:
            counts[row["project_id"], "instances"] += 1
            counts[row["project_id"], "cores"] += row["vcpus"] + row["extra_vcpus"]
            counts[row["project_id"], "ram"] += row["memory_mb"] + row["extra_memory_mb"]
    for usage in tables.rows.get("quota_usages", []):
        key = (usage["project_id"], usage["resource"])
        if usage["resource"] in ("instances", "cores", "ram") and usage["used"] != counts[key]:
            yield f"the quota of {key} counts {usage['used']}, the rows {counts[key]}"


def _alone(tables: Tables) -> Iterator[str]:
    """Check that each address has one owner, and that a server's volume is in its guest only."""
    for name in ("address", "mac_address"):
        found = collections.Counter(row[name] for row in tables.rows.get("ports", []))
        yield from (f"{name} {value} is given out {count} times" for value, count in found.items() if count > 1)
    alive = {row["uuid"]: row for row in tables.rows.get("instances", []) if not row["deleted"]}
    for port in tables.rows.get("ports", []):
        if port["instance_uuid"] not in alive:
            yield f"address {port['address']} is server {port['instance_uuid']}'s, which is gone"
    holders = collections.defaultdict(set)
    for domain in tables.domains:
        for volume in domain.get("volumes", ()):
            holders[volume].add(domain["server"])
    for volume in tables.rows.get("volumes", []):
        owner, guests = volume["instance_uuid"], holders.pop(volume["id"], set())
        on_host = owner in alive and alive[owner]["host"] and alive[owner]["vm_state"] in states.HAS_DOMAIN
        expected = {owner} if on_host else guests & {owner}
        if guests != expected:
            yield f"volume {volume['id']} is {volume['status']} of {owner}, and in the guests of {sorted(guests)}"
        if volume["status"].endswith("ing"):
            yield f"volume {volume['id']} is {volume['status']} for good"
    yield from (f"volume {volume} is in {sorted(guests)}, and in no row" for volume, guests in holders.items())


def _hosts(tables: Tables) -> Iterator[str]:
    """Check that hypervisors have exactly the guests of the rows, and that each server holds one claim per host."""
    alive = {row["uuid"]: row for row in tables.rows.get("instances", []) if not row["deleted"]}
    moving = {
        (m["instance_uuid"], m["source_host"]) for m in tables.rows.get("migrations", []) if m["status"] == "finished"
    }
    hosts = {node["id"]: node["host"] for node in tables.rows.get("compute_nodes", [])}
    places = collections.Counter((uuid, row["host"]) for uuid, row in alive.items() if row["host"])
    places.update(place for place in moving if place[0] in alive)
    claims = collections.Counter(
        (a["instance_uuid"], hosts[a["compute_node_id"]]) for a in tables.rows.get("allocations", [])
    )
    for place in (claims - places) + (places - claims):
        yield f"server {place[0]} has {claims[place]} claims on {place[1]}, and ought to have {places[place]}"
    found = {}
    for domain in tables.domains:
        place = (domain["server"], domain["host"])
        found[place] = domain
        if place not in places:
            yield f"a domain of server {place[0]} is on {place[1]}, which holds nothing of it"
    for uuid, row in alive.items():
        if row["vm_state"] not in states.HAS_DOMAIN:
            continue
        domain = found.get((uuid, row["host"]))
        if domain is None:
            yield f"server {uuid} is {row['vm_state']} on {row['host']}, which has no domain of it"
        elif (
            domain["power_state"] not in states.EXPECTED_POWER_STATES[row["vm_state"]]
            or domain["generation"] != row["generation"]
        ):
            is_there = f"{PowerState(domain['power_state']).name} of generation {domain['generation']}"
            yield f"server {uuid} is {row['vm_state']} of generation {row['generation']}, its domain {is_there}"
    if tables.what == GONE:
        yield from (f"{path} is left" for path in tables.files)
        yield from (f"server {uuid} is left" for uuid in alive)


RULES = (_of_rows, _lost, _asked, _open, _effect, _guest, _twice, _ghost, _read, _answer, _trace, _tables)


# --- telling it


def story(history: History, server: str) -> Iterator[str]:
    """Yield everything known of one server, in the order of time, with the faults meanwhile."""
    lines: list[tuple[float, str]] = []
    for request in history.requests:
        if request.server == server and request.operation not in ("list",):
            answer = "no answer" if request.status is None else request.status
            took = "" if request.returned is None else f" after {request.returned - request.called:.2f} s"
            seen = request.states.get(server, "")
            lines.append((request.called, f"{request.client} asks for {request.operation}: {answer}{took} {seen}"))
    for done in history.transactions.get(server, []):
        row = done.after
        actions = [_told(a) for key, a in done.actions_after.items() if a != done.actions_before.get(key)]
        state = f"{row['vm_state']}/{row['task_state']} on {row['host']} ({row['generation']})"
        lines.append((done.at, f"row: {state} {'; '.join(actions)}"))
    for seen in history.sightings:
        if seen.server == server:
            power = PowerState(seen.power_state).name
            lines.append(
                (seen.first, f"{seen.host} has it, {power} ({seen.generation}), for {seen.last - seen.first:.1f} s")
            )
    if lines:
        first, last = min(lines)[0] - 5, max(lines)[0] + 5
        for fault in history.faults:
            if fault.began < last and fault.ended > first:
                lines.append(
                    (fault.began, f"nemesis: {fault.effect} {fault.target} for {fault.ended - fault.began:.1f} s")
                )
    began = min((event.at for event in history.changes), default=0.0)
    for at, line in sorted(lines):
        yield f"{at - began:9.3f}  {line}"


def _told(action: dict[str, Any]) -> str:
    end = "" if rules.is_open(action) else ", failed" if action["message"] else ", done"
    return f"{action['action']} ({action['id']}) at {action['step']}{end}"


def figures(history: History) -> dict[str, Any]:
    """Return the sizes of the history."""
    answers = collections.Counter("no answer" if r.status is None else f"{r.status // 100}xx" for r in history.requests)
    calm, settled = history.marks.get(CALM), history.marks.get(SETTLED)
    failed = collections.Counter(a.row["action"] for a in history.actions.values() if a.row["message"])
    return {
        "requests": len(history.requests),
        "answers": dict(sorted(answers.items())),
        "servers": len(history.transactions),
        "actions": len(history.actions),
        "failed actions": sum(failed.values()),
        "transactions": sum(map(len, history.transactions.values())),
        "states read": sum(len(request.states) for request in history.requests),
        "sightings": len(history.sightings),
        "faults": dict(sorted(collections.Counter(fault.effect for fault in history.faults).items())),
        "settled after": None if calm is None or settled is None else round(settled - calm, 1),
    }

"""Says whether the trace of a real server is a path of the model of the protocol, and names the first step that is not.

A trace has streams: the server's rows, and for each host its fencing tokens, its commands and its domain. The values of
a stream are in order. Each has the time before which it was not there, and the time from which it was. The streams of a
daemon and those of another one have no common order but by these times. A path is a run of the model that shows each
stream's values in their order. Steps that change no value are free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.model.checker import Step, TooManyStates
from tests.model.compute import carry_out, crash
from tests.model.conductor import accept_action, record_offline
from tests.model.protocol import IMPLEMENTED, Protocol, without_dead
from tests.model.state import IDLE, NAMES, NONE, OFF, Host, State, at_host

#: Operations that the model has, and that a trace may have.
KINDS = ("create", "delete", "stop", "start", "rebuild")

Positions = tuple[int, ...]


class Event(NamedTuple):
    """A value of a stream. It came between ``begin`` and ``end``, in seconds on one clock of the machine."""

    value: tuple[Any, ...]
    begin: float
    end: float


@dataclass(frozen=True)
class Trace:
    """The trace of a server.

    ``streams``: by name, as `view` has them. ``hosts``: their number. ``actions``: of users, the create included.
    ``crashes``: of daemons. ``attempts``: hosts that a build tries at most. ``power_cuts``: whether a crash may be the
    end of a host's power. ``full_disk``: whether a host could not write.
    """

    streams: Mapping[str, tuple[Event, ...]]
    hosts: int = 2
    actions: int = 1
    crashes: int = 0
    attempts: int = 2
    power_cuts: bool = False
    full_disk: bool = False

    def model(self) -> Protocol:
        start = State(hosts=(Host(),) * self.hosts, used=(0,) * self.hosts, attempts=self.attempts)
        left = {"power_cuts": self.power_cuts, "full_disk": self.full_disk}
        return _Traced(IMPLEMENTED, KINDS[1:], self.actions, self.crashes, start=start, **left)


@dataclass(frozen=True)
class _Traced(Protocol):
    """The protocol with steps that only a trace has.

    A host that has forgotten settled records asks whether the command of a build is open, and admits it then. It may
    forget that of a deleted server before a late fence comes, which writes one without a command. If
    ``power_cuts``, guests of a host may lose their power. A domain may be gone then that was made shortly before, and
    one may be back that was removed. The host reports a domain that is gone, and removes its disks if its server is
    deleted or elsewhere. With a ``full_disk``, a job may end
    without a result, because a build that failed cannot be revoked or removed.
    """

    power_cuts: bool = False
    full_disk: bool = False

    def steps(self, state: State) -> Iterable[Step]:
        yield from super().steps(state)
        for index, host in enumerate(state.hosts):
            if host.build.at and host.last < host.build.id:
                admitted = at_host(state, index, last=host.build.id, result="")
                yield f"{NAMES[index]}: build: its command is open", False, admitted
            if state.row.deleted and host.result and not host.domain:
                yield f"{NAMES[index]}: its record is settled", False, at_host(state, index, last=0, result="")
            if self.full_disk and host.build.at in ("refuse", "undo"):
                yield (
                    f"{NAMES[index]}: build: the disk is full, and its job ends",
                    False,
                    at_host(state, index, build=IDLE),
                )
            if state.crashes:
                yield from _unnoted(state, index)
            if self.power_cuts:
                yield from self._without_power(state, index)

    def _without_power(self, state: State, index: int) -> Iterator[Step]:
        row, host, name = state.row, state.hosts[index], NAMES[index]
        if state.crashes and host.daemon not in ("down", "lost"):
            after = crash(state, index, self.rules)
            for gen in range(row.gen + 1):
                off = at_host(after, index, domain=gen, power=OFF if gen else 0)
                yield f"{name}: loses its power, and has domain {gen}", False, off
        is_idle = not (row.task or row.deleted or state.action.step) and row.vm in ("active", "stopped")
        if is_idle and row.host == index and not host.domain:
            yield f"{name}: domain_lost", False, state._replace(row=row._replace(vm="error"))
        if host.built and not host.domain and (row.deleted or index not in (row.host, row.alloc)):
            yield f"{name}: reconcile: removes disks without a domain", False, at_host(state, index, built=0)


def _unnoted(state: State, index: int) -> Iterator[Step]:
    """Yield what a daemon has done to its domain when it dies before it notes that."""
    host, name = state.hosts[index], NAMES[index]
    for job in host.acts:
        done = carry_out(host, job)
        if job.at == "act" and (done.domain, done.power) != (host.domain, host.power):
            changed = at_host(state, index, domain=done.domain, power=done.power)
            yield f"{name}: {job.what}: is done, and not noted", False, changed
    if host.build.at == "queued" and 0 < host.domain < host.build.gen:
        removed = at_host(state, index, domain=0, power=0)
        yield f"{name}: build: the older domain is removed, and this is not noted", False, removed


class Verdict(NamedTuple):
    """The end of a search.

    ``path``: labels of the model that explain the most of the trace. ``refused``: the first value that no step of the
    model makes there, with its stream; None if the trace is a path. ``states``: states looked at.
    """

    path: tuple[str, ...]
    refused: tuple[str, Event] | None
    states: int

    def __str__(self) -> str:
        lines = [f"  {number:2}. {label}" for number, label in enumerate(self.path, 1)]
        if self.refused is not None:
            stream, event = self.refused
            lines.append(f"  no step of the model makes the {stream} {event.value}")
        return "\n".join(lines)


def view(state: State) -> dict[str, tuple[Any, ...]]:
    """Return what a trace shows of a state, by stream.

    ``rows``: vm state, host, generation, host of the allocation, deleted, and kind and step of the open action.
    ``tokens``: revoked and complete generation. ``commands``: the newest action, and whether it has a result.
    ``domain``: its generation and power state.
    """
    row, action = state.row, state.action
    is_open = (action.kind, action.step) if action.step else ("", "")
    shown: dict[str, tuple[Any, ...]] = {"rows": (row.vm, row.host, row.gen, row.alloc, row.deleted, *is_open)}
    for name, host in zip(NAMES, state.hosts, strict=False):
        shown[f"tokens {name}"] = (host.fenced, host.built)
        shown[f"commands {name}"] = (host.last, bool(host.result))
        shown[f"domain {name}"] = (host.domain, host.power)
    return shown


def check(trace: Trace, limit: int = 400_000) -> Verdict:
    """Look for a path that shows the whole trace. Raises `TooManyStates` at the limit."""
    return _Search(trace).run(limit)


class _Node(NamedTuple):
    state: State
    positions: Positions


class _Search:
    """A search for a path, depth first, which prefers steps that show the next value of a stream."""

    def __init__(self, trace: Trace) -> None:
        self._model = trace.model()
        initial = self._model.initial()
        self._names = list(view(initial))
        self._streams = [trace.streams.get(name, ()) for name in self._names]
        self._first = _Node(initial, (0,) * len(self._names))
        self._before: dict[_Node, tuple[_Node, str] | None] = {self._first: None}

    def run(self, limit: int) -> Verdict:
        stack = [self._first]
        best = self._first
        while stack:
            node = stack.pop()
            if self._next(node) is None:
                return Verdict(self._path(node), None, len(self._before))
            if self._explained(node) > self._explained(best):
                best = node
            free, shown = [], []
            for label, following in self._steps(node):
                if following not in self._before:
                    self._before[following] = node, label
                    (free if following.positions == node.positions else shown).append(following)
            if len(self._before) > limit:
                raise TooManyStates(f"more than {limit} states")
            stack += free + shown
        return Verdict(self._path(best), self._next(best), len(self._before))

    def _steps(self, node: _Node) -> list[tuple[str, _Node]]:
        before = list(view(node.state).values())
        found = []
        for label, state in self._transactions(node.state):
            positions = self._shown(node.positions, before, list(view(state).values()))
            if positions is not None:
                found.append((label, _Node(without_dead(state, self._model.rules), positions)))
        return found

    def _transactions(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield the steps of the model, and pairs of steps that one transaction does together."""
        for label, _, after in self._model.steps(state):
            yield label, after
            if label == "accept_action(delete)" and after.action.step:
                yield f"{label}, and record_offline", record_offline(after, self._model.rules)
            if label.endswith("reconcile: told keep") and (state.row.vm, after.row.vm) == ("active", "stopped"):
                started = accept_action(after, "start", self._model.rules)
                if started is not None:
                    yield f"{label}, and accept_action(start)", started

    def _shown(self, positions: Positions, before: list[Any], after: list[Any]) -> Positions | None:
        """Return the positions after a step, or None if the trace does not have what it shows."""
        changed = [index for index in range(len(before)) if before[index] != after[index]]
        if not changed:
            return positions
        moved = list(positions)
        for index in changed:
            if moved[index] == len(self._streams[index]):
                return None
            event = self._streams[index][moved[index]]
            if event.value != after[index]:
                return None
            moved[index] += 1
        latest = max(self._streams[index][positions[index]].begin for index in changed)
        for stream, position in zip(self._streams, moved, strict=True):
            if position < len(stream) and stream[position].end < latest:
                return None  # what was there before has not been shown yet
        return tuple(moved)

    def _next(self, node: _Node) -> tuple[str, Event] | None:
        """Return the earliest value that the path to this node does not show, with its stream."""
        left = [
            (name, stream[position])
            for name, stream, position in zip(self._names, self._streams, node.positions, strict=True)
            if position < len(stream)
        ]
        return min(left, key=lambda item: item[1].begin, default=None)

    def _explained(self, node: _Node) -> tuple[float, int]:
        item = self._next(node)
        return (float("inf") if item is None else item[1].begin), sum(node.positions)

    def _path(self, node: _Node) -> tuple[str, ...]:
        labels: list[str] = []
        while (step := self._before[node]) is not None:
            node, label = step
            labels.append(label)
        return tuple(labels[::-1])


def events(values: list[Event], initial: tuple[Any, ...]) -> tuple[Event, ...]:
    """Return the values of a stream that differ from the one before, which at first is ``initial``."""
    kept: list[Event] = []
    for event in values:
        if event.value != (kept[-1].value if kept else initial):
            kept.append(event)
    return tuple(kept)


def host_number(name: str | None, names: list[str]) -> int:
    """Return the model's number of a host."""
    return NONE if name is None else names.index(name)

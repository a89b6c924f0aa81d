"""The scheduler's view of all hosts, in memory.

It is fed by messages that may be late, doubled or lost (`HostView.apply`), healed by full reads that take a while and
may be overtaken by messages (`HostView.replace_all`), and runs ahead of both by what was decided here but is not
claimed yet (`HostView.consume`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from nova_lite.objects import Destination, HostState, RequestSpec
from nova_lite.scheduler import core, uuids


class _Entry(NamedTuple):
    """``row``: as the conductor told it. ``state``: with what was decided here since. ``touched``: when (on the view's
    own counter) a message or a decision last changed this host here."""

    row: HostState
    state: HostState
    touched: int


class HostView:
    """Thread-safe map of host states. The states themselves are never changed, only replaced, so that a snapshot stays
    as it was taken.

    A row is newer by its (id, generation): a host that was removed and came back has a new id, or on SQLite perhaps the
    old one again, and another uuid. Removed hosts are remembered until the next full read, so that a late message does
    not bring them back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clock = 0
        self._entries: dict[tuple[str, str], _Entry] = {}
        #: The states of those entries that exist, kept beside them so that a snapshot is one copy.
        self._states: dict[tuple[str, str], HostState] = {}

    def apply(self, states: Sequence[HostState]) -> None:
        """Take in changed rows where they are newer than ours; ``deleted`` ones remove their host."""
        with self._lock:
            self._clock += 1
            for state in states:
                known = self._entries.get(_key(state))
                if known is None or _is_newer(state, known.row):
                    self._put(_key(state), _entry(state, self._clock))

    def mark(self) -> int:
        """To be taken before a full read begins, and given to `replace_all` with its result."""
        with self._lock:
            return self._clock

    def replace_all(self, states: Sequence[HostState], since: int) -> None:
        """Take in a full read that began after ``since``.

        It is the truth, except for what was learnt while it was under way: rows that are newer, hosts it does not
        know yet, and decisions on rows that have not changed.
        """
        with self._lock:
            entries = {key: entry for key, entry in self._entries.items() if entry.touched > since}
            for state in states:
                known = entries.get(_key(state))
                if known is None or _is_newer(state, known.row):
                    entries[_key(state)] = _entry(state, since)
            self._entries = entries
            self._states = {key: entry.state for key, entry in entries.items() if not entry.row.deleted}

    def known(self, states: Sequence[HostState]) -> list[HostState]:
        """The same states, and where one is as it is known already, the known one: so that a full read of hosts that
        have many servers does not take the memory of all twice. Those that are not say of instances what they say in
        little memory, so that all pages of a read can be kept until the last one."""
        for state in states:
            state.instances = uuids.packed(state.instances)
        with self._lock:
            entries = [self._entries.get(_key(state)) for state in states]
        return [
            state if entry is None or entry.row != state else entry.row
            for state, entry in zip(states, entries, strict=True)
        ]

    def consume(self, destinations: Sequence[Destination], spec: RequestSpec) -> None:
        """Count decided places as used, until the next generation of their hosts says what was really claimed."""
        with self._lock:
            self._clock += 1
            for destination in destinations:
                key = (destination.selected.host, destination.selected.node)
                known = self._entries.get(key)
                if known is not None and not known.row.deleted:
                    state = core.consume(known.state, spec, destination.instance_uuid)
                    self._put(key, _Entry(known.row, state, self._clock))

    def snapshot(self) -> list[HostState]:
        """All hosts that exist, with what was decided here."""
        with self._lock:
            return list(self._states.values())

    def rows(self) -> list[HostState]:
        """All hosts that exist, with what is known to be claimed only."""
        with self._lock:
            return [entry.row for entry in self._entries.values() if not entry.row.deleted]

    def _put(self, key: tuple[str, str], entry: _Entry) -> None:
        self._entries[key] = entry
        if entry.row.deleted:
            self._states.pop(key, None)
        else:
            self._states[key] = entry.state


def _key(state: HostState) -> tuple[str, str]:
    return state.host, state.node


def _entry(row: HostState, touched: int) -> _Entry:
    """Of a row as it came. What it says of instances is what grows with a cloud."""
    row.instances = uuids.packed(row.instances)
    return _Entry(row, row, touched)


def _is_newer(state: HostState, known: HostState) -> bool:
    if state.id == known.id and state.uuid and known.uuid and state.uuid != known.uuid:
        return known.deleted
    return (state.id, state.generation) > (known.id, known.generation)

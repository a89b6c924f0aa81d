"""The scheduler's view of all hosts, in memory.

Three things feed it. Messages bring changes; they may be late, doubled or lost (`HostView.apply`). Resyncs repair
that; they take a while, so messages may overtake them (`HostView.replace_all`). Decisions of this scheduler count
before the conductor has claimed them (`HostView.consume`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from nova_lite.base import threads
from nova_lite.objects import Destination, HostState, HostVersion, RequestSpec
from nova_lite.scheduler import core, uuids


class _Entry(NamedTuple):
    """Host in the view. ``row``: as the conductor sent it. ``state``: with later decisions of this scheduler.
    ``touched``: time, by the view's own counter, of the last message or decision about the host."""

    row: HostState
    state: HostState
    touched: int


class HostView:
    """Thread-safe map of host states. States are replaced, never changed, so a snapshot stays as it is.

    A row is newer if its (id, generation) is larger. A host that was removed and came back has a new id. On SQLite the
    id may be reused, so the uuid is compared as well. Removed hosts stay recorded until the next resync, so that a
    late message does not bring them back.
    """

    def __init__(self) -> None:
        self._lock = threads.Lock()
        self._clock = 0
        self._entries: dict[tuple[str, str], _Entry] = {}
        #: States of the entries whose host exists, so that a snapshot is one copy.
        self._states: dict[tuple[str, str], HostState] = {}

    def apply(self, states: Sequence[HostState]) -> None:
        """Take over the rows that are newer than the known ones. A ``deleted`` row removes its host."""
        with self._lock:
            self._clock += 1
            for state in states:
                entry = self._entries.get(_key(state))
                if entry is None or _is_newer(state, entry.row):
                    self._put(_key(state), _entry(state, self._clock))

    def mark(self) -> int:
        """Return the mark of a resync that begins now. `replace_all` needs it."""
        with self._lock:
            return self._clock

    def replace_all(self, states: Sequence[HostState], since: int) -> None:
        """Take over the result of a resync that began at mark ``since``.

        Newer information is kept: rows and hosts that messages brought during the read, and decisions on unchanged
        rows.
        """
        with self._lock:
            entries = {key: entry for key, entry in self._entries.items() if entry.touched > since}
            for state in states:
                entry = entries.get(_key(state))
                if entry is None or _is_newer(state, entry.row):
                    entries[_key(state)] = _entry(state, since)
            self._entries = entries
            self._states = {key: entry.state for key, entry in entries.items() if not entry.row.deleted}

    def known(self, states: Sequence[HostState]) -> list[HostState]:
        """Return the states, with each unchanged one replaced by the known object.

        So a resync does not hold all host states in memory twice. Uuids of the others are packed, because all pages
        of a read are kept until its end.
        """
        for state in states:
            state.instances = uuids.packed(state.instances)
        with self._lock:
            entries = [self._entries.get(_key(state)) for state in states]
        return [
            state if entry is None or entry.row != state else entry.row
            for state, entry in zip(states, entries, strict=True)
        ]

    def unchanged(self, versions: Sequence[HostVersion]) -> dict[int, HostState]:
        """Return, by id, the known states that are current by these versions.

        A state gets the version's ``io_ops`` and free disk space: these change without a new generation.
        """
        rows = {row.id: row for row in self.rows()}
        found: dict[int, HostState] = {}
        for version in versions:
            row = rows.get(version.id)
            if row is not None and row.generation == version.generation:
                now = {"io_ops": version.io_ops, "disk_available_least": version.disk_available_least}
                differs = any(getattr(row, name) != value for name, value in now.items())
                found[row.id] = msgspec.structs.replace(row, **now) if differs else row
        return found

    def consume(self, destinations: Sequence[Destination], spec: RequestSpec) -> None:
        """Count decided places as used until the next generation of their hosts shows what was claimed."""
        with self._lock:
            self._clock += 1
            for destination in destinations:
                key = (destination.selected.host, destination.selected.node)
                entry = self._entries.get(key)
                if entry is not None and not entry.row.deleted:
                    state = core.consume_from_request(entry.state, spec, destination.instance_uuid)
                    self._put(key, _Entry(entry.row, state, self._clock))

    def snapshot(self) -> list[HostState]:
        """Return all hosts, with the decisions of this scheduler."""
        with self._lock:
            return list(self._states.values())

    def rows(self) -> list[HostState]:
        """Return all hosts as the conductor sent them, without decisions that are perhaps not claimed yet."""
        with self._lock:
            return [entry.row for entry in self._entries.values() if not entry.row.deleted]

    def known_generations(self) -> int:
        """Return the sum of the hosts' generations. It only rises while no host is removed."""
        return sum(row.generation for row in self.rows())

    def _put(self, key: tuple[str, str], entry: _Entry) -> None:
        self._entries[key] = entry
        if entry.row.deleted:
            self._states.pop(key, None)
        else:
            self._states[key] = entry.state


def _key(state: HostState) -> tuple[str, str]:
    return state.host, state.node


def _entry(row: HostState, touched: int) -> _Entry:
    """Return the entry of a new row. Its uuids are packed, because they are most of its size."""
    row.instances = uuids.packed(row.instances)
    return _Entry(row, row, touched)


def _is_newer(state: HostState, known: HostState) -> bool:
    if state.id == known.id and state.uuid and known.uuid and state.uuid != known.uuid:
        return known.deleted
    return (state.id, state.generation) > (known.id, known.generation)

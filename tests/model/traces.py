"""Records the traces of servers in this process: their rows, and the tokens, commands and domains of their hosts.

`tests.model.paths` says whether a trace is a path of the model. A row is read at the end of the transaction that has
changed it, inside of it, and counts once that is committed. Hosts are recorded where they write to their disks.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeAlias
from unittest import mock

import msgspec
import sqlalchemy as sa

from nova_lite.compute.fencing import NEVER as UNSET
from nova_lite.compute.fencing import FencingTokenStore, Record
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import Allocation, ComputeNode, Instance, InstanceAction
from nova_lite.operations.states import PowerState
from nova_lite.virt.fake_hypervisor import FakeHypervisor
from tests.model.paths import KINDS, Event, Trace, events, host_number, view
from tests.model.state import NAMES, OFF, RUNNING

ROWS = (
    sa.select(
        Instance.uuid,
        Instance.vm_state,
        Instance.host,
        Instance.generation,
        ComputeNode.host,
        Instance.deleted,
        InstanceAction.action,
        InstanceAction.step,
    )
    .join(
        InstanceAction,
        sa.and_(InstanceAction.instance_uuid == Instance.uuid, InstanceAction.finish_time.is_(None)),
        isouter=True,
    )
    .join(Allocation, Allocation.instance_uuid == Instance.uuid, isouter=True)
    .join(ComputeNode, ComputeNode.id == Allocation.compute_node_id, isouter=True)
)

#: Values of streams, by name.
Values: TypeAlias = "tuple[tuple[str, tuple[Any, ...]], ...]"
NO_DOMAIN: Values = (("domain", (0, 0)),)

#: Steps and vm states that the model has.
STEPS = ("schedule", "build", "perform", "compensate", "cleanup")
VM_STATES = ("building", "active", "stopped", "error", "deleted")
NEVER = float("inf")


def _actions(uow: UnitOfWork, server: str) -> list[tuple[int, str]]:
    query = sa.select(InstanceAction.id, InstanceAction.action).where(InstanceAction.instance_uuid == server)
    return [(number, kind) for number, kind in uow.session.execute(query.order_by(InstanceAction.id))]


def record_values(record: Record) -> Values:
    """Return the values that a fencing record shows."""
    tokens = tuple(0 if value == UNSET else value for value in (record.revoked_generation, record.built_generation))
    return ("tokens", tokens), ("commands", (record.last_action_id, record.result is not None))


def domain_values(domain: Any, is_new: bool = False) -> Values:
    """Return the values that a domain shows, in their order.

    A hypervisor defines a domain before it starts it, and the fake one does both at once.
    """
    power = RUNNING if domain.power_state == PowerState.RUNNING else OFF
    shown = tuple(("domain", (domain.generation, value)) for value in (OFF, power))
    return shown if is_new else shown[1:]


@contextlib.contextmanager
def around_writes(writing: Callable[[str, str, Values], AbstractContextManager[None]]) -> Iterator[None]:
    """Enter ``writing(server, host, values)`` around each write to the disk of a host of this process."""
    write_record, write, remove = FencingTokenStore._write, FakeHypervisor.write, FakeHypervisor.remove

    def noted_record(store: FencingTokenStore, record: Record, **changes: Any) -> None:
        written = msgspec.structs.replace(record, **changes)
        with writing(record.uuid, host_of(store), record_values(written)):
            write_record(store, record, **changes)

    def noted_write(fake: FakeHypervisor, domain: Any) -> None:
        with writing(domain.uuid, fake.host, domain_values(domain, domain.uuid not in fake.uuids("domains"))):
            write(fake, domain)

    def noted_remove(fake: FakeHypervisor, instance_uuid: str) -> None:
        with writing(instance_uuid, fake.host, NO_DOMAIN):
            remove(fake, instance_uuid)

    with (
        mock.patch.object(FencingTokenStore, "_write", noted_record),
        mock.patch.object(FakeHypervisor, "write", noted_write),
        mock.patch.object(FakeHypervisor, "remove", noted_remove),
    ):
        yield


def host_of(store: FencingTokenStore) -> str:
    """Return the host of a fencing token store, which is the name of its directory."""
    return os.path.basename(os.path.normpath(store._directory))


def _is_strange(row: tuple[Any, ...]) -> bool:
    """Check whether a row shows what the model does not have. A rebuild of a stopped server ends with a stop."""
    vm_state, kind, step = row[0], row[5], row[6]
    is_stopped_again = kind == "rebuild" and vm_state == "stopped"
    return kind not in (None, *KINDS) or step not in (None, *STEPS) or vm_state not in VM_STATES or is_stopped_again


class Note(NamedTuple):
    """A raw value: of a server, in a stream of a host (None: its rows), between two times."""

    server: str
    stream: str
    host: str | None
    value: tuple[Any, ...]
    begin: float
    end: float


class Recorder:
    """Notes of all servers of this process, from `recording` on."""

    def __init__(self) -> None:
        self._notes: list[Note] = []
        self._mutex = threading.Lock()
        self._rows: dict[str, tuple[Any, ...]] = {}

    def watch(self, db: Database) -> None:
        """Record the rows of this database."""
        self._db = db
        db.subscribe(self._read_rows, always=True)

    def _read_rows(self, uow: UnitOfWork) -> None:
        begin = time.monotonic()
        changed = self.changes(uow.rows(ROWS))
        if changed:
            uow.after_commit(lambda: self.note_rows(changed, begin))

    def changes(self, rows: Iterable[Any]) -> dict[str, tuple[Any, ...]]:
        """Return the rows of `ROWS` that differ from the known ones, by server."""
        found = {uuid: tuple(values) for uuid, *values in rows}
        return {uuid: row for uuid, row in found.items() if self._rows.get(uuid) != row}

    def note_rows(self, changed: dict[str, tuple[Any, ...]], begin: float) -> None:
        """Note rows that were read at ``begin``, and are committed."""
        self._rows |= changed
        for uuid, row in changed.items():
            self._add(Note(uuid, "rows", None, row, begin, time.monotonic()))

    def _add(self, note: Note) -> None:
        with self._mutex:
            self._notes.append(note)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record what the hosts of this process write while the context lasts."""

        @contextlib.contextmanager
        def writing(server: str, host: str, values: Values) -> Iterator[None]:
            begin = time.monotonic()
            yield
            for stream, value in values:
                self._add(Note(server, stream, host, value, begin, time.monotonic()))

        with around_writes(writing):
            yield

    def servers(self) -> list[str]:
        """Return the servers that have rows."""
        return list(self._rows)

    def actions(self, server: str) -> list[tuple[int, str]]:
        """Return numbers and kinds of a server's actions, in their order."""
        return self._db.read(_actions, server)

    def trace(
        self, server: str, attempts: int, crashes: int = 0, power_cuts: bool = False, full_disk: bool = False
    ) -> Trace:
        """Return the trace of a server until its first operation that the model does not have.

        ``crashes``: of daemons of hosts, at most. ``power_cuts``: whether some were of whole hosts. ``full_disk``:
        whether a host could not write.
        """
        notes = sorted((note for note in self._notes if note.server == server), key=lambda note: note.begin)
        strange = [note.begin for note in notes if note.stream == "rows" and _is_strange(note.value)]
        notes = [note for note in notes if note.begin < min(strange, default=NEVER)]
        rows = [note for note in notes if note.stream == "rows"]
        places = {host for note in rows for host in (note.value[1], note.value[3])}
        hosts = sorted({str(host) for host in places | {note.host for note in notes}} - {"None"})
        actions = [number for number, kind in self.actions(server) if kind in KINDS]
        values: dict[str, list[Event]] = {}
        for note in notes:
            stream, value = note.stream, note.value
            if stream == "rows":
                vm, host, generation, held, deleted, kind, step = value
                places = host_number(host, hosts), generation, host_number(held, hosts)
                value = (vm, *places, bool(deleted), kind or "", step or "")
            else:
                stream = f"{stream} {NAMES[hosts.index(str(note.host))]}"
                if note.stream == "commands":
                    value = (actions.index(value[0]) + 1 if value[0] else 0, value[1])
            values.setdefault(stream, []).append(Event(value, note.begin, note.end))
        count = max(len(hosts), 1)
        start = Trace({}, count).model().initial()
        streams = {name: events(values.get(name, []), initial) for name, initial in view(start).items()}
        return Trace(streams, count, len(actions), crashes, attempts, power_cuts, full_disk)

"""Records a run: values for the model, guests that run twice, unexpected errors, and what is wrong at its end."""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from unittest import mock

from sqlalchemy.dialects import sqlite

from nova_lite.compute.fencing import FencingTokenStore, Record
from nova_lite.objects import LiveDestination
from nova_lite.operations.migration_states import OPEN
from nova_lite.operations.states import PowerState
from nova_lite.virt.fake_disks import FakeLiveMoves
from nova_lite.virt.fake_hypervisor import Domain
from tests.model import paths, traces
from tests.model.checker import TooManyStates
from tests.model.state import OFF, RUNNING
from tests.simulation import primitives

_ROWS = str(traces.ROWS.compile(dialect=sqlite.dialect()))
#: States of the model that a search for a path looks at. Beyond that the server counts as not judged.
_STATES = 40_000
#: Values of a server's streams on a host that has nothing of it.
_NOTHING: dict[str, tuple[Any, ...]] = {"tokens": (0, 0), "commands": (0, False), "domain": (0, 0)}
#: Hosts and power states of domains, by server.
Domains = Mapping[str, list[tuple[str, PowerState]]]
_HOSTS = (
    "SELECT n.host, n.vcpus - n.vcpus_used, s.up FROM compute_nodes n "
    "JOIN services s ON s.host = n.host AND s.binary = 'nova-compute'"
)
#: Virtual seconds that a decision of the scheduler takes at most, with its messages.
_DECISION = 30.0
_AMOUNTS = ("vcpus", "memory_mb", "disk_gb")


class DatabaseLock(primitives.Lock):
    """The lock of SQLite's writer, for all processes. ``committed`` is called before it is free again."""

    def __init__(self, committed: Callable[[], None]) -> None:
        super().__init__()
        self._committed = committed

    def __enter__(self) -> bool:
        primitives.point()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        self._committed()  # a commit may be done although its connection has broken
        super().__exit__(*error)
        primitives.point()


class Witness(traces.Recorder):
    """Sees all commits, and all writes of hosts. ``problems``: what must never be, as it was seen.

    ``is_deaf``: whether no conductor hears the hosts, which all live. ``is_watched``: all hosts have been up.
    ``vanished``: servers whose domains or hosts an operator has removed, or whose guests have shut down alone. The
    model does not know that. ``stopped``: servers that a user has asked to stop.
    ``tell``: adds a line to the trace of the run.
    """

    def __init__(
        self,
        database: str,
        is_deaf: Callable[[], bool] = lambda: False,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        super().__init__()
        self._tell = tell
        self.is_watched = False
        self.vanished: set[str] = set()
        self.stopped: set[str] = set()
        self._is_deaf = is_deaf
        self.problems: list[str] = []
        self.unjudged = 0
        self.database = sqlite3.Connection(database)
        #: All rows as the last commit left them.
        self._last_rows: list[tuple[Any, ...]] = []
        self._running: dict[str, set[str]] = defaultdict(set)
        #: Time since which a host is up and has room.
        self._free_since: dict[str, float] = {}
        #: The last value of each stream of a host, by server, stream and host.
        self._seen: dict[tuple[str, str, str], tuple[Any, ...]] = {}

    def committed(self) -> None:
        rows = self.database.execute(_ROWS).fetchall()
        changed = {} if rows == self._last_rows else self.changes(rows)
        self._last_rows = rows
        self._watch_hosts()
        if not changed:
            return
        for server, row in changed.items():
            before = self._rows.get(server)
            if row[0] == "error" and before is not None and before[5:7] == ("create", "schedule"):
                self._judge_refusal(server)
            if before is not None and (before[0], row[0]) == ("active", "stopped") and before[5] is row[5] is None:
                self.problems += [f"{server} counts as stopped, and runs on {host}" for host in self._running[server]]
        self.note_rows(changed, primitives.WORLD.clock())

    def actions(self, server: str) -> list[tuple[int, str]]:
        query = "SELECT id, action FROM instance_actions WHERE instance_uuid = ? ORDER BY id"
        return self.database.execute(query, (server,)).fetchall()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record as the base does, and guests that move alive, and collect errors.

        Records that a host may remove are not missed.
        """
        prune = FencingTokenStore.prune

        def forget(store: FencingTokenStore, settled: Iterable[Record], last_action_id: int) -> int:
            records = list(settled)
            for record in records:
                for stream in ("tokens", "commands"):
                    self._seen.pop((record.uuid, stream, traces.host_of(store)), None)
            return prune(store, records, last_action_id)

        migrate = FakeLiveMoves.migrate

        def leave(moves: FakeLiveMoves, server: str, destination: LiveDestination, watch: Any) -> None:
            migrate(moves, server, destination, watch)
            now = primitives.WORLD.clock()
            arrived = destination.host, (destination.generation, RUNNING)
            for host, value in ((moves._fake.host, (0, 0)), arrived):
                self._add(traces.Note(server, "domain", host, value, now, now))

        forgetting = mock.patch.object(FencingTokenStore, "prune", forget)
        leaving = mock.patch.object(FakeLiveMoves, "migrate", leave)
        with super().recording(), forgetting, leaving, _handling(_Errors(self.problems)):
            yield

    def died(self, host: str, records: list[Record], domains: list[Domain]) -> None:
        """Note what is on the disks of a host whose daemon has died: it may have died before a write was noted."""
        now = primitives.WORLD.clock()
        found: dict[tuple[str, str], tuple[Any, ...]] = {}
        for record in records:
            found |= {(record.uuid, stream): value for stream, value in traces.record_values(record)}
        for domain in domains:
            found |= {(domain.uuid, stream): value for stream, value in traces.domain_values(domain)}
        known = {key[:2] for key in self._seen if key[2] == host}
        for server, stream in sorted({*known, *found}):
            before = self._seen.get((server, stream, host), _NOTHING[stream])
            value = found.get((server, stream), _NOTHING[stream])
            if stream == "domain" and before[0] != value[0] and value[1] == RUNNING:
                self._add(traces.Note(server, stream, host, (value[0], OFF), now, now))
            if value != before:
                self._add(traces.Note(server, stream, host, value, now, now))

    def _add(self, note: Any) -> None:
        super()._add(note)
        self._tell(f"{note.server} {note.stream}{'' if note.host is None else f' at {note.host}'}: {note.value}")
        if note.host is None:
            return
        self._seen[note.server, note.stream, note.host] = note.value
        if note.stream != "domain":
            return
        on = self._running[note.server]
        (on.add if note.value[1] == RUNNING else on.discard)(note.host)
        if len(on) > 1:
            self.problems.append(f"{note.server} runs on {' and '.join(sorted(on))}")

    def shut_down(self, server: str) -> None:
        """Note that a guest has shut itself down, which the model does not know."""
        self.vanished.add(server)
        self._running[server].clear()

    def servers_of(self, host: str) -> set[str]:
        """Return the servers that a host has, or has a claim of."""
        return {server for server, row in self._rows.items() if host in (row[1], row[3])}

    # --- the end

    def open_work(self) -> list[str]:
        """Return what is not settled."""
        query = (
            "SELECT i.uuid || ' ' || coalesce(a.action || ' at ' || a.step, i.task_state) FROM instances i LEFT JOIN "
            "instance_actions a ON a.instance_uuid = i.uuid AND a.finish_time IS NULL "
            "WHERE a.id IS NOT NULL OR (NOT i.deleted AND i.task_state IS NOT NULL) ORDER BY 1"
        )
        return [text for (text,) in self.database.execute(query)]

    def state_of(self, server: str) -> str:
        """Return the vm state of a server."""
        (state,) = self.database.execute("SELECT vm_state FROM instances WHERE uuid = ?", (server,)).fetchone()
        return str(state)

    def differences(self, domains: Domains, resumes: bool = False) -> list[str]:
        """Return which servers are not as their rows say. A host with a server in error may have anything.

        ``resumes``: hosts start guests again, so a server is off only if a user has stopped it.
        """
        found = []
        query = "SELECT uuid, host, vm_state FROM instances WHERE NOT deleted AND vm_state IN ('active', 'stopped')"
        for uuid, host, state in self.database.execute(query):
            expected = PowerState.RUNNING if state == "active" else PowerState.SHUTDOWN
            there = domains.get(uuid, [])
            if there != [(host, expected)]:
                found.append(f"{uuid} is {there}, its row says {host}, {state}")
            if resumes and state == "stopped" and uuid not in self.stopped | self.vanished:
                found.append(f"{uuid} has not started again on {host}")
        return found

    def judge(self, domains: Domains, creates: int, attempts: int, crashes: int = 0, power_cuts: bool = False) -> None:
        """Add what is wrong with a settled cloud. ``creates``: of users."""
        self._judge_claims()
        (number,) = self.database.execute("SELECT count(*) FROM instances").fetchone()
        if number > creates:
            self.problems.append(f"{creates} requests have made {number} servers")
        hosts = {uuid: [host for host, _ in found] for uuid, found in domains.items()}
        for uuid, host, deleted, state in self.database.execute("SELECT uuid, host, deleted, vm_state FROM instances"):
            there = hosts.pop(uuid, [])
            wanted = [] if deleted or host is None else [host]
            if there != wanted and not (state == "error" and not there):
                self.problems.append(f"{uuid} is on {there}, its row says {wanted}, {state}")
        self.problems += [f"{uuid} on {there} has no row" for uuid, there in hosts.items()]
        for server in self.servers():
            if server in self.vanished:
                continue
            try:
                verdict = paths.check(self.trace(server, attempts, crashes, power_cuts), _STATES)
            except TooManyStates:
                self.unjudged += 1
                continue
            if verdict.refused is not None:
                self.problems.append(f"the trace of {server} is no path of the model:\n{verdict}")

    def _watch_hosts(self) -> None:
        """Note since when each host is up and has room. None may have given out more than it has.

        Not all hosts may count as down because no conductor hears them.
        """
        found = self.database.execute(_HOSTS).fetchall()
        if self.is_watched and not any(is_up for _, _, is_up in found) and self._is_deaf():
            self.is_watched = False
            self.problems.append("all hosts count as down, although no conductor could hear them")
        for host in self._free_since.keys() - {host for host, _, _ in found}:
            del self._free_since[host]
        for host, free, is_up in found:
            if free < 0:
                self.problems.append(f"{host} has given out more CPUs than it has")
            if free > 0 and is_up:
                self._free_since.setdefault(host, primitives.WORLD.clock())
            else:
                self._free_since.pop(host, None)

    def _judge_refusal(self, server: str) -> None:
        """Find a host that has had room for long, if a create has just been refused for want of one."""
        query = (
            "SELECT i.fault, a.payload FROM instances i JOIN instance_actions a ON a.instance_uuid = i.uuid "
            "WHERE i.uuid = ? AND a.action = 'create'"
        )
        fault, payload = self.database.execute(query, (server,)).fetchone()
        tried = json.loads(payload or "{}").get("tried", [])
        before = primitives.WORLD.clock() - _DECISION
        free = sorted(host for host, since in self._free_since.items() if since < before and host not in tried)
        if free and "No valid host" in str(fault):
            self.problems.append(
                f"the create of {server} is refused, and {', '.join(free)} had room for {_DECISION:g} s"
            )

    def _judge_claims(self) -> None:
        for name in _AMOUNTS:
            query = (
                f"SELECT n.host, n.{name}_used, coalesce(sum(a.{name}), 0) FROM compute_nodes n "
                "LEFT JOIN allocations a ON a.compute_node_id = n.id GROUP BY n.id"
            )
            for host, used, claimed in self.database.execute(query):
                if used != claimed:
                    self.problems.append(f"{host} has {used} {name} in use, and its claims are {claimed}")
        query = f"SELECT instance_uuid, status FROM migrations WHERE status IN ({', '.join(map(repr, OPEN))})"
        self.problems += [f"a move of {uuid} is still {status}" for uuid, status in self.database.execute(query)]
        query = "SELECT p.id FROM ports p JOIN instances i ON i.uuid = p.instance_uuid WHERE i.deleted"
        self.problems += [f"port {name} is left of a deleted server" for (name,) in self.database.execute(query)]
        used = dict(self.database.execute("SELECT resource, sum(used) FROM quota_usages GROUP BY resource").fetchall())
        query = "SELECT count(*), coalesce(sum(vcpus), 0), coalesce(sum(memory_mb), 0) FROM instances WHERE NOT deleted"
        for name, number in zip(("instances", "cores", "ram"), self.database.execute(query).fetchone(), strict=True):
            if used.get(name, 0) != number:
                self.problems.append(f"the quota counts {used.get(name, 0)} {name}, and there are {number}")


class _Errors(logging.Handler):
    """Collects errors that no code expects: those with a traceback. A transaction may lose all its attempts."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._problems = problems

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if record.exc_info and error is not None and primitives.CONFLICT not in str(error):
            lines = logging.Formatter().formatException(record.exc_info).splitlines()
            self._problems.append("\n".join([f"an error was logged: {record.getMessage()}", *lines[-12:]]))


@contextlib.contextmanager
def _handling(handler: logging.Handler) -> Iterator[None]:
    logging.getLogger().addHandler(handler)
    yield
    logging.getLogger().removeHandler(handler)

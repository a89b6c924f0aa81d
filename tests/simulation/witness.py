"""Records a run: values for the model, guests that run twice, unexpected errors, and what is wrong at its end."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from sqlalchemy.dialects import sqlite

from nova_lite.compute.fencing import FencingTokenStore
from nova_lite.virt.fake_hypervisor import FakeHypervisor
from tests.model import paths, traces
from tests.model.checker import TooManyStates
from tests.model.state import RUNNING
from tests.simulation import primitives

_ROWS = str(traces.ROWS.compile(dialect=sqlite.dialect()))
#: States of the model that a search for a path looks at. Beyond that the server counts as not judged.
_STATES = 40_000
_AMOUNTS = ("vcpus", "memory_mb", "disk_gb")


class DatabaseLock(primitives.Lock):
    """The lock of SQLite's writer, for all processes. ``committed`` is called while it is held."""

    def __init__(self, committed: Callable[[], None]) -> None:
        super().__init__()
        self._committed = committed

    def __enter__(self) -> bool:
        primitives.point()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._committed()
        super().__exit__(*error)
        primitives.point()


class Witness(traces.Recorder):
    """Sees all commits, and all writes of hosts. ``problems``: what must never be, as it was seen."""

    def __init__(self, database: str) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.unjudged = 0
        self.database = sqlite3.Connection(database)
        self._running: dict[str, set[str]] = defaultdict(set)

    def committed(self) -> None:
        self.note_rows(self.changes(self.database.execute(_ROWS)), primitives.WORLD.clock())

    def actions(self, server: str) -> list[tuple[int, str]]:
        query = "SELECT id, action FROM instance_actions WHERE instance_uuid = ? ORDER BY id"
        return self.database.execute(query, (server,)).fetchall()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record as the base does. No process dies between a write and its note."""
        writers = [(FencingTokenStore, "_write"), (FakeHypervisor, "write"), (FakeHypervisor, "remove")]
        with contextlib.ExitStack() as stack:
            for owner, name in writers:
                stack.enter_context(mock.patch.object(owner, name, primitives.unbroken(getattr(owner, name))))
            stack.enter_context(super().recording())
            stack.enter_context(_handling(_Errors(self.problems)))
            yield

    def _add(self, note: Any) -> None:
        super()._add(note)
        if note.stream != "domain":
            return
        on = self._running[note.server]
        (on.add if note.value[1] == RUNNING else on.discard)(note.host)
        if len(on) > 1:
            self.problems.append(f"{note.server} runs on {' and '.join(sorted(on))}")

    # --- the end

    def open_work(self) -> list[str]:
        """Return what is not settled."""
        query = (
            "SELECT i.uuid || ' ' || coalesce(a.action || ' at ' || a.step, i.task_state) FROM instances i LEFT JOIN "
            "instance_actions a ON a.instance_uuid = i.uuid AND a.finish_time IS NULL "
            "WHERE a.id IS NOT NULL OR (NOT i.deleted AND i.task_state IS NOT NULL) ORDER BY 1"
        )
        return [text for (text,) in self.database.execute(query)]

    def judge(self, domains: dict[str, list[str]], attempts: int, crashes: int) -> None:
        """Add what is wrong with a settled cloud. ``domains``: hosts by server."""
        self._judge_claims()
        for uuid, host, deleted, state in self.database.execute("SELECT uuid, host, deleted, vm_state FROM instances"):
            there = domains.pop(uuid, [])
            wanted = [] if deleted or host is None else [host]
            if there != wanted and not (state == "error" and not there):
                self.problems.append(f"{uuid} is on {there}, its row says {wanted}, {state}")
        self.problems += [f"{uuid} on {hosts} has no row" for uuid, hosts in domains.items()]
        for server in self.servers():
            try:
                verdict = paths.check(self.trace(server, attempts, crashes), _STATES)
            except TooManyStates:
                self.unjudged += 1
                continue
            if verdict.refused is not None:
                self.problems.append(f"the trace of {server} is no path of the model:\n{verdict}")

    def _judge_claims(self) -> None:
        for name in _AMOUNTS:
            query = (
                f"SELECT n.host, n.{name}_used, coalesce(sum(a.{name}), 0) FROM compute_nodes n "
                "LEFT JOIN allocations a ON a.compute_node_id = n.id GROUP BY n.id"
            )
            for host, used, claimed in self.database.execute(query):
                if used != claimed:
                    self.problems.append(f"{host} has {used} {name} in use, and its claims are {claimed}")
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

"""Records the traces of servers whose daemons are processes of their own, and judges them.

Conductors record rows in a table of their database, in the transaction itself, so that a daemon that is killed right
after its commit leaves no gap. Hosts write files: a line before each write to their disks, and one after it. A daemon
that starts notes what it finds there. That says whether the last write of a killed one was done.

All times are nanoseconds of the machine's monotonic clock, which no fault changes.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

import msgspec
import sqlalchemy as sa

from nova_lite.compute.fencing import FencingTokenStore, Record
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import ComputeNode, Instance, InstanceAction
from nova_lite.virt.fake_hypervisor import FakeHypervisor
from tests.model import paths, traces
from tests.model.checker import TooManyStates
from tests.model.paths import KINDS
from tests.model.traces import NEVER, NO_DOMAIN, Note, Values

#: The directory of the files, in a daemon's environment. Without it nothing is recorded.
ENVIRONMENT = "NOVA_LITE_TRACES"

#: States of the model that a search for a path looks at. Beyond that the trace counts as not judged.
STATES = 40_000

#: Largest share of traces that tests let count as not judged.
MOST_UNJUDGED = 0.05

#: Actions that change nothing that a trace shows.
HARMLESS = ("lock", "unlock")

_COLUMNS = ("server", "vm_state", "host", "generation", "held", "deleted", "kind", "step")
TABLE = sa.Table(
    "traces",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("server", Instance.uuid.type, index=True),
    sa.Column("vm_state", Instance.vm_state.type),
    sa.Column("host", Instance.host.type),
    sa.Column("held", ComputeNode.host.type),
    sa.Column("kind", InstanceAction.action.type),
    sa.Column("step", InstanceAction.step.type),
    sa.Column("generation", sa.Integer),
    sa.Column("deleted", sa.Boolean),
    sa.Column("began", sa.BigInteger),
    sa.Column("seen", sa.BigInteger),
)
_NOTHING: Values = traces.record_values(Record(uuid=""))


def now() -> int:
    """Return the time of the machine's monotonic clock."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


# --- in a daemon


def record(daemon: str) -> None:
    """Record what this daemon does until its end, if its environment says so. ``daemon``: its name."""
    directory = os.environ.get(ENVIRONMENT)
    if directory is not None:
        _until_the_end.enter_context(recording(daemon, Path(directory)))


_until_the_end = contextlib.ExitStack()


@contextlib.contextmanager
def recording(daemon: str, directory: Path) -> Iterator[None]:
    """Record what a daemon of this process does, if it begins to do so within the context."""
    file = os.open(directory / f"{daemon}-{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        with (_Host if daemon.startswith("compute") else _Conductor)(file).recording():
            yield
    finally:
        os.close(file)


class _Writer:
    """Writes lines to the file of a daemon. Each is in the file when `note` returns, also if the daemon is killed."""

    def __init__(self, file: int) -> None:
        self._file = file

    def note(self, **line: Any) -> None:
        os.write(self._file, msgspec.json.encode(line | {"at": now()}) + b"\n")


class _Conductor(_Writer):
    """Records rows that a transaction has changed."""

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        make = Database.__init__

        def make_watched(db: Database, *arguments: Any, **options: Any) -> None:
            make(db, *arguments, **options)
            db.subscribe(self.write_rows, always=True)

        with mock.patch.object(Database, "__init__", make_watched):
            yield

    def write_rows(self, uow: UnitOfWork) -> None:
        began = now()
        rows = [dict(zip(_COLUMNS, row, strict=True)) for row in uow.rows(_CHANGED)]
        if rows:
            times = {"began": began, "seen": now()}
            uow.session.connection().execute(sa.insert(TABLE), [row | times for row in rows])
            uow.after_commit(lambda: self.note(committed=began))


def _changed() -> sa.Select[Any]:
    """Return the query for rows that differ from those recorded last.

    A server is not recorded any more once it has had an operation that the model does not have.
    """
    last, any_earlier = TABLE.alias(), TABLE.alias()
    row = traces.ROWS.add_columns(Instance.task_state).subquery()
    *columns, task = row.c
    kind = sa.case((task.in_(_TASKS), columns[6]), (task.is_(None), columns[6]), else_=task)
    shown = [*columns[:6], kind, columns[7]]
    newest = sa.select(sa.func.max(any_earlier.c.id)).where(any_earlier.c.server == columns[0]).scalar_subquery()
    differs = sa.or_(
        *(value.is_distinct_from(last.c[name]) for name, value in zip(_COLUMNS[1:], shown[1:], strict=True))
    )
    known = sa.or_(last.c.kind.is_(None), last.c.kind.in_(KINDS))
    query = sa.select(*shown).select_from(row.outerjoin(last, last.c.id == newest))
    return query.where(sa.or_(last.c.id.is_(None), sa.and_(known, differs)))


#: Task states that the model's operations have.
_TASKS = (
    "scheduling", "networking", "spawning", "deleting", "powering-off", "powering-on", "rebuilding", "rebuild_spawning",
)  # fmt: skip
_CHANGED = _changed()


class _Host(_Writer):
    """Records writes of a host to its disk."""

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        self._numbers = itertools.count()
        make_store, make_fake = FencingTokenStore.__init__, FakeHypervisor.__init__

        def find_records(store: FencingTokenStore, *arguments: Any, **options: Any) -> None:
            make_store(store, *arguments, **options)
            values = {uuid: traces.record_values(record) for uuid, record in store._records.items()}
            self.note(found="records", host=traces.host_of(store), values=values)

        def find_domains(fake: FakeHypervisor, *arguments: Any) -> None:
            make_fake(fake, *arguments)
            domains = fake.domains() if os.path.isdir(fake.path) else []  # the first daemon has made nothing yet
            values = {domain.uuid: traces.domain_values(domain) for domain in domains}
            self.note(found="domains", host=fake.host, values=values)

        with (
            traces.around_writes(self._writing),
            mock.patch.object(FencingTokenStore, "__init__", find_records),
            mock.patch.object(FakeHypervisor, "__init__", find_domains),
        ):
            yield

    @contextlib.contextmanager
    def _writing(self, server: str, host: str, values: Values) -> Iterator[None]:
        number = next(self._numbers)
        self.note(begin=number, server=server, host=host, values=values)
        try:
            yield
        except Exception:
            self.note(failed=number)
            raise
        self.note(end=number)


# --- in the test


def prepare(cloud: Any) -> None:
    """Make the table of rows in the database of a `tests.functional.cloud.Cloud`, before its daemons start."""
    engine = sa.create_engine(cloud.database)
    TABLE.create(engine)
    engine.dispose()


class Judgement(NamedTuple):
    """The traces of some servers.

    ``paths``: their number that are paths. ``unjudged``: their number that were not judged, because the search was too
    long or the end of a write is unknown. ``refused``: by server, the path to the first step that is none.
    """

    paths: int = 0
    unjudged: int = 0
    refused: Mapping[str, str] = MappingProxyType({})

    def __str__(self) -> str:
        return "\n".join(
            f"the trace of {server} is no path of the model:\n{said}" for server, said in self.refused.items()
        )


class DaemonTraces(traces.Recorder):
    """Traces of the daemons of a cloud. ``directory``: of their files. ``judged_rows``: rows that were judged last."""

    def __init__(self, directory: Path, db: Database) -> None:
        super().__init__()
        self.directory = directory
        self._db = db
        self.judged_rows: list[Any] = []
        self._judged: set[str] = set()
        self._last_row = 0
        self._read_until: dict[Path, int] = {}
        self._commits: dict[int, int] = {}
        self._writes: dict[tuple[Path, int], dict[str, Any]] = {}
        self._found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._cut: dict[str, float] = {}
        self._failed: set[str] = set()

    def cut(self, server: str) -> None:
        """End the trace of a server here: the test does something to it that no daemon does."""
        self._cut.setdefault(server, now())

    def judge(self, states: int = STATES) -> Judgement:
        """Judge all servers that were not judged before. No action of theirs may be open."""
        self.read_files()
        self.judged_rows = self._db.read(_rows_after, self._last_row)
        self._last_row = max((row.id for row in self.judged_rows), default=self._last_row)
        servers = {row.server for row in self.judged_rows} - self._judged
        self._judged |= servers
        verdicts = {server: self._judge(server, states) for server in sorted(servers)}
        self._commits.clear()
        said = list(verdicts.values())
        return Judgement(said.count(""), said.count(None), {server: text for server, text in verdicts.items() if text})

    def _judge(self, server: str, states: int) -> str | None:
        """Return an empty text for a path, the refusal, or None for a trace that is not judged."""
        is_unknown = self.has_unknown_write(server)
        until = min(self._strange_action(server), self._cut.get(server, NEVER))
        notes = [*self._rows_of(server), *self.writes_of(server)]
        self._notes = [note for note in notes if note.begin < until]
        if is_unknown:
            return None
        attempts = self._db.conf.conductor.max_attempts
        trace = self.trace(server, attempts, self._crashes(), full_disk=server in self._failed)
        try:
            verdict = paths.check(trace, states)
        except TooManyStates:
            return None
        return "" if verdict.refused is None else str(verdict)

    def _crashes(self) -> int:
        """Return how often a daemon of a host was started again during the trace."""
        begins = [note.begin for note in self._notes]
        starts = [start for what, found in self._found.items() if what.startswith("records") for start in found[1:]]
        return sum(min(begins) < start["at"] < max(begins) for start in starts) if begins else 0

    # --- rows

    def _rows_of(self, server: str) -> list[Note]:
        rows = [row for row in self.judged_rows if row.server == server]
        later = [row.seen for row in rows[1:]] + [NEVER]
        return [
            Note(server, "rows", None, tuple(row)[2:-2], row.began, self._commits.get(row.began, seen))
            for row, seen in zip(rows, later, strict=True)
        ]

    def _strange_action(self, server: str) -> float:
        """Return the time of the first action that the model does not have, which may have been over at once."""
        found = self._db.read(_first_strange_action, server)
        if found is None:
            return NEVER
        since_1970 = found.replace(tzinfo=datetime.UTC).timestamp() * 1e9
        return since_1970 - time.time_ns() + now() - 5e6  # the database's time may be rounded to milliseconds

    # --- files

    def read_files(self) -> None:
        """Read what the daemons have written since the last time."""
        for path in sorted(self.directory.iterdir()):
            with path.open("rb") as file:
                file.seek(self._read_until.get(path, 0))
                for text in file:
                    self._take(path, json.loads(text))
                self._read_until[path] = file.tell()

    def _take(self, path: Path, line: dict[str, Any]) -> None:
        if "committed" in line:
            self._commits[line["committed"]] = line["at"]
        elif "found" in line:
            self._found[f"{line['found']} of {line['host']}"].append(line)
        elif "begin" in line:
            self._writes[path, line["begin"]] = line
        elif "failed" in line:
            self._failed.add(self._writes.pop((path, line["failed"]))["server"])
        else:
            self._writes[path, line["end"]]["end"] = line["at"]

    def has_unknown_write(self, server: str) -> bool:
        """Decide by what the next daemon has found whether writes without an end were done.

        Return whether that is unknown for one of them.
        """
        ongoing = [(key, line) for key, line in self._writes.items() if line["server"] == server and "end" not in line]
        for key, line in ongoing:
            what = "domains" if line["values"][0][0] == "domain" else "records"
            starts = [start for start in self._found[f"{what} of {line['host']}"] if start["at"] > line["at"]]
            if not starts:
                return True
            nothing = NO_DOMAIN if what == "domains" else _NOTHING
            there = json.loads(json.dumps(starts[0]["values"].get(server, nothing)))
            if dict(there) == dict(line["values"]):
                line["end"] = starts[0]["at"]
            else:
                del self._writes[key]
        return False

    def writes_of(self, server: str) -> list[Note]:
        """Remove and return the writes of hosts about a server."""
        lines = [self._writes.pop(key) for key, line in list(self._writes.items()) if line["server"] == server]
        return [
            Note(server, stream, line["host"], tuple(value), line["at"], line.get("end", NEVER))
            for line in lines
            for stream, value in line["values"]
        ]


def _rows_after(uow: UnitOfWork, number: int) -> list[Any]:
    columns = (TABLE.c.id, *(TABLE.c[name] for name in _COLUMNS), TABLE.c.began, TABLE.c.seen)
    return list(uow.session.execute(sa.select(*columns).where(TABLE.c.id > number).order_by(TABLE.c.id)))


def _first_strange_action(uow: UnitOfWork, server: str) -> Any:
    query = sa.select(sa.func.min(InstanceAction.start_time)).where(InstanceAction.instance_uuid == server)
    return uow.session.scalar(query.where(InstanceAction.action.not_in((*KINDS, *HARMLESS))))

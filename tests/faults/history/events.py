"""Events of a history, and its file: one line of JSON per event.

Times are seconds since 1970 by the machine's clock, which is also the database's. The nemesis moves the clocks of
daemons only, so all times of a history are comparable.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, Self

import msgspec


class Event(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="type"):
    """The base of all."""


#: vm state and task state, as the API shows a server, and the number that clients write into its metadata.
State = tuple[str, str | None, str | None]


class Settings(Event, tag="settings"):
    """Settings of the history. ``bound``: seconds after `CALM` within which everything has to settle."""

    seed: int
    seconds: float
    bound: float
    hosts: list[str]
    without: str = ""


class Request(Event, tag="request"):
    """A client's request.

    ``operation``: the kind of its definition in `nova_lite.operations`, or ``show``, ``list``, ``metadata``.
    ``returned`` and ``status`` are None without a response. ``request_id``: the API's name for it. ``name``: of the
    server to create; repetitions have the same ``key``. ``states``: the states that were read, by server; None for a
    missing one. ``value``: the written metadata. ``text``: of a refusal.
    """

    client: str
    operation: str
    called: float
    returned: float | None = None
    status: int | None = None
    server: str | None = None
    request_id: str | None = None
    name: str | None = None
    key: str | None = None
    states: dict[str, State | None] = msgspec.field(default_factory=dict)
    complete: bool = False
    value: str | None = None
    text: str = ""

    @property
    def accepted(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def unknown(self) -> bool:
        """True if the request may have been accepted without a response."""
        return self.status is None or self.status >= 500


class Change(Event, tag="change"):
    """A row was written: ``order`` grows, ``at`` is when it was written (it is committed later), changes of one
    ``transaction`` belong together. ``what``: ``instance`` or ``action``; ``row``: some of its columns."""

    order: int
    at: float
    transaction: str
    what: str
    server: str
    row: dict[str, Any]


class Sighting(Event, tag="sighting"):
    """A domain that was found unchanged at each look at its host, from the look at ``first`` to that at ``last``."""

    server: str
    host: str
    generation: int
    power_state: int
    first: float
    last: float


class Fault(Event, tag="fault"):
    """A fault that the nemesis caused on ``target``; ``ended``: when it was undone."""

    effect: str
    target: str
    began: float
    ended: float


#: Marks: the nemesis and the clients have stopped; no action is open; no server is left.
CALM, SETTLED, GONE = "calm", "settled", "gone"


class Mark(Event, tag="mark"):
    what: str
    at: float


class Tables(Event, tag="tables"):
    """The tables at a mark, as lists of rows; ``domains``: what hypervisors have then (server, host, generation,
    power state, volumes), ``files``: what else of servers is on hosts; ``problems``: what the audit found."""

    what: str
    rows: dict[str, list[dict[str, Any]]]
    domains: list[dict[str, Any]]
    files: list[str]
    problems: list[str]


class Traces(Event, tag="traces"):
    """The traces of the servers: how many are ``paths`` of the model, how many were not judged, and those ``refused``
    by server, each as a text."""

    paths: int
    unjudged: int
    refused: dict[str, str]


AnyEvent = Settings | Request | Change | Sighting | Fault | Mark | Tables | Traces
_decoder = msgspec.json.Decoder(AnyEvent)


def _open(path: Path, mode: str) -> IO[bytes]:
    return gzip.open(path, mode) if path.suffix == ".gz" else open(path, mode)  # type: ignore[return-value]


def read(path: Path) -> list[AnyEvent]:
    """Read a history. Raises `msgspec.DecodeError` for any other file."""
    with _open(path, "rb") as file:
        return [_decoder.decode(line) for line in file]


class Recorder:
    """Writes events as they come, of any thread; ``name.gz`` is compressed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._file = _open(path, "wb")
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        with self._lock:
            self._file.close()

    def add(self, event: AnyEvent) -> None:
        line = msgspec.json.encode(event) + b"\n"
        with self._lock:
            self._file.write(line)
            self.count += 1

    def add_all(self, events: Iterable[AnyEvent]) -> None:
        for event in events:
            self.add(event)

"""Nemesis of a history: breaks the cloud at random and repairs it after a while.

It moves the clocks of single daemons (`tests.faults.daemon`). The database's clock does not move, and intervals use
the monotonic clock.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

from nova_lite.base import failpoints
from tests.faults.daemon import AHEAD, BEHIND
from tests.faults.history.events import Fault, Recorder
from tests.faults.history.site import HistoryCloud
from tests.faults.private import PrivateDatabase

BROKER, DATABASE = "broker", "database"

#: Frequency of each fault, and its shortest and longest duration in seconds.
EFFECTS: dict[str, tuple[int, float, float]] = {
    "kill": (10, 0.0, 4.0),
    "pause": (10, 1.0, 10.0),
    "cut off from the broker": (6, 1.0, 12.0),
    "unheard at the broker": (4, 2.0, 12.0),
    "cut off from the database": (5, 1.0, 10.0),
    "broker restart": (1, 1.0, 3.0),
    "database kill": (3, 1.0, 4.0),
    failpoints.FULL: (4, 2.0, 8.0),
    AHEAD: (3, 2.0, 10.0),
    BEHIND: (3, 2.0, 10.0),
    failpoints.DROP: (5, 1.0, 2.0),
    failpoints.DUPLICATE: (5, 1.0, 2.0),
    failpoints.DELAY: (4, 1.0, 5.0),
    "hypervisor hangs": (3, 2.0, 10.0),
    "builds fail": (3, 1.0, 4.0),
}

#: Failpoints of the faults: each fires at the next such point of the daemon.
POINTS = {
    failpoints.FULL: "*",
    AHEAD: "*",
    BEHIND: "*",
    failpoints.DROP: "send/*/before",
    failpoints.DUPLICATE: "send/*/before",
    failpoints.DELAY: "*",
}


class Nemesis:
    """``effects``: weights by name; those of `EFFECTS` if not given. ``targets``: a shell pattern of daemons.
    ``lasts``: seconds, if not those of `EFFECTS`. ``rest``: seconds between two, at most."""

    def __init__(
        self,
        running: HistoryCloud,
        database: PrivateDatabase,
        recorder: Recorder,
        seed: int,
        effects: dict[str, int] | None = None,
        targets: str = "*",
        lasts: tuple[float, float] | None = None,
        rest: float = 4.0,
    ) -> None:
        self.cloud = running
        self.database = database
        self.recorder = recorder
        self.random = random.Random(f"nemesis {seed}")
        self.weights = effects or {name: weight for name, (weight, _, _) in EFFECTS.items()}
        self.targets = targets
        self.lasts = lasts
        self.rest = rest
        self.down: set[str] = set()
        self._busy: set[str] = set()
        self._rules: list[dict[str, object]] = []
        self._count = 0
        self._lock = threading.Lock()

    def run(self, stop: threading.Event) -> None:
        """Inject faults until ``stop``, then undo them. Several threads may run it."""
        while not stop.wait(self.random.uniform(0, self.rest)):
            (effect,) = self.random.choices(list(self.weights), list(self.weights.values()))
            possible = [name for name in self._targets(effect) if fnmatch.fnmatch(name, self.targets)]
            if not possible:
                continue
            target = self.random.choice(possible)
            with self._lock:
                if target in self._busy or (target in (BROKER, DATABASE) and self._busy & {BROKER, DATABASE}):
                    continue
                self._busy.add(target)
            try:
                began = time.time()
                with self._doing(effect, target):
                    stop.wait(self._seconds(effect))
                self.recorder.add(Fault(effect=effect, target=target, began=began, ended=time.time()))
            finally:
                with self._lock:
                    self._busy.discard(target)

    def _seconds(self, effect: str) -> float:
        return self.random.uniform(*(self.lasts or EFFECTS[effect][1:]))

    def keep_alive(self, stop: threading.Event) -> None:
        """Restart dead daemons, as systemd would."""
        while not stop.wait(0.5):
            for name, process in list(self.cloud.processes.items()):
                if name not in self.down and process.poll() is not None:
                    now = time.time()
                    self.recorder.add(Fault(effect="ended by itself", target=name, began=now, ended=now))
                    self.cloud.start(name)

    def _targets(self, effect: str) -> list[str]:
        names = self.cloud.names
        conductors = [name for name in names if name.startswith("conductor")]
        if effect == "broker restart":
            return [BROKER]
        if effect == "database kill":
            return [DATABASE]
        if effect == "cut off from the database":
            return conductors
        if effect in (failpoints.FULL, "hypervisor hangs", "builds fail"):
            return self.cloud.computes
        if effect in (failpoints.DROP, failpoints.DUPLICATE):
            return [*conductors, *self.cloud.computes, "api"]
        return names

    @contextlib.contextmanager
    def _doing(self, effect: str, target: str) -> Iterator[None]:
        if effect in POINTS:
            with self._hooked(effect, target):
                yield
            return
        begin, end = self._pair(effect, target)
        begin()
        try:
            yield
        finally:
            end()

    def _pair(self, effect: str, target: str) -> tuple[Callable[[], None], Callable[[], None]]:
        cloud = self.cloud
        match effect:
            case "kill":
                return lambda: self._kill(target), lambda: self._start(target)
            case "pause":
                return lambda: cloud.signal(target, signal.SIGSTOP), lambda: cloud.signal(target, signal.SIGCONT)
            case "cut off from the broker":
                return cloud.brokers[target].cut, cloud.brokers[target].restore
            case "unheard at the broker":
                return cloud.brokers[target].mute, cloud.brokers[target].unmute
            case "cut off from the database":
                return cloud.databases[target].cut, cloud.databases[target].restore
            case "broker restart":
                return cloud.lose_broker, cloud.new_broker
            case "database kill":
                return self.database.kill, self.database.start
            case "hypervisor hangs":
                return lambda: cloud.control_host(target, hang_at=["*"]), lambda: cloud.control_host(target)
            case "builds fail":
                failing = {"fail_at": ["spawn_before_domain", "finish_migration"]}
                return lambda: cloud.control_host(target, **failing), lambda: cloud.control_host(target)
        raise AssertionError(effect)

    def _kill(self, name: str) -> None:
        self.down.add(name)
        self.cloud.kill(name)

    def _start(self, name: str) -> None:
        self.cloud.start(name)
        self.down.discard(name)

    @contextlib.contextmanager
    def _hooked(self, effect: str, target: str) -> Iterator[None]:
        """Use a failpoint for the duration of the block. An effect that has fired lasts for its own seconds."""
        seconds = self._seconds(effect)
        with self._lock:
            self._count += 1
            where: dict[str, object] = {"daemon": target, "point": POINTS[effect]}
            rule = {"id": str(self._count), "effect": effect, "seconds": seconds, **where}
            self._rules.append(rule)
            self._tell()
        try:
            yield
        finally:
            with self._lock:
                self._rules.remove(rule)
                self._tell()

    def _tell(self) -> None:
        draft = self.cloud.control.with_suffix(".draft")
        draft.write_text(json.dumps(self._rules))
        draft.replace(self.cloud.control)

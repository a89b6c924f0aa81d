"""Makes a storm: a cloud of armed hosts, guests that count, a client and a nemesis; calm; and the judgement."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import random
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import requests

from nova_lite.compute import guard
from tests.faults import guards, matrix, threads
from tests.faults.history import daemon as history_daemon
from tests.faults.history.events import Fault, Recorder
from tests.faults.history.site import HistoryCloud
from tests.faults.private import PrivateDatabase
from tests.faults.storm.guests import Guests, Outage
from tests.faults.storm.losses import HostNemesis
from tests.support.waiting import polls

#: The shortest lease there is, so that many losses fit into the time.
LEASE = 30
CONFIG = f"""
[compute]
self_fencing = true
self_fencing_lease = {LEASE}
"""

PROTECTED = {"ha:restart": "always", "ha:local-disk": "rebuild", "ha:attempts": "99"}

COMPUTES, GUESTS = 4, 8

#: Seconds of an action, until a storm is over at most, and between two requests of the client at most.
DEADLINE, BOUND, REST = 60, 300.0, 6.0


@dataclasses.dataclass
class Outcome:
    """Outcome of a storm. ``problems``: what is wrong at the end."""

    events: int
    outages: list[Outage]
    twice: set[str]
    wrong: dict[str, str]
    problems: list[str]

    def __str__(self) -> str:
        seconds = [item.ended - item.began for item in self.outages if item.ended is not None]
        longest, median = (max(seconds), statistics.median(seconds)) if seconds else (0.0, 0.0)
        return (
            f"{self.events} events; guests were lost {len(self.outages)} times and came back {len(seconds)} times, "
            f"the last after {longest:.0f} s, half of them within {median:.0f} s; {len(self.twice)} ran twice, "
            f"{len(self.wrong)} counters are wrong, {len(self.problems)} problems at the end"
        )

    @property
    def is_good(self) -> bool:
        lost = [item for item in self.outages if item.ended is None]
        return bool(self.outages) and not (lost or self.twice or self.wrong or self.problems)


class StormCloud(HistoryCloud):
    """A cloud of hosts that fence themselves, whose clocks run at wrong rates."""

    def __init__(self, path: Path, server: PrivateDatabase, seed: int) -> None:
        super().__init__(path, server, COMPUTES, DEADLINE, "")
        self.extra_config += CONFIG
        words = (str(seed), str(guard.now()), history_daemon.NONE)
        self.launcher = ("tests.faults.storm.daemon", *words)

    def make(self) -> None:
        super().make()
        for host in self.computes:
            (self.path / host / "boot-id").write_text("first")


class Client:
    """Keeps a number of protected guests, and deletes, moves and reboots some of them."""

    def __init__(self, running: StormCloud, guests: Guests, seed: int) -> None:
        self._cloud = running
        self._guests = guests
        self._random = random.Random(f"client {seed}")

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(self._random.uniform(0, REST)):
            with contextlib.suppress(requests.RequestException, AssertionError, ValueError, KeyError):
                self._act()

    def _act(self) -> None:
        servers = self._cloud.servers()
        for server in servers:
            if server["status"] == "ERROR" and server["id"] not in self._guests.expected:
                self._delete(server["id"])  # Its build has failed.
        if len(servers) < GUESTS:
            self._cloud.create(metadata=PROTECTED)
            return
        server = self._random.choice(servers)["id"]
        match self._random.choices(["delete", "live", "reboot"], [3, 4, 2])[0]:
            case "delete":
                self._delete(server)
            case "live":
                body = {"os-migrateLive": {"block_migration": True, "disk_over_commit": False, "host": None}}
                self._cloud.action(server, body)
            case "reboot":
                self._cloud.action(server, {"reboot": {"type": "HARD"}})

    def _delete(self, server: str) -> None:
        self._guests.forget(server)
        self._cloud.request("DELETE", f"/servers/{server}")


@contextlib.contextmanager
def _cloud(path: Path, seed: int) -> Iterator[tuple[StormCloud, PrivateDatabase]]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(PrivateDatabase(path / "database"))
        made = StormCloud(path, server, seed)
        for proxy in (*made.brokers.values(), *made.databases.values()):
            stack.enter_context(proxy)
        stack.callback(guards.end, path)
        stack.callback(made.destroy)
        made.make()
        made.start_all()
        yield made, server


def storm(path: Path, file: Path, seconds: float, seed: int) -> Outcome:
    """Make a storm. Its events go to ``file``, logs to ``path``."""
    failures: list[BaseException] = []
    with contextlib.ExitStack() as stack:
        recorder = stack.enter_context(Recorder(file))
        running, server = stack.enter_context(_cloud(path, seed))
        guests = Guests(running, path / "guests")
        stack.callback(guests.close)
        running.wait_active(running.create(count=GUESTS, metadata=PROTECTED))
        nemesis = HostNemesis(running, server, recorder, seed, guests)
        with threads.running([nemesis.keep_alive], failures):
            with (
                threads.running([Client(running, guests, seed).run], failures),
                threads.running(nemesis.runs, failures),
            ):
                for _ in polls(seconds, 0.5):
                    if failures or guests.twice or guests.wrong:
                        break
            problems = _wait_for_calm(running, guests)
            outages = guests.outages
        if failures:
            raise failures[0]
    return Outcome(recorder.count, outages, guests.twice, guests.wrong, problems)


def _wait_for_calm(running: StormCloud, guests: Guests) -> list[str]:
    """Wait until all is as it has to be, and return what is not after `BOUND` seconds."""
    for _ in polls(BOUND, 1):
        if not (problems := _problems(running, guests)):
            return _audit(running)
    return problems


def _problems(running: StormCloud, guests: Guests) -> list[str]:
    try:
        servers = running.servers()
    except (requests.RequestException, AssertionError) as error:
        return [f"the API does not answer: {error}"]
    found = []
    rows: dict[str, set[str]] = {host: set() for host in running.computes}
    for server in servers:
        host, expected = server["OS-EXT-SRV-ATTR:host"], server["id"] in guests.expected
        if server["OS-EXT-STS:task_state"] or (expected and server["status"] != "ACTIVE"):
            words = (server["status"], server["OS-EXT-STS:task_state"], host, server.get("fault", {}).get("message"))
            found.append(f"server {server['id']}: {words}")
        if server["status"] == "ACTIVE":
            rows.get(host, set()).add(server["id"])
    found += [f"server {guest} is gone" for guest in guests.expected - {server["id"] for server in servers}]
    for host, wanted in rows.items():
        if (there := guests.at(host)) != wanted:
            found.append(f"{host} runs {sorted(there - wanted)} in excess, and not {sorted(wanted - there)}")
    return found


def _audit(running: StormCloud) -> list[str]:
    try:
        running.audit()
    except AssertionError as error:
        return [str(error)]
    except subprocess.TimeoutExpired:
        return ["the audit takes too long"]
    return []


def _figures(file: Path) -> Any:
    faults = [msgspec.json.decode(line, type=Fault) for line in file.read_bytes().splitlines()]
    return collections.Counter(fault.effect for fault in faults).most_common()


def main(minutes: float, seed: int) -> int:
    print(f"Seed {seed}, {minutes:g} minutes. Real daemons, broker and database; fake hypervisors.", flush=True)
    logs = Path(tempfile.mkdtemp(prefix="nova-lite-storm-"))
    with tempfile.TemporaryDirectory(prefix="nova-lite-storm-cloud-") as directory:
        path = Path(directory)
        try:
            outcome = storm(path, logs / "events.jsonl", minutes * 60, seed)
        except BaseException:
            print(f"It did not come to its end; logs are in {matrix.keep_logs(path, logs)}", flush=True)
            raise
        print("| Event | Times |\n|---|---|")
        for effect, times in _figures(logs / "events.jsonl"):
            print(f"| {effect} | {times} |")
        for line in (*outcome.problems, *map(str, outcome.wrong.items()), *outcome.twice):
            print(line)
        for item in sorted(outcome.outages, key=lambda item: item.began):
            with (logs / "outages").open("a") as text:
                print(item.guest, item.began, item.ended and item.ended - item.began, file=text)
        if not outcome.is_good:
            print(f"Logs are in {matrix.keep_logs(path, logs)}")
    print(outcome, flush=True)
    return 0 if outcome.is_good else 1

"""A cloud of many hosts and servers under a steady load, to find what grows over time.

Simulated compute hosts (each with its own queue and key, in a few processes; tests/functional/fleet.py) work with
the real conductor, scheduler and API. RabbitMQ runs on loopback; a private MariaDB is filled with servers first.
Needs `mariadb-server`::

    benchmarks/soak.py --hosts 1000 --rows 100000 --minutes 90 --json soak.json --png soak
    benchmarks/soak.py --hosts 1000 --rows 0 --creates-per-second 40 --minutes 10 --alive 100000 --projects 1000 \
        --death-seconds 0 --json creates.json
    benchmarks/soak.py --judge soak.json --png soak

Every ten seconds it takes a sample, first idle and then under load. A sample has the memory (PSS) of each daemon,
queue depths, statements a second (the database's own counter), and messages a second to conductor and scheduler
(their metrics). It also has the conductor's sweep: duration, rows of the first statement, and retried actions, which
mostly belong to dead hosts. It has the time to accept a create as well.

For each series it prints the trend, and whether it is flat (benchmarks/flatness.py). The exit status is 0 if all
required series are flat, and every accepted create ended ACTIVE or deleted. The database's memory counts only if
servers are deleted as well. ``--png`` needs matplotlib.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib.util
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent import futures
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nova_lite.base import concurrency

concurrency.setup(concurrency.THREADING)

import requests  # noqa: E402

from benchmarks.flatness import trend  # noqa: E402
from tests.faults.private import PrivateDatabase  # noqa: E402
from tests.functional import simulated  # noqa: E402

#: Has to be flat: memory, queues, what a sweep reads, and statements; times follow what else the machine does.
JUDGED = ("pss_mb", "queue", "sweep_rows", "statements_per_second")

#: Values below this count as flat, whatever their growth: messages in queues.
SMALL = {"queue": 20.0}


class Load:
    """Creates at a steady rate whatever the answers; as many deletes, once ``alive`` servers are there; lists."""

    def __init__(self, running: simulated.Simulated, rate: float, alive: int, lists: float, projects: int) -> None:
        self.cloud = running
        self.projects = projects
        self.rate = rate
        self.alive = alive
        self.lists = lists
        self.accepted: list[float] = []
        #: Seconds that it took, each of them.
        self.waits: list[float] = []
        self.refused: collections.Counter[str] = collections.Counter()
        self.count = 0
        self._servers: collections.deque[str] = collections.deque()
        self._pool = futures.ThreadPoolExecutor(32)
        self._sessions = threading.local()
        self._lock = threading.Lock()

    def run(self, stop: threading.Event) -> None:
        began = time.monotonic()
        listed = 0
        for number in range(10**9):
            if stop.wait(max(0.0, began + number / self.rate - time.monotonic())):
                break
            self._pool.submit(self._create, number)
            with self._lock:
                old = self._servers.popleft() if len(self._servers) > self.alive else None
            if old is not None:
                self._pool.submit(self._ask, "DELETE", f"/servers/{old}", None)
            if time.monotonic() - began > listed / self.lists:
                listed += 1
                self._pool.submit(self._ask, "GET", "/servers/detail?limit=50", None)
        self._pool.shutdown()

    def _create(self, number: int) -> None:
        server = {"name": f"soak-{number}", "imageRef": self.cloud.image_id, "flavorRef": "1"}
        body = {"server": server}
        asked = time.perf_counter()
        answer = self._ask("POST", "/servers", body, f"demo{number % self.projects or ''}")
        if answer is not None and answer.status_code == 202:
            with self._lock:
                self.accepted.append(time.perf_counter() - asked)
                self.waits.append(self.accepted[-1])
                self._servers.append(answer.json()["server"]["id"])
                self.count += 1

    def _ask(self, method: str, path: str, body: Any, project: str = "demo") -> requests.Response | None:
        if not hasattr(self._sessions, "session"):
            self._sessions.session = requests.Session()
        headers = {"X-Auth-Token": f"admin:{project}"}
        url = f"http://127.0.0.1:{self.cloud.port}/v2.1{path}"
        try:
            answer: requests.Response = self._sessions.session.request(
                method, url, json=body, headers=headers, timeout=60
            )
        except requests.RequestException as error:
            self.refused[type(error).__name__] += 1
            return None
        if answer.status_code >= 300:
            self.refused[f"{method} {answer.status_code}"] += 1
        return answer

    def times(self) -> list[float]:
        """Return the times since the last call."""
        with self._lock:
            found, self.accepted = self.accepted, []
        return found


def churn(running: simulated.Simulated, every: float, away: float, stop: threading.Event) -> None:
    """Kill one host after the other and bring it back."""
    own = random.Random(1)
    gone: collections.deque[tuple[float, str]] = collections.deque()
    while not stop.wait(every):
        name = own.choice([name for name in running.hosts if name not in [host for _, host in gone]])
        running.tell("die", [name])
        gone.append((time.monotonic() + away, name))
        while gone and gone[0][0] < time.monotonic():
            running.tell("back", [gone.popleft()[1]])
    running.tell("back", [name for _, name in gone])


class Sampler:
    """Differences since the sample before, by the second."""

    def __init__(self, running: simulated.Simulated, database: PrivateDatabase) -> None:
        self.cloud = running
        self.pids = {name: process.pid for name, process in running.processes.items()}
        self.pids["mariadb"] = database.pid
        #: Other processes that take part. The broker's count where it runs on this machine.
        self.others = {f"hosts {number}": fleet.pid for number, fleet in enumerate(running.fleets)}
        self.others |= {"client": os.getpid()}
        if broker := broker_pid():
            self.others["broker"] = broker
        self._before: dict[str, float] | None = None

    def sample(self, began: float, times: list[float]) -> dict[str, Any] | None:
        """Return a sample; None for the first."""
        conductor, scheduler = self.cloud.metrics("conductor"), self.cloud.metrics("scheduler")
        now = {
            "time": time.monotonic(),
            "statements": float(self.cloud.statements()),
            "sweeps": conductor["nova_lite_reconcile_duration_seconds_count"],
            "sweep_seconds": conductor["nova_lite_reconcile_duration_seconds_sum"],
            "redrives": conductor.get("nova_lite_action_retries_total", 0.0),
            "to_conductor": conductor["nova_lite_rpc_seconds_count"],
            "to_scheduler": scheduler["nova_lite_rpc_seconds_count"],
            **{f"cpu_{name}": cpu(pid) for name, pid in (self.pids | self.others).items()},
            **machine(),
        }
        before, self._before = self._before, now
        if before is None:
            return None
        gone = now["time"] - before["time"]
        per_second = {name: (now[name] - before[name]) / gone for name in now}
        depths = self.cloud.depths()
        hosts = [depth for name, depth in depths.items() if name.startswith("compute.")]
        row = {
            "t": now["time"] - began,
            **{f"pss_mb {name}": pss(pid) / 1024 for name, pid in self.pids.items()},
            **{f"cpu_percent {name}": 100 * per_second[f"cpu_{name}"] for name in self.pids},
            **{
                f"cpu_percent {kind}": 100 * sum(per_second[f"cpu_{item}"] for item in self.others if kind in item)
                for kind in ("hosts", "client", "broker")
            },
            **{f"machine_percent {name}": 100 * per_second[name] for name in machine()},
            "queue conductor": depths["conductor"] + depths["conductor.controller"],
            "queue scheduler": depths["scheduler"] + depths["scheduler.controller"],
            "queue hosts": sum(hosts),
            "queue fullest host": max(hosts),
            "sweep_ms": 1000 * per_second["sweep_seconds"] / max(per_second["sweeps"], 1e-9),
            "sweep_rows": float(self.cloud.rows_of_a_look()),
            "redrives_per_second": per_second["redrives"],
            "statements_per_second": per_second["statements"],
            "messages_per_second conductor": per_second["to_conductor"],
            "messages_per_second scheduler": per_second["to_scheduler"],
            "creates_per_second": len(times) / gone,
            "actions open": conductor.get("nova_lite_actions_open", 0.0),
            "oldest due_s": conductor.get("nova_lite_action_oldest_due_seconds", 0.0),
        }
        row |= percentiles("accept", times)
        return {name: round(value, 3) for name, value in row.items()}


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def broker_pid() -> int | None:
    """Return RabbitMQ's pid if it runs on this machine: the largest Erlang process, as its tools are Erlang
    processes, too.
    """
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if (path / "comm").read_text().strip() == "beam.smp":
                found.append((int((path / "statm").read_text().split()[1]), int(path.name)))
    return max(found)[1] if found else None


def machine() -> dict[str, float]:
    """Return CPU seconds of the machine since its start: idle, waiting for disks, and stolen by other machines."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    ticks = os.sysconf("SC_CLK_TCK")
    return {name: int(fields[place]) / ticks for name, place in (("idle", 3), ("waits", 4), ("stolen", 7))}


def pss(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def soak(options: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Return the result: settings, idle and load samples, and the outcome of the servers."""
    with ExitStack() as stack:
        database = stack.enter_context(PrivateDatabase(path / "database", options.buffer_pool))
        simulated.Simulated.forked = False  # their memory would be shared
        running = stack.enter_context(
            simulated.running(
                path,
                options.hosts,
                options.rows,
                database=database.url.replace("mysql", f"mysql+{options.driver}", 1),
                processes=options.processes,
                beat=options.beat,
                compare=options.compare_seconds,
                filters=options.filter_seconds,
                conductors=options.conductors,
            )
        )
        print(f"{options.hosts} hosts and {options.rows} rows are there", flush=True)
        sampler = Sampler(running, database)
        load = Load(running, options.creates_per_second, options.alive, options.lists_per_second, options.projects)
        stop = threading.Event()
        works: list[Callable[[threading.Event], None]] = [load.run]
        if options.death_seconds:
            works.append(lambda stop: churn(running, options.death_seconds, options.away_seconds, stop))
        began = time.monotonic()
        rest = sampled(sampler, load, began, options.rest, options.interval)
        with futures.ThreadPoolExecutor() as pool:
            done = [pool.submit(work, stop) for work in works]
            try:
                at_load = sampled(sampler, load, time.monotonic(), options.minutes * 60, options.interval)
            finally:
                stop.set()
        for item in done:
            item.result()
        ended = outcome(running, options.settle) | percentiles("accept", load.waits)
        counts = running.counts()
    settings = {name: value for name, value in vars(options).items() if isinstance(value, int | float)}
    return {
        "settings": settings,
        "cpus": os.cpu_count(),
        "rest": rest,
        "load": at_load,
        "accepted": load.count,
        "refused": dict(load.refused),
        "outcome": ended,
        "hosts": counts,
    }


def sampled(sampler: Sampler, load: Load, began: float, seconds: float, interval: float) -> list[dict[str, Any]]:
    rows = []
    end = time.monotonic() + seconds
    sampler._before = None
    while (now := time.monotonic()) < end:
        row = sampler.sample(began, load.times())
        if row is not None:
            rows.append(row)
            print(json.dumps(row), flush=True)
        time.sleep(max(0.0, interval - (time.monotonic() - now)))
    return rows


def outcome(running: simulated.Simulated, seconds: float) -> dict[str, Any]:
    """Return the outcome of the load's servers: their number by state after they had time to settle, and the
    duration of builds by the database's clock.
    """
    query = "SELECT vm_state, task_state IS NOT NULL, COUNT(*) FROM instances WHERE display_name LIKE 'soak-%%' "
    query += "GROUP BY 1, 2"
    end = time.monotonic() + seconds
    while True:
        with running.engine.connect() as connection:
            states = {(state, bool(busy)): count for state, busy, count in connection.exec_driver_sql(query)}
            waits = connection.exec_driver_sql(
                "SELECT TIMESTAMPDIFF(MICROSECOND, created_at, launched_at) / 1000 FROM instances "
                "WHERE display_name LIKE 'soak-%%' AND launched_at IS NOT NULL"
            )
            times = [float(wait) / 1000 for (wait,) in waits]
        busy = sum(count for (state, task), count in states.items() if task or state == "building")
        if not busy or time.monotonic() > end:
            break
        time.sleep(1)
    found: dict[str, Any] = collections.Counter()
    for (state, _), count in states.items():
        found[state] += count
    return {"states": dict(found), "busy": busy} | percentiles("active", times)


def percentiles(word: str, seconds: list[float]) -> dict[str, float]:
    """Return percentiles in ms; nothing for no values."""
    if not seconds:
        return {}
    p99 = sorted(seconds)[min(len(seconds) - 1, int(len(seconds) * 0.99))]
    return {f"{word}_p50_ms": round(1000 * statistics.median(seconds), 3), f"{word}_p99_ms": round(1000 * p99, 3)}


def judged(result: dict[str, Any]) -> list[str]:
    """Print the trends and return the violations."""
    wrong = []
    rows = result["load"]
    for name in [name for name in rows[-1] if name != "t"]:
        series = [(row["t"], row[name]) for row in rows if name in row]
        try:
            found = trend(*zip(*series, strict=True))
        except ValueError as error:
            wrong.append(f"{name}: {error}")
            continue
        kind = name.split()[0]
        flat = found.flat or found.median < SMALL.get(kind, 0.0)
        is_judged = kind in JUDGED and not (name == "pss_mb mariadb" and only_creates(result))
        verdict = "flat" if flat else "GROWS" if is_judged else "grows"
        print(f"{name:32s} median {found.median:10.2f}  growth {found.growth * 100:7.1f} %  {verdict}")
        if not flat and is_judged:
            wrong.append(f"{name} grows by {found.growth * 100:.1f} %")
    ended = result["outcome"]
    if not result["accepted"]:
        wrong.append("no create was accepted")
    if ended["busy"]:
        wrong.append(f"{ended['busy']} servers have not settled")
    if ended["states"].get("error"):
        wrong.append(f"{ended['states']['error']} servers are in ERROR")
    if sum(ended["states"].values()) != result["accepted"]:
        wrong.append(f"{result['accepted']} creates were accepted, and {sum(ended['states'].values())} have rows")
    return wrong


def only_creates(result: dict[str, Any]) -> bool:
    """Check whether no server was deleted, so that the database grows all the time and caches it as far as it may."""
    return bool(result["accepted"] <= result["settings"]["alive"])


PLOTS = ("pss_mb", "cpu_percent", "queue", "sweep_ms", "statements_per_second", "messages_per_second", "accept")


def plot(result: dict[str, Any], directory: Path) -> None:
    """Draw one picture for each kind of series."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    directory.mkdir(parents=True, exist_ok=True)
    rows = result["load"]
    for kind in PLOTS:
        figure, axes = pyplot.subplots(figsize=(8, 3), layout="constrained")
        for name in [name for name in rows[-1] if name.startswith(kind)]:
            series = [(row["t"] / 60, row[name]) for row in rows if name in row]
            axes.plot(*zip(*series, strict=True), label=name.removeprefix(kind).strip(" _") or kind, linewidth=1)
        axes.set(xlabel="minutes", ylabel=kind, ylim=(0, None))
        axes.legend(fontsize="small", ncols=3)
        figure.savefig(directory / f"{kind}.png", dpi=110)
        pyplot.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument(
        "--processes", type=int, default=1, help="that simulate the hosts; each more takes CPU from what is measured"
    )
    parser.add_argument("--conductors", type=int, default=1, help="daemons that share the work")
    parser.add_argument("--rows", type=int, default=100000, help="servers that are there before; half are deleted")
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--rest", type=float, default=60, help="seconds that are sampled before the load begins")
    parser.add_argument("--creates-per-second", type=float, default=2)
    parser.add_argument("--lists-per-second", type=float, default=0.5, help="of 50 servers each")
    parser.add_argument(
        "--alive", type=int, default=200, help="servers of the load, beyond which the oldest is deleted"
    )
    parser.add_argument("--projects", type=int, default=1, help="whose servers the load's are, in turn")
    parser.add_argument(
        "--driver",
        choices=("pymysql", "mysqldb"),
        default="mysqldb",
        help="of MariaDB",
    )
    parser.add_argument("--buffer-pool", type=int, default=128, help="of MariaDB, in MiB; its own default is 128")
    parser.add_argument("--beat", type=float, default=10, help="seconds between two heartbeats of a host")
    parser.add_argument("--compare-seconds", type=float, default=30, help="between two comparisons of a host's domains")
    parser.add_argument(
        "--filter-seconds", type=float, default=60, help="between two queries of a host for filter rules"
    )
    parser.add_argument("--death-seconds", type=float, default=20, help="between two hosts' deaths; 0: none dies")
    parser.add_argument("--away-seconds", type=float, default=90, help="for which a host is dead")
    parser.add_argument("--interval", type=float, default=10, help="seconds between two samples")
    parser.add_argument("--settle", type=float, default=240, help="seconds in which all has to settle at the end")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--png", type=Path, help="draw the series into this directory")
    parser.add_argument("--judge", type=Path, metavar="RESULT", help="instead: judge (and draw) a result again")
    options = parser.parse_args()
    if options.png and importlib.util.find_spec("matplotlib") is None:
        parser.error("--png needs matplotlib, which is not installed: pip install matplotlib")
    for name in ("projects", "conductors", "buffer_pool"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} takes a number from 1; it was given {getattr(options, name)}")
    if options.judge:
        result = json.loads(options.judge.read_text())
    else:
        with tempfile.TemporaryDirectory(prefix="nova-lite-soak-") as directory:
            result = soak(options, Path(directory))
        if options.json:
            options.json.write_text(json.dumps(result, indent=1) + "\n")
    wrong = judged(result)
    print(json.dumps({name: result[name] for name in ("accepted", "refused", "outcome", "hosts")}))
    if options.png:
        plot(result, options.png)
    for item in wrong:
        print(item)
    print(f"{len(wrong)} not as it has to be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

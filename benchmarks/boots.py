"""Speed of boots and deletes: create, wait until all are ACTIVE, delete, through the REST API.

Against any endpoint of the Compute API::

    benchmarks/boots.py --url http://127.0.0.1:8774/v2.1 --token admin:demo --image ID --flavor ID

or, without ``--url``, on a private cloud of daemons with fake hypervisors, once per ``--mode``, for a comparison
within one run (needs RabbitMQ on loopback)::

    benchmarks/boots.py --mode threading,eventlet --count 200 --json result.json
    benchmarks/boots.py --queues classic,durable,quorum
    benchmarks/boots.py --database sqlite,mysql://…,postgresql+psycopg://…    # empty ones
    benchmarks/boots.py --conductors 1,2,4 --database mariadb,postgresql --private

Rows: ``mode``, ``queues``, ``database``, ``conductors``, ``count``, ``parallel``, ``boots_per_second`` (first
request to last ACTIVE), ``post_ms`` and ``deletes_per_second``. On a private cloud also ms of CPU of a boot and a
delete together: ``cpu_ms`` of all daemons, of which ``api_ms``, ``conductor_ms`` (all conductors), ``scheduler_ms`` and
``compute_ms``; ``broker_ms`` (``beam.smp``) and ``database_ms`` (``mariadbd``, ``postgres``). ``cores``: how many of
the machine's cores all of these used on average.

With ``--private``, broker and database run for this program alone, so that no other program's CPU is counted.
``--database`` then takes ``mariadb`` and ``postgresql``.

The results are medians of ``--runs`` runs. Each of ``--rounds`` goes through all kinds, so that a slowing machine
affects them equally. On a shared machine compare CPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent import futures
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import requests

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


#: Kinds of queues, by what ``[oslo_messaging_rabbit]`` says (docs/howto/message-broker.md).
QUEUES = {
    "classic": "",
    "durable": "amqp_durable_queues = true\n",
    "quorum": "rabbit_quorum_queue = true\nrabbit_transient_quorum_queue = true\n",
}


SQLITE = "sqlite"
#: Databases that ``--private`` starts.
PRIVATE = ("mariadb", "postgresql")


class Client:
    def __init__(self, url: str, token: str, image: str, flavor: str) -> None:
        self.url = url.rstrip("/")
        self.image = image
        self.flavor = flavor
        self.session = requests.Session()
        self.session.headers["X-Auth-Token"] = token
        self.session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=64))

    def request(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.session.request(method, self.url + path, json=body, timeout=120)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def create(self, name: str) -> float:
        """Ask for one server; returns how long the answer took, in seconds."""
        server = {"name": name, "imageRef": self.image, "flavorRef": self.flavor}
        started = time.perf_counter()
        self.request("POST", "/servers", {"server": server})
        return time.perf_counter() - started

    def servers(self, name: str) -> list[dict[str, Any]]:
        """Return all servers of this name, over all pages."""
        found: list[dict[str, Any]] = []
        marker = ""
        while page := self.request("GET", f"/servers/detail?name=^{name}&limit=1000{marker}")["servers"]:
            found += page
            marker = f"&marker={page[-1]['id']}"
        return found


def measure(client: Client, count: int, parallel: int, deadline: float) -> dict[str, float]:
    """Measure one run. Fails if a server is not ACTIVE, and later gone, within ``deadline`` seconds."""
    name = f"bench{time.monotonic_ns()}x"
    with futures.ThreadPoolExecutor(parallel) as pool:
        started = time.perf_counter()
        posts = list(pool.map(lambda number: client.create(f"{name}{number}"), range(count)))
        servers = wait(lambda: settled(client.servers(name), count), deadline)
        booted = time.perf_counter() - started
        failed = [server for server in servers if server["status"] != "ACTIVE"]
        started = time.perf_counter()
        list(pool.map(lambda server: client.request("DELETE", f"/servers/{server['id']}"), servers))
        wait(lambda: [] if client.servers(name) else [True], deadline)
        deleted = time.perf_counter() - started
    if failed:
        sys.exit(f"{len(failed)} of {count} servers failed: {failed[0].get('fault')}")
    return {
        "boots_per_second": count / booted,
        "post_ms": statistics.median(posts) * 1000,
        "deletes_per_second": count / deleted,
    }


#: Kinds of daemons by the beginning of their names.
DAEMONS = ("api", "conductor", "scheduler", "compute")
#: Processes of the machine that serve all users, and servers of this program alone.
OTHERS = {"broker_ms": ("beam.smp",), "database_ms": ("mariadbd", "postgres")}


def cpu(pids: Mapping[str, int]) -> dict[str, float]:
    """Return CPU seconds so far: of these daemons with their children, and of `OTHERS`.

    With a pid of a server that is one of `OTHERS`, only the processes below it count.
    """
    found = {"cpu_ms": 0.0, **{f"{kind}_ms": 0.0 for kind in DAEMONS}, **dict.fromkeys(OTHERS, 0.0)}
    processes = dict(_processes())
    kinds = {pid: name if name in OTHERS else f"{name.partition('-')[0]}_ms" for name, pid in pids.items()}
    for pid, (name, _, seconds) in processes.items():
        if (kind := _kind(pid, processes, kinds)) is not None:
            found[kind] += seconds
            found["cpu_ms"] += 0.0 if kind in OTHERS else seconds
            continue
        for other, names in OTHERS.items():
            found[other] += seconds if name in names and other not in pids else 0.0
    return found


def _processes() -> Iterator[tuple[int, tuple[str, int, float]]]:
    """Return name, parent and CPU seconds of each process by its pid."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = stat.read_text().rpartition(")")
        except OSError:  # it has ended
            continue
        fields = tail.split()
        seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        yield int(stat.parent.name), (head.partition("(")[2], int(fields[1]), seconds)


def _kind(pid: int, processes: Mapping[int, tuple[str, int, float]], kinds: Mapping[int, str]) -> str | None:
    """Return the kind of the nearest process above, or of this one, that has one."""
    while pid not in kinds:
        if pid not in processes:
            return None
        pid = processes[pid][1]
    return kinds[pid]


def settled(servers: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    done = len(servers) == count and all(server["status"] != "BUILD" for server in servers)
    return servers if done else []


def wait(condition: Any, deadline: float) -> Any:
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.1)
    sys.exit(f"Not finished within {deadline:.0f} s.")


@contextmanager
def endpoint(
    options: argparse.Namespace, mode: str, queues: str, database: str, conductors: str
) -> Iterator[tuple[Client, dict[str, int]]]:
    """Provide a client, and the pids of daemons."""
    if options.url:
        yield Client(options.url, options.token, options.image, options.flavor), {}
        return
    from nova_lite.base import concurrency

    concurrency.setup(concurrency.THREADING)
    from tests.faults import private
    from tests.functional import cloud

    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="nova-lite-bench-"))
        servers: dict[str, int] = {}
        environment = {concurrency.ENVIRONMENT: mode}
        options_of_broker: dict[str, Any] = {}
        if options.private:
            os.chmod(directory, 0o755)  # PostgreSQL runs as another user.
            broker = stack.enter_context(private.PrivateBroker(Path(directory, "broker")))
            kind = private.PrivateDatabase if database == PRIVATE[0] else private.PrivatePostgresql
            server = stack.enter_context(kind(Path(directory, "database")))
            servers, database = {"broker_ms": broker.pid, "database_ms": server.pid}, server.url
            options_of_broker = {"broker_port": broker.port, "broker_control": broker.control}
        capacity = {"vcpus": 10000, "memory_mb": 10**7, "disk_gb": 10**6}
        more: dict[str, Any] = {
            "environment": environment,
            "patient": True,
            "extra_config": f"[oslo_messaging_rabbit]\n{QUEUES[queues]}",
            "database": None if database == SQLITE else database,
            "more": tuple(f"conductor-{number}" for number in range(2, int(conductors) + 1)),
        }
        cloud.Cloud.forked = False
        path = Path(directory, "cloud")
        path.mkdir()
        more |= options_of_broker | capacity
        running = stack.enter_context(cloud.running(path, computes=options.computes, **more))
        for resource in ("instances", "cores", "ram"):
            running.manage("quota", "set", "demo", f"--{resource}", "-1")
        url = f"http://127.0.0.1:{running.port}/v2.1"
        pids = {name: process.pid for name, process in running.processes.items()}
        yield Client(url, "admin:demo", running.image_id, "1"), pids | servers


def _several(options: argparse.Namespace) -> tuple[str, ...]:
    return options.mode, options.queues, options.database, options.conductors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="compute endpoint, up to and with /v2.1; default: a private cloud")
    parser.add_argument("--token", default="admin:demo")
    parser.add_argument("--image")
    parser.add_argument("--flavor")
    parser.add_argument("--mode", default="threading", help="of the private cloud's daemons; several with commas")
    parser.add_argument(
        "--queues", default="classic", help=f"of the private cloud: {', '.join(QUEUES)}; several with commas"
    )
    parser.add_argument("--database", default=SQLITE, help="of the private cloud; several with commas")
    parser.add_argument("--private", action="store_true", help="start a broker and the database for this program alone")
    parser.add_argument("--conductors", default="1", help="how many, of the private cloud; several with commas")
    parser.add_argument("--rounds", type=int, default=1, help="how often all kinds are gone through")
    parser.add_argument("--computes", type=int, default=2, help="hosts of the private cloud")
    parser.add_argument("--count", type=int, default=100, help="servers per run")
    parser.add_argument("--parallel", type=int, default=8, help="requests at the same time")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--deadline", type=float, default=300, help="seconds that a run may take")
    parser.add_argument("--json", help="write the rows to this file")
    options = parser.parse_args()
    if options.url and not (options.image and options.flavor):
        parser.error("--url needs --image and --flavor")
    if options.private and not set(options.database.split(",")) <= set(PRIVATE):
        parser.error(f"--private: --database has to be of {', '.join(PRIVATE)}")
    if not all(conductor.isdecimal() and int(conductor) for conductor in options.conductors.split(",")):
        parser.error(f"--conductors takes numbers from 1, with commas, as in 1,2,4; it was given {options.conductors}")
    kinds: list[tuple[str, ...]] = [("", "", "", "")]
    if not options.url:
        kinds = list(itertools.product(*(item.split(",") for item in _several(options))))
    runs: dict[tuple[str, ...], list[dict[str, float]]] = {kind: [] for kind in kinds}
    for kind in kinds * options.rounds:
        with endpoint(options, *kind) as (client, pids):
            measure(client, min(options.count, 20), options.parallel, options.deadline)
            for _ in range(options.runs):
                before, began = cpu(pids), time.monotonic()
                run = measure(client, options.count, options.parallel, options.deadline)
                if pids:
                    took = time.monotonic() - began
                    used = {key: now - before[key] for key, now in cpu(pids).items()}
                    run |= {key: seconds * 1000 / options.count for key, seconds in used.items()}
                    run["cores"] = sum(used[key] for key in ("cpu_ms", *OTHERS)) / took
                runs[kind].append(run)
    rows = []
    for (mode, queues, database, conductors), item in runs.items():
        row: dict[str, Any] = {"mode": options.url or mode, "queues": queues, "database": database.partition(":")[0]}
        row["conductors"] = conductors
        row |= {"count": options.count, "parallel": options.parallel}
        row |= {key: round(statistics.median(run[key] for run in item), 1) for key in item[0]}
        rows.append(row)
        print(json.dumps(row), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

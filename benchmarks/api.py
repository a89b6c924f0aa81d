"""Speed and cost of a Compute API, measured through that API only: reads, creates, deletes.

Against any endpoint, Nova's too::

    benchmarks/api.py --url http://127.0.0.1:8774/v2.1 --token TOKEN --image ID --flavor ID --pid api=123

or, without ``--url``, on a private cloud of daemons with fake hypervisors (needs RabbitMQ on loopback)::

    benchmarks/api.py --workers 2 --computes 4 --json new.json
    benchmarks/api.py --compare old.json new.json    # benchmarks/plots.py draws them

Each read runs for ``--seconds`` with 1, 8 and 32 requests at once (``--in-flight``). The results are requests a
second, median and 99th percentile in ms, and ms of CPU per request. CPU counts all daemons (of the private cloud, and
each ``--pid``) and this client. All servers are deleted again. On a shared machine compare CPU, not times.

The broker and the database count the messages and statements of an operation, for all users. The counts of an idle
period of the same length are subtracted. The broker is this machine's (of the private cloud, or with
``--messages``). Statements need a MariaDB (``--database``), whose count includes commits; other databases do not
count them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

IN_FLIGHT = (1, 8, 32)
LISTED = 50
DEADLINE = 300.0
POLL = 0.005
#: Seconds that are watched for what is counted while nothing happens.
REST = 5.0

Row = dict[str, Any]


class Client:
    """Client with one open connection per thread."""

    def __init__(self, url: str, token: str, image: str, flavor: str, networks: str = "auto") -> None:
        parts = urlsplit(url)
        self.host, self.port, self.base = parts.hostname or "", parts.port or 80, parts.path.rstrip("/")
        self.headers = {"X-Auth-Token": token, "Content-Type": "application/json"}
        self.server = {"imageRef": image, "flavorRef": flavor, "networks": networks}
        self.local = threading.local()

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        connection = getattr(self.local, "connection", None)
        if connection is None:
            connection = self.local.connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        headers = self.headers | ({"OpenStack-API-Version": "compute 2.37"} if body else {})
        connection.request(method, self.base + path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.will_close:
            connection.close()
        return answer.status, content

    def get(self, path: str) -> Any:
        status, content = self.request("GET", path)
        if status != 200:
            sys.exit(f"GET {path}: {status} {content[:300]!r}")
        return json.loads(content)

    def create(self, name: str, count: int = 1) -> Row:
        """Create servers, and return the first one as it was accepted."""
        server = {**self.server, "name": name, "min_count": count, "max_count": count}
        status, content = self.request("POST", "/servers", {"server": server})
        if status != 202:
            sys.exit(f"POST /servers: {status} {content[:300]!r}")
        accepted: Row = json.loads(content)["server"]
        return accepted

    def wait_one_active(self, server: Row) -> None:
        """Wait for one server with a GET of its own: a list would take as long as a part of the boot."""

        def active() -> bool:
            now = self.get(f"/servers/{server['id']}")["server"]
            if now["status"] == "ERROR":
                sys.exit(f"A server failed: {now.get('fault')}")
            return bool(now["status"] == "ACTIVE")

        wait(active, POLL)

    def named(self, name: str) -> list[Row]:
        """Return all servers of this name, over all pages."""
        found: list[Row] = []
        marker = ""
        while page := self.get(f"/servers/detail?name=^{name}&limit=1000{marker}")["servers"]:
            found += page
            marker = f"&marker={page[-1]['id']}"
        return found

    def wait_active(self, name: str, count: int) -> list[Row]:
        def active() -> list[Row]:
            servers = self.named(name)
            failed = [server for server in servers if server["status"] == "ERROR"]
            if failed:
                sys.exit(f"{len(failed)} servers failed: {failed[0].get('fault')}")
            return servers if len(servers) == count and all(item["status"] == "ACTIVE" for item in servers) else []

        return wait(active, POLL if count == 1 else 0.05)

    def delete(self, server: Row) -> None:
        status, content = self.request("DELETE", f"/servers/{server['id']}")
        if status not in (204, 404):
            sys.exit(f"DELETE: {status} {content[:300]!r}")

    def wait_gone(self, name: str, server: Row | None = None) -> None:
        """Wait until the server, or all of this name, are gone."""
        if server is None:
            wait(lambda: not self.named(name), 0.05)
        else:
            wait(lambda: self.request("GET", f"/servers/{server['id']}")[0] == 404, POLL)


def wait(condition: Callable[[], Any], interval: float) -> Any:
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(interval)
    sys.exit(f"Not finished within {DEADLINE:.0f} s.")


class Counters:
    """Messages and statements so far, as broker and database count them."""

    def __init__(self, messages: bool, database: str | None) -> None:
        self._messages = messages
        counts = database is not None and sa.make_url(database).get_backend_name() in ("mysql", "mariadb")
        self._engine = sa.create_engine(database) if database and counts else None
        #: Counts a second of an idle cloud.
        self._by_themselves = dict.fromkeys(self.read(), 0.0)

    def rest(self) -> None:
        """Measure the idle counts. Call it while nothing happens."""
        before, started = self.read(), time.monotonic()
        time.sleep(REST)
        elapsed = time.monotonic() - started
        self._by_themselves = {name: (now - before[name]) / elapsed for name, now in self.read().items()}

    def since(self, before: dict[str, float], operations: int, seconds: float) -> dict[str, float]:
        """Return the counts per operation since ``before``."""
        by_themselves = self._by_themselves
        return {
            name: round((now - before[name] - by_themselves[name] * seconds) / operations, 2)
            for name, now in self.read().items()
        }

    def read(self) -> dict[str, float]:
        found = {}
        if self._messages:
            command = ["rabbitmqctl", "-q", "eval", "rabbit_global_counters:overview()."]
            told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
            found["messages"] = float(sum(map(int, re.findall(r"messages_received_total => (\d+)", told))))
        if self._engine is not None:
            with self._engine.connect() as connection:
                query = "SHOW GLOBAL STATUS LIKE 'Questions'"
                found["statements"] = float(connection.exec_driver_sql(query).one()[1])
        return found


class Costs:
    """CPU seconds and memory of processes, each with its children; messages and statements."""

    def __init__(self, pids: dict[str, int], counters: Counters | None = None) -> None:
        self.pids = pids
        self.counters = counters or Counters(False, None)

    def so_far(self) -> Row:
        return {"counted": self.counters.read(), "time": time.monotonic(), "cpu": self.cpu()}

    def since(self, before: Row, operations: int, word: str = "") -> Row:
        """Return CPU in ms per operation and process since ``before``. ``word``: prefix of the names."""
        cpu, seconds = self.cpu(), time.monotonic() - before["time"]
        own = {name: round((now - before["cpu"][name]) * 1000 / operations, 2) for name, now in cpu.items()}
        counted = self.counters.since(before["counted"], operations, seconds)
        return {f"{word}{name}": value for name, value in {"cpu_ms": own, **counted}.items()}

    def cpu(self) -> dict[str, float]:
        found = {name: sum(map(self._cpu, self._tree(pid))) for name, pid in self.pids.items()}
        return found | {"client": time.process_time()}

    def memory(self) -> dict[str, float]:
        """Return the proportional set sizes in MB."""
        return {name: round(sum(map(self._pss, self._tree(pid))) / 1024, 1) for name, pid in self.pids.items()}

    @staticmethod
    def _tree(pid: int) -> list[int]:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    @staticmethod
    def _cpu(pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def _pss(pid: int) -> int:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def reads(client: Client, costs: Costs, path: str, in_flight: int, seconds: float) -> Row:
    """Send as many reads as possible in this time."""
    client.get(path)
    before, started = costs.so_far(), time.perf_counter()
    end = started + seconds

    def loop(_: int) -> list[float]:
        times: list[float] = []
        while (begun := time.perf_counter()) < end or not times:
            client.get(path)
            times.append(time.perf_counter() - begun)
        return times

    with futures.ThreadPoolExecutor(in_flight) as pool:
        times = sorted(item for some in pool.map(loop, range(in_flight)) for item in some)
    elapsed = time.perf_counter() - started
    return {
        "per_second": round(len(times) / elapsed, 1),
        "p50_ms": round(statistics.median(times) * 1000, 2),
        "p99_ms": round(times[int(len(times) * 0.99)] * 1000, 2),
        **costs.since(before, len(times)),
    }


def one_by_one(client: Client, costs: Costs, count: int) -> Row:
    """POST to ACTIVE and DELETE to 404, while nothing else continues."""
    booted, deleted = [], []
    before = costs.so_far()
    for number in range(count):
        name = unique(f"one{number}")
        started = time.perf_counter()
        server = client.create(name)
        client.wait_one_active(server)
        booted.append(time.perf_counter() - started)
        started = time.perf_counter()
        client.delete(server)
        client.wait_gone(name, server)
        deleted.append(time.perf_counter() - started)
    return {
        "active_ms": round(statistics.median(booted) * 1000, 1),
        "gone_ms": round(statistics.median(deleted) * 1000, 1),
        **costs.since(before, count),
    }


def many(client: Client, costs: Costs, count: int, in_flight: int, together: bool) -> Row:
    """Create many servers. ``together``: in one POST."""
    name = unique("many")
    row: Row = {}
    with futures.ThreadPoolExecutor(in_flight) as pool:
        before, started = costs.so_far(), time.perf_counter()
        if together:
            client.create(name, count)
        else:
            list(pool.map(lambda number: client.create(f"{name}x{number}"), range(count)))
        row["accepted_per_second"] = round(count / (time.perf_counter() - started), 1)
        servers = client.wait_active(name, count)
        row["active_s"] = round(time.perf_counter() - started, 2)
        row |= costs.since(before, count)
        before, started = costs.so_far(), time.perf_counter()
        list(pool.map(client.delete, servers))
        client.wait_gone(name)
    row["gone_s"] = round(time.perf_counter() - started, 2)
    row |= costs.since(before, count, "delete_")
    return row


def unique(word: str) -> str:
    return f"bench{time.monotonic_ns()}{word}"


def measure(client: Client, costs: Costs, options: argparse.Namespace) -> dict[str, Row]:
    found: dict[str, Row] = {}

    def record(name: str, row: Row) -> None:
        found[name] = row
        print(f"{name:28s} {shown(row)}", flush=True)

    costs.counters.rest()
    listed = unique("listed")
    client.create(listed, LISTED)
    servers = client.wait_active(listed, LISTED)
    paths = {
        "server": f"/servers/{servers[0]['id']}",
        "servers_detail": f"/servers/detail?limit={LISTED}",
        "flavors_detail": "/flavors/detail",
    }
    for name, path in paths.items():
        for in_flight in options.in_flight:
            record(f"{name}, {in_flight} in flight", reads(client, costs, path, in_flight, options.seconds))
    for server in servers:
        client.delete(server)
    client.wait_gone(listed)
    if options.count:
        record("one by one", one_by_one(client, costs, min(20, options.count)))
        record(f"{options.count} POSTs, 8 in flight", many(client, costs, options.count, 8, together=False))
        record(f"one POST of {options.count}", many(client, costs, options.count, 8, together=True))
    record("memory, MB", costs.memory())
    return found


def flat(row: Row) -> dict[str, float]:
    """Sum up CPU to one figure for the daemons and one for the client."""
    values: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            own = value.get("client", 0.0)
            values |= {name: round(sum(value.values()) - own, 2), f"{name} of client": own}
        else:
            values[name] = value
    return values


def shown(row: Row) -> str:
    parts = (f"{key} {json.dumps(value) if isinstance(value, dict) else value}" for key, value in row.items())
    return "  ".join(parts)


def compare(old: dict[str, Row], new: dict[str, Row]) -> None:
    for name in [name for name in old if name in new]:
        before, after = flat(old[name]), flat(new[name])
        for key in [key for key in before if key in after]:
            factor = f"{after[key] / before[key]:8.2f}x" if before[key] else ""
            print(f"{name:28s} {key:22s} {before[key]:10} {after[key]:10} {factor}")


@contextmanager
def endpoint(options: argparse.Namespace) -> Iterator[tuple[Client, Costs]]:
    pids = {name: int(pid) for name, _, pid in (item.partition("=") for item in options.pid)}
    if options.url:
        counters = Counters(options.messages, options.database)
        yield Client(options.url, options.token, options.image, options.flavor, options.networks), Costs(pids, counters)
        return
    from nova_lite.base import concurrency

    concurrency.setup(concurrency.THREADING)
    from tests.functional import cloud

    with tempfile.TemporaryDirectory(prefix="nova-lite-bench-") as directory:
        capacity = {"vcpus": 10000, "memory_mb": 10**7, "disk_gb": 10**6}
        more: dict[str, Any] = {"quota": -1, "database": options.database, "computes": options.computes}
        extra = f"[api]\nworkers = {options.workers}\n"
        if options.conductor_socket:
            extra += f"[rpc]\nconductor_socket = {directory}/conductor.sock\n"
        more |= {"extra_config": extra, "patient": True}
        cloud.Cloud.forked = False  # their memory would be shared
        with cloud.running(Path(directory), **more, **capacity) as running:
            for name, process in running.processes.items():
                pids[name] = process.pid
            url = f"http://127.0.0.1:{running.port}/v2.1"
            counters = Counters(True, options.database)
            yield Client(url, "admin:demo", running.image_id, "1"), Costs(pids, counters)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="compute endpoint, up to and with /v2.1; default: a private cloud")
    parser.add_argument("--token", default="admin:demo")
    parser.add_argument("--image")
    parser.add_argument("--flavor")
    parser.add_argument("--networks", choices=("auto", "none"), default="auto", help="with --url: of the servers")
    parser.add_argument("--pid", action="append", default=[], help="NAME=PID of a process whose costs count, too")
    parser.add_argument("--messages", action="store_true", help="with --url: its broker is this machine's")
    parser.add_argument(
        "--database", help="of the private cloud, an empty one; default: SQLite. With --url: whose statements count"
    )
    parser.add_argument("--workers", type=int, default=1, help="API workers of the private cloud")
    parser.add_argument("--computes", type=int, default=2, help="hosts of the private cloud")
    parser.add_argument("--conductor-socket", action="store_true", help="[rpc] conductor_socket of the private cloud")
    parser.add_argument("--seconds", type=float, default=5, help="how long each read is repeated")
    parser.add_argument("--in-flight", type=int, nargs="+", default=IN_FLIGHT, help="requests at once, in turn")
    parser.add_argument("--count", type=int, default=100, help="servers that are booted at once; 0: only reads")
    parser.add_argument("--json", help="write the result to this file")
    parser.add_argument("--compare", nargs=2, metavar=("OLD", "NEW"), help="show two results side by side")
    options = parser.parse_args()
    if options.compare:
        old, new = (json.loads(Path(file).read_text()) for file in options.compare)
        compare(old, new)
        return 0
    if options.url and not (options.image and options.flavor):
        parser.error("--url needs --image and --flavor")
    with endpoint(options) as (client, costs):
        found = measure(client, costs, options)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

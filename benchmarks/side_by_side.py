"""The table of `docs/explanation/performance.md`: two versions of this tree, interleaved, beside Nova and LXD.

::

    benchmarks/side_by_side.py --old COMMIT --database URL --markdown table.md
    benchmarks/side_by_side.py --old COMMIT --conductor-socket --rounds 1
    benchmarks/side_by_side.py --lxd /var/lib/lxd/unix.socket --rounds 1
    benchmarks/side_by_side.py --nova "--url http://127.0.0.1:8774/v2.1 --image ID --flavor ID --networks none"

Each round runs `benchmarks/api.py` of the old commit, then that of this tree, each on a private cloud with 2 API
processes and 4 fake hosts. A round takes about four minutes on a quiet machine with two cores, so the default of three
rounds takes a quarter of an hour. The result is the median of the rounds. On a busy machine only the ratios of the
CPU times mean something.

``--database``: an empty database of MariaDB or PostgreSQL. It is emptied before each run, so its name has to end in
``_bench``. ``--conductor-socket``: one more column, of this tree with ``[rpc] conductor_socket``. ``--lxd``: the socket
of a running LXD. Its creates start nothing: instances without an image. ``--nova``: arguments of `benchmarks/api.py`
for a running Nova.
"""

from __future__ import annotations

import argparse
import datetime
import http.client
import json
import os
import platform
import re
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import sqlalchemy as sa

TOP = Path(__file__).resolve().parents[1]

Rows = dict[str, dict[str, Any]]

#: A line of the table: its name, the row and the key of a result, and the target.
LINES = (
    ("GET server, 8 in flight, a second", "server, 8 in flight", "per_second", "1,500"),
    ("GET server, alone, ms", "server, 1 in flight", "p50_ms", "1.5"),
    ("list of 50, 8 in flight, a second", "servers_detail, 8 in flight", "per_second", "700"),
    ("list of 50, alone, ms", "servers_detail, 1 in flight", "p50_ms", "3.5"),
    ("flavors/detail, 8 in flight, a second", "flavors_detail, 8 in flight", "per_second", "6,000"),
    ("POST accepted, 8 in flight, a second", "100 POSTs, 8 in flight", "accepted_per_second", "400"),
    ("POST to ACTIVE, idle, ms", "one by one", "active_ms", "20"),
    ("DELETE to 404, idle, ms", "one by one", "gone_ms", "12"),
    ("100 POSTs: ACTIVE, s", "100 POSTs, 8 in flight", "active_s", "0.5"),
    ("100 POSTs: gone, s", "100 POSTs, 8 in flight", "gone_s", "0.6"),
    ("one POST of 100: ACTIVE, s", "one POST of 100", "active_s", "0.4"),
    ("one POST of 100: gone, s", "one POST of 100", "gone_s", "0.6"),
)
#: Lines of CPU time of all daemons, in ms per request.
CPU_LINES = (
    ("CPU of a GET server, ms", "server, 8 in flight", "cpu_ms"),
    ("CPU of a list of 50, ms", "servers_detail, 8 in flight", "cpu_ms"),
    ("CPU of flavors/detail, ms", "flavors_detail, 8 in flight", "cpu_ms"),
    ("CPU of a create, ms", "100 POSTs, 8 in flight", "cpu_ms"),
    ("CPU of a delete, ms", "100 POSTs, 8 in flight", "delete_cpu_ms"),
)


def run(tree: Path, options: argparse.Namespace, *more: str) -> Rows:
    """Run the benchmark of a tree on a private cloud with ``more`` arguments, and return its results."""
    arguments = ["--workers", "2", "--computes", "4", *more]
    if options.database:
        empty(options.database)
        arguments += ["--database", options.database]
    return run_api(tree, options, arguments)


def run_api(tree: Path, options: argparse.Namespace, arguments: list[str]) -> Rows:
    """Run `benchmarks/api.py` of a tree, and return its results."""
    with tempfile.TemporaryDirectory(prefix="nova-lite-side-") as directory:
        result = Path(directory) / "result.json"
        command = [sys.executable, str(tree / "benchmarks/api.py"), *arguments]
        command += ["--seconds", str(options.seconds), "--json", str(result)]
        subprocess.run(command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, check=True)
        rows: Rows = json.loads(result.read_text())
        return rows


def empty(url: str) -> None:
    """Drop all tables of a database whose name says that it is for benchmarks."""
    if not str(sa.make_url(url).database).endswith("_bench"):
        sys.exit("The name of the database has to end in _bench: its tables are dropped.")
    engine = sa.create_engine(url)
    tables = sa.MetaData()
    tables.reflect(engine)
    tables.drop_all(engine)
    engine.dispose()


class Lxd:
    """Client of LXD's REST API on its local socket."""

    def __init__(self, path: str) -> None:
        self._path = path

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("lxd")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self._path)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def wait(self, reply: tuple[int, Any]) -> None:
        """Wait for the operation that a request has started. LXD forgets an operation 5 seconds after its end."""
        status, content = reply
        if status == 202:
            status, content = self.request("GET", f"{content['operation']}/wait?timeout=60")
            if status == 404:
                return
            content = content.get("metadata", {})
        if status >= 400 or content.get("status_code", 200) >= 400:
            sys.exit(f"LXD: {status} {content}")

    def create(self, name: str) -> tuple[int, Any]:
        return self.request("POST", "/1.0/instances", {"name": name, "source": {"type": "none"}})

    def delete(self, name: str) -> tuple[int, Any]:
        return self.request("DELETE", f"/1.0/instances/{name}")


def measure_lxd(path: str, seconds: float) -> Rows:
    """Return the results of LXD, in the form of those of `benchmarks/api.py`."""
    lxd, rows = Lxd(path), {}
    names = [f"bench-{time.monotonic_ns()}-{number}" for number in range(100)]

    def all_of(call: Callable[[str], tuple[int, Any]], some: list[str]) -> tuple[float, float]:
        """Return the seconds until all requests were accepted, and until they were done."""
        started = time.perf_counter()
        with futures.ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(call, some))
            accepted = time.perf_counter() - started
            list(pool.map(lxd.wait, replies))
        return accepted, time.perf_counter() - started

    all_of(lxd.create, names[:50])
    for name, url in (
        ("server", f"/1.0/instances/{names[0]}"),
        ("servers_detail", "/1.0/instances?recursion=1"),
        ("flavors_detail", "/1.0/profiles?recursion=1"),
    ):
        for in_flight in (1, 8):
            times: list[float] = []
            end = time.perf_counter() + seconds

            def loop(_: int, url: str = url, times: list[float] = times, end: float = end) -> None:
                while (begun := time.perf_counter()) < end:
                    lxd.request("GET", url)
                    times.append(time.perf_counter() - begun)

            with futures.ThreadPoolExecutor(in_flight) as pool:
                list(pool.map(loop, range(in_flight)))
            row = {"per_second": len(times) / seconds, "p50_ms": statistics.median(times) * 1000}
            rows[f"{name}, {in_flight} in flight"] = row
    all_of(lxd.delete, names[:50])
    alone: dict[str, list[float]] = {"active_ms": [], "gone_ms": []}
    for name in names[:20]:
        for key, call in (("active_ms", lxd.create), ("gone_ms", lxd.delete)):
            started = time.perf_counter()
            lxd.wait(call(name))
            alone[key].append((time.perf_counter() - started) * 1000)
    rows["one by one"] = {key: statistics.median(times) for key, times in alone.items()}
    accepted, active = all_of(lxd.create, names)
    _, gone = all_of(lxd.delete, names)
    rows["100 POSTs, 8 in flight"] = {
        "accepted_per_second": len(names) / accepted,
        "active_s": active,
        "gone_s": gone,
    }
    return rows


def cpu(value: Any) -> float:
    """Return the CPU time of all daemons, without that of the client."""
    return float(sum(value.values()) - value.get("client", 0.0))


def command_of(arguments: list[str], database: str | None) -> str:
    """Return the command that makes the table again, without the database's password and Nova's token."""
    command = shlex.join(["benchmarks/side_by_side.py", *arguments])
    if database:
        command = command.replace(database, sa.make_url(database).render_as_string(hide_password=True))
    return re.sub(r"--token[= ]+[^\s']+", "--token ***", command)


def table(results: dict[str, list[Rows]], command: str) -> str:
    """Return the medians as a Markdown table, with the date, the machine and the command."""
    names = list(results)

    def cell(name: str, row: str, key: str) -> str:
        values = [rows[row][key] for rows in results[name] if key in rows.get(row, {})]
        if not values:
            return ""
        middle = statistics.median(cpu(value) if isinstance(value, dict) else value for value in values)
        return f"{middle:,.0f}" if middle >= 100 else f"{middle:.2f}" if middle < 10 else f"{middle:.1f}"

    lines = [f"| | {' | '.join(names)} | Target |", "|---" * (len(names) + 2) + "|"]
    for title, row, key, target in LINES:
        lines.append(f"| {title} | {' | '.join(cell(name, row, key) for name in names)} | {target} |")
    for title, row, key in CPU_LINES:
        lines.append(f"| {title} | {' | '.join(cell(name, row, key) for name in names)} | |")
    today = datetime.datetime.now(tz=datetime.UTC).date()
    load = os.getloadavg()[0]
    lines += ["", f"{today}, {os.cpu_count()} cores, {platform.machine()}, load {load:.1f} at the end: `{command}`"]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", help="commit to compare with; default: this tree alone")
    parser.add_argument("--database", help="an empty database, whose name ends in _bench; default: SQLite")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="how long each read is repeated")
    parser.add_argument(
        "--conductor-socket", action="store_true", help="run this tree also with [rpc] conductor_socket"
    )
    parser.add_argument("--lxd", help="socket of LXD; default: without LXD")
    parser.add_argument("--nova", type=shlex.split, help="arguments of api.py for Nova; default: without Nova")
    parser.add_argument("--markdown", help="write the table to this file")
    options = parser.parse_args()
    results: dict[str, list[Rows]] = {}
    with tempfile.TemporaryDirectory(prefix="nova-lite-old-") as directory:
        trees = {"new": TOP}
        if options.old:
            old = Path(directory) / "tree"
            subprocess.run(["git", "-C", str(TOP), "worktree", "add", "-q", "--detach", old, options.old], check=True)
            trees = {"old": old, "new": TOP}
        try:
            for number in range(options.rounds):
                print(f"round {number + 1} of {options.rounds}", flush=True)
                for name, tree in trees.items():
                    results.setdefault(name, []).append(run(tree, options))
                if options.conductor_socket:
                    results.setdefault("new, socket", []).append(run(TOP, options, "--conductor-socket"))
                if options.nova:
                    results.setdefault("Nova", []).append(run_api(TOP, options, options.nova))
                if options.lxd:
                    results.setdefault("LXD", []).append(measure_lxd(options.lxd, options.seconds))
        finally:
            if options.old:
                subprocess.run(["git", "-C", str(TOP), "worktree", "remove", "--force", old], check=True)
    text = table(results, command_of(sys.argv[1:], options.database))
    print(text)
    if options.markdown:
        Path(options.markdown).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

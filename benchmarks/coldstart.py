"""Startup time of each daemon, from exec to readiness, and its memory then.

A private cloud (needs RabbitMQ on loopback) is set up once. Then each daemon is started ``--runs`` times beside the
others, as a program::

    benchmarks/coldstart.py --runs 5 --json result.json

An API is ready when it answers its health check. Another daemon is ready after its first heartbeat: a row of
`os-services` that is newer than the start. ``ready_s`` and ``cpu_s`` (user and system, until then) are medians;
``memory_mb`` is the proportional set size. On a shared machine compare CPU.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.api import Costs

DEADLINE = 60.0
DAEMONS = ("conductor", "scheduler", "compute-1", "api")


def heartbeat(running: Any, name: str) -> str:
    """Return the time of the daemon's last heartbeat; empty before the first."""
    binary = {"conductor": "nova-conductor", "scheduler": "nova-scheduler"}.get(name, "nova-compute")
    with sqlite3.connect(f"file:{running.path}/nova-lite.sqlite?mode=ro", uri=True, timeout=30) as connection:
        query = "SELECT last_seen_up FROM services WHERE binary = ? AND host = ?"
        row = connection.execute(query, (binary, running.host_of(name))).fetchone()
    connection.close()
    return str(row[0]) if row else ""


def answers(running: Any) -> bool:
    try:
        return requests.get(f"http://127.0.0.1:{running.port}/", timeout=5).status_code in (200, 300)
    except requests.RequestException:
        return False


def measured(running: Any, name: str) -> dict[str, float]:
    running.stop(name)
    before = None if name == "api" else heartbeat(running, name)
    is_ready: Callable[[], bool] = (
        (lambda: answers(running)) if name == "api" else (lambda: heartbeat(running, name) != before)
    )
    started = time.perf_counter()
    running.start(name)
    costs = Costs({name: running.processes[name].pid})
    while not is_ready():
        if time.perf_counter() - started > DEADLINE:
            sys.exit(f"{name} was not ready within {DEADLINE:.0f} s:\n{running.log(name)}")
        time.sleep(0.005)
    row = {"ready_s": time.perf_counter() - started, "cpu_s": costs.cpu()[name]}
    row["memory_mb"] = costs.memory()[name]
    running.wait_until_ready()
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", help="write the result to this file")
    options = parser.parse_args()
    from nova_lite.base import concurrency

    concurrency.setup(concurrency.THREADING)
    from tests.functional import cloud

    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="nova-lite-bench-") as directory:
        cloud.Cloud.forked = False
        with cloud.running(Path(directory), patient=True) as running:
            for name in DAEMONS:
                runs = [measured(running, name) for _ in range(options.runs)]
                found[name] = {key: round(statistics.median(run[key] for run in runs), 2) for key in runs[0]}
                print(f"{name:12s} {json.dumps(found[name])}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

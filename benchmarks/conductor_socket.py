"""Gain of ``[rpc] conductor_socket``: two APIs of one cloud, interleaved. One of them uses the conductor's socket.

Needs RabbitMQ on loopback; makes a cloud of its own with fake hypervisors::

    benchmarks/conductor_socket.py --rounds 20 --requests 50 --database URL

A round sends ``--requests`` of each kind to either API, one at a time, in random order. A line per kind shows the
median CPU time in ms of API and conductor for a request, and the median time in ms until its response. Then the median
of the rounds' ratios, socket to broker. The broker's own CPU time is not counted. Ratios tolerate a busy machine.
"""

from __future__ import annotations

import argparse
import math
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.api import Client, Costs, unique
from nova_lite.base import concurrency

concurrency.setup(concurrency.THREADING)

from tests.functional import cloud  # noqa: E402
from tests.support.waiting import wait_for  # noqa: E402

BROKER, SOCKET = "broker", "socket"
KINDS = ("GET server", "list of 50", "POST, ACTIVE, DELETE, 404")


def start_other_api(running: cloud.Cloud, path: Path) -> tuple[int, subprocess.Popen[bytes]]:
    """Start an API without the socket. Return its port."""
    port = cloud.free_port()
    file = path / "broker.conf"
    file.write_text(f"[api]\nenabled_apis = osapi_compute\nport = {port}\n[rpc]\nconductor_socket =\n")
    files = [*running.config_arguments("api"), "--config-file", str(file)]
    command = [sys.executable, "-W", "ignore", "-m", "nova_lite.cmd.api", *files]
    with (path / "broker.log").open("ab") as log:
        return port, subprocess.Popen(command, stdout=log, stderr=log)


def answers(client: Client) -> bool:
    try:
        socket.create_connection((client.host, client.port)).close()
    except OSError:
        return False
    return client.request("GET", "/flavors")[0] == 200


def compare(clients: dict[str, Client], costs: Costs, options: argparse.Namespace) -> None:
    listed = [clients[SOCKET].create(unique("listed")) for _ in range(50)]
    for server in listed:
        clients[SOCKET].wait_one_active(server)
    path = f"/servers/{listed[0]['id']}"

    def boot(client: Client) -> None:
        server = client.create(unique("one"))
        client.wait_one_active(server)
        client.delete(server)
        client.wait_gone("", server)

    requests: dict[str, Callable[[Client], Any]] = {
        KINDS[0]: lambda client: client.get(path),
        KINDS[1]: lambda client: client.get("/servers/detail?limit=50"),
        KINDS[2]: boot,
    }
    cpu: dict[tuple[str, str], list[float]] = defaultdict(list)
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(options.rounds):
        for kind in KINDS:
            for way in random.sample([BROKER, SOCKET], 2):
                count = options.requests if kind != KINDS[2] else max(1, options.requests // 10)
                requests[kind](clients[way])
                before = costs.so_far()
                taken = []
                for _ in range(count):
                    begun = time.perf_counter()
                    requests[kind](clients[way])
                    taken.append((time.perf_counter() - begun) * 1000)
                used = costs.since(before, count)["cpu_ms"]
                cpu[kind, way].append(sum(used.values()) - used["client"])
                times[kind, way].append(statistics.median(taken))
    print(f"{'':28s} CPU: broker, socket, ratio      time: broker, socket, ratio")
    for kind in KINDS:
        cells = []
        for found in (cpu, times):
            pairs = zip(found[kind, BROKER], found[kind, SOCKET], strict=True)
            # A few requests may take less CPU time than the system counts.
            ratio = statistics.median([ours / theirs for theirs, ours in pairs if theirs] or [math.nan])
            medians = (statistics.median(found[kind, way]) for way in (BROKER, SOCKET))
            cells.append("".join(f"{value:8.2f} " for value in medians) + f"{ratio:6.2f}")
        print(f"{kind:28s} {'      '.join(cells)}")
    for server in listed:
        clients[SOCKET].delete(server)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--database", help="an empty one; default: SQLite")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nova-lite-bench-") as directory:
        path = Path(directory)
        extra = f"[rpc]\nconductor_socket = {path}/conductor.sock\n"
        capacity = {"vcpus": 10000, "memory_mb": 10**7, "disk_gb": 10**6}
        cloud.Cloud.forked = False
        more: dict[str, Any] = {"database": options.database, "extra_config": extra, "patient": True, "quota": -1}
        with cloud.running(path, **more, **capacity) as running:
            port, process = start_other_api(running, path)
            try:
                pids = {name: running.processes[name].pid for name in ("conductor", "api")} | {"other": process.pid}
                clients = {
                    way: Client(f"http://127.0.0.1:{port}/v2.1", "admin:demo", running.image_id, "1")
                    for way, port in ((SOCKET, running.port), (BROKER, port))
                }
                wait_for("the other API answers", lambda: answers(clients[BROKER]))
                compare(clients, Costs(pids), options)
            finally:
                process.terminate()
                process.wait(60)
    return 0


if __name__ == "__main__":
    sys.exit(main())

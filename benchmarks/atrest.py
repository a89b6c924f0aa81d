"""Cost of an idle cloud: CPU of the control plane, in percent of one core.

A private cloud (needs RabbitMQ on loopback) with simulated compute hosts (`tests.functional.fleet`), which send
heartbeats and comparisons of domains at the default intervals::

    benchmarks/atrest.py --hosts 0,100 --seconds 30 --database mysql://…

It prints a line of JSON for each number of hosts. `heartbeats` and `messages` count what the conductor receives a
second.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.api import Costs

DAEMONS = ("conductor", "scheduler", "api")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="0,100")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--database", help="an empty one; default: SQLite")
    parser.add_argument("--compare", type=float, default=30.0, help="seconds between a host's comparisons of domains")
    options = parser.parse_args()
    from nova_lite.base import concurrency

    concurrency.setup(concurrency.THREADING)
    from tests.functional import cloud, simulated

    for hosts in map(int, options.hosts.split(",")):
        with tempfile.TemporaryDirectory(prefix="nova-lite-bench-") as directory:
            cloud.Cloud.forked = False
            path = Path(directory)
            with simulated.running(
                path, hosts, processes=1 + hosts // 500, beat=10.0, compare=options.compare, database=options.database
            ) as running:
                time.sleep(11 if hosts else 3)  # each host's first heartbeat is reported in full
                costs = Costs({name: running.processes[name].pid for name in DAEMONS})
                before, beaten = costs.cpu(), running.counts().get("beat", 0)
                received = running.metrics("conductor")["nova_lite_rpc_seconds_count"]
                started = time.perf_counter()
                time.sleep(options.seconds)
                seconds = time.perf_counter() - started
                after = costs.cpu()
                row = {name: round((after[name] - before[name]) / seconds * 100, 2) for name in DAEMONS}
                row["heartbeats"] = round((running.counts().get("beat", 0) - beaten) / seconds, 2)
                arrived = running.metrics("conductor")["nova_lite_rpc_seconds_count"] - received
                row["messages"] = round(arrived / seconds, 2)
                print(json.dumps({"hosts": hosts, **row}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A conductor under five times its capacity: which calls succeed in time, and which are refused.

A private cloud with one compute host (needs RabbitMQ on loopback) and some hundred servers. First a few clients send
calls one after another: that is the capacity. Then ``--times`` as many calls a second are sent for ``--seconds``,
answered or not: lists, reads, creates and deletes, each given up after 10 s. Then it measures the recovery::

    benchmarks/overload.py --seconds 20

A response counts if it came in time. Compare the rows: lists are refused first, deletes never.
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
import threading
import time
from concurrent import futures
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite import objects, rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.rpc import keys
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.functional import cloud

TIMEOUT = 10
CLIENTS = 8
#: Calls of each kind among a hundred.
MIX = {"delete": 5, "create": 5, "read": 20, "list": 70}


class Load:
    """``todo``: servers that may be deleted."""

    def __init__(self, running: cloud.Cloud, servers: list[str]) -> None:
        conf = cfg.CONF
        configuration.register_opts(conf)
        patience = running.path / "patience.conf"
        patience.write_text(f"[DEFAULT]\nrpc_response_timeout = {TIMEOUT}\n")
        conf([*running.config_arguments("api"), "--config-file", str(patience)], default_config_files=[])
        self.transport = rpc.Transport(conf, keys.API)
        self.conductor = rpc.proxy(ConductorRPC, self.transport)
        self.image = running.image_id
        self.kept, self.todo = servers[:10], collections.deque(servers[10:])
        self.kinds = [kind for kind, count in MIX.items() for _ in range(count)]

    def call(self, number: int) -> tuple[str, str, float]:
        """Send a call; return kind, outcome, and seconds."""
        kind = self.kinds[number * 37 % 100]
        context = RequestContext(user_id="admin", project_id="demo")
        started = time.monotonic()
        try:
            getattr(self, kind)(context)
            outcome = "good"
        except exceptions.MessagingUnavailable:
            outcome = "no answer"
        except exceptions.ServiceUnavailable:
            outcome = "refused"
        return kind, outcome, time.monotonic() - started

    def list(self, context: RequestContext) -> None:
        filters = objects.InstanceFilters(project_id="demo")
        self.conductor.instance_list(context, filters, 1000, None, ["created_at"], ["desc"])

    def read(self, context: RequestContext) -> None:
        self.conductor.instance_get(context, self.kept[0])

    def create(self, context: RequestContext) -> None:
        """Create a server that is never built, since that would be other daemons' work. It may be deleted later."""
        request = objects.CreateRequest(name="vm", flavor_id="1", image_ref=self.image, networks="none")
        self.todo.extend(instance.uuid for instance in self.conductor.create_instances(context, request).instances)

    def delete(self, context: RequestContext) -> None:
        try:
            uuid = self.todo.popleft()
        except IndexError:
            raise SystemExit("There is no server left that could be deleted: give more --servers.") from None
        self.conductor.accept_action(context, uuid, "delete", {})


def capacity(load: Load, seconds: float) -> float:
    """Return the calls a second of clients that wait for each response."""
    numbers = iter(range(10**9))
    end = time.monotonic() + seconds

    def client() -> int:
        done = 0
        while time.monotonic() < end:
            done += load.call(next(numbers))[1] == "good"
        return done

    with futures.ThreadPoolExecutor(CLIENTS) as pool:
        return sum(item.result() for item in [pool.submit(client) for _ in range(CLIENTS)]) / seconds


def flood(load: Load, rate: float, seconds: float) -> list[tuple[str, str, float]]:
    answers: list[futures.Future[Any]] = []
    with futures.ThreadPoolExecutor(1500) as pool:
        started = time.monotonic()
        for number in range(int(rate * seconds)):
            time.sleep(max(0.0, started + number / rate - time.monotonic()))
            answers.append(pool.submit(load.call, number))
        sent = time.monotonic() - started
        recovery = threading.Thread(target=recovered, args=(load,))
        recovery.start()
    recovery.join()
    print(f"sent within {sent:.1f} s: {len(answers) / sent:.0f} calls a second")
    return [answer.result() for answer in answers]


def recovered(load: Load) -> None:
    """Measure the time from the last call until a list is answered within half a second."""
    began = time.monotonic()
    while time.monotonic() - began < 60:
        started = time.monotonic()
        if load.call(load.kinds.index("list") * 73)[1] == "good" and time.monotonic() - started < 0.5:
            print(f"after the last call a list was answered at once again after {started - began:.1f} s")
            return
        time.sleep(0.1)
    print("not as before within 60 s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=float, default=5)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--servers", type=int, default=400)
    options = parser.parse_args()
    sizes: dict[str, Any] = {"vcpus": 10**5, "memory_mb": 10**7, "disk_gb": 10**6, "quota": -1}
    with tempfile.TemporaryDirectory() as directory, cloud.running(Path(directory), **sizes) as running:
        servers = running.create("vm", count=options.servers)
        running.wait_active(servers, timeout=240)
        load = Load(running, servers)
        able = capacity(load, 6)
        print(f"capacity: {able:.0f} calls a second, good answers of {CLIENTS} clients")
        answers = flood(load, able * options.times, options.seconds)
        load.transport.cleanup()
        counts = collections.Counter((kind, outcome) for kind, outcome, _ in answers)
        print(f"{'':8}{'good':>10}{'refused':>10}{'no answer':>10}{'median of good':>16}")
        for kind in MIX:
            times = sorted(took for item, outcome, took in answers if (item, outcome) == (kind, "good")) or [0.0]
            row = "".join(f"{counts[kind, outcome]:10}" for outcome in ("good", "refused", "no answer"))
            print(f"{kind:8}{row}{times[len(times) // 2]:14.2f} s")
        good = sum(count for (_, outcome), count in counts.items() if outcome == "good")
        print(
            f"good answers: {good / options.seconds:.0f} a second, {good / options.seconds / able:.0%} of the capacity"
        )


if __name__ == "__main__":
    main()

"""Speed and quality of the scheduler's decisions: the real daemon over RabbitMQ, with this program as the conductor.

It makes its own virtual host on the broker of this machine and deletes it at the end::

    benchmarks/scheduler.py --hosts 1000,10000 --json result.json
    benchmarks/scheduler.py --hosts 10,100,1000,10000,100000 --instances 1 --runs 20
    benchmarks/scheduler.py --hosts 10000 --instances 1 --requests 64 --runs 20
    benchmarks/scheduler.py --load --hosts 10000 --schedulers 3 --subset 100 --seconds 20

Rows: ``hosts``, ``instances``, ``requests``, ``median_ms``, ``p99_ms`` (from the call to its reply in the caller),
``rss_mb`` of the daemon. With ``--load`` four clients send requests without pause, claim the results as a conductor
does, and publish them. Meanwhile ``--updates`` other hosts change per second. The additional columns are
``decisions_per_second``, ``updates_per_second``, ``claims``, ``lost_percent`` (claims lost to another scheduler's
choice of the same host) and ``overcommitted`` hosts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nova_lite.base import concurrency

concurrency.setup(concurrency.THREADING)

import msgspec  # noqa: E402
from oslo_config import cfg  # noqa: E402

from nova_lite import conf as configuration  # noqa: E402
from nova_lite import rpc  # noqa: E402
from nova_lite.base import exceptions  # noqa: E402
from nova_lite.base.context import RequestContext, get_admin_context  # noqa: E402
from nova_lite.objects import Destination, Flavor, HostState, HostVersion, RequestSpec, Selection  # noqa: E402
from nova_lite.rpcapi.conductor import ConductorRPC  # noqa: E402
from nova_lite.rpcapi.scheduler import SchedulerRPC  # noqa: E402

CONTEXT = get_admin_context()
FLAVOR = Flavor(flavorid="1", name="m1.small", vcpus=1, memory_mb=2048, root_gb=20)
STARTUP = 300.0


class Conductor:
    """Serves the hosts, and judges claims: the conductor's part of a decision, without a database."""

    def __init__(self, count: int, room: int | None) -> None:
        self.lock = threading.Lock()
        self.states = {name: self._host(number, name, room) for number, name in enumerate(_names(count), 1)}
        self.ordered = list(self.states)
        self.claims = self.lost = 0

    @staticmethod
    def _host(number: int, name: str, room: int | None) -> HostState:
        """Make a host; hosts differ a little in usage. With ``room``, that many of `FLAVOR` fit."""
        used = number % 17 if room is None else 32 - room
        return HostState(
            id=number,
            host=name,
            node=name,
            generation=1,
            up=True,
            disabled=False,
            vcpus=32,
            memory_mb=32 * FLAVOR.memory_mb,
            disk_gb=32 * FLAVOR.root_gb,
            vcpus_used=used,
            memory_mb_used=used * FLAVOR.memory_mb,
            disk_gb_used=used * FLAVOR.root_gb,
            hypervisor_type="QEMU",
            hypervisor_version=7_002_000,
            supported_hv_types=["kvm", "qemu"],
            supported_vm_modes=["hvm"],
            instances=[str(uuid.uuid4()) for _ in range(used)],
        )

    def host_states_get(
        self, context: RequestContext, after: int = 0, limit: int | None = None, ids: list[int] | None = None
    ) -> list[HostState]:
        with self.lock:
            if ids is not None:
                return [self.states[self.ordered[id - 1]] for id in ids]
            return self._page(after, limit)

    def host_versions_get(self, context: RequestContext, after: int = 0, limit: int | None = None) -> list[HostVersion]:
        with self.lock:
            return [
                HostVersion(id=state.id, generation=state.generation, io_ops=state.io_ops)
                for state in self._page(after, limit)
            ]

    def _page(self, after: int, limit: int | None) -> list[HostState]:
        stop = len(self.ordered) if limit is None else after + limit
        return [self.states[name] for name in self.ordered[after:stop]]

    def report_service(self, context: RequestContext, host: str, binary: str, topic: str, version: str) -> None:
        """Accept a heartbeat, which changes nothing here."""

    def claim(self, destination: Destination) -> HostState | None:
        """Claim the first offered host with room, and return its new state; None if none has room."""
        with self.lock:
            self.claims += 1
            for place in (destination.selected, *destination.alternates):
                if (state := self._claim(place, destination.instance_uuid)) is not None:
                    return state
                if place is destination.selected:
                    self.lost += 1
        return None

    def _claim(self, place: Selection, instance_uuid: str) -> HostState | None:
        state = self.states[place.host]
        if state.vcpus_used + FLAVOR.vcpus > state.vcpus:
            return None
        self.states[place.host] = after = msgspec.structs.replace(
            state,
            generation=state.generation + 1,
            vcpus_used=state.vcpus_used + FLAVOR.vcpus,
            memory_mb_used=state.memory_mb_used + FLAVOR.memory_mb,
            disk_gb_used=state.disk_gb_used + FLAVOR.disk_gb,
            instances=[*state.instances, instance_uuid],
        )
        return after

    def touch(self, name: str) -> HostState:
        """Change a host without changing its room, and return its new state."""
        with self.lock:
            state = self.states[name]
            self.states[name] = after = msgspec.structs.replace(state, generation=state.generation + 1)
            return after

    def overcommitted(self) -> int:
        return sum(state.vcpus_used > state.vcpus for state in self.states.values())


def _names(count: int) -> list[str]:
    return [f"compute-{number:06d}" for number in range(count)]


class Cluster:
    """Running scheduler daemons and a client of theirs."""

    def __init__(self, conductor: Conductor, scheduler: SchedulerRPC, daemons: list[subprocess.Popen[bytes]]) -> None:
        self.conductor = conductor
        self.scheduler = scheduler
        self.daemons = daemons

    def select(self, instances: int, requests: int = 1) -> tuple[float, list[Destination]]:
        """Request destinations, also in one message of several projects' ``requests``; return seconds and reply."""
        specs = [self._spec(f"project-{number}", instances) for number in range(requests)]
        started = time.perf_counter()
        if requests == 1:
            destinations = self.scheduler.select_destinations(CONTEXT, specs[0])
        else:
            placements = self.scheduler.select_destinations_batch(CONTEXT, specs)
            destinations = [destination for placement in placements for destination in placement.destinations]
        return time.perf_counter() - started, destinations

    @staticmethod
    def _spec(project_id: str, instances: int) -> RequestSpec:
        uuids = [str(uuid.uuid4()) for _ in range(instances)]
        return RequestSpec(instance_uuids=uuids, project_id=project_id, user_id="user", flavor=FLAVOR)

    def rss_mb(self) -> float:
        """Return the resident memory of the largest daemon."""
        sizes = []
        for daemon in self.daemons:
            status = Path(f"/proc/{daemon.pid}/status").read_text()
            sizes.append(int(status.split("VmRSS:")[1].split()[0]) / 1024)
        return round(max(sizes), 1)


@contextmanager
def vhost() -> Iterator[str]:
    name = f"nova-lite-bench-{uuid.uuid4().hex[:12]}"
    subprocess.run(["rabbitmqctl", "-q", "add_vhost", name], check=True)
    try:
        permissions = ["rabbitmqctl", "-q", "set_permissions", "-p", name, "guest", ".*", ".*", ".*"]
        subprocess.run(permissions, check=True)
        yield name
    finally:
        subprocess.run(["rabbitmqctl", "-q", "delete_vhost", name], check=True)


@contextmanager
def cluster(options: argparse.Namespace, count: int) -> Iterator[Cluster]:
    """Run a scripted conductor with ``count`` hosts, and daemons that have loaded them."""
    conductor = Conductor(count, options.room if options.load else None)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nova-lite-bench-")))
        url = f"rabbit://{options.broker}/{stack.enter_context(vhost())}"
        transport = _transport(directory / "conductor.conf", url)
        stack.callback(transport.cleanup)
        server = rpc.RpcServer(transport, "conductor", rpc.Endpoint(ConductorRPC, conductor, partial=True))
        server.start()
        stack.callback(server.wait)
        stack.callback(server.stop)
        daemons = [
            stack.enter_context(_daemon(directory, f"scheduler{number}", url, options))
            for number in range(options.schedulers)
        ]
        for number in range(options.schedulers):
            _wait_for_hosts(directory / f"scheduler{number}.log", count)
        yield Cluster(conductor, rpc.proxy(SchedulerRPC, transport), daemons)


def _transport(path: Path, url: str) -> Any:
    path.write_text(f"[DEFAULT]\nhost = conductor\ntransport_url = {url}\nrpc_response_timeout = 60\n")
    conf = cfg.CONF
    conf.reset()
    configuration.register_opts(conf)
    conf(["--config-file", str(path)], project="nova-lite", default_config_files=[])
    return rpc.Transport(conf)


@contextmanager
def _daemon(directory: Path, name: str, url: str, options: argparse.Namespace) -> Iterator[subprocess.Popen[bytes]]:
    config = directory / f"{name}.conf"
    config.write_text(
        f"[DEFAULT]\nhost = {name}\ntransport_url = {url}\n"
        f"[scheduler]\nhost_subset_size = {options.subset}\nresync_interval = {options.resync}\n"
    )
    with (directory / f"{name}.log").open("wb") as log:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "nova_lite.cmd.scheduler", "--config-file", str(config)],
            stdout=log,
            stderr=log,
            env=os.environ | {concurrency.ENVIRONMENT: options.mode},
        )
    try:
        yield daemon
        daemon.terminate()
        daemon.wait(30)
    finally:
        daemon.kill()
        daemon.wait(10)


def _wait_for_hosts(log: Path, count: int) -> None:
    end = time.monotonic() + STARTUP
    while f"Host states are loaded: {count} hosts" not in log.read_text():
        if time.monotonic() > end:
            sys.exit(f"The scheduler did not load the hosts:\n{log.read_text()}")
        time.sleep(0.1)


def latency(options: argparse.Namespace, count: int) -> Iterator[dict[str, Any]]:
    """Yield a row per number of instances or requests. The daemon counts decisions as used; they are not claimed. Every
    run resets its hosts, so that each starts from the same state.
    """
    with cluster(options, count) as running:
        asked = [(instances, 1) for instances in options.instances] + [(1, number) for number in options.requests]
        for instances, requests in asked:
            for _ in range(3):
                _restore(running, running.select(instances, requests)[1])
            times = []
            for _ in range(options.runs):
                seconds, destinations = running.select(instances, requests)
                times.append(seconds * 1000)
                _restore(running, destinations)
            row = {"hosts": count, "instances": instances, "requests": requests}
            yield row | _summary(times) | {"rss_mb": running.rss_mb()}


def _restore(running: Cluster, destinations: list[Destination]) -> None:
    names = {destination.selected.host for destination in destinations}
    running.scheduler.update_host_states(CONTEXT, [running.conductor.touch(name) for name in names])


def _summary(times: list[float]) -> dict[str, float]:
    times = sorted(times)
    return {
        "median_ms": round(statistics.median(times), 2),
        "p99_ms": round(times[min(len(times) - 1, int(len(times) * 0.99))], 2),
    }


def load(options: argparse.Namespace, count: int) -> dict[str, Any]:
    """Run clients that request, claim and publish without pause, while hosts change."""
    with cluster(options, count) as running:
        running.select(1)
        stop = threading.Event()
        times: list[float] = []
        updated = [0]
        failures: list[Exception] = []
        work = [(_ask, (running, stop, times, failures)) for _ in range(options.clients)]
        work.append((_update, (running, stop, updated, options, failures)))
        threads = [threading.Thread(target=target, args=arguments) for target, arguments in work]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        stop.wait(options.seconds)
        stop.set()
        for thread in threads:
            thread.join()
        elapsed = time.perf_counter() - started
        if failures:
            sys.exit(f"{len(failures)} failures, the first: {failures[0]}")
        conductor = running.conductor
        row: dict[str, Any] = {"hosts": count, "instances": 1, "schedulers": options.schedulers}
        row |= {"host_subset_size": options.subset, "room": options.room}
        row |= _summary([seconds * 1000 for seconds in times])
        return row | {
            "rss_mb": running.rss_mb(),
            "decisions_per_second": round(len(times) / elapsed, 1),
            "updates_per_second": round(updated[0] / elapsed),
            "claims": conductor.claims,
            "lost_percent": round(100 * conductor.lost / max(1, conductor.claims), 2),
            "overcommitted": conductor.overcommitted(),
        }


def _ask(running: Cluster, stop: threading.Event, times: list[float], failures: list[Exception]) -> None:
    try:
        while not stop.is_set():
            seconds, destinations = running.select(1)
            times.append(seconds)
            states = [running.conductor.claim(destination) for destination in destinations]
            running.scheduler.update_host_states(CONTEXT, [state for state in states if state is not None])
    except exceptions.NovaLiteException as error:
        failures.append(error)


def _update(
    running: Cluster,
    stop: threading.Event,
    updated: list[int],
    options: argparse.Namespace,
    failures: list[Exception],
) -> None:
    """Publish changes of ``--batch`` hosts per message at a steady rate, as commits do."""
    names = itertools.cycle(running.conductor.ordered)
    started = time.perf_counter()
    try:
        while not stop.is_set() and options.updates:
            batch = [running.conductor.touch(next(names)) for _ in range(options.batch)]
            running.scheduler.update_host_states(CONTEXT, batch)
            updated[0] += len(batch)
            stop.wait(max(0.0, started + updated[0] / options.updates - time.perf_counter()))
    except exceptions.NovaLiteException as error:
        failures.append(error)


def main() -> int:
    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=numbers, default=[1000, 10000], help="numbers, with commas")
    parser.add_argument("--instances", type=numbers, default=[1, 100], help="per request; numbers, with commas")
    parser.add_argument("--requests", type=numbers, default=[], help="alike ones in a message; numbers, with commas")
    parser.add_argument("--runs", type=int, default=100, help="decisions per row")
    parser.add_argument("--mode", default=concurrency.THREADING, help="concurrency mode of the daemons")
    parser.add_argument("--schedulers", type=int, default=1, help="daemons")
    parser.add_argument("--subset", type=int, default=1, help="[scheduler] host_subset_size")
    parser.add_argument("--resync", type=int, default=60, help="[scheduler] resync_interval, seconds")
    parser.add_argument("--load", action="store_true", help="clients without pause and host updates")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--updates", type=int, default=1000, help="host updates per second")
    parser.add_argument("--batch", type=int, default=10, help="hosts per update message")
    parser.add_argument("--room", type=int, default=1, help="instances that fit on each host, with --load")
    parser.add_argument("--broker", default="guest:guest@127.0.0.1:5672")
    parser.add_argument("--json", help="write the rows to this file")
    options = parser.parse_args()
    rows = []
    for count in options.hosts:
        for row in [load(options, count)] if options.load else latency(options, count):
            rows.append(row)
            print(json.dumps(row), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Simulated compute hosts, many in one process: the control plane's view of a host, without a hypervisor.

Each host has its own queue and key. It registers, sends heartbeats, compares its domains, queries its filter rules,
and reports every command as done. Hosts share connections. They do not verify messages, but sign their own.
`Fleet.die` leaves a host's queue behind, as a power failure does.

``python -m tests.functional.fleet CONFIG`` serves the hosts that its standard input names, one line of JSON each
time::

    {"start": {"host": [["server", generation], …]}}    {"die": ["host"]}    {"back": ["host"]}
"""

from __future__ import annotations

from nova_lite.base import concurrency

concurrency.setup(concurrency.THREADING, switch_interval=concurrency.SWITCH_INTERVAL)

# isort: split
import contextlib  # noqa: E402
import heapq  # noqa: E402
import itertools  # noqa: E402
import json  # noqa: E402
import queue  # noqa: E402
import random  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
import uuid  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Callable, Iterable  # noqa: E402
from concurrent import futures  # noqa: E402
from typing import Any  # noqa: E402

import kombu  # noqa: E402
from oslo_config import cfg  # noqa: E402

from nova_lite import conf as configuration  # noqa: E402
from nova_lite import rpc  # noqa: E402
from nova_lite.base import exceptions, version  # noqa: E402
from nova_lite.base.context import get_admin_context  # noqa: E402
from nova_lite.objects import (  # noqa: E402
    ActionReport,
    BuildOutcome,
    BuildResult,
    DomainReport,
    HostReport,
    Inventory,
    digest_of_domains,
)
from nova_lite.operations.states import PowerState  # noqa: E402
from nova_lite.rpc import keys  # noqa: E402
from nova_lite.rpcapi.conductor import ConductorRPC  # noqa: E402

EXCHANGE = "nova_lite"
#: Most threads for the hosts' work. Each waits for the conductor, as on a host of its own.
THREADS = 256
#: Most threads for heartbeats. Each waits half a second for a batch, so that these send 800 heartbeats a second.
BEATING = 400
#: Seconds that a host waits at least before it asks once more what to filter, and after which it asks in any case.
FILTERS_APART = 0.25
FILTERS_EVERY = 60.0

#: Power states after commands; after all others a guest runs.
POWER = {"stop_instance": PowerState.SHUTDOWN, "pause_instance": PowerState.PAUSED}

#: Wake-up casts that these hosts ignore.
NUDGES = ("cache_images", "volume_work")


class Host:
    """``domains``: server to generation and power state."""

    def __init__(
        self,
        name: str,
        conductor: ConductorRPC,
        domains: Iterable[tuple[str, int]],
        capacity: int,
        compare_seconds: float,
        counts: Counter[str],
    ) -> None:
        self.name = name
        self.conductor = conductor
        self.capacity = capacity
        self.compare_seconds = compare_seconds
        self.counts = counts
        self.compared = float("-inf")
        self.domains = {server: (generation, PowerState.RUNNING) for server, generation in domains}
        self.alive = True
        self.asks_filters = False
        self.projects: dict[str, str] = {}
        #: Instances that are new since the last query for filter rules; None: query for all.
        self.plugged: list[str] | None = None
        #: Time of the last query for all filter rules.
        self.asked = float("-inf")
        #: Random advance of the second query, as on a real host.
        self.early = random.uniform(0, FILTERS_EVERY)
        self.life = 0
        self.identity = str(uuid.uuid4())
        self.boot_id = str(uuid.uuid4())
        self.epoch = 0

    def report(self) -> HostReport:
        inventory = Inventory(
            node=self.name,
            vcpus=self.capacity,
            memory_mb=self.capacity * 1024,
            disk_gb=self.capacity * 10,
            hypervisor_type="fake",
            hypervisor_version=1,
            supported_hv_types=["fake", "qemu", "kvm"],
        )
        return HostReport(
            host=self.name,
            boot_id=self.boot_id,
            inventories=[inventory],
            version=version.VERSION,
            epoch=self.epoch,
            identity=self.identity,
        )

    def register(self) -> None:
        self.boot_id = str(uuid.uuid4())
        self.epoch = self.conductor.register_host(get_admin_context(), self.report())
        self.compare()
        self.beat()

    def beat(self) -> None:
        """Send a heartbeat with a consistency check when it is due, and compare on disagreement, as a real host
        does.
        """
        report, now = self.report(), time.monotonic()
        if asks := now - self.compared >= self.compare_seconds:
            report.domains = digest_of_domains(self._found())
        agrees = self.conductor.report_state(get_admin_context(), report)
        if asks:
            self.compared = now
            self.counts["ask"] += 1
            if not agrees:
                self.compare()

    def _found(self) -> list[tuple[str, int, int]]:
        return [(server, generation, int(power)) for server, (generation, power) in list(self.domains.items())]

    def compare(self) -> None:
        """Compare the domains, then query the expected ones."""
        self.counts["compare"] += 1
        found = self._found()
        domains = [
            DomainReport(uuid=server, generation=generation, power_state=power) for server, generation, power in found
        ]
        for verdict in self.conductor.reconcile_domains(get_admin_context(), self.name, domains, []):
            if verdict.verdict == "destroy":
                self.domains.pop(verdict.uuid, None)
        self.conductor.domains_expected(get_admin_context(), self.name)

    def filters(self) -> None:
        """Ask what the groups of its guests let in."""
        self.asked = time.monotonic() - self.early
        if servers := list(self.domains):
            self.early = 0.0
            self.conductor.port_filters_get(get_admin_context(), self.name, servers)

    def wanted_filters(self) -> None:
        """Query the filter rules, of new guests and their projects only if possible, as a real host does."""
        self.asks_filters = False
        plugged, self.plugged = self.plugged, []
        if plugged is None:
            self.filters()
            return
        concerned = {self.projects[server] for server in plugged}
        others = [server for server in list(self.domains) if self.projects.get(server) in concerned]
        self.conductor.port_filters_get(get_admin_context(), self.name, [*{*plugged, *others}])

    def build(self, request: dict[str, Any]) -> None:
        server, generation = request["instance"]["uuid"], request["generation"]
        self.domains[server] = (generation, PowerState.RUNNING)
        result = BuildResult(
            instance_uuid=server,
            generation=generation,
            host=self.name,
            outcome=BuildOutcome.BUILT,
            power_state=int(PowerState.RUNNING),
            action_id=request["action_id"],
        )
        with contextlib.suppress(exceptions.InstanceGone, exceptions.StaleReport):
            self.conductor.finish_build(get_admin_context(), result)

    def obey(self, method: str, command: dict[str, Any]) -> None:
        server = command["instance"]["uuid"]
        power = POWER.get(method, PowerState.RUNNING)
        if method == "terminate_instance":
            self.domains.pop(server, None)
            self.projects.pop(server, None)
            power = PowerState.NOSTATE
        else:
            self.domains[server] = (command["generation"], power)
        report = ActionReport(
            host=self.name,
            action_id=command["action_id"],
            power_state=int(power),
            error=None,
            details="",
            sequence=command["sequence"],
            request_id=command["request_id"],
        )
        self.conductor.finish_action(get_admin_context(), report)


class Fleet:
    """``beat``, ``compare``, ``filters``: seconds between two heartbeats of a host, between its questions whether its
    domains agree (with the next heartbeat), and between its looks at filters. ``build_seconds``: that a build takes.
    ``counts``: what was done, and what failed."""

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        beat: float = 10.0,
        compare: float = 30.0,
        filters: float = FILTERS_EVERY,
        build_seconds: float = 0.0,
        capacity: int = 1000,
    ) -> None:
        self.conf = conf
        self.capacity = capacity
        self.hosts: dict[str, Host] = {}
        self.counts: Counter[str] = Counter()
        self._intervals = {"beat": beat, "filters": filters}
        self._compare_seconds = compare
        self._build_seconds = build_seconds
        self._transport = rpc.Transport(conf, keys.COMPUTE)
        self._pool = futures.ThreadPoolExecutor(THREADS)
        self._beating = futures.ThreadPoolExecutor(BEATING)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._lock = threading.Condition()
        self._stop = threading.Event()
        self._wishes: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._connection = kombu.Connection(conf.transport_url.replace("rabbit://", "amqp://"))
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._clock, self._listen)]
        for thread in self._threads:
            thread.start()

    def start(self, hosts: dict[str, Iterable[tuple[str, int]]]) -> None:
        """Register these with their domains; returns when all serve."""
        for name, domains in hosts.items():
            conductor = rpc.proxy(ConductorRPC, self._transport.share(keys.COMPUTE, name))
            self.hosts[name] = Host(name, conductor, domains, self.capacity, self._compare_seconds, self.counts)
            self._wishes.put(("consume", name))
        for done in [self._pool.submit(self._enter, self.hosts[name]) for name in hosts]:
            done.result()

    def die(self, names: Iterable[str]) -> None:
        for name in names:
            self.hosts[name].alive = False
            self.hosts[name].life += 1
            self._wishes.put(("cancel", name))

    def back(self, names: Iterable[str]) -> None:
        for name in names:
            self.hosts[name].alive = True
            self._wishes.put(("consume", name))
            self._pool.submit(self._enter, self.hosts[name])

    def close(self) -> None:
        self._stop.set()
        with self._lock:
            self._lock.notify()
        for thread in self._threads:
            thread.join(10)
        for pool in (self._pool, self._beating):
            pool.shutdown(cancel_futures=True)
        self._transport.cleanup()
        self._connection.release()

    # --- what hosts do by themselves

    def _enter(self, host: Host) -> None:
        """Register until the conductor accepts it."""
        while not self._stop.is_set():
            try:
                host.register()
                break
            except exceptions.NovaLiteException:
                self.counts["register failed"] += 1
                self._stop.wait(1)
        for kind, interval in self._intervals.items():
            self._later(random.uniform(0, interval), lambda kind=kind: self._again(host, kind, host.life))  # type: ignore[misc]

    def _again(self, host: Host, kind: str, life: int) -> None:
        if host.life != life:
            return
        left = host.asked + self._intervals[kind] - time.monotonic()
        if kind == "filters" and left > 0:  # a change notification has triggered a query meanwhile
            self._later(left, lambda: self._again(host, kind, life))
            return
        self._later(self._intervals[kind], lambda: self._again(host, kind, life))
        pool = self._beating if kind == "beat" else self._pool
        pool.submit(self._guarded, kind, getattr(host, kind))

    def _guarded(self, kind: str, work: Callable[[], None]) -> None:
        try:
            work()
            self.counts[kind] += 1
        except exceptions.NovaLiteException:
            self.counts[f"{kind} failed"] += 1

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        with self._lock:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._number), work))
            self._lock.notify()

    def _clock(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                wait = self._due[0][0] - time.monotonic() if self._due else 1.0
                if wait > 0:
                    self._lock.wait(wait)
                    continue
                _, _, work = heapq.heappop(self._due)
            work()

    # --- what they are told

    def _listen(self) -> None:
        """Consume the queues of all hosts on one connection."""
        channel = self._connection.channel()
        exchange = kombu.Exchange(EXCHANGE, "topic", durable=False, auto_delete=False)
        consumers: dict[str, kombu.Consumer] = {}
        while not self._stop.is_set():
            with contextlib.suppress(queue.Empty):
                while True:
                    wish, name = self._wishes.get_nowait()
                    if wish == "cancel" and name in consumers:
                        consumers.pop(name).cancel()
                    elif wish == "consume" and name not in consumers:
                        own = kombu.Queue(f"compute.{name}", exchange, f"compute.{name}", durable=False)
                        heard = [lambda body, message, name=name: self._hear(name, body, message)]  # type: ignore[misc]
                        consumers[name] = kombu.Consumer(channel, own, callbacks=heard, accept=None)
                        consumers[name].consume()
            with contextlib.suppress(TimeoutError):
                self._connection.drain_events(timeout=0.2)

    def _hear(self, name: str, body: Any, message: Any) -> None:
        message.ack()
        envelope = body if isinstance(body, dict) else json.loads(body)
        content = json.loads(envelope["oslo.message"]) if "oslo.message" in envelope else envelope
        method, arguments, host = content["method"], content["args"], self.hosts[name]
        if content.get("_msg_id"):
            self.counts[f"call {method}"] += 1  # no daemon answers; the caller gives up
        elif method == "build_and_run_instance":
            self._later(self._build_seconds, lambda: self._do("build", lambda: host.build(arguments["request"])))
            instance = arguments["request"]["instance"]
            host.projects[instance["uuid"]] = instance["project_id"]
            if host.plugged is not None and arguments["request"].get("filters"):
                self.counts["filters ordered"] += 1
                return
            if host.plugged is not None:
                host.plugged.append(instance["uuid"])
            self._ask_filters(host)
        elif method == "refresh_security_groups":
            host.plugged = None
            self._ask_filters(host)
        elif method not in NUDGES:
            self._do("order", lambda: host.obey(method, arguments["command"]))

    def _ask_filters(self, host: Host) -> None:
        if not host.asks_filters:
            host.asks_filters = True
            self._later(FILTERS_APART, lambda: self._do("filters", host.wanted_filters))

    def _do(self, kind: str, work: Callable[[], None]) -> None:
        self._pool.submit(self._guarded, kind, work)


def configured(path: str) -> cfg.ConfigOpts:
    conf = cfg.CONF
    configuration.register_opts(conf)
    conf(["--config-file", path], project="nova-lite", default_config_files=[])
    return conf


def main() -> int:
    settings = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    fleet = Fleet(configured(sys.argv[1]), **settings)
    try:
        for line in sys.stdin:
            for wish, what in json.loads(line).items():
                getattr(fleet, wish)(what)
            print(json.dumps(fleet.counts), flush=True)
    finally:
        fleet.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

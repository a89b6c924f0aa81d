"""Metrics of each daemon, for Prometheus. The table of docs/reference/metrics.md is made from this module.

Code increments a counter and observes a histogram where the event happens. A gauge is computed when Prometheus reads
the page (`add_gauges`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

LOG = logging.getLogger(__name__)

REGISTRY = prometheus_client.CollectorRegistry()
prometheus_client.ProcessCollector(registry=REGISTRY)

_SECONDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)

#: The daemons that have a metric, by its name, as in the table of docs/reference/metrics.md.
DAEMONS_OF: dict[str, str] = {}


def _counter(daemons: str, name: str, text: str, *labels: str) -> prometheus_client.Counter:
    DAEMONS_OF[f"{name}_total"] = daemons
    return prometheus_client.Counter(name, text, labels, registry=REGISTRY)


def _histogram(daemons: str, name: str, text: str, *labels: str) -> prometheus_client.Histogram:
    DAEMONS_OF[name] = daemons
    return prometheus_client.Histogram(name, text, labels, buckets=_SECONDS, registry=REGISTRY)


REQUESTS = _histogram(
    "api",
    "nova_lite_api_request_seconds",
    "Requests of the compute API, by route and status.",
    "method",
    "route",
    "status",
)
REFUSED_REQUESTS = _counter(
    "api", "nova_lite_api_refused", "Requests that got 503 because too many waited, by priority.", "priority"
)
THROTTLED = _counter(
    "api",
    "nova_lite_api_throttled",
    "Calls that the API did not send because conductors refuse such calls, by priority.",
    "priority",
)
AUDIT_DROPPED = _counter(
    "api", "nova_lite_audit_events_dropped", "Events of the audit log that were lost because the queue was full."
)
RPC = _histogram("conductor, scheduler, compute", "nova_lite_rpc_seconds", "RPC methods carried out.", "method")
RPC_REFUSED = _counter(
    "conductor", "nova_lite_rpc_refused", "Calls that were refused because too many waited, by priority.", "priority"
)
RPC_EXPIRED = _counter(
    "conductor, scheduler, compute",
    "nova_lite_rpc_expired",
    "Calls that were dropped because their callers had given up.",
)
RPC_FAILED = _counter("all", "nova_lite_rpc_calls_failed", "Calls of this daemon that got no reply.", "topic", "method")
RPC_RECONNECTS = _counter(
    "conductor, scheduler, compute", "nova_lite_rpc_reconnects", "New connections because no message came in."
)
RECONCILE_DURATION = _histogram("conductor", "nova_lite_reconcile_duration_seconds", "Runs of the reconciler.")
ACTION_RETRIES = _counter(
    "conductor", "nova_lite_action_retries", "Steps of actions that were retried.", "action", "step"
)
LEASES_LOST = _counter(
    "conductor",
    "nova_lite_action_leases_lost",
    "Steps that stopped because another conductor had taken their action over.",
    "step",
)
ACTIONS_ENDED = _counter("conductor", "nova_lite_actions_ended", "Actions that ended, by result.", "action", "result")
BUILDS = _counter("conductor", "nova_lite_builds", "Builds that hosts reported, by outcome.", "outcome")
BUILDS_FAILED = _counter(
    "conductor",
    "nova_lite_builds_failed",
    "Builds that ended in ERROR. Reasons: no host (not_placed), a host's report (reported), no report (silent).",
    "reason",
)
TRANSACTION_RETRIES = _counter(
    "conductor", "nova_lite_db_transaction_retries", "Transactions that were retried after a conflict."
)
NOTIFICATIONS_SENT = _counter(
    "conductor", "nova_lite_notifications_sent", "Notifications that were delivered to the bus or a webhook.", "channel"
)
NOTIFICATIONS_FAILED = _counter(
    "conductor", "nova_lite_notifications_failed", "Attempts to deliver a notification that failed.", "channel"
)
NOTIFICATIONS_DROPPED = _counter(
    "conductor",
    "nova_lite_notifications_dropped",
    "Notifications that were never delivered. Reasons: age, number of waiting ones, refused, failed attempts, broken.",
    "channel",
    "reason",
)
SERVER_BACKUPS = _counter(
    "conductor", "nova_lite_server_backups", "Backups of servers by policies that ended: complete or failed.", "result"
)
BALANCE_MOVES = _counter(
    "conductor",
    "nova_lite_balance_moves",
    "Moves that relieve hosts: planned (in a dry run), begun, refused, done, failed.",
    "result",
)
POOL_WAITS = _histogram("conductor", "nova_lite_db_pool_wait_seconds", "Waits for a connection to the database.")
HYPERVISOR = _histogram("compute", "nova_lite_hypervisor_call_seconds", "Calls to libvirt.", "call")
FILTERS_SKIPPED = _counter(
    "compute",
    "nova_lite_filters_skipped",
    "Filter rules, addresses and interfaces that are invalid. Such a rule allows nothing; such an interface is closed.",
    "kind",
)
HYPERVISOR_BREAKS = _counter(
    "compute", "nova_lite_hypervisor_breaks", "Calls to libvirt whose connection broke before they returned.", "call"
)
HYPERVISOR_PROBES = _counter(
    "compute", "nova_lite_hypervisor_probes", "Processes of qemu in which libvirt queried its capabilities."
)
IMAGES = _histogram("compute", "nova_lite_image_fetch_seconds", "Images that were fetched for guests.")


class Gauge(NamedTuple):
    """Help text and labels of a metric that is read. ``is_counter``: it is a counter that another program keeps."""

    text: str
    labels: tuple[str, ...] = ()
    is_counter: bool = False


GAUGES: dict[str, Gauge] = {}


def _gauge(daemons: str, name: str, text: str, *labels: str) -> str:
    DAEMONS_OF[name] = daemons
    GAUGES[name] = Gauge(text, labels)
    return name


def _read_counter(daemons: str, name: str, text: str, *labels: str) -> str:
    DAEMONS_OF[f"{name}_total"] = daemons
    GAUGES[f"{name}_total"] = Gauge(text, labels, is_counter=True)
    return f"{name}_total"


READY = _gauge("all", "nova_lite_ready", "1 if this part of /readyz is ok.", "part")
API_WAITING = _gauge("api", "nova_lite_api_waiting", "Requests that wait for a thread.")
RPC_WAITING = _gauge("conductor, scheduler, compute", "nova_lite_rpc_waiting", "Messages that wait for a thread.")
RPC_RUNNING = _gauge("conductor, scheduler, compute", "nova_lite_rpc_running", "Messages that are being processed.")
RPC_OLDEST = _gauge(
    "conductor, scheduler, compute",
    "nova_lite_rpc_oldest_seconds",
    "Age of the message that has waited longest for a thread.",
)
QUEUE_DEPTH = _gauge(
    "conductor, scheduler", "nova_lite_queue_messages", "Messages in the broker for this daemon.", "queue"
)
ACTIONS = _gauge("conductor", "nova_lite_actions_open", "Actions that have not ended, by step.", "action", "step")
OLDEST_DUE = _gauge(
    "conductor", "nova_lite_action_oldest_due_seconds", "Time for which the oldest due action has not been retried."
)
PAST_DEADLINE = _gauge("conductor", "nova_lite_actions_past_deadline", "Open actions whose deadline has passed.")
HOSTS = _gauge("conductor", "nova_lite_hosts", "Compute hosts: up, down, disabled, forced_down.", "state")
HOST_DOWN = _gauge(
    "conductor", "nova_lite_host_down", "1 for each compute host that counts as down; others are left out.", "host"
)
HOST_UNFENCED = _gauge(
    "conductor",
    "nova_lite_host_unfenced_servers",
    "Protected servers of each host that neither fences itself nor has a working fence method; others are left out.",
    "host",
)
SURVIVE_NO_ROOM = _gauge(
    "conductor",
    "nova_lite_survive_no_room",
    "Protected servers that find no room if the worst [conductor] survive_hosts hosts are lost; left out if that is 0.",
)
HOST_PROBLEMS = _gauge(
    "conductor",
    "nova_lite_host_problems",
    "Problems of a host's machine: memory, disk, network, storage. Hosts without any are left out.",
    "host",
    "kind",
)
HEARTBEAT_AGE = _gauge(
    "conductor",
    "nova_lite_heartbeat_oldest_seconds",
    "Age of the oldest heartbeat of the services that count as up, by daemon.",
    "binary",
)
NOTIFICATIONS_WAITING = _gauge(
    "conductor", "nova_lite_notifications_waiting", "Notifications that wait for the bus or a webhook.", "channel"
)
BACKUP_AGE = _gauge(
    "conductor",
    "nova_lite_backup_policy_age_seconds",
    "Age of a policy's newest complete backup, of the server where that is oldest; nothing while a server has none.",
    "policy",
)
BACKUPS_MISSING = _gauge(
    "conductor", "nova_lite_backup_policy_unmet", "Servers of a policy without their last due backup.", "policy"
)
HOST_PRESSURE = _gauge(
    "conductor",
    "nova_lite_host_pressure",
    "Used share of a host's resources, 0 to 1, by the last plan of moves: cpu, memory, disk, network.",
    "host",
    "resource",
)
PRESSURE_SPREAD = _gauge(
    "conductor", "nova_lite_pressure_spread", "Standard deviation of the hosts' pressure, by resource.", "resource"
)
POOL_USED = _gauge("conductor", "nova_lite_db_pool_used", "Connections to the database in use.")
POOL_SIZE = _gauge("conductor", "nova_lite_db_pool_size", "Maximum number of connections to the database.")
DATABASE_NODE = _gauge(
    "conductor",
    "nova_lite_database_node_usable",
    "1 for each node of the controllers' database that load balancers use, 0 for any other.",
    "node",
)
JOBS = _gauge("compute", "nova_lite_jobs", "Builds and actions that run on this host.", "kind")
BUILD_SLOTS = _gauge(
    "compute", "nova_lite_build_slots", "Builds that may run at a time: fewer on a hypervisor that answers slowly."
)
HYPERVISOR_UP = _gauge("compute", "nova_lite_hypervisor_up", "1 while the hypervisor answers.")
CERTIFICATE_END = _gauge(
    "api, compute, novncproxy, serialproxy, spicehtml5proxy",
    "nova_lite_certificate_end_seconds",
    "End of a certificate that this daemon uses, in seconds since 1970.",
    "file",
)
SCHEDULER_HOSTS = _gauge("scheduler", "nova_lite_scheduler_hosts", "Hosts that this scheduler knows.")

_SERVER = ("server", "project")
SERVER_CPU = _read_counter("compute", "nova_lite_server_cpu_seconds", "CPU time of a server's guest.", *_SERVER)
SERVER_MEMORY = _gauge(
    "compute", "nova_lite_server_memory_bytes", "Memory of the host that a server's guest occupies.", *_SERVER
)
SERVER_MEMORY_LIMIT = _gauge(
    "compute", "nova_lite_server_memory_limit_bytes", "Memory that a server's guest may use.", *_SERVER
)
SERVER_DISK_READ = _read_counter(
    "compute", "nova_lite_server_disk_read_bytes", "Data that a server read from its disks.", *_SERVER
)
SERVER_DISK_WRITTEN = _read_counter(
    "compute", "nova_lite_server_disk_written_bytes", "Data that a server wrote to its disks.", *_SERVER
)
SERVER_DISK_READS = _read_counter("compute", "nova_lite_server_disk_reads", "Reads of a server's disks.", *_SERVER)
SERVER_DISK_WRITES = _read_counter("compute", "nova_lite_server_disk_writes", "Writes to a server's disks.", *_SERVER)
SERVER_RECEIVED = _read_counter(
    "compute", "nova_lite_server_network_received_bytes", "Data that a server received.", *_SERVER
)
SERVER_SENT = _read_counter("compute", "nova_lite_server_network_sent_bytes", "Data that a server sent.", *_SERVER)
SERVER_DROPPED = _read_counter(
    "compute", "nova_lite_server_network_dropped", "Packets to and from a server that were dropped.", *_SERVER
)
SERVERS_LEFT_OUT = _gauge(
    "compute",
    "nova_lite_servers_left_out",
    "Running servers without metrics, because the host has more than [metrics] servers.",
)
SERVERS_AGE = _gauge(
    "compute", "nova_lite_server_metrics_age_seconds", "Age of the metrics of servers; above 60 s they are left out."
)

#: The values of a gauge's labels, and its value.
Sample = tuple[tuple[str, ...], float]


class _Gauges(Collector):
    """Computes gauges when they are read. A source that fails is logged and left out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: dict[object, Callable[[], Iterable[tuple[str, Sample]]]] = {}

    def add(self, owner: object, read: Callable[[], Iterable[tuple[str, Sample]]]) -> None:
        with self._lock:
            self._sources[owner] = read

    def remove(self, owner: object) -> None:
        with self._lock:
            self._sources.pop(owner, None)

    def describe(self) -> Iterable[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        with self._lock:
            sources = list(self._sources.values())
        sums: dict[str, dict[tuple[str, ...], float]] = {}
        for read in sources:
            try:
                for name, (labels, value) in read():
                    values = sums.setdefault(name, {})
                    values[labels] = values.get(labels, 0.0) + value
            except Exception as error:
                LOG.info("Some metrics cannot be read: %s", " ".join(str(error).split()))
        for name, values in sums.items():
            gauge = GAUGES[name]
            kind = CounterMetricFamily if gauge.is_counter else GaugeMetricFamily
            family = kind(name, gauge.text, labels=gauge.labels)
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family


_GAUGES = _Gauges()
REGISTRY.register(_GAUGES)


def add_gauges(owner: object, read: Callable[[], Iterable[tuple[str, Sample]]]) -> None:
    """Let ``read`` provide gauges, by their names. Values of several owners for the same gauge are added up."""
    _GAUGES.add(owner, read)


def remove_gauges(owner: object) -> None:
    _GAUGES.remove(owner)


def sample(name: str, value: float, *labels: str) -> tuple[str, Sample]:
    """Return a gauge's value in the form that `add_gauges` expects."""
    return name, (labels, value)


@contextmanager
def timed(histogram: Any) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    finally:
        histogram.observe(time.perf_counter() - started)


def render() -> tuple[bytes, str]:
    """Return the page for Prometheus and its content type."""
    return prometheus_client.generate_latest(REGISTRY), prometheus_client.CONTENT_TYPE_LATEST


def markdown_table() -> str:
    """Return the table of docs/reference/metrics.md."""
    rows = ["| metric | kind | labels | daemons | what it is |", "|---|---|---|---|---|"]
    families = {family.name: family for family in REGISTRY.collect()}
    for name in sorted(DAEMONS_OF):
        if name in GAUGES:
            kind = "counter" if GAUGES[name].is_counter else "gauge"
            labels, text = GAUGES[name].labels, GAUGES[name].text
        else:
            base = name.removesuffix("_total")
            kind, text = families[base].type, families[base].documentation
            labels = REGISTRY._names_to_collectors[name]._labelnames  # type: ignore[attr-defined]
        rows.append(f"| `{name}` | {kind} | {', '.join(labels)} | {DAEMONS_OF[name]} | {text} |")
    return "\n".join(rows) + "\n"

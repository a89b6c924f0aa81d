"""What each daemon counts and measures of itself, for Prometheus. docs/reference/metrics.md is made from this module.

A counter or histogram is told where a thing happens; what is a state of now is asked for when it is read (`state_of`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import prometheus_client
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

LOG = logging.getLogger(__name__)

REGISTRY = prometheus_client.CollectorRegistry()
prometheus_client.ProcessCollector(registry=REGISTRY)

_SECONDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)

#: Where it is found, by name: daemons, as the table in docs/reference/metrics.md says it.
FOUND_IN: dict[str, str] = {}


def _counter(daemons: str, name: str, told: str, *labels: str) -> prometheus_client.Counter:
    FOUND_IN[f"{name}_total"] = daemons
    return prometheus_client.Counter(name, told, labels, registry=REGISTRY)


def _histogram(daemons: str, name: str, told: str, *labels: str) -> prometheus_client.Histogram:
    FOUND_IN[name] = daemons
    return prometheus_client.Histogram(name, told, labels, buckets=_SECONDS, registry=REGISTRY)


REQUESTS = _histogram(
    "api",
    "nova_lite_api_request_seconds",
    "Requests of the compute API, by route and status.",
    "method",
    "route",
    "status",
)
REFUSED_REQUESTS = _counter(
    "api", "nova_lite_api_refused", "Requests that were told 503 because too many waited, by priority.", "priority"
)
THROTTLED = _counter(
    "api",
    "nova_lite_api_throttled",
    "Calls that the API refused by itself because conductors refuse such calls, by priority.",
    "priority",
)
RPC = _histogram("conductor, scheduler, compute", "nova_lite_rpc_seconds", "RPC methods carried out.", "method")
RPC_REFUSED = _counter(
    "conductor", "nova_lite_rpc_refused", "Calls that were refused because too many waited, by priority.", "priority"
)
RPC_EXPIRED = _counter(
    "conductor, scheduler, compute", "nova_lite_rpc_expired", "Calls that were dropped: their callers had given up."
)
RPC_FAILED = _counter(
    "all", "nova_lite_rpc_calls_failed", "Calls of this daemon that had no answer.", "topic", "method"
)
DEAF = _counter(
    "conductor, scheduler, compute", "nova_lite_rpc_connected_anew", "Times that no message came in: new connections."
)
SWEEP = _histogram("conductor", "nova_lite_sweep_seconds", "Sweeps of the reconciler.")
REDRIVES = _counter(
    "conductor", "nova_lite_action_redrives", "Steps of actions that were driven again.", "action", "step"
)
LEASES_LOST = _counter(
    "conductor", "nova_lite_action_leases_lost", "Drives that found their action taken over.", "step"
)
ACTIONS_ENDED = _counter("conductor", "nova_lite_actions_ended", "Actions that ended, by result.", "action", "result")
BUILDS = _counter("conductor", "nova_lite_builds", "Builds that hosts reported, by outcome.", "outcome")
BUILDS_FAILED = _counter(
    "conductor",
    "nova_lite_builds_failed",
    "Builds that ended in ERROR: no host was found (not_placed), a host said so (reported), or said nothing (silent).",
    "reason",
)
TRANSACTIONS_AGAIN = _counter(
    "conductor", "nova_lite_db_transactions_run_again", "Transactions that the database had run once more."
)
POOL_WAITS = _histogram("conductor", "nova_lite_db_pool_wait_seconds", "Waits for a connection to the database.")
HYPERVISOR = _histogram("compute", "nova_lite_hypervisor_call_seconds", "Calls to libvirt.", "call")
IMAGES = _histogram("compute", "nova_lite_image_fetch_seconds", "Images that were fetched for guests.")


class State(NamedTuple):
    """A gauge that is asked for: its help and labels."""

    told: str
    labels: tuple[str, ...] = ()


STATES: dict[str, State] = {}


def _state(daemons: str, name: str, told: str, *labels: str) -> str:
    FOUND_IN[name] = daemons
    STATES[name] = State(told, labels)
    return name


READY = _state("all", "nova_lite_ready", "1 where /readyz finds nothing against it, by what is looked at.", "part")
API_WAITING = _state("api", "nova_lite_api_waiting", "Requests that wait for a thread.")
RPC_WAITING = _state("conductor, scheduler, compute", "nova_lite_rpc_waiting", "Messages that wait for a thread.")
RPC_RUNNING = _state("conductor, scheduler, compute", "nova_lite_rpc_running", "Messages being carried out.")
RPC_OLDEST = _state(
    "conductor, scheduler, compute", "nova_lite_rpc_oldest_seconds", "How long the first of them waits."
)
QUEUE_DEPTH = _state(
    "conductor, scheduler", "nova_lite_queue_messages", "Messages in the broker for this daemon.", "queue"
)
ACTIONS = _state("conductor", "nova_lite_actions_open", "Actions that have not ended, by step.", "action", "step")
OLDEST_DUE = _state(
    "conductor", "nova_lite_action_oldest_due_seconds", "For how long the oldest due action has not been driven."
)
PAST_DEADLINE = _state("conductor", "nova_lite_actions_past_deadline", "Open actions whose deadline is over.")
HOSTS = _state("conductor", "nova_lite_hosts", "Compute hosts: up, down, disabled, forced_down.", "state")
HEARTBEAT_AGE = _state(
    "conductor",
    "nova_lite_heartbeat_oldest_seconds",
    "Age of the oldest heartbeat of what counts as up, by daemon.",
    "binary",
)
POOL_USED = _state("conductor", "nova_lite_db_pool_used", "Connections to the database in use.")
POOL_SIZE = _state("conductor", "nova_lite_db_pool_size", "Connections to the database at most.")
JOBS = _state("compute", "nova_lite_jobs", "Builds and actions at work on this host.", "kind")
HYPERVISOR_UP = _state("compute", "nova_lite_hypervisor_up", "1 while the hypervisor answers.")
SCHEDULER_HOSTS = _state("scheduler", "nova_lite_scheduler_hosts", "Hosts that this scheduler knows.")

#: A value with the values of its labels.
Value = tuple[tuple[str, ...], float]


class _States(Collector):
    """Asks when it is read. What cannot be told at the moment is left out, with a line in the log."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[object, Callable[[], Iterable[tuple[str, Value]]]] = {}

    def add(self, owner: object, ask: Callable[[], Iterable[tuple[str, Value]]]) -> None:
        with self._lock:
            self._asked[owner] = ask

    def remove(self, owner: object) -> None:
        with self._lock:
            self._asked.pop(owner, None)

    def describe(self) -> Iterable[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        with self._lock:
            asked = list(self._asked.values())
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for ask in asked:
            try:
                for name, (labels, value) in ask():
                    values = found.setdefault(name, {})
                    values[labels] = values.get(labels, 0.0) + value
            except Exception as error:
                LOG.info("Some metrics cannot be told: %s", " ".join(str(error).split()))
        for name, values in found.items():
            family = GaugeMetricFamily(name, STATES[name].told, labels=STATES[name].labels)
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family


_STATES = _States()
REGISTRY.register(_STATES)


def state_of(owner: object, ask: Callable[[], Iterable[tuple[str, Value]]]) -> None:
    """From now on ``ask`` tells states, each by its name; what several tell of one name is added up."""
    _STATES.add(owner, ask)


def forget(owner: object) -> None:
    _STATES.remove(owner)


def one(name: str, value: float, *labels: str) -> tuple[str, Value]:
    """What an ``ask`` yields."""
    return name, (labels, value)


@contextmanager
def timed(histogram: Any) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    finally:
        histogram.observe(time.perf_counter() - started)


def page() -> tuple[bytes, str]:
    """What Prometheus reads, and its content type."""
    return prometheus_client.generate_latest(REGISTRY), prometheus_client.CONTENT_TYPE_LATEST


def table() -> str:
    """The table of docs/reference/metrics.md."""
    rows = ["| metric | kind | labels | daemons | what it is |", "|---|---|---|---|---|"]
    families = {family.name: family for family in REGISTRY.collect()}
    for name in sorted(FOUND_IN):
        if name in STATES:
            kind, labels, told = "gauge", STATES[name].labels, STATES[name].told
        else:
            base = name.removesuffix("_total")
            kind, told = families[base].type, families[base].documentation
            labels = REGISTRY._names_to_collectors[name]._labelnames  # type: ignore[attr-defined]
        rows.append(f"| `{name}` | {kind} | {', '.join(labels)} | {FOUND_IN[name]} | {told} |")
    return "\n".join(rows) + "\n"

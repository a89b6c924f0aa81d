"""The life of a daemon: logging, signals, start with retries, periodic tasks, RPC servers, stop.

A module of `nova_lite.cmd` makes a `Daemon` and calls `run`, which returns the exit status.
"""

from __future__ import annotations

import faulthandler
import logging
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from oslo_config import cfg
from oslo_log import log
from oslo_reports import opts as report_opts

from nova_lite import rpc
from nova_lite.base import exceptions, journal, memory, structured_logs, tracing, version
from nova_lite.base.stop_event import StopEvent
from nova_lite.base.timing import TIMING
from nova_lite.conf.metrics import PORTS
from nova_lite.daemon.health import Check, Health
from nova_lite.daemon.watchdog import Watchdog, notify_systemd
from nova_lite.rpc.self_check import SelfCheckingServer

LOG = logging.getLogger(__name__)


class Periodic:
    """Runs ``func`` every ``interval`` seconds in its own thread until it is stopped. A failure is only logged.

    The first run is after one interval. With ``jitter`` it is at a random time within the first interval, so that many
    hosts do not report at the same time. With ``at_once`` it is immediate.
    """

    def __init__(
        self, name: str, interval: float, func: Callable[[], None], jitter: bool = False, at_once: bool = False
    ) -> None:
        self.name = name
        self.interval = interval
        self.func = func
        self._stop = threading.Event()
        self._first_wait = 0.0 if at_once else random.uniform(0, interval) if jitter else interval
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _loop(self) -> None:
        wait = self._first_wait
        while not self._stop.wait(wait):
            started = time.monotonic()
            problem = None
            try:
                self.func()
            except (exceptions.ServiceUnavailable, exceptions.HypervisorUnavailable) as error:
                problem = error.message
            except Exception:
                LOG.exception("Periodic task %s failed; it runs again in %.1f s", self.name, self.interval)
            if problem:  # not in the except block, where oslo.log would add the exception to the line
                LOG.warning("%s: %s", self.name, problem)
            wait = max(0.0, self.interval - (time.monotonic() - started))


class Daemon:
    """A service process. Subclasses override `prepare` and `cleanup`; `run` runs it.

    `prepare` is retried while it raises `ServiceUnavailable` or `HypervisorUnavailable`, with one line in the log each
    time. `ConfigurationError` ends the process with one line and status 1. `cleanup` runs at the end.
    """

    def __init__(self, conf: cfg.ConfigOpts, binary: str) -> None:
        self.conf = conf
        self.binary = binary
        memory.limit_malloc_arenas()
        self.stopping = StopEvent()
        self.periodics: list[Periodic] = []
        self.servers: list[SelfCheckingServer] = []
        self.health = Health()
        self.watchdog = Watchdog(TIMING.health.max_loop_pause / 2)

    # --- for subclasses

    def prepare(self) -> None:
        """Connect to what the daemon needs, and start to serve. May be called again after a failure."""
        raise NotImplementedError

    def needs_restart(self) -> bool:
        """Return True if the daemon has to stop serving and to call `prepare` again. Called every second."""
        return False

    def cleanup(self) -> None:
        """Release everything besides the periodic tasks and RPC servers."""

    def add_periodic(
        self, name: str, interval: float, func: Callable[[], None], jitter: bool = False, at_once: bool = False
    ) -> None:
        task = Periodic(name, interval, func, jitter, at_once)
        self.periodics.append(task)
        task.start()

    def serve_health(self, transport: rpc.Transport | None = None, number: int = 0, **checks: Check) -> None:
        """Serve /metrics, /healthz and /readyz. May be called again after a failure.

        ``number``: index among several processes of this kind; it is added to the port. ``checks`` raise an error while
        something that the daemon needs is not available.
        """
        if transport is not None:
            self.health.add("broker", lambda: rpc.require_broker(transport))
        for name, check in checks.items():
            self.health.add(name, check)
        if self.conf.metrics.enabled:
            option, _ = PORTS[self.binary]
            self.health.serve(self.conf.metrics.listen, self.conf.metrics[option] + number)

    def serve_rpc(self, transport: rpc.Transport, server: str, endpoint: rpc.Endpoint, shared: bool = False) -> None:
        """Start an RPC server. ``shared``: it also takes messages to the topic, which are for any of its servers."""
        checking = SelfCheckingServer(transport, server, endpoint, shared)
        checking.start()
        self.servers.append(checking)
        if interval := self.conf.rpc.self_check_interval:
            self.add_periodic("RPC self-check", interval, checking.check, jitter=True)

    # --- life

    def start(self) -> None:
        """Call `prepare` until it succeeds or the daemon has to stop."""
        while not self.stopping.is_set():
            try:
                self.prepare()
                self.add_periodic("Memory", memory.TRIM_INTERVAL, memory.TRIMMER.trim)
                return
            except (exceptions.ServiceUnavailable, exceptions.HypervisorUnavailable) as error:
                problem = error.message
            interval = TIMING.daemon.start_retry
            LOG.warning("%s cannot start yet: %s Trying again in %d s.", self.binary, problem, interval)
            self._turn()
            self._stop_parts()
            self.stopping.wait(interval)

    def _turn(self) -> None:
        """Report that this daemon works: its main loop turns, and none of its serving loops stands still."""
        if self.watchdog.feed():
            self.health.mark_alive()

    def _try_start(self) -> bool:
        """Call `start`. Returns False, and prints the reason, if the configuration has a mistake."""
        mistake = None
        try:
            self.start()
        except exceptions.ConfigurationError as error:
            mistake = error.message
        if mistake:
            LOG.error("%s: %s", self.binary, mistake)
            print(journal.error(f"{self.binary}: {mistake}"), file=sys.stderr)
        return not mistake

    def _restart(self) -> bool:
        LOG.warning("%s stops serving and restarts", self.binary)
        self._stop_parts()
        if not self._try_start():
            self.stop()
            return False
        if not self.stopping.is_set():
            LOG.info("%s is ready again on host %s", self.binary, self.conf.host)
        return True

    def _reconnect(self) -> None:
        """Replace the connections of servers that receive no messages. Called again soon if the broker is away."""
        problem = None
        try:
            for server in self.servers:
                if server.deaf.is_set():
                    server.reconnect()
        except exceptions.MessagingUnavailable as error:
            problem = error.message
        if problem:
            LOG.warning("%s", problem)

    def stop(self) -> None:
        """Take no more work, wait for running work, release everything. May be called twice."""
        self.stopping.set()
        self._stop_parts()
        self.cleanup()
        self.health.close()

    def _stop_parts(self) -> None:
        for task in self.periodics:
            task.stop()
        for server in self.servers:
            server.stop()
        for server in self.servers:
            server.wait()
        self.periodics.clear()
        self.servers.clear()
        self.watchdog.clear()

    def supervise(self) -> bool:
        """Look after the started daemon until it has to stop. Return False if it cannot restart."""
        while not self.stopping.wait(1.0):
            self._turn()
            if self.needs_restart() and not self._restart():
                return False
            self._reconnect()
        return True

    def run(self) -> int:
        """Run the daemon until SIGTERM or SIGINT. Returns the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stopping.set())
        if not self._try_start():
            return 1
        memory.freeze_loaded_objects()
        if not self.stopping.is_set():
            LOG.info("%s %s is ready on host %s", self.binary, version.VERSION, self.conf.host)
            notify_systemd("READY=1")
        if not self.supervise():
            return 1
        LOG.info("%s is stopping", self.binary)
        notify_systemd("STOPPING=1")
        self.stop()
        return 0


def setup_logging(conf: cfg.ConfigOpts, binary: str) -> None:
    """Set up logging by oslo.log's options (stderr by default). SIGUSR2 writes a guru meditation report to stderr.

    Lines that go to systemd's journal have their priority. A process that is aborted, as by systemd's watchdog, writes
    the stacks of its threads to stderr.
    """
    log.setup(conf, "nova_lite")
    structured_logs.set_up(logging.getLogger(), conf.log_format, binary, conf.host)
    journal.add_priorities(logging.getLogger())
    faulthandler.enable()
    logging.captureWarnings(True)
    report_opts.set_defaults(conf)
    if conf.oslo_reports.file_event_handler:
        _reports().setup_autorun(version, conf=conf)
    else:
        signal.signal(signal.SIGUSR2, lambda _signal, frame: _write_report(conf, frame))
    LOG.debug("Logging of %s is set up", binary)
    _begin_traces(conf, binary)


def _begin_traces(conf: cfg.ConfigOpts, binary: str) -> None:
    """Begin to export traces if they are on. Ends the process if they cannot be."""
    try:
        tracing.start(conf, binary)
    except exceptions.ConfigurationError as error:
        LOG.error("%s: %s", binary, error.message)
        sys.exit(journal.error(f"{binary}: {error.message}"))


def _reports() -> Any:
    """Import oslo.reports, whose templates are too large to load at the start of each daemon."""
    from oslo_reports import guru_meditation_report

    return guru_meditation_report.TextGuruMeditation


def _write_report(conf: cfg.ConfigOpts, frame: FrameType | None) -> None:
    _reports().handle_signal(version, None, conf.oslo_reports.log_dir, frame)

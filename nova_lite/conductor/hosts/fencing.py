"""Fences silent hosts: by the end of their lease, or by switching them off. See docs/adr/0028."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable

from oslo_config import cfg

from nova_lite.base import clock, exceptions, metrics
from nova_lite.base.timing import TIMING, ConductorTiming
from nova_lite.conductor.engine.keyed_executor import KeyedExecutor
from nova_lite.db.core.engine import Database, log_failure
from nova_lite.db.hosts import leases, services
from nova_lite.db.hosts.leases import Lost, Watched
from nova_lite.fence import methods

LOG = logging.getLogger(__name__)

#: Share by which each of two clocks may be wrong, and seconds in addition.
RATE_ERROR, MARGIN = 0.02, 3.0

#: Most seconds that the time between two looks at the leases adds to their age. A conductor without its database
#: misses all renewals, so hosts need the rest of the lease for the next one. A busy conductor looks late, but within
#: this time. It is a third of the shortest lease, and three intervals between requests of it.
LONGEST_GAP = 10.0

#: Hosts that are switched off at a time.
PARALLEL_HOSTS = 8


def wait_of(seconds: float) -> float:
    """Return the seconds to wait for the end of a lease by a clock that may be fast, of a host whose clock may be
    slow."""
    return seconds * (1 + RATE_ERROR) / (1 - RATE_ERROR) + MARGIN


class LeaseWatch:
    """The leases that this conductor has seen, and their age. ``clock``: seconds, monotonic.

    A lease ages while this conductor looks at the rows. It counts from the moment when this conductor saw its row,
    since that is later than the request. The time between two looks counts up to `LONGEST_GAP`: so no lease is older
    than its true age, and each look makes a lease without renewals older.
    """

    def __init__(self, clock: Callable[[], float] = clock.monotonic) -> None:
        self._clock = clock
        self._looked_at = clock()
        self.listened = 0.0
        self._ages: dict[Watched, float] = {}

    def ended(self, watched: list[Watched]) -> list[Watched]:
        """Note what was read from the rows just now, and return the leases that have ended."""
        passed = min(self._passed(), LONGEST_GAP)
        self.listened += passed
        self._ages = {item: self._ages[item] + passed if item in self._ages else 0.0 for item in watched}
        return [item for item, age in self._ages.items() if age >= wait_of(item.seconds)]

    def forget(self) -> None:
        """Begin again, because this conductor may have missed renewals."""
        self._passed()
        self.listened = 0.0
        self._ages.clear()

    def _passed(self) -> float:
        """Return the seconds since the last look."""
        before, self._looked_at = self._looked_at, self._clock()
        return self._looked_at - before


class HostFencer:
    """Fences hosts, and tests their fence methods. Raises `ConfigurationError` if the file of fencing has a mistake."""

    def __init__(
        self,
        db: Database,
        conf: cfg.ConfigOpts,
        timing: ConductorTiming = TIMING.conductor,
        watch: LeaseWatch | None = None,
    ) -> None:
        self._db = db
        self._conf = conf
        self._timing = timing
        self._watch = watch or LeaseWatch()
        self._methods = methods.load(conf.conductor.fencing_file)
        self._executor = KeyedExecutor("fence-host", PARALLEL_HOSTS)
        self._next_attempt: dict[str, float] = {}
        self._next_test = float("-inf")
        self._unprotected: dict[str, int] = {}

    def stop(self) -> None:
        """Drop what has not begun."""
        self._executor.stop()

    def samples(self) -> Iterable[tuple[str, metrics.Sample]]:
        """Yield the hosts whose protected servers would not come back automatically."""
        for host, number in self._unprotected.items():
            yield metrics.sample(metrics.HOST_UNFENCED, number, host)

    def sweep(self) -> None:
        """Fence the hosts that are lost. Call it about every second.

        While no host reports, the broker or this conductor is cut off. Then no host is fenced: there would be no host
        to run its servers. Afterwards each one gets a whole lease, and ``service_down_time`` before it is switched off.
        A time without the database, or in which this conductor stood still, counts as a late look (`LONGEST_GAP`).
        """
        if not self._hears_hosts():
            self._watch.forget()
            return
        for item in self._watch.ended(self._db.read(leases.watched)):
            if self._db.write(leases.expire_lease, item):
                LOG.warning("Host %s is lost: its lease has ended, so its protected servers are off", item.host)
        if not self._db.read(services.is_first, services.CONDUCTOR, self._conf.host):
            self._unprotected = {}
            return
        if self._methods and self._has_listened():
            self._switch_off_lost()
        if clock.monotonic() >= self._next_test:
            self._next_test = clock.monotonic() + self._timing.fence_test_interval
            self._executor.run("test", [functools.partial(self._guarded, self._test)])

    def _hears_hosts(self) -> bool:
        return self._db.read(services.hears_hosts, 2 * self._conf.report_interval + 1)

    def _has_listened(self) -> bool:
        """Check whether each host could report since this conductor hears hosts."""
        return self._watch.listened >= float(self._conf.service_down_time)

    def _switch_off_lost(self) -> None:
        for item in self._db.read(leases.lost, self._conf):
            now = clock.monotonic()
            if item.host in self._methods and now >= self._next_attempt.get(item.host, now):
                self._next_attempt[item.host] = now + self._timing.fence_retry
                task = functools.partial(self._guarded, functools.partial(self._switch_off, item))
                self._executor.run(item.host, [task])

    def _switch_off(self, item: Lost) -> None:
        """Switch a host off that is still lost. It may have reported while this task waited for a thread."""
        if not self._is_lost(item):
            LOG.info("Host %s is not switched off: it has reported again, or no host reports", item.host)
            self._next_attempt.pop(item.host, None)
            return
        LOG.warning("Host %s is silent and has protected servers: it is switched off", item.host)
        text = ""
        try:
            method = methods.switch_off(item.host, self._methods[item.host], self._timing, lambda: self._is_lost(item))
        except exceptions.FenceFailed as error:
            text = error.message
        if text and not self._is_lost(item):
            LOG.info("Host %s has reported again, or no host reports: %s", item.host, text)
            self._next_attempt.pop(item.host, None)
        elif text:
            LOG.error("Host %s is not fenced, and its servers stay: %s", item.host, text)
        elif self._db.write(leases.record_off, item.host, item.boot_id, method):
            LOG.warning("Host %s is off (%s) and forced down; its protected servers are evacuated", item.host, method)
        else:
            LOG.warning("Host %s has registered again, so its power is on: nothing is evacuated", item.host)

    def _is_lost(self, item: Lost) -> bool:
        hears = self._has_listened() and self._hears_hosts()
        return hears and item in self._db.read(leases.lost, self._conf, item.host)

    def _test(self) -> None:
        """Test all methods, and find the hosts whose protected servers would not come back."""
        for host, found in self._methods.items():
            checks = [check._asdict() for check in methods.test(found, self._timing)]
            self._db.write(leases.record_checks, host, checks)
            for check in checks:
                if check["error"]:
                    LOG.warning("Host %s: fence method %s does not work: %s", host, check["name"], check["error"])
        states = {state.host: state for state in self._db.read(leases.all_hosts)}
        self._unprotected = {
            host: number
            for host, number in self._db.read(leases.hosts_of_protected, self._conf).items()
            if host in states and not states[host].is_fenceable
        }

    @staticmethod
    def _guarded(work: Callable[[], None]) -> None:
        """Run work of a thread. Its failure is logged, and the next sweep begins it again."""
        try:
            work()
        except Exception as error:
            log_failure(LOG, "Fencing failed, and is tried again", error)

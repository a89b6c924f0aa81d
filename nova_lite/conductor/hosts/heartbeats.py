"""Heartbeats of compute hosts: those that come within a moment and bring nothing new are one transaction.

What a heartbeat may do is in `nova_lite.db.hosts`: the rows decide, under their locks, whether one brings
nothing new. Here it is only guessed which are worth a wait; each is answered after the commit that has its lease.
"""

from __future__ import annotations

import functools
import logging
import random
import threading
import time
from collections.abc import Callable

from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.batching import BatchWindow, ResponseFuture
from nova_lite.base.context import RequestContext
from nova_lite.db import hosts, instances
from nova_lite.db.engine import Database, translate
from nova_lite.objects import HostReport

LOG = logging.getLogger(__name__)

#: Seconds that a heartbeat waits for others at most, and how many of them may.
MOMENT = 0.5
MOST = 64

#: Seconds after which a heartbeat is reported in full again at the latest, whatever it says: what rows follow from
#: besides reports (a default of the configuration, say) is brought up to date so. Each host's time is another one,
#: since all of them are reported in full when a conductor starts.
FULLY_AFTER = 3600.0


class Heartbeats:
    def __init__(self, db: Database, conf: cfg.ConfigOpts) -> None:
        self._db = db
        self._conf = conf
        self._quiet: BatchWindow[HostReport, tuple[bool, bool | None]] = BatchWindow(self._renew, MOMENT, MOST)
        self._lock = threading.Lock()
        #: By host: of the last one that was reported in full here, its daemon's start, its epoch, and when the next is.
        self._known: dict[str, tuple[str, int, float]] = {}

    def report_state(self, context: RequestContext, report: HostReport) -> bool | ResponseFuture[bool | None] | None:
        renewed = self._quiet.ask_later(report) if self._seems_quiet(report) else (False, None)
        if not isinstance(renewed, ResponseFuture):
            return self._told(report, *renewed)
        told: ResponseFuture[bool | None] = ResponseFuture()
        renewed.then(lambda get: self._tell(told, report, get))
        return told

    def _tell(
        self, told: ResponseFuture[bool | None], report: HostReport, get: Callable[[], tuple[bool, bool | None]]
    ) -> None:
        """By the thread that has renewed this one with others, which does not wait for what takes longer."""
        try:
            renewed, agrees = get()
        except Exception:
            told.tell(lambda: get()[1])  # raises the same
            return
        if renewed:
            told.tell(lambda: agrees)
        else:
            work = functools.partial(told.tell, functools.partial(self._told, report, renewed, agrees))
            threading.Thread(target=work, name=f"report-{report.host}", daemon=True).start()

    def _told(self, report: HostReport, renewed: bool, agrees: bool | None) -> bool | None:
        """What it is answered. One that was not renewed is reported in full."""
        if not renewed:
            self._db.write(hosts.report_state, self._conf, report)
            with self._lock:
                again = time.monotonic() + random.uniform(FULLY_AFTER / 2, FULLY_AFTER)
                self._known[report.host] = (report.boot_id, report.epoch, again)
            agrees = self._agree([report]).get(report.host)
        return agrees

    def _seems_quiet(self, report: HostReport) -> bool:
        if report.building or report.acting or not (report.serving and report.hypervisor_up):
            return False
        with self._lock:
            boot_id, epoch, again = self._known.get(report.host, ("", 0, float("-inf")))
        return (boot_id, epoch) == (report.boot_id, report.epoch) and time.monotonic() < again

    def _renew(self, reports: list[HostReport]) -> list[tuple[bool, bool | None]]:
        """Of each whether its lease was renewed, and what it is answered. None is held up by another one's rows that
        make no sense: each is reported by itself then."""
        try:
            renewed = self._db.write(hosts.renew_hosts, reports)
        except Exception as error:
            if isinstance(translate(error), exceptions.DatabaseUnavailable):
                raise
            LOG.warning("Heartbeats of %d hosts are written one by one: %s", len(reports), " ".join(str(error).split()))
            return [(False, None)] * len(reports)
        agree = self._agree([report for report, done in zip(reports, renewed, strict=True) if done])
        return [(done, agree.get(report.host)) for report, done in zip(reports, renewed, strict=True)]

    def _agree(self, reports: list[HostReport]) -> dict[str, bool]:
        """By host, of those that ask."""
        digests = {report.host: report.domains for report in reports if report.domains is not None}
        return self._db.read(instances.agree, digests) if digests else {}

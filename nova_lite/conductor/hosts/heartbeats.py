"""Heartbeats of compute hosts. Heartbeats that report nothing new are written in batches.

`nova_lite.db.hosts.hosts` compares each heartbeat with the locked rows; this module only guesses which heartbeats
report nothing new, and may wait for a batch. Each reply follows the commit that renews the host's lease.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import NamedTuple

from oslo_config import cfg

from nova_lite.base import clock, exceptions, randomness, threads
from nova_lite.base.batching import Batcher
from nova_lite.base.context import RequestContext
from nova_lite.base.futures import ResponseFuture
from nova_lite.base.timing import TIMING, ConductorTiming
from nova_lite.db.core.engine import Database, translate
from nova_lite.db.hosts import hosts
from nova_lite.db.servers import instances
from nova_lite.objects import HostReport

LOG = logging.getLogger(__name__)


class _Renewal(NamedTuple):
    """Result of a heartbeat: True if the lease was renewed, and whether the host's domains match the database."""

    renewed: bool
    domains_match: bool | None


class _LastReport(NamedTuple):
    """The last heartbeat of a host that was written in full here."""

    boot_id: str
    epoch: int
    #: Monotonic time at which the next one is due.
    next_full: float


class Heartbeats:
    """The RPC method `report_state`."""

    def __init__(self, db: Database, conf: cfg.ConfigOpts, timing: ConductorTiming = TIMING.conductor) -> None:
        self._db = db
        self._conf = conf
        self._batcher: Batcher[HostReport, _Renewal] = Batcher(self._renew, timing.heartbeat_batches)
        self._full_report_interval = timing.full_report_interval
        self._lock = threads.Lock()
        self._last_reports: dict[str, _LastReport] = {}

    def report_state(self, context: RequestContext, report: HostReport) -> bool | ResponseFuture[bool | None] | None:
        if not self._seems_unchanged(report):
            return self._write_in_full(report)
        renewal = self._batcher.submit_later(report)
        if not isinstance(renewal, ResponseFuture):
            return renewal.domains_match if renewal.renewed else self._write_in_full(report)
        reply: ResponseFuture[bool | None] = ResponseFuture()
        renewal.add_callback(lambda get: self._send_reply(reply, report, get))
        return reply

    def _send_reply(self, reply: ResponseFuture[bool | None], report: HostReport, get: Callable[[], _Renewal]) -> None:
        """Reply to a heartbeat of a batch. The batch's thread does not wait for a heartbeat that is written in full."""
        try:
            renewal = get()
        except Exception:
            reply.set_result(lambda: get().domains_match)  # raises the same error
            return
        if renewal.renewed:
            reply.set_result(lambda: renewal.domains_match)
        else:
            work = functools.partial(reply.set_result, functools.partial(self._write_in_full, report))
            threads.start(work, f"report-{report.host}")

    def _write_in_full(self, report: HostReport) -> bool | None:
        """Write all that the heartbeat reports. Returns whether the host's domains match, if it asks that."""
        self._db.write(hosts.report_state, self._conf, report)
        longest = self._full_report_interval
        with self._lock:
            next_full = clock.monotonic() + randomness.uniform(longest / 2, longest)
            self._last_reports[report.host] = _LastReport(report.boot_id, report.epoch, next_full)
        return self._compare_domains([report]).get(report.host)

    def _seems_unchanged(self, report: HostReport) -> bool:
        if report.building or report.acting or report.health is not None:
            return False
        if not (report.serving and report.hypervisor_up):
            return False
        with self._lock:
            last = self._last_reports.get(report.host)
        return (
            last is not None
            and (last.boot_id, last.epoch) == (report.boot_id, report.epoch)
            and clock.monotonic() < last.next_full
        )

    def _renew(self, reports: list[HostReport]) -> list[_Renewal]:
        """Renew the leases in one transaction. If a corrupt row makes it fail, each heartbeat is written in full."""
        try:
            renewed = self._db.write(hosts.renew_hosts, reports)
        except Exception as error:
            if isinstance(translate(error), exceptions.DatabaseUnavailable):
                raise
            text = " ".join(str(error).split())
            LOG.warning("A batch of %d heartbeats failed; each is written in full: %s", len(reports), text)
            return [_Renewal(False, None)] * len(reports)
        matches = self._compare_domains([report for report, done in zip(reports, renewed, strict=True) if done])
        return [_Renewal(done, matches.get(report.host)) for report, done in zip(reports, renewed, strict=True)]

    def _compare_domains(self, reports: list[HostReport]) -> dict[str, bool]:
        """Return by host whether its domains match the database, for the reports that carry a digest of them."""
        digests = {report.host: report.domains for report in reports if report.domains is not None}
        return self._db.read(instances.agree, digests) if digests else {}

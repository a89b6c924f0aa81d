"""Registration of this host with the conductor: its epoch, and whether it may serve.

An operator who forces a host down declares that nothing runs there, so its servers may be built elsewhere. A daemon
that is still running, or continues after a long pause, must learn of that before it executes another command. So each
heartbeat contains the epoch of its registration. The conductor rejects it once it has ended that epoch.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time

from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.compute.consistency_check import ConsistencyCheck
from nova_lite.compute.heartbeat import Heartbeat
from nova_lite.objects import HostProblem, HostReport, Lease, LeaseRequest, StorageReport, StorageView
from nova_lite.objects.host import admission
from nova_lite.rpcapi.conductor import ConductorRPC

LOG = logging.getLogger(__name__)


class Registration:
    """State of the registration.

    ``lost`` is set when the registration has ended. Then the host has to register again and compare its domains before
    it serves.
    """

    def __init__(self, conf: cfg.ConfigOpts, heartbeat: Heartbeat, conductor: ConductorRPC, identity: str = "") -> None:
        self._conf = conf
        self._heartbeat = heartbeat
        self._conductor = conductor
        self._identity = identity
        self._epoch = 0
        self._serving = False
        self._confirmed = float("-inf")
        self._consistency_check: ConsistencyCheck | None = None
        self._requests = itertools.count(1)
        #: Problems of the machine, if it is watched, and the problems of the last heartbeat that named any.
        self._health: list[HostProblem] | None = None
        self._health_reported: list[HostProblem] | None = None
        self.lost = threading.Event()

    @property
    def admission(self) -> str:
        """The name of this registration."""
        return admission(self._epoch, self._identity)

    def register(self) -> None:
        """Register the host. It does not count as up before `serve`.

        Raises `HostNotAdmitted` while the host may not serve, or if another machine has its name.
        """
        self._serving = False
        sent_at, report = time.monotonic(), self._report()
        report.health = self._health
        self._epoch = self._conductor.register_host(get_admin_context(), report)
        self._confirmed, self._health_reported = sent_at, report.health
        self.lost.clear()

    def serve(self) -> None:
        """Report that the host accepts commands, now or with the next heartbeat. Foreign domains are gone by then."""
        self._serving = True
        error_text = None
        try:
            self.send_heartbeat()
        except exceptions.ServiceUnavailable as error:
            error_text = error.message
        if error_text:  # Outside of the except block: oslo.log would append the exception to the line.
            LOG.warning("The conductor does not know yet that this host serves: %s", error_text)

    def send_heartbeat(self) -> None:
        """`confirm`, but wait at most half a lease, so that the next heartbeat is in time."""
        self.confirm(self._conf.service_down_time / 2)

    def attach_check(self, check: ConsistencyCheck) -> None:
        """Send this check with the next heartbeat, in place of any other check."""
        self._consistency_check = check

    def attach_health(self, problems: list[HostProblem]) -> None:
        """Send these problems with the next heartbeat, unless the last report named the same."""
        self._health = problems

    def confirm(self, timeout: float | None = None) -> None:
        """Send a heartbeat. Raise `HostNotAdmitted` if the registration has ended. ``timeout``: seconds to wait for the
        reply."""
        sent_at, report = time.monotonic(), self._report()
        check = self._consistency_check
        if check is not None and check.is_open:
            report.domains = check.digest
        report.health = self._health if self._health != self._health_reported else None
        try:
            agrees = self._conductor.report_state(get_admin_context(), report, timeout=timeout)
        except exceptions.HostNotAdmitted:
            if report.epoch == self._epoch:
                self.lost.set()
            raise
        self._confirmed = sent_at
        if report.health is not None:
            self._health_reported = report.health
        if check is not None and report.domains is not None:
            check.agrees = bool(agrees)

    def lease_request(self, seconds: float, guests: list[str], leaves: bool = False) -> LeaseRequest:
        """Return a request of a lease for these protected guests. Its number is above those of all earlier ones.

        ``leaves``: this daemon stops as requested.
        """
        return LeaseRequest(
            host=self._heartbeat.host,
            boot_id=self._heartbeat.boot_id,
            epoch=self._epoch,
            identity=self._identity,
            number=next(self._requests),
            seconds=seconds,
            guests=guests,
            leaves=leaves,
        )

    def send_lease_request(self, request: LeaseRequest, timeout: float, conductor: ConductorRPC | None = None) -> Lease:
        """Send a request and return the lease. ``conductor``: another way there than that of all other messages.

        Raises `HostNotAdmitted` if the registration has ended.
        """
        try:
            return (conductor or self._conductor).renew_lease(get_admin_context(), request, timeout=timeout)
        except exceptions.HostNotAdmitted:
            if request.epoch == self._epoch:
                self.lost.set()
            raise

    def report_storage(self, view: StorageView) -> list[str]:
        """Report what this host sees in its directory of disks. Return the hosts that share it.

        Raise `HostNotAdmitted` if the registration has ended.
        """
        report = StorageReport(host=self._heartbeat.host, epoch=self._epoch, identity=self._identity, view=view)
        return self._conductor.report_storage(get_admin_context(), report)

    def _report(self) -> HostReport:
        report = self._heartbeat.report()
        report.epoch, report.serving, report.identity = self._epoch, self._serving, self._identity
        return report

    def require(self) -> None:
        """Raise `ServiceUnavailable` while the host accepts no commands."""
        if self.lost.is_set() or not self._serving:
            raise exceptions.HostNotAdmitted("This host is not registered, or has not compared its domains yet.")
        if time.monotonic() - self._confirmed >= self._conf.service_down_time:
            raise exceptions.ServiceUnavailable("No heartbeat has been confirmed recently.")

    def check(self) -> None:
        """Check before a command that the host may serve. If the last reply is older than a host's lease, send a
        heartbeat.

        Raises `ServiceUnavailable` if the host may not serve, or cannot find out.
        """
        if self.lost.is_set():
            raise exceptions.HostNotAdmitted("This host has to register again before it serves.")
        if time.monotonic() - self._confirmed >= self._conf.service_down_time:
            self.confirm()

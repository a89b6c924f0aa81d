"""This host's registration with the conductor: its epoch, and whether it may serve.

An operator who forces a host down says that nothing runs there, so that its servers may be built elsewhere. A daemon
that still runs then, or goes on after a long pause, has to learn of it before it carries out another order: each
heartbeat names the epoch of its registration, and is refused once the conductor has ended that epoch.
"""

from __future__ import annotations

import logging
import threading
import time

from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.compute.consistency_check import ConsistencyCheck
from nova_lite.compute.heartbeat import Heartbeat
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.objects import HostReport
from nova_lite.objects.host import admission

LOG = logging.getLogger(__name__)


class Registration:
    """``lost`` is set when the registration is over: the host has to register again, compare its domains, serve."""

    def __init__(self, conf: cfg.ConfigOpts, heartbeat: Heartbeat, conductor: ConductorRPC, identity: str = "") -> None:
        self._conf = conf
        self._heartbeat = heartbeat
        self._conductor = conductor
        self._identity = identity
        self._epoch = 0
        self._serving = False
        self._confirmed = float("-inf")
        self._question: ConsistencyCheck | None = None
        self.lost = threading.Event()

    @property
    def admission(self) -> str:
        """What this registration is called."""
        return admission(self._epoch, self._identity)

    def register(self) -> None:
        """Raises `HostNotAdmitted` while the host may not serve, or is not the one of its name. It does not count as up
        before `serve`."""
        self._serving = False
        asked, report = time.monotonic(), self._report()
        self._epoch = self._conductor.register_host(get_admin_context(), report)
        self._confirmed = asked
        self.lost.clear()

    def serve(self) -> None:
        """Report that the host takes orders, now or with the next heartbeat; foreign domains are gone by then."""
        self._serving = True
        trouble = None
        try:
            self.send_heartbeat()
        except exceptions.ServiceUnavailable as error:
            trouble = error.message
        if trouble:  # while an exception is handled, oslo.log repeats it at the end of the line
            LOG.warning("It could not be told yet that this host serves: %s", trouble)

    def send_heartbeat(self) -> None:
        """`confirm`, waiting at most half a lease, so that the next heartbeat comes in time."""
        self.confirm(self._conf.service_down_time / 2)

    def ask(self, question: ConsistencyCheck) -> None:
        """With the next heartbeat, in place of any other question."""
        self._question = question

    def confirm(self, timeout: float | None = None) -> None:
        """Raises `HostNotAdmitted` when the registration is over. ``timeout``: seconds to wait for the answer."""
        asked, report = time.monotonic(), self._report()
        question = self._question
        if question is not None and question.is_open:
            report.domains = question.digest
        try:
            agrees = self._conductor.report_state(get_admin_context(), report, timeout=timeout)
        except exceptions.HostNotAdmitted:
            if report.epoch == self._epoch:
                self.lost.set()
            raise
        self._confirmed = asked
        if question is not None and report.domains is not None:
            question.answer = bool(agrees)  # an older conductor says nothing

    def _report(self) -> HostReport:
        report = self._heartbeat.report()
        report.epoch, report.serving, report.identity = self._epoch, self._serving, self._identity
        return report

    def require(self) -> None:
        """Raises `ServiceUnavailable` while the host takes no orders."""
        if self.lost.is_set() or not self._serving:
            raise exceptions.HostNotAdmitted("This host is not registered, or has not compared its domains yet.")
        if time.monotonic() - self._confirmed >= self._conf.service_down_time:
            raise exceptions.ServiceUnavailable("No heartbeat was answered lately.")

    def check(self) -> None:
        """Before an order is carried out: asks if the last answer is older than a host's lease. Raises
        `ServiceUnavailable` if the host may not serve, or cannot find out."""
        if self.lost.is_set():
            raise exceptions.HostNotAdmitted("This host has to register anew before it serves.")
        if time.monotonic() - self._confirmed >= self._conf.service_down_time:
            self.confirm()

"""Reports the load balancers of this host to the conductor, and does what it says.

The reply to a report has all load balancers that the host runs. It renews the lease of their addresses, which begins
before the report is sent.
"""

from __future__ import annotations

import logging
import uuid

import msgspec
from oslo_config import cfg

from nova_lite.base import clock, exceptions
from nova_lite.compute.load_balancer.backends import load_backend
from nova_lite.compute.wings import HostWing
from nova_lite.load_balancer.objects import Assignments, HostReport
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.virt.driver import ComputeDriver

LOG = logging.getLogger(__name__)

#: Reports within a lease, longest interval in seconds, and seconds until the next one after a failure.
REPORTS, MAX_INTERVAL, RETRY_PAUSE = 4, 10.0, 2.0


class HostBalancers(HostWing):
    """The load balancers of a host."""

    def __init__(
        self, name: str, conf: cfg.ConfigOpts, host: str, driver: ComputeDriver, conductor: ConductorRPC
    ) -> None:
        super().__init__(name, conf, host, driver, conductor)
        self._backend = load_backend(conf, host, driver)
        self._boot_id = str(uuid.uuid4())
        self._number = 0
        self._due = self._until = 0.0

    def tick(self, timeout: float) -> None:
        is_woken = self.woken.wait(timeout)
        if not is_woken and clock.monotonic() < self._due:
            return
        self.woken.clear()
        self._due = clock.monotonic() + RETRY_PAUSE
        report = self._backend.report()
        self._number += 1
        report.boot_id, report.number = self._boot_id, self._number
        started = clock.monotonic()
        try:
            reply = self.send(msgspec.to_builtins(report))
        except exceptions.NovaLiteException:
            # The kernel removes the addresses themselves. Floating ones lead to them, and may be at another host.
            if self.driver.filters and clock.monotonic() > self._until:
                self.driver.filters.withdraw_addresses(self._backend.ports())
            raise
        assignments = msgspec.convert(reply, Assignments, str_keys=True)
        self._until = started + assignments.lease
        self._backend.apply(assignments.balancers, self._until)
        if self.driver.filters and (ports := self._backend.ports()):
            self.driver.filters.keep_addresses(ports, int(self._until - clock.monotonic()))
        self._due = started + min(MAX_INTERVAL, assignments.lease / REPORTS)
        if _state(self._backend.report()) != _state(report):
            self.woken.set()  # the conductor waits for it


def _state(report: HostReport) -> object:
    """Return what the conductor waits for, without statistics."""
    return report.problem, [(one.id, one.version, one.holds, one.problem) for one in report.balancers]

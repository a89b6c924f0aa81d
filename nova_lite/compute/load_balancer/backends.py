"""What runs load balancers: HAProxy in namespaces, or nothing for the fake hypervisor."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from oslo_config import cfg

from nova_lite.load_balancer.objects import Assignment, HostReport, Report
from nova_lite.virt.driver import ComputeDriver


class Backend(abc.ABC):
    """The load balancers of a host, as they are."""

    @abc.abstractmethod
    def report(self) -> HostReport:
        """Return the state of all load balancers."""

    @abc.abstractmethod
    def apply(self, assignments: Sequence[Assignment], until: float) -> None:
        """Run these load balancers, and no others. ``until``: monotonic time at which their addresses end.

        A load balancer that cannot be run has its problem in the next report.
        """


class FakeBackend(Backend):
    """Runs nothing, and reports that it does."""

    def __init__(self) -> None:
        self._balancers: list[Report] = []

    def report(self) -> HostReport:
        return HostReport(balancers=list(self._balancers))

    def apply(self, assignments: Sequence[Assignment], until: float) -> None:
        self._balancers = [
            Report(id=item.balancer.id, version=item.balancer.version, holds=item.active) for item in assignments
        ]


def load_backend(conf: cfg.ConfigOpts, host: str, driver: ComputeDriver) -> Backend:
    return FakeBackend()

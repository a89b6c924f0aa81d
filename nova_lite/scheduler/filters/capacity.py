"""Filters by capacity: memory, disk and vCPUs.

Capacities include allocation ratios and reservations. Instances may use a host up to its capacity, as in the
conductor's claim.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

from nova_lite import hardware
from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter


def shared_vcpus(spec: RequestSpec) -> int:
    """Return how many of an instance's vCPUs share CPUs of the host with others."""
    numa = hardware.numa_of(spec.flavor, spec.image)
    return spec.flavor.vcpus if numa is None else numa.shared_vcpus


class CapacityFilter(HostFilter):
    """Compares the request for ``resource`` with its free amount, both in ``unit``."""

    resource: str
    unit: str

    def requested(self, spec: RequestSpec) -> int:
        """Return the amount that one instance takes."""
        return int(getattr(spec.flavor, self.resource))

    def free(self, host: HostState) -> int:
        """Return the free amount. It is negative if the capacity shrank below the use."""
        return int(getattr(host, self.resource) - getattr(host, f"{self.resource}_used"))

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return bool(self.passing([host], spec))

    @abc.abstractmethod
    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]: ...

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return f"{self.requested(spec)} {self.unit} requested, {max(self.free(host), 0)} {self.unit} free"

    def shortfall(self, host: HostState, spec: RequestSpec) -> float:
        return self.requested(spec) - self.free(host)

    def summary(self, closest: HostState, spec: RequestSpec) -> str:
        return f"{self.requested(spec)} {self.unit} requested, at most {max(self.free(closest), 0)} {self.unit} free"


class RamFilter(CapacityFilter):
    resource = "memory_mb"
    unit = "MB"

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        requested = self.requested(spec)
        return [host for host in hosts if host.memory_mb - host.memory_mb_used >= requested]


class DiskFilter(CapacityFilter):
    """Requires enough disk by allocations, and also by free space, because other files fill a disk as well."""

    resource = "disk_gb"
    unit = "GB"

    def free(self, host: HostState) -> int:
        unclaimed = super().free(host)
        return unclaimed if host.disk_available_least is None else min(unclaimed, host.disk_available_least)

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        requested = self.requested(spec)
        return [
            host
            for host in hosts
            if host.disk_gb - host.disk_gb_used >= requested
            and (not requested or host.disk_available_least is None or host.disk_available_least >= requested)
        ]


class CoreFilter(CapacityFilter):
    """Requires enough shared vCPUs. Dedicated vCPUs do not count."""

    resource = "vcpus"
    unit = "vCPUs"

    def requested(self, spec: RequestSpec) -> int:
        return shared_vcpus(spec)

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        requested = self.requested(spec)
        return [host for host in hosts if host.vcpus - host.vcpus_used >= requested]

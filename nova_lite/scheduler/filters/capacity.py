"""Room for memory, disk and vCPUs.

A host's capacities come with its allocation ratios and reservations applied, and an instance may fill one to the last
unit: the same test that the conductor's claim makes.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

from nova_lite import hardware
from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter


def shared_vcpus(spec: RequestSpec) -> int:
    """How many of an instance's vCPUs share CPUs with others."""
    numa = hardware.numa_of(spec.flavor, spec.image)
    return 0 if numa is not None and numa.dedicated else spec.flavor.vcpus


class CapacityFilter(HostFilter):
    """Compares what is asked of ``resource`` with what is free, both in ``unit``."""

    resource: str
    unit: str

    def asked(self, spec: RequestSpec) -> int:
        """What one instance takes."""
        return int(getattr(spec.flavor, self.resource))

    def free(self, host: HostState) -> int:
        """What the host has left; negative when its capacity shrank below its use."""
        return int(getattr(host, self.resource) - getattr(host, f"{self.resource}_used"))

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return bool(self.passing([host], spec))

    @abc.abstractmethod
    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]: ...

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return f"{self.asked(spec)} {self.unit} asked, {max(self.free(host), 0)} {self.unit} free"

    def shortfall(self, host: HostState, spec: RequestSpec) -> float:
        return self.asked(spec) - self.free(host)

    def summary(self, closest: HostState, spec: RequestSpec) -> str:
        return f"{self.asked(spec)} {self.unit} asked, at most {max(self.free(closest), 0)} {self.unit} free"


class RamFilter(CapacityFilter):
    resource = "memory_mb"
    unit = "MB"

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        asked = self.asked(spec)
        return [host for host in hosts if host.memory_mb - host.memory_mb_used >= asked]


class DiskFilter(CapacityFilter):
    """Also what is really free counts: other files than guests' disks fill a host's disk, too."""

    resource = "disk_gb"
    unit = "GB"

    def free(self, host: HostState) -> int:
        unclaimed = super().free(host)
        return unclaimed if host.disk_available_least is None else min(unclaimed, host.disk_available_least)

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        asked = self.asked(spec)
        return [
            host
            for host in hosts
            if host.disk_gb - host.disk_gb_used >= asked
            and (not asked or host.disk_available_least is None or host.disk_available_least >= asked)
        ]


class CoreFilter(CapacityFilter):
    """vCPUs that get CPUs of the host for themselves are not among those that are shared."""

    resource = "vcpus"
    unit = "vCPUs"

    def asked(self, spec: RequestSpec) -> int:
        return shared_vcpus(spec)

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        asked = self.asked(spec)
        return [host for host in hosts if host.vcpus - host.vcpus_used >= asked]

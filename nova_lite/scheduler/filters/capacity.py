"""Room for memory, disk and vCPUs.

A host's capacities come with its allocation ratios and reservations applied, and an instance may fill one to the last
unit: the same test that the conductor's claim makes.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter


class CapacityFilter(HostFilter):
    """Compares what is asked with what is free, both in ``unit``."""

    unit: str

    @abc.abstractmethod
    def asked(self, spec: RequestSpec) -> int:
        """What one instance takes."""

    @abc.abstractmethod
    def free(self, host: HostState) -> int:
        """What the host has left; negative when its capacity shrank below its use."""

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return self.free(host) >= self.asked(spec)

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return f"{self.asked(spec)} {self.unit} asked, {max(self.free(host), 0)} {self.unit} free"

    def shortfall(self, host: HostState, spec: RequestSpec) -> float:
        return self.asked(spec) - self.free(host)

    def summary(self, closest: HostState, spec: RequestSpec) -> str:
        return f"{self.asked(spec)} {self.unit} asked, at most {max(self.free(closest), 0)} {self.unit} free"


class RamFilter(CapacityFilter):
    unit = "MB"

    def asked(self, spec: RequestSpec) -> int:
        return spec.flavor.memory_mb

    def free(self, host: HostState) -> int:
        return host.memory_mb - host.memory_mb_used

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        asked = self.asked(spec)
        return [host for host in hosts if host.memory_mb - host.memory_mb_used >= asked]


class DiskFilter(CapacityFilter):
    unit = "GB"

    def asked(self, spec: RequestSpec) -> int:
        return spec.flavor.disk_gb

    def free(self, host: HostState) -> int:
        return host.disk_gb - host.disk_gb_used

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        asked = self.asked(spec)
        return [host for host in hosts if host.disk_gb - host.disk_gb_used >= asked]


class CoreFilter(CapacityFilter):
    unit = "vCPUs"

    def asked(self, spec: RequestSpec) -> int:
        return spec.flavor.vcpus

    def free(self, host: HostState) -> int:
        return host.vcpus - host.vcpus_used

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        asked = self.asked(spec)
        return [host for host in hosts if host.vcpus - host.vcpus_used >= asked]

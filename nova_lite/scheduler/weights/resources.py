"""Weighers by free resources. Hosts with more of them are preferred, so instances spread."""

from __future__ import annotations

from collections.abc import Sequence

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.weights.base import HostWeigher


class RAMWeigher(HostWeigher):
    multiplier_option = "ram_weight_multiplier"

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        return host.memory_mb - host.memory_mb_used

    def weights(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[float]:
        return [host.memory_mb - host.memory_mb_used for host in hosts]


class CPUWeigher(HostWeigher):
    multiplier_option = "cpu_weight_multiplier"

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        return host.vcpus - host.vcpus_used

    def weights(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[float]:
        return [host.vcpus - host.vcpus_used for host in hosts]


class DiskWeigher(HostWeigher):
    multiplier_option = "disk_weight_multiplier"

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        return host.disk_gb - host.disk_gb_used

    def weights(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[float]:
        return [host.disk_gb - host.disk_gb_used for host in hosts]

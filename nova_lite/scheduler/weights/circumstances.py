"""What else speaks for or against a host than its room."""

from __future__ import annotations

from collections.abc import Sequence

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.weights.base import HostWeigher


class IoOpsWeigher(HostWeigher):
    """Servers with a task under way; the default multiplier is negative, for hosts that are busy with few."""

    multiplier_option = "io_ops_weight_multiplier"

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        return host.io_ops


class BuildFailureWeigher(HostWeigher):
    """Hosts where the last builds failed come last."""

    multiplier_option = "build_failure_weight_multiplier"

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        return -host.failed_builds

    def weights(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[float]:
        return [-host.failed_builds for host in hosts]


class PCIWeigher(HostWeigher):
    """Free PCI devices (the capability ``pci_free``): hosts that have them are kept for servers that ask for one."""

    multiplier_option = "pci_weight_multiplier"

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        free = host.capabilities.get("pci_free", 0)
        number = free if isinstance(free, int | float) else 0
        return number if "pci_passthrough:alias" in spec.flavor.extra_specs else -number


class CrossAZWeigher(HostWeigher):
    """A server that is moved stays in its zone where it can."""

    multiplier_option = "cross_az_weight_multiplier"

    def applies(self, spec: RequestSpec) -> bool:
        return spec.current_zone is not None

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        return 1.0 if host.availability_zone == spec.current_zone else 0.0


class ServerGroupSoftAffinityWeigher(HostWeigher):
    """Members that the host already holds, for groups that wish to be together."""

    multiplier_option = "soft_affinity_weight_multiplier"
    policy = "soft-affinity"

    def applies(self, spec: RequestSpec) -> bool:
        return spec.instance_group is not None and spec.instance_group.policy == self.policy

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        return spec.instance_group.hosts.count(host.host) if spec.instance_group is not None else 0


class ServerGroupSoftAntiAffinityWeigher(ServerGroupSoftAffinityWeigher):
    """The same, for groups that wish to be apart."""

    multiplier_option = "soft_anti_affinity_weight_multiplier"
    policy = "soft-anti-affinity"

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        return -super().weight(host, spec)

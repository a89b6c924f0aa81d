"""Weighers for the soft policies of server groups."""

from __future__ import annotations

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.weights.base import HostWeigher


class ServerGroupSoftAffinityWeigher(HostWeigher):
    """Prefers hosts with more members of the server group."""

    multiplier_option = "soft_affinity_weight_multiplier"
    policy = "soft-affinity"

    def applies(self, spec: RequestSpec) -> bool:
        return spec.instance_group is not None and spec.instance_group.policy == self.policy

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        return spec.instance_group.hosts.count(host.host) if spec.instance_group is not None else 0


class ServerGroupSoftAntiAffinityWeigher(ServerGroupSoftAffinityWeigher):
    """Prefers hosts with fewer members of the server group."""

    multiplier_option = "soft_anti_affinity_weight_multiplier"
    policy = "soft-anti-affinity"

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        return -super().weight(host, spec)

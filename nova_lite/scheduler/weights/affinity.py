"""Members of the request's server group: a soft policy prefers hosts with more, or fewer, of them."""

from __future__ import annotations

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.weights.base import HostWeigher


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

"""Filters by the policy of server groups: members on one host, or on different hosts.

The soft policies are preferences and reject no host. ``InstanceGroup.hosts`` names the host of each placed member, so a
host with two members is listed twice.
"""

from __future__ import annotations

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter


class ServerGroupAntiAffinityFilter(HostFilter):
    """Allows at most ``max_server_per_host`` members (one by default) on each host."""

    binds_forced_hosts = True

    def applies(self, spec: RequestSpec) -> bool:
        return spec.instance_group is not None and spec.instance_group.policy == "anti-affinity"

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        group = spec.instance_group
        if group is None:
            return True
        limit = 1 if group.max_server_per_host is None else group.max_server_per_host
        return group.hosts.count(host.host) < limit

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return "holds a server of the group"

    def summary(self, closest: HostState, spec: RequestSpec) -> str:
        return "each holds as many servers of the group as its policy allows"


class ServerGroupAffinityFilter(HostFilter):
    """Requires the host of the other members. The first member may use any host."""

    binds_forced_hosts = True

    def applies(self, spec: RequestSpec) -> bool:
        return spec.instance_group is not None and spec.instance_group.policy == "affinity"

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        group = spec.instance_group
        return group is None or not group.hosts or host.host in group.hosts

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return "does not hold the servers of the group"

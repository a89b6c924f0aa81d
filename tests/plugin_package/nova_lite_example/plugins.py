"""A filter and a weigher as any developer may write them: plain Python over two arguments."""

from __future__ import annotations

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters import HostFilter
from nova_lite.scheduler.weights import HostWeigher


class QuietFilter(HostFilter):
    """Refuses hosts with three instances or more."""

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return len(host.instances) < 3

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return f"{len(host.instances)} instances"


class NameWeigher(HostWeigher):
    """Prefers hosts whose names come late."""

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        return host.id

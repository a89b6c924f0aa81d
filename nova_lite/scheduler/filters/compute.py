"""Filter by the state of the host."""

from __future__ import annotations

from collections.abc import Sequence

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter


class ComputeFilter(HostFilter):
    """Rejects hosts that are down or disabled."""

    run_once_per_request = True

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return host.up and not host.disabled

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        return [host for host in hosts if host.up and not host.disabled]

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return "disabled" if host.up else "down"

    def summary(self, closest: HostState, spec: RequestSpec) -> str:
        return "down or disabled"

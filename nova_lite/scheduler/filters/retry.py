"""Filter against repeated attempts on one host, and against the host that a server leaves."""

from __future__ import annotations

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter


class RetryFilter(HostFilter):
    """Rejects hosts that already tried to build the instance, and hosts that must not get it."""

    run_once_per_request = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(spec.ignore_hosts)

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return host.host not in spec.ignore_hosts

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return spec.why_ignored(host.host)

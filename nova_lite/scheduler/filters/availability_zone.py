"""Availability zones."""

from __future__ import annotations

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter


class AvailabilityZoneFilter(HostFilter):
    """Requires the requested availability zone. Without one, any zone will do."""

    run_once_per_request = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(spec.availability_zone)

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return host.availability_zone == spec.availability_zone

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return f"in availability zone {host.availability_zone}"

    def summary(self, closest: HostState, spec: RequestSpec) -> str:
        return f"not in availability zone {spec.availability_zone}"

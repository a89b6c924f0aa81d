"""Filter by what a running guest needs to continue on another host."""

from __future__ import annotations

from nova_lite.hardware import continuing
from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter


class LiveMigrationFilter(HostFilter):
    """Rejects hosts on which a running guest cannot continue (`nova_lite.hardware.continuing`).

    It is always on, and forced hosts have to pass: the guest would crash. A host that reports no processor passes here;
    its own check follows before the guest moves.
    """

    run_once_per_request = True
    binds_forced_hosts = True

    def applies(self, spec: RequestSpec) -> bool:
        return spec.guest_cpu is not None

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return not continuing.obstacles_at(host, spec.guest_cpu)

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return "; ".join(continuing.obstacles_at(host, spec.guest_cpu))

    def shortfall(self, host: HostState, spec: RequestSpec) -> float:
        return continuing.distance(host, spec.guest_cpu)

"""Filter by what a running guest needs to continue on another host."""

from __future__ import annotations

import msgspec

from nova_lite.hardware import continuing
from nova_lite.objects import HostState, RequestSpec
from nova_lite.objects.cpu import HOST_CPU, HostCpu
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
        return not self._obstacles(host, spec)

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return "; ".join(self._obstacles(host, spec))

    def shortfall(self, host: HostState, spec: RequestSpec) -> float:
        """Return the number of missing features; most of all for another vendor's processor."""
        cpu = _cpu_of(host)
        if cpu is None or spec.guest_cpu is None:
            return 0.0
        missing = len(continuing.missing_features(spec.guest_cpu, cpu))
        return missing + 1000.0 * (spec.guest_cpu.vendor not in ("", cpu.vendor))

    def _obstacles(self, host: HostState, spec: RequestSpec) -> list[str]:
        cpu = _cpu_of(host)
        if cpu is None or spec.guest_cpu is None:
            return []
        return continuing.obstacles(spec.guest_cpu, cpu, host.hypervisor_version)


def _cpu_of(host: HostState) -> HostCpu | None:
    found = host.capabilities.get(HOST_CPU)
    return None if found is None else msgspec.convert(found, HostCpu)

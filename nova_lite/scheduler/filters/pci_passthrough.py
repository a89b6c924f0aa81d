"""Filter by free PCI devices."""

from __future__ import annotations

from nova_lite import hardware
from nova_lite.hardware import pci
from nova_lite.hardware.fitting import FitError
from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter


class PciPassthroughFilter(HostFilter):
    """Requires free PCI devices for all aliases of the flavor, as in the conductor's claim.

    For a guest in NUMA cells, they have to be as near as the policies demand.
    """

    binds_forced_hosts = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(spec.pci)

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return not self.reason(host, spec)

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        try:
            pci.place_on_host(spec.pci, hardware.numa_of(spec.flavor, spec.image), host)
        except FitError as miss:
            return str(miss)
        return ""

"""CPUs of their own, NUMA nodes and pages of memory: whether a host's NUMA cells have room for them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nova_lite import hardware
from nova_lite.hardware import fitting
from nova_lite.hardware.numa import NUMARequest
from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter

_ENCODE = msgspec.json.Encoder().encode


class NUMATopologyFilter(HostFilter):
    """Requires that each NUMA node of the guest fits into a cell of the host, as in the conductor's claim.

    That includes dedicated CPUs by the thread policy, memory, and pages of the requested size.
    """

    binds_forced_hosts = True

    def applies(self, spec: RequestSpec) -> bool:
        return _topology_of(spec) is not None

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        """Return the hosts that pass. Hosts with equal cells and equal use are checked once."""
        topology = _topology_of(spec)
        if topology is None:
            return list(hosts)
        fits: dict[bytes, bool] = {}
        passing = []
        for host in hosts:
            key = _ENCODE((host.numa, host.numa_used, host.cpu_allocation_ratio, host.ram_allocation_ratio))
            if key not in fits:
                fits[key] = not _fit_error(host, topology)
            if fits[key]:
                passing.append(host)
        return passing

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return not self.reason(host, spec)

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        topology = _topology_of(spec)
        return "" if topology is None else _fit_error(host, topology)


def _fit_error(host: HostState, topology: NUMARequest) -> str:
    """Return why the topology does not fit the host; empty if it does."""
    try:
        fitting.fit_host(topology, host)
    except fitting.FitError as miss:
        return str(miss)
    return ""


def _topology_of(spec: RequestSpec) -> NUMARequest | None:
    return hardware.numa_of(spec.flavor, spec.image)

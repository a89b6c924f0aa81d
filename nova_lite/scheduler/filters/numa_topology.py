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
    """Fits each of a guest's nodes into a cell of the host, as the conductor's claim does: CPUs for themselves by the
    thread policy, memory, and pages of the size that is asked for."""

    binds_forced_hosts = True

    def applies(self, spec: RequestSpec) -> bool:
        return _wanted(spec) is not None

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        """Most hosts are alike, and full alike: what was found of one of them holds for the others."""
        wanted = _wanted(spec)
        if wanted is None:
            return list(hosts)
        known: dict[bytes, bool] = {}
        found = []
        for host in hosts:
            key = _ENCODE((host.numa, host.numa_used, host.cpu_allocation_ratio, host.ram_allocation_ratio))
            if key not in known:
                known[key] = not _misfit(host, wanted)
            if known[key]:
                found.append(host)
        return found

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return not self.reason(host, spec)

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        wanted = _wanted(spec)
        return "" if wanted is None else _misfit(host, wanted)


def _misfit(host: HostState, wanted: NUMARequest) -> str:
    """Empty for a host that will do."""
    try:
        fitting.fit_host(wanted, host)
    except fitting.FitError as miss:
        return str(miss)
    return ""


def _wanted(spec: RequestSpec) -> NUMARequest | None:
    return hardware.numa_of(spec.flavor, spec.image)

"""Pinned CPUs, huge pages and guest NUMA topologies: refused, with the reason.

The virt drivers here give a guest floating vCPUs and ordinary memory. A flavor or image that asks for more would get
less than it says, so no host passes.
"""

from __future__ import annotations

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter

#: Property (after ``hw:`` in flavors, ``hw_`` in images) to the values that ask for nothing special.
_HARMLESS: dict[str, tuple[str, ...]] = {
    "cpu_policy": ("shared",),
    "mem_page_size": ("small", "any"),
    "numa_nodes": (),
    "emulator_threads_policy": (),
    "cpu_realtime": ("no", "false"),
    "cpu_dedicated_mask": (),
}


class NUMATopologyFilter(HostFilter):
    """Refuses requests for dedicated CPUs, huge pages or NUMA nodes, which no driver here provides."""

    run_once_per_request = True
    judges_images = True

    def applies(self, spec: RequestSpec) -> bool:
        return unsupported(spec) is not None

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return unsupported(spec) is None

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return f"{unsupported(spec)} is not supported here"


def unsupported(spec: RequestSpec) -> str | None:
    """The first property of flavor or image that asks for a topology, with its value."""
    sources = [("hw:", spec.flavor.extra_specs)]
    if spec.image is not None:
        sources.append(("hw_", spec.image.properties))
    for prefix, properties in sources:
        for name, harmless in _HARMLESS.items():
            value = properties.get(prefix + name)
            if value is not None and value.lower() not in harmless:
                return f"{prefix}{name}={value}"
    return None

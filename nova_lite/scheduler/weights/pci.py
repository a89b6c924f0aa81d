"""Weigher by free PCI devices."""

from __future__ import annotations

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.weights.base import HostWeigher


class PCIWeigher(HostWeigher):
    """Keeps hosts with free PCI devices (capability ``pci_free``) for servers that request one."""

    multiplier_option = "pci_weight_multiplier"

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        free = host.capabilities.get("pci_free", 0)
        number = free if isinstance(free, int | float) else 0
        return number if "pci_passthrough:alias" in spec.flavor.extra_specs else -number

"""Weigher by free PCI devices."""

from __future__ import annotations

from collections.abc import Sequence

from nova_lite.hardware import pci
from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.weights.base import HostWeigher


class PCIWeigher(HostWeigher):
    """Keeps hosts with free PCI devices for servers that request some.

    Among hosts that have what a server requests, those with the most free devices of these kinds come first.
    """

    multiplier_option = "pci_weight_multiplier"

    def weights(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[float]:
        if not any(host.pci for host in hosts):
            return [0] * len(hosts)
        return [self.weight(host, spec) for host in hosts]

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        if not host.pci:
            return 0
        free = pci.unused(host.pci, host.pci_used)
        if spec.pci:
            return sum(any(request.matches(device) for request in spec.pci) for device in free)
        return -len(free)

"""Weigher by availability zone."""

from __future__ import annotations

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.weights.base import HostWeigher


class CrossAZWeigher(HostWeigher):
    """Prefers the current availability zone of a server that moves."""

    multiplier_option = "cross_az_weight_multiplier"

    def applies(self, spec: RequestSpec) -> bool:
        return spec.current_zone is not None

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        return 1.0 if host.availability_zone == spec.current_zone else 0.0

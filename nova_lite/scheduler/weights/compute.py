"""Weigher by failed builds."""

from __future__ import annotations

from collections.abc import Sequence

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.weights.base import HostWeigher


class BuildFailureWeigher(HostWeigher):
    """Prefers hosts without failed builds in a row."""

    multiplier_option = "build_failure_weight_multiplier"

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        return -host.failed_builds

    def weights(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[float]:
        return [-host.failed_builds for host in hosts]

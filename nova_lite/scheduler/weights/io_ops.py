"""Weigher by servers with a task under way."""

from __future__ import annotations

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.weights.base import HostWeigher


class IoOpsWeigher(HostWeigher):
    """Counts servers with a task under way. The default multiplier is negative, so idle hosts are preferred."""

    multiplier_option = "io_ops_weight_multiplier"

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        return host.io_ops

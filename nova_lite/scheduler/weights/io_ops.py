"""Servers with a task in progress."""

from __future__ import annotations

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.weights.base import HostWeigher


class IoOpsWeigher(HostWeigher):
    """Servers with a task under way; the default multiplier is negative, for hosts that are busy with few."""

    multiplier_option = "io_ops_weight_multiplier"

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        return host.io_ops

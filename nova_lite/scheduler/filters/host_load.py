"""Filters by the servers that a host already has: their number, their tasks, and their flavors."""

from __future__ import annotations

from typing import cast

from oslo_config import cfg

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.aggregates import least_number
from nova_lite.scheduler.filters.base import HostFilter


class TypeAffinityFilter(HostFilter):
    """Rejects hosts that hold servers of another flavor."""

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return all(flavor == spec.flavor.flavorid for flavor in host.flavors)

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return "holds servers of another flavor"


class LoadFilter(HostFilter):
    """Base of filters that limit a count per host.

    ``option`` names the limit, in ``[scheduler]`` and in aggregates. The smallest limit of the aggregates takes
    precedence.
    """

    option: str
    unit: str

    def __init__(self, limit: int) -> None:
        self._limit = limit

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> HostFilter:
        return cls(cast(int, getattr(conf.scheduler, cls.option)))

    def load(self, host: HostState) -> int:
        """Return the host's current count."""
        raise NotImplementedError

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        limit = least_number(host, self.option, self._limit) if host.aggregates else self._limit
        return self.load(host) < limit

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return f"{self.load(host)} {self.unit}"

    def shortfall(self, host: HostState, spec: RequestSpec) -> float:
        return self.load(host)

    def summary(self, closest: HostState, spec: RequestSpec) -> str:
        return f"at least {self.reason(closest, spec)}"


class NumInstancesFilter(LoadFilter):
    """Rejects hosts that hold ``max_instances_per_host`` servers."""

    option = "max_instances_per_host"
    unit = "servers"

    def load(self, host: HostState) -> int:
        return len(host.instances)


class IoOpsFilter(LoadFilter):
    """Rejects hosts where ``max_io_ops_per_host`` servers have a task under way (building, rebooting, ...)."""

    option = "max_io_ops_per_host"
    unit = "servers with a task under way"

    def load(self, host: HostState) -> int:
        return host.io_ops

"""Filter by metrics that hosts report in their capability ``metrics`` (name to number)."""

from __future__ import annotations

from collections.abc import Collection

from oslo_config import cfg

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter
from nova_lite.scheduler.weights.metrics import metrics_of, parse_settings


class MetricsFilter(HostFilter):
    """Rejects hosts that lack a metric of ``[metrics] weight_setting``."""

    run_once_per_request = True

    def __init__(self, names: Collection[str]) -> None:
        self._names = sorted(names)

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> HostFilter:
        return cls(parse_settings(conf.metrics.weight_setting))

    def applies(self, spec: RequestSpec) -> bool:
        return bool(self._names)

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return not self._missing(host)

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return f"has no metric {', '.join(self._missing(host))}"

    def _missing(self, host: HostState) -> list[str]:
        metrics = metrics_of(host)
        return [name for name in self._names if name not in metrics]

"""Weigher by metrics that hosts report in their capability ``metrics`` (name to number)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.weights.base import HostWeigher


class MetricsWeigher(HostWeigher):
    """Sums up the metrics of ``[metrics] weight_setting``, each multiplied by its ratio.

    A host that lacks one of them has the weight ``weight_of_unavailable``.
    """

    multiplier_option = "metrics_weight_multiplier"

    def __init__(
        self, multiplier: float = 1.0, ratios: Mapping[str, float] | None = None, unavailable: float = -10000.0
    ) -> None:
        super().__init__(multiplier)
        self._ratios = dict(ratios or {})
        self._unavailable = unavailable

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> HostWeigher:
        ratios = parse_settings(conf.metrics.weight_setting)
        return cls(conf.metrics.weight_multiplier, ratios, conf.metrics.weight_of_unavailable)

    def applies(self, spec: RequestSpec) -> bool:
        return bool(self._ratios)

    def weight(self, host: HostState, spec: RequestSpec) -> float:
        metrics = metrics_of(host)
        if any(name not in metrics for name in self._ratios):
            return self._unavailable
        return sum(metrics[name] * ratio for name, ratio in self._ratios.items())


def metrics_of(host: HostState) -> dict[str, float]:
    """Return the host's metrics that are numbers."""
    metrics = host.capabilities.get("metrics")
    if not isinstance(metrics, Mapping):
        return {}
    return {name: value for name, value in metrics.items() if isinstance(value, int | float)}


def parse_settings(settings: Sequence[str]) -> dict[str, float]:
    """Parse texts of the form ``name=ratio``. Raises `ConfigurationError` for any other text."""
    ratios = {}
    for setting in settings:
        name, _, ratio = setting.partition("=")
        try:
            ratios[name.strip()] = float(ratio)
        except ValueError as error:
            raise exceptions.ConfigurationError(
                reason=f"[metrics] weight_setting: {setting!r} is not of the form NAME=NUMBER"
            ) from error
    return ratios

"""Base class of weighers."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence

from oslo_config import cfg

from nova_lite.objects import HostState, RequestSpec


class HostWeigher(abc.ABC):
    """Ranks the hosts that passed the filters. Like a filter, it uses its two arguments only.

    Raw weights may have any unit. They are scaled to 0 (worst host) .. 1 (best) over the hosts of a request and
    multiplied by ``multiplier``, so that they can be added up. A negative multiplier reverses the order.
    """

    #: Name of the option in ``[scheduler]`` that holds the multiplier.
    multiplier_option: str | None = None

    def __init__(self, multiplier: float = 1.0) -> None:
        self.multiplier = multiplier

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> HostWeigher:
        """Build the weigher with its configured multiplier."""
        return cls(getattr(conf.scheduler, cls.multiplier_option)) if cls.multiplier_option else cls()

    def applies(self, spec: RequestSpec) -> bool:
        """Return False if the request has nothing that this weigher uses."""
        return True

    def judges_owner(self, hosts: Sequence[HostState]) -> bool:
        """Return whether the weight of any of ``hosts`` may depend on the project or the user, like
        `HostFilter.judges_owner`."""
        return not type(self).__module__.startswith("nova_lite.")

    @abc.abstractmethod
    def weight(self, host: HostState, spec: RequestSpec) -> float:
        """Return the raw weight of a host: more is better."""

    def weights(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[float]:
        """Return the `weight` of each host. Override it only where a loop over plain fields is faster."""
        return [self.weight(host, spec) for host in hosts]

    def multiplier_of(self, host: HostState) -> float:
        """Return the multiplier for a host. The smallest one of its aggregates takes precedence over the configured
        one."""
        own = [_number(aggregate.metadata.get(self.multiplier_option or "")) for aggregate in host.aggregates]
        return min((value for value in own if value is not None), default=self.multiplier)


def _number(text: str | None) -> float | None:
    """Return the number that an operator set in an aggregate; None if it is not a finite number."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None

"""What a weigher is."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence

from oslo_config import cfg

from nova_lite.objects import HostState, RequestSpec


class HostWeigher(abc.ABC):
    """Ranks the hosts that passed the filters. Like a filter, it looks at its two arguments only.

    Raw weights are in any unit: they are brought to 0 (worst host) .. 1 (best) over the hosts of a request and
    multiplied by ``multiplier``, so that weighers can be added up. A negative multiplier turns the order round.
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
        """False: the request gives this weigher nothing to weigh."""
        return True

    @abc.abstractmethod
    def weight(self, host: HostState, spec: RequestSpec) -> float:
        """The raw weight: more is better."""

    def weights(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[float]:
        """`weight` of each host. To be overridden only where one loop over plain fields is faster."""
        return [self.weight(host, spec) for host in hosts]

    def multiplier_of(self, host: HostState) -> float:
        """``multiplier``, unless the host's aggregates set an option of its name; the least of theirs then."""
        own = [_number(each.metadata.get(self.multiplier_option or "")) for each in host.aggregates]
        return min((value for value in own if value is not None), default=self.multiplier)


def _number(text: str | None) -> float | None:
    """What an operator wrote into an aggregate; None for what is no finite number."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None

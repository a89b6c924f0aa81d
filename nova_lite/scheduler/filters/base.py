"""Base class of filters."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from oslo_config import cfg

from nova_lite.objects import HostState, RequestSpec


class HostFilter(abc.ABC):
    """Decides whether a host can take one more instance of a request.

    A filter uses its two arguments only: no I/O, no clock, no state of its own. So a decision can be repeated and
    explained. A plugin has to implement `host_passes`. The other methods make it faster or its reasons clearer.
    """

    #: True if placing instances of the same request does not change the result: then each host is checked once.
    run_once_per_request = False

    #: True if forced hosts have to pass as well, because the claim would refuse them.
    binds_forced_hosts = False

    #: True if the result depends on the image: a server that gets another image on its host has to pass again.
    judges_images = False

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> HostFilter:
        """Build the filter. A plugin with options of its own overrides this."""
        return cls()

    def applies(self, spec: RequestSpec) -> bool:
        """Return False if the request has nothing that this filter checks. Then no host is checked."""
        return True

    def judges_owner(self, hosts: Sequence[HostState]) -> bool:
        """Return whether the result for any of ``hosts`` may depend on the project or the user of a request.

        If not, alike requests of several owners are decided together. A filter of another package judges each owner
        alone, unless it overrides this.
        """
        return not type(self).__module__.startswith("nova_lite.")

    @abc.abstractmethod
    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether ``host`` fits one more instance of ``spec``. Called only if the filter `applies`.

        While a request is being placed, the result for a host may change from True to False, but not back.
        """

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        """Return the hosts that pass, in their order.

        Override it only where a loop over plain fields is much faster than ten thousand calls of `host_passes`. The
        result has to be the same.
        """
        return [host for host in hosts if self.host_passes(host, spec)]

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        """Return a few words why this host, which did not pass, was rejected. They do not name the host."""
        return ""

    def shortfall(self, host: HostState, spec: RequestSpec) -> float:
        """Return by how much this host missed. Hosts with the smallest shortfall are shown as the closest misses."""
        return 0.0

    def summary(self, closest: HostState, spec: RequestSpec) -> str:
        """Return the reason for all rejected hosts together. ``closest`` is the host with the smallest shortfall."""
        return self.reason(closest, spec)

"""What a filter is."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from oslo_config import cfg

from nova_lite.objects import HostState, RequestSpec


class HostFilter(abc.ABC):
    """Says whether a host can take one more instance of a request.

    A filter looks at its two arguments only: no I/O, no clock, no state of its own, so that a decision can be repeated
    and explained. A plugin has to write `host_passes`; the rest makes it cheaper or clearer.
    """

    #: The answer does not change while instances of the same request are placed: each host is asked about once.
    run_once_per_request = False

    #: Also a host that the request names has to pass: the claim would refuse it, however often it is tried.
    binds_forced_hosts = False

    #: What it judges depends on the image: a server that gets another one where it is has to pass again.
    judges_images = False

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> HostFilter:
        """Build the filter; for a plugin that has options of its own."""
        return cls()

    def applies(self, spec: RequestSpec) -> bool:
        """False: the request asks for nothing that this filter looks at, so that no host needs to be asked."""
        return True

    @abc.abstractmethod
    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Whether ``host`` fits one more instance of ``spec``; only asked when the filter `applies`. While a request is
        being placed, a yes may become a no, never the reverse."""

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        """Those of ``hosts`` that pass, in their order. To be overridden only where one loop over plain fields saves
        what ten thousand calls of `host_passes` cost; the answer has to be the same."""
        return [host for host in hosts if self.host_passes(host, spec)]

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        """Why this host, which did not pass, was refused: a few words that do not name it."""
        return ""

    def shortfall(self, host: HostState, spec: RequestSpec) -> float:
        """By how much this host missed; the smallest are shown as the closest misses."""
        return 0.0

    def summary(self, closest: HostState, spec: RequestSpec) -> str:
        """The same as `reason` for all refused hosts together, of which ``closest`` missed by least."""
        return self.reason(closest, spec)

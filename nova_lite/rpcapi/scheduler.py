"""Messages to the scheduler: topic ``scheduler``."""

from __future__ import annotations

from typing import Protocol

from nova_lite import rpc
from nova_lite.base.context import RequestContext
from nova_lite.objects import Destination, HostState, Placement, RequestSpec


@rpc.service("scheduler", version="2.0")
class SchedulerRPC(Protocol):
    @rpc.report(rpc.CONDUCTOR)
    def select_destinations(self, context: RequestContext, spec: RequestSpec) -> list[Destination]:
        """Return a destination for each of ``spec.instance_uuids``, in their order, with alternates.

        Raises `NoValidHost` if there are fewer hosts: all instances get a place, or none.
        """

    @rpc.report(rpc.CONDUCTOR)
    def select_destinations_batch(self, context: RequestContext, specs: list[RequestSpec]) -> list[Placement]:
        """Return for each spec what `select_destinations` would. Each decision sees the places of the earlier ones;
        alike specs are decided together."""

    @rpc.report(rpc.CONDUCTOR, replay_safe=True)
    def fitting_hosts(self, context: RequestContext, specs: list[RequestSpec]) -> list[list[str]]:
        """Return for each spec the hosts that pass all filters now. No place is taken."""

    @rpc.report(rpc.CONDUCTOR, kind=rpc.FANOUT)
    def update_host_states(self, context: RequestContext, states: list[HostState]) -> None:
        """Publish changed host states to all schedulers. Their periodic resync repairs a lost message."""

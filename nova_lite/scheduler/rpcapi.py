"""Messages to the scheduler: topic ``scheduler``."""

from __future__ import annotations

from typing import Protocol

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.objects import Destination, HostState, Placement, RequestSpec


def _place(scheduler: SchedulerRPC, context: RequestContext, spec: RequestSpec) -> Placement:
    try:
        return Placement(destinations=scheduler.select_destinations(context, spec))
    except exceptions.NoValidHost as error:
        return Placement(reason=error.message, details=str(error.kwargs.get("details", "")))


@rpc.service("scheduler", version="1.1")
class SchedulerRPC(Protocol):
    @rpc.report(rpc.CONDUCTOR)
    def select_destinations(self, context: RequestContext, spec: RequestSpec) -> list[Destination]:
        """A place for each of ``spec.instance_uuids``, in their order, with alternates. All or none: fewer fitting
        hosts raise `NoValidHost`."""

    @rpc.report(rpc.CONDUCTOR, since="1.1", fallback=rpc.one_by_one("specs", _place), wire_name="select_for_several")
    def select_destinations_batch(self, context: RequestContext, specs: list[RequestSpec]) -> list[Placement]:
        """`select_destinations` for each of these, in their order: each sees what the ones before it took."""

    @rpc.report(rpc.CONDUCTOR, kind=rpc.FANOUT)
    def update_host_states(self, context: RequestContext, states: list[HostState]) -> None:
        """Tell every scheduler what changed. A lost message is healed by their periodic resync."""

"""Client side of the scheduler: topic ``scheduler``."""

from __future__ import annotations

from nova_lite import rpc
from nova_lite.context import RequestContext
from nova_lite.objects import Destination, HostState, RequestSpec

TOPIC = "scheduler"
VERSION = "1.0"


class SchedulerAPI:
    def __init__(self, transport: rpc.Transport) -> None:
        self._client = rpc.Client(transport, TOPIC, VERSION)

    def select_destinations(self, context: RequestContext, spec: RequestSpec) -> list[Destination]:
        """A place for each of ``spec.instance_uuids``, in their order, with alternates. All or none: fewer fitting
        hosts raise `NoValidHost`."""
        answer: list[Destination] = self._client.call(
            context, "select_destinations", returns=list[Destination], spec=spec
        )
        return answer

    def update_host_states(self, context: RequestContext, states: list[HostState]) -> None:
        """Tell every scheduler what changed. A lost message is healed by their periodic resync."""
        self._client.fanout(context, "update_host_states", states=states)

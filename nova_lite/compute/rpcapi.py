"""Client side of the compute service: topic ``compute``, one server per host."""

from __future__ import annotations

from nova_lite import operations, rpc
from nova_lite.context import RequestContext
from nova_lite.objects import ActionTicket, BuildRequest, Diagnostics, Image

TOPIC = "compute"
VERSION = "1.0"


class ComputeAPI:
    """Casts carry an order whose row is already committed; calls only read, or fence."""

    def __init__(self, transport: rpc.Transport) -> None:
        self._client = rpc.Client(transport, TOPIC, VERSION)

    def build_and_run_instance(self, context: RequestContext, host: str, request: BuildRequest) -> None:
        self._client.cast(context, "build_and_run_instance", server=host, request=request)

    def terminate_instance(self, context: RequestContext, host: str, ticket: ActionTicket) -> None:
        self._client.cast(context, "terminate_instance", server=host, ticket=ticket)

    def stop_instance(self, context: RequestContext, host: str, ticket: ActionTicket) -> None:
        self._client.cast(context, "stop_instance", server=host, ticket=ticket)

    def start_instance(self, context: RequestContext, host: str, ticket: ActionTicket) -> None:
        self._client.cast(context, "start_instance", server=host, ticket=ticket)

    def reboot_instance(self, context: RequestContext, host: str, ticket: ActionTicket) -> None:
        self._client.cast(context, "reboot_instance", server=host, ticket=ticket)

    def cache_images(self, context: RequestContext, host: str, images: list[Image]) -> None:
        self._client.cast(context, "cache_images", server=host, images=images)

    def fence_instance(
        self, context: RequestContext, host: str, instance_uuid: str, generation: int, timeout: float | None = None
    ) -> bool:
        """Have ``host`` promise never to build ``generation`` or a lower one. True: promised, and nothing of the
        instance is left there. False: it already runs at that generation, so the build succeeded."""
        answer: bool = self._client.call(
            context,
            "fence_instance",
            server=host,
            returns=bool,
            timeout=timeout,
            instance_uuid=instance_uuid,
            generation=generation,
        )
        return answer

    def get_console_output(self, context: RequestContext, host: str, instance_uuid: str, length: int | None) -> str:
        """The guest's console, last ``length`` lines; None: all that is kept."""
        answer: str = self._client.call(
            context,
            "get_console_output",
            server=host,
            returns=str,
            instance_uuid=instance_uuid,
            length=length,
        )
        return answer

    def get_instance_diagnostics(self, context: RequestContext, host: str, instance_uuid: str) -> Diagnostics:
        """Raises `InstanceInvalidState` unless the guest runs."""
        answer: Diagnostics = self._client.call(
            context, "get_instance_diagnostics", server=host, returns=Diagnostics, instance_uuid=instance_uuid
        )
        return answer


def send_ticket(api: ComputeAPI, context: RequestContext, ticket: ActionTicket) -> None:
    """Cast the method that carries out ``ticket`` to its host; nothing to do when no host is involved."""
    if ticket.host is None:
        return
    method = ticket.method or operations.order_of(ticket.action, ticket.payload)
    getattr(api, method)(context, ticket.host, ticket)

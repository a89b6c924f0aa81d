"""Messages to the compute service: topic ``compute``, one server per host."""

from __future__ import annotations

from typing import Protocol

from nova_lite import operations, rpc
from nova_lite.base.context import RequestContext
from nova_lite.objects import ActionCommand, BuildRequest, Console, Diagnostics, Image, VolumeWork

#: The version that the newest of the calls below came in.
CALLS = "1.16"

#: Who may call what. An order goes out from whoever has accepted the action, or drives it.
ALLOWED = {
    **rpc.allow(rpc.API, rpc.CONDUCTOR, rpc.MANAGE, methods="order build_and_run_instance build_and_run_instances"),
    **rpc.allow(rpc.CONDUCTOR, methods="cache_images volume_work refresh_security_groups fence_instance"),
    **rpc.allow(rpc.API, methods="get_console_output get_vnc_console get_serial_console get_instance_diagnostics"),
    **rpc.allow(rpc.CONSOLE, methods="validate_console_port"),
}


@rpc.service("compute", version=operations.compute_version(CALLS), allowed=ALLOWED)
class ComputeRPC(Protocol):
    """Casts carry an order whose row is already committed; calls only read, or fence."""

    @rpc.cast
    def build_and_run_instance(self, context: RequestContext, host: rpc.Receiver, request: BuildRequest) -> None: ...

    @rpc.cast
    @rpc.since("1.16")
    def build_and_run_instances(
        self, context: RequestContext, host: rpc.Receiver, requests: list[BuildRequest]
    ) -> None:
        """`build_and_run_instance` for each of these."""

    @rpc.cast
    def order(
        self,
        context: RequestContext,
        host: rpc.Receiver,
        method: rpc.MethodName,
        ticket: ActionCommand,
        version: rpc.Version = "1.0",
    ) -> None:
        """Carry out a step of an operation; ``method`` is what the operation's row calls it
        (`nova_lite.operations.HostStep.method`), ``version`` that of this service which the method came in."""

    @rpc.cast
    def cache_images(self, context: RequestContext, host: rpc.Receiver, images: list[Image]) -> None: ...

    @rpc.cast
    @rpc.since("1.9")
    def volume_work(self, context: RequestContext, host: rpc.Receiver, work: VolumeWork) -> None:
        """Change a volume's file, and report with `finish_volume_work`."""

    @rpc.cast
    @rpc.since("1.8")
    def refresh_security_groups(self, context: RequestContext, host: rpc.Receiver) -> None:
        """Something may have changed in what it filters: it asks for that. A nudge; it asks without, after a while."""

    def fence_instance(
        self,
        context: RequestContext,
        host: rpc.Receiver,
        instance_uuid: str,
        generation: int,
        timeout: rpc.Timeout = None,
    ) -> bool:
        """Have ``host`` promise never to build ``generation`` or a lower one. True: promised, and nothing of the
        instance is left there. False: it already runs at that generation, so the build succeeded."""

    def get_console_output(
        self, context: RequestContext, host: rpc.Receiver, instance_uuid: str, length: int | None
    ) -> str:
        """The guest's console, last ``length`` lines; None: all that is kept."""

    @rpc.since("1.7")
    def get_vnc_console(
        self, context: RequestContext, host: rpc.Receiver, instance_uuid: str, console_type: str
    ) -> Console:
        """Where the guest's screen is to be reached. Raises `ConsoleTypeInvalid` or `ConsoleTypeUnavailable`, and
        `InstanceInvalidState` unless the guest runs."""

    @rpc.since("1.7")
    def get_serial_console(
        self, context: RequestContext, host: rpc.Receiver, instance_uuid: str, console_type: str
    ) -> Console:
        """The same of its first serial port."""

    @rpc.since("1.7")
    def validate_console_port(
        self, context: RequestContext, host: rpc.Receiver, instance_uuid: str, port: int, console_type: str
    ) -> bool:
        """Whether the console of this type is (still) at this port. Once a connection to it is there, that is."""

    def get_instance_diagnostics(self, context: RequestContext, host: rpc.Receiver, instance_uuid: str) -> Diagnostics:
        """Raises `InstanceInvalidState` unless the guest runs."""


def send_command(compute: ComputeRPC, context: RequestContext, ticket: ActionCommand) -> None:
    """Order what ``ticket`` is for from its host; nothing to do when no host is involved."""
    if ticket.host is not None and ticket.build is not None:
        compute.build_and_run_instance(context, ticket.host, ticket.build)
    elif ticket.host is not None:
        method = ticket.method or operations.command_of(ticket.action, ticket.payload)
        compute.order(context, ticket.host, method, ticket, version=operations.command_methods()[method].since)

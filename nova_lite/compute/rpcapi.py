"""Messages to the compute service: topic ``compute``, one server per host."""

from __future__ import annotations

import logging
from typing import Annotated, Protocol

from nova_lite import operations, rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.objects import ActionCommand, BuildRequest, Console, Diagnostics, Image, VolumeWork

LOG = logging.getLogger(__name__)

#: The version that the newest of the calls below came in.
CALLS = "1.16"


def _build_one_by_one(compute: ComputeRPC, context: RequestContext, host: str, requests: list[BuildRequest]) -> None:
    """Send each build by itself. Raises `MessagingUnavailable` if no queue takes the first.

    The reconciler sends the builds again that no queue took after that.
    """
    for number, request in enumerate(requests):
        try:
            compute.build_and_run_instance(context, host, request)
        except exceptions.MessagingUnavailable as error:
            if number == 0:
                raise
            LOG.warning("%d builds could not be sent to %s: %s", len(requests) - number, host, error.message)
            return


@rpc.service("compute", version=operations.compute_version(CALLS))
class ComputeRPC(Protocol):
    """Casts carry an order whose row is already committed; calls only read, or fence."""

    @rpc.change(rpc.API, rpc.CONDUCTOR, rpc.MANAGE, kind=rpc.CAST)
    def build_and_run_instance(self, context: RequestContext, host: rpc.Receiver, request: BuildRequest) -> None: ...

    @rpc.change(rpc.API, rpc.CONDUCTOR, rpc.MANAGE, kind=rpc.CAST, since="1.16", fallback=_build_one_by_one)
    def build_and_run_instances(
        self, context: RequestContext, host: rpc.Receiver, requests: list[BuildRequest]
    ) -> None:
        """`build_and_run_instance` for each of these."""

    @rpc.change(rpc.API, rpc.CONDUCTOR, rpc.MANAGE, kind=rpc.CAST)
    def run_command(
        self,
        context: RequestContext,
        host: rpc.Receiver,
        method: rpc.MethodName,
        command: Annotated[ActionCommand, rpc.WireName("ticket")],
        version: rpc.Version = "1.0",
    ) -> None:
        """Execute a step of an operation.

        ``method``: the step's `nova_lite.operations.HostStep.wire_method`. ``version``: the version of this service
        that introduced the method.
        """

    @rpc.change(rpc.CONDUCTOR, kind=rpc.CAST)
    def cache_images(self, context: RequestContext, host: rpc.Receiver, images: list[Image]) -> None: ...

    @rpc.change(rpc.CONDUCTOR, kind=rpc.CAST, since="1.9")
    def volume_work(self, context: RequestContext, host: rpc.Receiver, work: VolumeWork) -> None:
        """Change a volume's file, and report with `finish_volume_work`."""

    @rpc.change(rpc.CONDUCTOR, kind=rpc.CAST, since="1.8")
    def refresh_security_groups(self, context: RequestContext, host: rpc.Receiver) -> None:
        """Something may have changed in what it filters: it asks for that. A nudge; it asks without, after a while."""

    @rpc.change(rpc.CONDUCTOR)
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

    @rpc.read(rpc.API)
    def get_console_output(
        self, context: RequestContext, host: rpc.Receiver, instance_uuid: str, length: int | None
    ) -> str:
        """The guest's console, last ``length`` lines; None: all that is kept."""

    @rpc.read(rpc.API, since="1.7")
    def get_vnc_console(
        self, context: RequestContext, host: rpc.Receiver, instance_uuid: str, console_type: str
    ) -> Console:
        """Where the guest's screen is to be reached. Raises `ConsoleTypeInvalid` or `ConsoleTypeUnavailable`, and
        `InstanceInvalidState` unless the guest runs."""

    @rpc.read(rpc.API, since="1.7")
    def get_serial_console(
        self, context: RequestContext, host: rpc.Receiver, instance_uuid: str, console_type: str
    ) -> Console:
        """The same of its first serial port."""

    @rpc.read(rpc.CONSOLE, since="1.7")
    def validate_console_port(
        self, context: RequestContext, host: rpc.Receiver, instance_uuid: str, port: int, console_type: str
    ) -> bool:
        """Whether the console of this type is (still) at this port. Once a connection to it is there, that is."""

    @rpc.read(rpc.API)
    def get_instance_diagnostics(self, context: RequestContext, host: rpc.Receiver, instance_uuid: str) -> Diagnostics:
        """Raises `InstanceInvalidState` unless the guest runs."""


def send_command(compute: ComputeRPC, context: RequestContext, command: ActionCommand) -> None:
    """Send a command to its host. Do nothing if no host is involved."""
    if command.host is not None and command.build is not None:
        compute.build_and_run_instance(context, command.host, command.build)
    elif command.host is not None:
        method = command.method or operations.command_method(command.action, command.payload)
        step = operations.command_methods()[method]
        compute.run_command(context, command.host, step.wire_method, command, version=step.since)

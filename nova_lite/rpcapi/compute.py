"""RPC methods of the compute service, on topic ``compute``. Each host has a server."""

from __future__ import annotations

import logging
from typing import Protocol

from nova_lite import operations, rpc
from nova_lite.base.context import RequestContext
from nova_lite.objects import (
    ActionCommand,
    BuildRequest,
    Console,
    ConsolePort,
    Diagnostics,
    Image,
    PacketProbe,
    PacketSighting,
    UsageHistory,
    VolumeWork,
)

LOG = logging.getLogger(__name__)

#: The version that introduced the newest of the calls below.
CALLS = "2.1"


@rpc.service("compute", version=operations.compute_version(CALLS))
class ComputeRPC(Protocol):
    """Casts carry a command whose row is committed already. Calls only read, or fence."""

    @rpc.change(rpc.API, rpc.CONDUCTOR, rpc.MANAGE, kind=rpc.CAST)
    def build_and_run_instance(self, context: RequestContext, host: rpc.Receiver, request: BuildRequest) -> None: ...

    @rpc.change(rpc.API, rpc.CONDUCTOR, rpc.MANAGE, kind=rpc.CAST)
    def build_and_run_instances(
        self, context: RequestContext, host: rpc.Receiver, requests: list[BuildRequest]
    ) -> None:
        """Start several builds, as `build_and_run_instance` does."""

    @rpc.change(rpc.API, rpc.CONDUCTOR, rpc.MANAGE, kind=rpc.CAST)
    def run_command(
        self,
        context: RequestContext,
        host: rpc.Receiver,
        method: rpc.MethodName,
        command: ActionCommand,
        version: rpc.Version = CALLS,
    ) -> None:
        """Execute a step of an operation.

        ``method``: that of the step. ``version``: the version of this service
        that introduced the method.
        """

    @rpc.change(rpc.API, kind=rpc.CAST)
    def terminate_instances(self, context: RequestContext, host: rpc.Receiver, commands: list[ActionCommand]) -> None:
        """Delete several instances, as the command ``terminate_instance`` does."""

    @rpc.change(rpc.CONDUCTOR, kind=rpc.CAST)
    def cache_images(self, context: RequestContext, host: rpc.Receiver, images: list[Image]) -> None: ...

    @rpc.change(rpc.CONDUCTOR, kind=rpc.CAST)
    def volume_work(self, context: RequestContext, host: rpc.Receiver, work: VolumeWork) -> None:
        """Do work on a volume, snapshot or backup, and report the result with `finish_volume_work`."""

    @rpc.change(rpc.CONDUCTOR, kind=rpc.CAST)
    def refresh_security_groups(self, context: RequestContext, host: rpc.Receiver) -> None:
        """Notify the host that its port filters may have changed. A wake-up: the host also asks from time to time."""

    @rpc.change(rpc.CONDUCTOR, kind=rpc.CAST)
    def wing_wake_up(self, context: RequestContext, host: rpc.Receiver, wing: str) -> None:
        """Let a wing of the host look for changes now. It also looks from time to time."""

    @rpc.change(rpc.CONDUCTOR)
    def fence_instance(
        self,
        context: RequestContext,
        host: rpc.Receiver,
        instance_uuid: str,
        generation: int,
        timeout: rpc.Timeout = None,
    ) -> bool:
        """Revoke ``generation`` and all lower ones: the host never builds them from now on.

        Return True when they are revoked and nothing of the instance is left on the host. Return False if the instance
        already runs at that generation: the build has succeeded.
        """

    @rpc.read(rpc.API)
    def get_console_output(
        self, context: RequestContext, host: rpc.Receiver, instance_uuid: str, length: int | None
    ) -> str:
        """Return the last ``length`` lines of the guest's console. None: all lines that are stored."""

    @rpc.read(rpc.API)
    def get_vnc_console(
        self, context: RequestContext, host: rpc.Receiver, instance_uuid: str, console_type: str
    ) -> Console:
        """Return the address of the guest's screen.

        Raises `ConsoleTypeInvalid` or `ConsoleTypeUnavailable`, and `InstanceInvalidState` unless the guest runs.
        """

    @rpc.read(rpc.API)
    def get_serial_console(
        self, context: RequestContext, host: rpc.Receiver, instance_uuid: str, console_type: str
    ) -> Console:
        """Return the address of the guest's first serial port. Raises as `get_vnc_console` does."""

    @rpc.read(rpc.API)
    def get_spice_console(
        self, context: RequestContext, host: rpc.Receiver, instance_uuid: str, console_type: str
    ) -> Console:
        """Return the addresses of the guest's SPICE server. Raises as `get_vnc_console` does."""

    @rpc.read(rpc.CONSOLE)
    def find_console_port(
        self, context: RequestContext, host: rpc.Receiver, instance_uuid: str, port: int, console_type: str
    ) -> ConsolePort:
        """Check whether the console of this type is still at this port. Call it after connecting to the port."""

    @rpc.read(rpc.API)
    def get_instance_diagnostics(self, context: RequestContext, host: rpc.Receiver, instance_uuid: str) -> Diagnostics:
        """Return the guest's diagnostics. Raises `InstanceInvalidState` unless the guest runs."""

    @rpc.read(rpc.API, since="2.1")
    def get_usage_history(
        self, context: RequestContext, host: rpc.Receiver, instance_uuid: str | None, span: str
    ) -> UsageHistory:
        """Return what a server has used on this host, or the host itself, over a span of `USAGE_SPANS`."""

    @rpc.change(rpc.MANAGE, since="2.1")
    def probe_packet(
        self, context: RequestContext, host: rpc.Receiver, probe: PacketProbe, timeout: rpc.Timeout = None
    ) -> list[PacketSighting]:
        """Look for the packet of a probe, and send it if its port is on the host. Return where it was seen."""


def send_command(compute: ComputeRPC, context: RequestContext, command: ActionCommand) -> None:
    """Send a command to its host. Do nothing if no host is involved."""
    if command.host is not None and command.build is not None:
        compute.build_and_run_instance(context, command.host, command.build)
    elif command.host is not None:
        step = operations.command_methods()[command.method]
        compute.run_command(context, command.host, step.method, command, version=step.since)

"""Reports and questions of hosts about the commands that they execute."""

from __future__ import annotations

from typing import Protocol

from nova_lite import rpc
from nova_lite.base.context import RequestContext
from nova_lite.objects import (
    ActionReport,
    BuildNetworks,
    BuildResult,
    GuestDevices,
    MigrationControl,
    MigrationProgress,
)


class CommandsRPC(Protocol):
    """Reports and questions of hosts about the commands that they execute."""

    @rpc.report(rpc.COMPUTE, own="host")
    def start_build(self, context: RequestContext, instance_uuid: str, host: str, generation: int) -> BuildNetworks:
        """Begin a build whose command carries no interfaces: the instance is spawning, and gets its interfaces.

        Raises `StaleReport` or `InstanceGone` when the build is no longer needed. `NoMoreFixedIps` and other 4xx abort
        it.
        """

    @rpc.report(rpc.COMPUTE, own="host")
    def report_guest_devices(
        self, context: RequestContext, instance_uuid: str, host: str, generation: int, devices: GuestDevices
    ) -> None:
        """Record the places of devices of a guest that starts next, so that its first metadata have them.

        Raises `StaleReport` or `InstanceGone` when the build is no longer needed.
        """

    @rpc.report(rpc.COMPUTE, own="result.host", replay_safe=True)
    def finish_build(self, context: RequestContext, result: BuildResult) -> None:
        """Report the result of a build.

        `StaleReport` or `InstanceGone` after BUILT: the host has to destroy the domain.
        """

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def finish_builds(self, context: RequestContext, host: str, results: list[BuildResult]) -> list[bool]:
        """Report several `finish_build` results in one transaction.

        Return False for a build that is no longer needed.
        """

    @rpc.report(rpc.COMPUTE, own="report.host")
    def finish_action(self, context: RequestContext, report: ActionReport) -> None:
        """Report a command as done or failed. Repeated reports are harmless."""

    @rpc.report(rpc.COMPUTE, own="host")
    def finish_actions(self, context: RequestContext, host: str, reports: list[ActionReport]) -> None:
        """Report several `finish_action` results in one transaction."""

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def is_command_current(self, context: RequestContext, host: str, action_id: int, sequence: int) -> bool:
        """Check whether the conductor still waits for this command.

        A host asks before it makes a guest from the disks of another host.
        """

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def is_command_open(
        self,
        context: RequestContext,
        host: str,
        action_id: int,
        sequence: int | None,
        request_id: str,
    ) -> bool:
        """Check whether the conductor waits for this command, although the host has seen a later action.

        A database that lost its last commits assigns their ids again. ``sequence`` None: any command of the action.
        """

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def site_right_get(self, context: RequestContext, host: str, instance_uuid: str) -> bool:
        """Check whether a replicated server may run at this site now. Raises `SiteJournalUnavailable`.

        A host asks before it executes a command that may start the server's guest.
        """

    @rpc.report(rpc.COMPUTE, own="host")
    def live_migration_progress(
        self,
        context: RequestContext,
        host: str,
        action_id: int,
        sequence: int,
        progress: MigrationProgress,
    ) -> MigrationControl:
        """Report the progress of a live migration from ``host``. Return whether to continue."""

    @rpc.report(rpc.COMPUTE, own="host")
    def report_task(self, context: RequestContext, host: str, action_id: int, task_state: str) -> bool:
        """Report the task state that the host has reached in its command.

        Return False if the action is over, and its result no longer needed.
        """

"""Delete: the host's part."""

from __future__ import annotations

from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations import power
from nova_lite.objects import ActionCommand


def terminate_instance(host: LocalHost, command: ActionCommand) -> None:
    """Remove the instance for good, also one of a later generation, which then may not come back either."""
    found = host.domain(command.instance.uuid)
    if found is not None and found.generation > command.generation:
        host.fencing.revoke(found.uuid, found.generation)
    host.remove_all(command.instance.uuid)


def soft_delete_instance(host: LocalHost, command: ActionCommand) -> None:
    """Turn the guest off, and leave its disks. One that was never made, or is gone, is off."""
    found = host.domain(command.instance.uuid)
    if found is not None and found.generation == command.generation:
        host.driver.power_off(command.instance.uuid, host.conf.compute.shutdown_timeout)


def restore_instance(host: LocalHost, command: ActionCommand) -> None:
    """Start what a soft delete has turned off."""
    power.start_instance(host, command)

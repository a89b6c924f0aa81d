"""Delete, soft delete and restore on the host."""

from __future__ import annotations

from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations import power
from nova_lite.objects import ActionCommand


def terminate_instance(host: LocalHost, command: ActionCommand) -> None:
    """Remove the instance, whatever its generation. A later generation is revoked, so that it cannot be built again."""
    found = host.domain(command.instance.uuid)
    if found is not None and found.generation > command.generation:
        host.fencing.revoke(found.uuid, found.generation)
    host.own_disks(command.instance.uuid)
    host.remove_all(command.instance.uuid)


def soft_delete_instance(host: LocalHost, command: ActionCommand) -> None:
    """Turn the guest off and keep its disks. A missing guest counts as off."""
    found = host.domain(command.instance.uuid)
    if found is not None and found.generation == command.generation:
        host.driver.power.off(command.instance.uuid, host.conf.shutdown_timeout)


def restore_instance(host: LocalHost, command: ActionCommand) -> None:
    """Start a soft-deleted guest."""
    power.start_instance(host, command)

"""Shelve, offload and unshelve on the host."""

from __future__ import annotations

from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations import power, snapshot
from nova_lite.objects import ActionCommand


def shelve_instance(host: LocalHost, command: ActionCommand) -> None:
    """Shut the guest down, and make the image from which it may be built again."""
    power.stop_instance(host, command)
    snapshot.upload_snapshot(host, command)


def shelve_volume_backed_instance(host: LocalHost, command: ActionCommand) -> None:
    """Shut the guest down, so that its volumes have everything that it has written, and remove it."""
    if host.domain(command.instance.uuid) is not None:
        power.stop_instance(host, command)
    host.remove(command.instance.uuid)


def shelve_offload_instance(host: LocalHost, command: ActionCommand) -> None:
    """Remove the instance. It never comes back at this generation."""
    host.remove(command.instance.uuid)


def unshelve_instance(host: LocalHost, command: ActionCommand) -> None:
    """Start a shelved guest that was not offloaded."""
    power.start_instance(host, command)

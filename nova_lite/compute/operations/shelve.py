"""Shelve, offload and unshelve on the host."""

from __future__ import annotations

from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations import power, snapshot
from nova_lite.objects import ActionCommand


def shelve_instance(host: LocalHost, command: ActionCommand) -> None:
    """Shut the guest down, and make the image that it may be built of again."""
    power.stop_instance(host, command)
    snapshot.upload_snapshot(host, command)


def shelve_volume_backed_instance(host: LocalHost, command: ActionCommand) -> None:
    """Shut the guest down, so that its volumes have all that it has written, and remove what is here of it."""
    if host.domain(command.instance.uuid) is not None:
        power.stop_instance(host, command)
    host.remove(command.instance.uuid)


def shelve_offload_instance(host: LocalHost, command: ActionCommand) -> None:
    """Remove all that is here of the instance, which never comes back at this generation."""
    host.remove(command.instance.uuid)


def unshelve_instance(host: LocalHost, command: ActionCommand) -> None:
    """It was not offloaded: start it."""
    power.start_instance(host, command)

"""Clones on the host: the disk of a server is frozen. `Builder` builds the clone."""

from __future__ import annotations

from nova_lite.compute.host import LocalHost
from nova_lite.objects import ActionCommand


def clone_instance(host: LocalHost, command: ActionCommand) -> None:
    """Freeze the disk for the new server ``payload["clone"]``."""
    host.require_domain(command)
    host.driver.clones.freeze(command.instance.uuid, command.payload["clone"])


def rollback_clone_instance(host: LocalHost, command: ActionCommand) -> None:
    """Put a disk that was frozen only in part in order. A missing guest has none."""
    if host.domain(command.instance.uuid) is not None:
        host.require_domain(command)
        host.driver.clones.settle(command.instance.uuid, command.payload["clone"])

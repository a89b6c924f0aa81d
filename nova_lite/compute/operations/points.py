"""Snapshot points on the host: create, delete, and revert."""

from __future__ import annotations

from nova_lite.compute.host import LocalHost
from nova_lite.objects import ActionCommand


def create_point(host: LocalHost, command: ActionCommand) -> None:
    """Make the point ``payload["point_id"]``, with the guest's memory if ``payload["memory"]``."""
    host.require_domain(command)
    host.driver.points.create(command.instance.uuid, command.payload["point_id"], command.payload["memory"])


def delete_point(host: LocalHost, command: ActionCommand) -> None:
    """Delete the point, or what there is of it. A missing guest has none."""
    if host.domain(command.instance.uuid) is not None:
        host.require_domain(command)
        host.driver.points.delete(command.instance.uuid, command.payload["point_id"])


def revert_to_point(host: LocalHost, command: ActionCommand) -> None:
    """Revert the guest to the point. It stays off, or continues with the memory if ``payload["memory"]``."""
    host.require_domain(command)
    host.driver.networks.plug(command.instance, command.instance.vifs)
    host.driver.points.revert(command.instance.uuid, command.payload["point_id"], command.payload["memory"])

"""Attaching and detaching of shares on the host."""

from __future__ import annotations

from nova_lite.base import exceptions
from nova_lite.compute.host import LocalHost
from nova_lite.objects import ActionCommand


def attach_share(host: LocalHost, command: ActionCommand) -> None:
    """Attach the share ``payload["share_id"]``, which belongs to the instance."""
    attach = host.driver.shares.attach
    host.require_domain(command)
    for mapping in command.instance.shares:
        if mapping.share_id == command.payload["share_id"]:
            attach(command.instance.uuid, mapping)
            return
    raise exceptions.ShareNotFound(share_id=command.payload["share_id"])


def detach_share(host: LocalHost, command: ActionCommand) -> None:
    """Detach the share ``payload["share_id"]``. A missing guest has no shares."""
    detach = host.driver.shares.detach
    if host.domain(command.instance.uuid) is None:
        return
    for mapping in command.instance.shares:
        if mapping.share_id == command.payload["share_id"]:
            detach(command.instance.uuid, mapping)

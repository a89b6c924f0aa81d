"""Reboot: what a host needs to define the domain again. Suspend: the guests that cannot be.

A hard reboot supersedes a hanging soft reboot. It defines the domain from the row, so it repairs a changed or lost
definition. Lost: what the guest has not written to its disks.
"""

from __future__ import annotations

from typing import Any

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance


class RebootHandler(OperationHandler):
    """Adds the server's images to a hard reboot."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        if payload.get("reboot_type") != "HARD":
            return payload
        return {**payload, "image": instance.image, "boot_images": instance.boot_images}


class SuspendHandler(OperationHandler):
    """Refuses servers with PCI devices, whose state cannot be saved to a disk."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        if instance.pci:
            raise exceptions.HasPCIDevices(instance_id=instance.uuid)
        return payload

"""Reboot: what a host needs that has to make the domain anew."""

from __future__ import annotations

from typing import Any

from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance


class RebootHandler(OperationHandler):
    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """A hard one tells what the instance was made of."""
        if payload.get("reboot_type") != "HARD":
            return payload
        return {**payload, "image": instance.image, "boot_images": instance.boot_images}

"""Snapshots: the row of the image is written with the action, where images are rows."""

from __future__ import annotations

from typing import Any

import msgspec

from nova_lite import exception, operations
from nova_lite.conductor.db import images
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Instance
from nova_lite.conductor.operations.own import Own
from nova_lite.context import RequestContext
from nova_lite.objects import Image
from nova_lite.operations import Step


class Snapshot(Own):
    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """``payload``: the ``image`` to make, and whether it is ``registered`` with another service already."""
        image = msgspec.convert(payload["image"], Image)
        if not payload.get("registered"):
            try:
                images.create(uow, image)
            except exception.ImageQuotaExceeded as error:
                raise exception.Forbidden(error.message) from error
        return {**payload, "image_id": image.id}

    def record(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        """The task ends when the image is there."""
        if isinstance(step, operations.Image):
            super().record(uow, instance, step)

"""Shelve, offload, unshelve: what a shelved server keeps, and where an unshelved one goes.

The image is published before the host removes the disks, so the server always has one of both. An offload contends
with its own timer: a second request while one runs is the same. A failed offload is repeated after some minutes, and
the server stays shelved on its host. Lost: memory, and local disks besides the root disk, as in Nova.
"""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.conductor.operations.snapshot import SnapshotHandler
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.hosts import hosts, services
from nova_lite.objects import Image
from nova_lite.operations import Step, states

#: Delay of the next offload after a failed one.
RETRY = datetime.timedelta(minutes=5)


class ShelveHandler(SnapshotHandler):
    """Keeps the image of the shelved server."""

    def of_volumes(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any]:
        return {"volume_backed": True}

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        if step.becomes == states.SHELVED_OFFLOADED:
            OperationHandler.on_step_done(self, uow, instance, step)
            instance.power_state = states.PowerState.NOSTATE

    def on_published(self, uow: UnitOfWork, instance: Instance, image: Image) -> None:
        instance.shelved_image = msgspec.to_builtins(image)
        instance.shelved_at = uow.now


class ShelveOffloadHandler(OperationHandler):
    """Takes a shelved server from its host."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        if instance.vm_state == states.SHELVED_OFFLOADED:
            return None
        instance.shelved_at = uow.now + RETRY
        return payload

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        instance.power_state = states.PowerState.NOSTATE
        instance.shelved_at = None


class UnshelveHandler(OperationHandler):
    """Brings a shelved server back."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Choose the variant of the operation, and keep the id of the image that it makes obsolete.

        ``payload``: ``availability_zone`` (None: any, from now on) and ``host``, if the request has them. Both are
        allowed only for a server without a host.
        """
        offloaded = instance.vm_state == states.SHELVED_OFFLOADED
        if payload and not offloaded:
            raise exceptions.UnshelveInstanceInvalidState(instance_uuid=instance.uuid, state=instance.vm_state)
        if offloaded:
            _choose(uow, instance, payload)
        image = instance.shelved_image or {}
        kept = {"offloaded": True, "tried": []} if offloaded else {}
        return {**kept, "image_id": image.get("id", "")}

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        instance.shelved_image, instance.shelved_at = None, None


def _choose(uow: UnitOfWork, instance: Instance, payload: dict[str, Any]) -> None:
    """Set where the server may go. Raises a 4xx for an unknown zone or host, or a host outside the zone."""
    zone = payload.get("availability_zone", instance.requested_availability_zone)
    if payload.get("availability_zone") is not None and not services.zone_exists(uow, str(zone)):
        raise exceptions.AvailabilityZoneUnavailable()
    host = payload.get("host")
    if host is not None:
        if not hosts.exists(uow, host):
            raise exceptions.ComputeHostUnknown(host=host)
        if zone is not None and services.zone_of(uow, host) != zone:
            raise exceptions.UnshelveHostNotInAZ(host=host, availability_zone=zone)
    instance.requested_availability_zone = zone
    instance.request = {} if host is None else {"requested_destination": {"host": host}}

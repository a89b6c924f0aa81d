"""Shelve, offload, unshelve: what the instance keeps meanwhile, and where it goes when it comes back."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.conductor.operations.snapshot import SnapshotHandler
from nova_lite.db import hosts, services
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance
from nova_lite.objects import Image
from nova_lite.operations import Step, states

#: After an offload that has failed, the next one is begun so much later.
RETRY = datetime.timedelta(minutes=5)


class ShelveHandler(SnapshotHandler):
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
    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """``payload``: ``availability_zone`` (None: any, from now on) and ``host``, where they are given; both are only
        for one that is on no host."""
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


def _choose(uow: UnitOfWork, instance: Instance, wanted: dict[str, Any]) -> None:
    """Where it may go. Raises a 4xx for a zone or host that there is not, or that do not go together."""
    zone = wanted.get("availability_zone", instance.requested_availability_zone)
    if wanted.get("availability_zone") is not None and not services.zone_exists(uow, str(zone)):
        raise exceptions.AvailabilityZoneUnavailable()
    host = wanted.get("host")
    if host is not None:
        if not hosts.exists(uow, host):
            raise exceptions.ComputeHostUnknown(host=host)
        if zone is not None and services.zone_of(uow, host) != zone:
            raise exceptions.UnshelveHostNotInAZ(host=host, availability_zone=zone)
    instance.requested_availability_zone = zone
    instance.request = {} if host is None else {"requested_destination": {"host": host}}

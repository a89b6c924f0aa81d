"""Clones of servers: creates that wait until the disk of their source is frozen."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, InstanceAction
from nova_lite.db.servers import instances, points
from nova_lite.hardware import traits
from nova_lite.objects import CreateRequest, Image, RequestedDestination

#: Key in the payload of a create: the server whose disk the new one gets.
CLONE_OF = "clone_of"


def completed(uow: UnitOfWork, context: RequestContext, request: CreateRequest) -> CreateRequest:
    """Return the request with flavor, image and host of its source."""
    source = instances.get_row(uow, context, str(request.clone_of))
    image = None if source.image is None else msgspec.convert(source.image, Image)
    others = msgspec.convert(source.boot_images or {}, dict[str, Image])
    return msgspec.structs.replace(
        request,
        flavor_id=source.flavorid,
        image_ref=source.image_ref,
        images={image.id: image, **others} if image else {},
        requested_destination=RequestedDestination(host=source.host),
    )


def check(uow: UnitOfWork, instance: Instance) -> None:
    """Raise `CloneNotSupported` if a clone would lack a part of the server's disks."""
    reason = points.obstacle(uow, instance, traits.CLONES)
    if reason is not None:
        raise exceptions.CloneNotSupported(instance_id=instance.uuid, reason=reason)


def hold(action: InstanceAction, source_uuid: str) -> None:
    """Let a create wait: its source has the lease until the deadline."""
    action.payload = {**action.payload, CLONE_OF: source_uuid}
    action.lease_owner, action.lease_expires_at = source_uuid, action.deadline


def waiting(uow: UnitOfWork, source_uuid: str) -> Sequence[InstanceAction]:
    """Return the creates that wait for this server."""
    query = sa.select(InstanceAction).where(
        InstanceAction.finish_time.is_(None),
        InstanceAction.step == operations.SCHEDULE,
        InstanceAction.lease_owner == source_uuid,
    )
    return uow.session.scalars(query).all()

"""An instance's tags: changed at once, without its host. A lock does not hold them."""

from __future__ import annotations

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.instance_metadata import changeable
from nova_lite.db.models import InstanceTag

#: Tags of one instance, at most.
MAX_TAGS = 50


def replace(uow: UnitOfWork, context: RequestContext, instance_uuid: str, tags: list[str]) -> list[str]:
    """Have these and no others; returns them, sorted. Raises `TagLimitExceeded` or `InstanceInvalidState`."""
    row = changeable(uow, context, instance_uuid, "update tags", despite_lock=True)
    wanted = set(tags)
    if len(wanted) > MAX_TAGS:
        raise exceptions.TagLimitExceeded(allowed=MAX_TAGS)
    kept = [tag for tag in row.tags if tag.tag in wanted]
    row.tags = kept + [InstanceTag(tag=tag) for tag in sorted(wanted - {tag.tag for tag in kept})]
    row.updated_at = uow.now
    return sorted(wanted)


def add(uow: UnitOfWork, context: RequestContext, instance_uuid: str, tag: str) -> bool:
    """False: it was there already. Raises `TagLimitExceeded` or `InstanceInvalidState`."""
    row = changeable(uow, context, instance_uuid, "update tag", despite_lock=True)
    if any(item.tag == tag for item in row.tags):
        return False
    if len(row.tags) >= MAX_TAGS:
        raise exceptions.TagLimitExceeded(allowed=MAX_TAGS)
    row.tags.append(InstanceTag(tag=tag))
    row.updated_at = uow.now
    return True


def delete(uow: UnitOfWork, context: RequestContext, instance_uuid: str, tag: str) -> None:
    """Raises `TagNotFound` or `InstanceInvalidState`."""
    row = changeable(uow, context, instance_uuid, "delete tag", despite_lock=True)
    kept = [item for item in row.tags if item.tag != tag]
    if len(kept) == len(row.tags):
        raise exceptions.TagNotFound(instance_id=instance_uuid, tag=tag)
    row.tags = kept
    row.updated_at = uow.now

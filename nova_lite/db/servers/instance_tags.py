"""Tags of instances. Changes take effect at once, without the host, and despite a lock."""

from __future__ import annotations

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import InstanceTag
from nova_lite.db.servers.instance_metadata import changeable

#: Largest number of tags of one instance.
MAX_TAGS = 50


def replace(uow: UnitOfWork, context: RequestContext, instance_uuid: str, tags: list[str]) -> list[str]:
    """Replace all tags and return them, sorted. Raises `TagLimitExceeded` or `InstanceInvalidState`."""
    row = changeable(uow, context, instance_uuid, "update tags", despite_lock=True)
    wanted = set(tags)
    if len(wanted) > MAX_TAGS:
        raise exceptions.TagLimitExceeded(allowed=MAX_TAGS)
    kept = [tag for tag in row.tags if tag.tag in wanted]
    row.tags = kept + [InstanceTag(tag=tag) for tag in sorted(wanted - {tag.tag for tag in kept})]
    row.updated_at = uow.now
    return sorted(wanted)


def add(uow: UnitOfWork, context: RequestContext, instance_uuid: str, tag: str) -> bool:
    """Add a tag; return False if it exists. Raises `TagLimitExceeded` or `InstanceInvalidState`."""
    row = changeable(uow, context, instance_uuid, "update tag", despite_lock=True)
    if any(item.tag == tag for item in row.tags):
        return False
    if len(row.tags) >= MAX_TAGS:
        raise exceptions.TagLimitExceeded(allowed=MAX_TAGS)
    row.tags.append(InstanceTag(tag=tag))
    row.updated_at = uow.now
    return True


def delete(uow: UnitOfWork, context: RequestContext, instance_uuid: str, tag: str) -> None:
    """Delete a tag. Raises `TagNotFound` or `InstanceInvalidState`."""
    row = changeable(uow, context, instance_uuid, "delete tag", despite_lock=True)
    kept = [item for item in row.tags if item.tag != tag]
    if len(kept) == len(row.tags):
        raise exceptions.TagNotFound(instance_id=instance_uuid, tag=tag)
    row.tags = kept
    row.updated_at = uow.now

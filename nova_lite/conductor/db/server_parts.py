"""What users change of an instance without its host: metadata and tags."""

from __future__ import annotations

from oslo_config import cfg

from nova_lite import exception, states
from nova_lite.conductor.db import instances, quotas
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Instance, InstanceTag
from nova_lite.context import RequestContext
from nova_lite.objects.instance import POSTED_PASSWORD

#: Tags of one instance, at most.
MAX_TAGS = 50

#: The vm_states in which metadata and tags may be changed, whatever the task.
_STATES = (states.ACTIVE, states.PAUSED, states.SUSPENDED, states.STOPPED)


# --- metadata


def change_metadata(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    context: RequestContext,
    instance_uuid: str,
    metadata: dict[str, str],
    replace: bool,
) -> dict[str, str]:
    """Add or change these items, or (``replace``) have these and no others; returns all of them.

    Raises `MetadataLimitExceeded`, `InstanceIsLocked` or `InstanceInvalidState`.
    """
    row = _unlocked(uow, context, instance_uuid, "update metadata")
    items = metadata if replace else {**row.metadata_, **metadata}
    limit = quotas.bounds(uow, conf, row.project_id, context.user_id)["metadata_items"]
    if 0 <= limit < len(items):
        raise exception.MetadataLimitExceeded(allowed=limit)
    return _set_metadata(uow, row, items)


def delete_metadata(uow: UnitOfWork, context: RequestContext, instance_uuid: str, key: str) -> None:
    """Raises `MetadataItemNotFound`, `InstanceIsLocked` or `InstanceInvalidState`."""
    row = _unlocked(uow, context, instance_uuid, "delete metadata")
    if key not in row.metadata_:
        raise exception.MetadataItemNotFound()
    _set_metadata(uow, row, {name: value for name, value in row.metadata_.items() if name != key})


def _set_metadata(uow: UnitOfWork, row: Instance, items: dict[str, str]) -> dict[str, str]:
    row.metadata_ = items
    row.updated_at = uow.now
    return items


# --- tags; a lock does not hold them


def replace_tags(uow: UnitOfWork, context: RequestContext, instance_uuid: str, tags: list[str]) -> list[str]:
    """Have these and no others; returns them, sorted. Raises `TagLimitExceeded` or `InstanceInvalidState`."""
    row = _in_state(uow, context, instance_uuid, "update tags")
    wanted = set(tags)
    if len(wanted) > MAX_TAGS:
        raise exception.TagLimitExceeded(allowed=MAX_TAGS)
    kept = [tag for tag in row.tags if tag.tag in wanted]
    row.tags = kept + [InstanceTag(tag=tag) for tag in sorted(wanted - {tag.tag for tag in kept})]
    row.updated_at = uow.now
    return sorted(wanted)


def add_tag(uow: UnitOfWork, context: RequestContext, instance_uuid: str, tag: str) -> bool:
    """False: it was there already. Raises `TagLimitExceeded` or `InstanceInvalidState`."""
    row = _in_state(uow, context, instance_uuid, "update tag")
    if any(item.tag == tag for item in row.tags):
        return False
    if len(row.tags) >= MAX_TAGS:
        raise exception.TagLimitExceeded(allowed=MAX_TAGS)
    row.tags.append(InstanceTag(tag=tag))
    row.updated_at = uow.now
    return True


def delete_tag(uow: UnitOfWork, context: RequestContext, instance_uuid: str, tag: str) -> None:
    """Raises `TagNotFound` or `InstanceInvalidState`."""
    row = _in_state(uow, context, instance_uuid, "delete tag")
    kept = [item for item in row.tags if item.tag != tag]
    if len(kept) == len(row.tags):
        raise exception.TagNotFound(instance_id=instance_uuid, tag=tag)
    row.tags = kept
    row.updated_at = uow.now


# --- what its guest posted


def clear_password(uow: UnitOfWork, context: RequestContext, instance_uuid: str) -> None:
    row = instances.get_row(uow, context, instance_uuid, lock=True)
    row.system_metadata = {name: value for name, value in row.system_metadata.items() if name != POSTED_PASSWORD}


# --- both


def _unlocked(uow: UnitOfWork, context: RequestContext, instance_uuid: str, method: str) -> Instance:
    row = instances.get_row(uow, context, instance_uuid, lock=True)
    if row.locked and not context.is_admin:
        raise exception.InstanceIsLocked(instance_id=instance_uuid)
    return _checked(row, method)


def _in_state(uow: UnitOfWork, context: RequestContext, instance_uuid: str, method: str) -> Instance:
    return _checked(instances.get_row(uow, context, instance_uuid, lock=True), method)


def _checked(row: Instance, method: str) -> Instance:
    if row.vm_state not in _STATES:
        raise exception.InstanceInvalidState(method=method, instance_id=row.uuid, attr="vm_state", state=row.vm_state)
    return row

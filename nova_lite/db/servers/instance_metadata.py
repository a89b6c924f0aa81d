"""Metadata of instances, and passwords that guests posted. Changes take effect at once, without the host."""

from __future__ import annotations

from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.servers import instances
from nova_lite.objects import protection
from nova_lite.objects.instance import POSTED_PASSWORD
from nova_lite.operations import states

#: The vm_states in which metadata and tags may be changed, whatever the task.
_STATES = (states.ACTIVE, states.PAUSED, states.SUSPENDED, states.STOPPED)


def change(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    context: RequestContext,
    instance_uuid: str,
    metadata: dict[str, str],
    replace: bool,
) -> dict[str, str]:
    """Add or change these items, or with ``replace`` keep only these. Returns all items.

    Raises `MetadataLimitExceeded`, `InstanceIsLocked`, `InstanceInvalidState`, or `InvalidInput` for a wrong setting of
    protection.
    """
    protection.check(metadata)
    row = changeable(uow, context, instance_uuid, "update metadata")
    items = metadata if replace else {**row.metadata_, **metadata}
    limit = quotas.bounds(uow, conf, row.project_id, context.user_id)["metadata_items"]
    if 0 <= limit < len(items):
        raise exceptions.MetadataLimitExceeded(allowed=limit)
    return _set_metadata(uow, row, items)


def delete(uow: UnitOfWork, context: RequestContext, instance_uuid: str, key: str) -> None:
    """Delete an item. Raises `MetadataItemNotFound`, `InstanceIsLocked` or `InstanceInvalidState`."""
    row = changeable(uow, context, instance_uuid, "delete metadata")
    if key not in row.metadata_:
        raise exceptions.MetadataItemNotFound()
    _set_metadata(uow, row, {name: value for name, value in row.metadata_.items() if name != key})


def _set_metadata(uow: UnitOfWork, row: Instance, items: dict[str, str]) -> dict[str, str]:
    row.metadata_ = items
    row.updated_at = uow.now
    return items


def clear_password(uow: UnitOfWork, context: RequestContext, instance_uuid: str) -> None:
    row = instances.get_row(uow, context, instance_uuid, lock=True)
    row.system_metadata = {name: value for name, value in row.system_metadata.items() if name != POSTED_PASSWORD}


def set_password(uow: UnitOfWork, context: RequestContext, instance_uuid: str, password: str) -> None:
    """Store a guest's password once. Until it is cleared, a later intruder in the guest cannot replace it."""
    _store_password(instances.get_row(uow, context, instance_uuid, lock=True), password)


def set_password_at(uow: UnitOfWork, host: str, instance_uuid: str, password: str) -> None:
    """Store the password of a guest of this host, as `set_password` does. Raises `InstanceNotFound` for another one."""
    if not instances.at_host(uow, host, None, instance_uuid):
        raise exceptions.InstanceNotFound(instance_id=instance_uuid)
    _store_password(instances.get_row(uow, get_admin_context(), instance_uuid, lock=True), password)


def _store_password(row: Instance, password: str) -> None:
    if row.system_metadata.get(POSTED_PASSWORD):
        raise exceptions.PasswordAlreadySet(instance_id=row.uuid)
    row.system_metadata = {**row.system_metadata, POSTED_PASSWORD: password}


def changeable(
    uow: UnitOfWork, context: RequestContext, instance_uuid: str, method: str, despite_lock: bool = False
) -> Instance:
    """Return the instance's row, locked. Raises `InstanceIsLocked` or `InstanceInvalidState` if lock or vm state forbid
    ``method``.
    """
    row = instances.get_row(uow, context, instance_uuid, lock=True)
    if row.locked and not despite_lock and not context.is_admin:
        raise exceptions.InstanceIsLocked(instance_id=instance_uuid)
    if row.vm_state not in _STATES:
        raise exceptions.InstanceInvalidState(method=method, instance_id=row.uuid, attr="vm_state", state=row.vm_state)
    return row

"""Locking an instance against its own project: done at once, and written into the action log as done."""

from __future__ import annotations

from oslo_config import cfg

from nova_lite import exception
from nova_lite.conductor.db import actions, instances
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Instance
from nova_lite.context import RequestContext
from nova_lite.policies.servers import UNLOCK_OVERRIDE

LOCK = "lock"
UNLOCK = "unlock"
#: Who holds a lock: the instance's own project, or an admin of another one.
OWNER = "owner"
ADMIN = "admin"


def lock(
    uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, instance_uuid: str, reason: str | None
) -> None:
    """For everyone but admins. The project's own lock changes nothing of one that is there."""
    instance = instances.get_row(uow, context, instance_uuid, lock=True)
    by = _side(context, instance)
    if _is_repeated(uow, context, LOCK, instance_uuid) or (instance.locked and by == OWNER):
        return
    instance.locked, instance.locked_by, instance.locked_reason = True, by, reason
    actions.record_done(uow, conf, context, instance, LOCK)


def unlock(
    uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, instance_uuid: str, may_override: bool
) -> None:
    """``may_override``: also a lock of the other side; without it that raises `PolicyNotAuthorized`."""
    instance = instances.get_row(uow, context, instance_uuid, lock=True)
    if _is_repeated(uow, context, UNLOCK, instance_uuid):
        return
    if instance.locked_by not in (None, _side(context, instance)) and not may_override:
        raise exception.PolicyNotAuthorized(action=UNLOCK_OVERRIDE)
    instance.locked, instance.locked_by, instance.locked_reason = False, None, None
    actions.record_done(uow, conf, context, instance, UNLOCK)


def _side(context: RequestContext, instance: Instance) -> str:
    return OWNER if context.project_id == instance.project_id else ADMIN


def _is_repeated(uow: UnitOfWork, context: RequestContext, kind: str, instance_uuid: str) -> bool:
    return actions.find_by_request(uow, context.request_id, kind, instance_uuid) is not None

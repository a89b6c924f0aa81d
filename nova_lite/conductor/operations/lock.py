"""Locking an instance against its own project, and unlocking it.

A lock has no step, and does not supersede an open action. Two callers contend for the holder: the project's own lock
never replaces an admin's.
"""

from __future__ import annotations

from typing import Any

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance

#: The holder of a lock: the instance's own project, or an admin of another one.
OWNER = "owner"
ADMIN = "admin"


class LockHandler(OperationHandler):
    """Locks an instance."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Lock the instance for everyone but admins. The project's own lock does not replace an existing one.

        ``payload``: the ``reason``.
        """
        holder = _holder(context, instance)
        if instance.locked and holder == OWNER:
            return None
        instance.locked, instance.locked_by, instance.locked_reason = True, holder, payload.get("reason")
        return {}


class UnlockHandler(OperationHandler):
    """Unlocks an instance."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Unlock the instance.

        ``payload``: ``may_override`` allows to remove a lock of the other side. Without it that raises
        `PolicyNotAuthorized`.
        """
        if instance.locked_by not in (None, _holder(context, instance)) and not payload.get("may_override"):
            from nova_lite.policies.servers import UNLOCK_OVERRIDE  # conductors load no policy rules otherwise

            raise exceptions.PolicyNotAuthorized(action=UNLOCK_OVERRIDE)
        instance.locked, instance.locked_by, instance.locked_reason = False, None, None
        return {}


def _holder(context: RequestContext, instance: Instance) -> str:
    return OWNER if context.project_id == instance.project_id else ADMIN

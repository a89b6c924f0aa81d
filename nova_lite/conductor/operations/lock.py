"""Locking an instance against its own project, and unlocking it."""

from __future__ import annotations

from typing import Any

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance

#: Who holds a lock: the instance's own project, or an admin of another one.
OWNER = "owner"
ADMIN = "admin"


class LockHandler(OperationHandler):
    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """``payload``: the ``reason``. For everyone but admins; the project's own lock changes nothing of one that is
        there."""
        by = _side(context, instance)
        if instance.locked and by == OWNER:
            return None
        instance.locked, instance.locked_by, instance.locked_reason = True, by, payload.get("reason")
        return {}


class UnlockHandler(OperationHandler):
    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """``payload``: ``may_override``, also a lock of the other side; without it that raises
        `PolicyNotAuthorized`."""
        if instance.locked_by not in (None, _side(context, instance)) and not payload.get("may_override"):
            from nova_lite.policies.servers import UNLOCK_OVERRIDE  # rules are the API's: conductors load none

            raise exceptions.PolicyNotAuthorized(action=UNLOCK_OVERRIDE)
        instance.locked, instance.locked_by, instance.locked_reason = False, None, None
        return {}


def _side(context: RequestContext, instance: Instance) -> str:
    return OWNER if context.project_id == instance.project_id else ADMIN

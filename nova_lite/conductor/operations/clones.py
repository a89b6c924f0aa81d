"""Clones: the disk of a server is frozen, then a new server is created on top of it.

Both are accepted in one transaction. The create waits until the host has frozen the disk. If that fails, the new server
is in error.
"""

from __future__ import annotations

from typing import Any

from nova_lite import operations
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine import faults
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.servers import clones, instances
from nova_lite.operations import Step


def begin(engine: ActionEngine, uow: UnitOfWork, context: RequestContext, source_uuid: str, clone_uuid: str) -> None:
    """Accept that the source's disk is frozen, and have that command sent. Raises a 404 or 409."""
    command = engine.accept_in(uow, context, source_uuid, operations.CLONE.kind, {"clone": clone_uuid})
    uow.after_commit(lambda: engine.send_later(command, context))


class CloneHandler(OperationHandler):
    """Freezes the disk of a server. ``payload``: ``clone``, the uuid of the new server."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        clones.check(uow, instance)
        return payload

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        if step.name == operations.PERFORM:
            for create in clones.waiting(uow, instance.uuid):
                actions.free(uow, create)

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        for create in clones.waiting(uow, instance.uuid):
            clone = instances.lock(uow, create.instance_uuid)
            if clone is not None:
                reason = f"The disk of server {instance.uuid} could not be frozen. Its events say why."
                faults.set_error(uow, clone, reason)
                clone.request = {}
                actions.finish(uow, create, reason)

"""Reset state: an admin sets the vm state by hand."""

from __future__ import annotations

from typing import Any

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.db import actions
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance
from nova_lite.operations import states


class ResetStateHandler(OperationHandler):
    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """``payload``: the ``vm_state`` that the instance has from now on, without a task. Its open stop, start or
        reboot is closed as superseded, though what its host has begun of it is not called back.

        Raises `InstanceInvalidState` while something is open that only its own end gives back: what lasts until it has
        worked, and whatever has undos; and for one that is soft-deleted, which is restored.
        """
        if instance.vm_state == states.SOFT_DELETED:
            raise exceptions.InstanceInvalidState(
                method="reset_state", instance_id=instance.uuid, attr="vm_state", state=instance.vm_state
            )
        underway = actions.find_open(uow, instance.uuid)
        if underway is not None and _ends_by_itself(underway.action, underway.step, underway.payload):
            raise exceptions.InstanceInvalidState(
                method="reset_state", instance_id=instance.uuid, attr="unfinished action", state=underway.action
            )
        instance.vm_state, instance.task_state = payload["vm_state"], None
        return {}


def _ends_by_itself(kind: str, name: str, payload: dict[str, Any]) -> bool:
    row = operations.get(kind, payload)
    step = row.step(name)
    lasts = not isinstance(step, operations.HostStep) or step.retry_forever
    return lasts or row.is_undo(name) or bool(row.undos(name))

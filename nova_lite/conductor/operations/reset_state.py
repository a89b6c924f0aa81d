"""Reset state: an admin sets the vm state by hand.

It contends with the open action. An action without undos is closed, although its host may continue with it; the next
report of the host corrects the power state. An action with undos, or with endless retries, is never closed, because its
ports, claims or guests would be lost to the records.
"""

from __future__ import annotations

from typing import Any

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.operations import states


class ResetStateHandler(OperationHandler):
    """Sets the state, and closes open actions without undo."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Set the vm state of ``payload``, without a task.

        An open stop, start or reboot is closed as superseded, although its host may continue with it. Raises
        `InstanceInvalidState` while an action is open that has undos or is retried forever, because it must not be
        closed. A soft-deleted server is refused, too, because it has to be restored.
        """
        if instance.vm_state == states.SOFT_DELETED:
            raise exceptions.InstanceInvalidState(
                method="reset_state", instance_id=instance.uuid, attr="vm_state", state=instance.vm_state
            )
        underway = actions.find_open(uow, instance.uuid)
        if underway is not None and _has_to_end(underway.action, underway.step, underway.payload):
            raise exceptions.InstanceInvalidState(
                method="reset_state", instance_id=instance.uuid, attr="unfinished action", state=underway.action
            )
        instance.vm_state, instance.task_state = payload["vm_state"], None
        return {}


def _has_to_end(kind: str, name: str, payload: dict[str, Any]) -> bool:
    """Check whether the action at the step of this name must not be closed."""
    definition = operations.get(kind, payload)
    step = definition.step(name)
    if not isinstance(step, operations.HostStep) or step.retry_forever:
        return True
    return definition.is_undo(name) or bool(definition.undos(name))

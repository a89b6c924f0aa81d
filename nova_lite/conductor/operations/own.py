"""The base class of operations that need more in the conductor than their row; most do not."""

from __future__ import annotations

from typing import Any

from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Instance
from nova_lite.context import RequestContext
from nova_lite.operations import Step


class Own:
    """Hooks of an operation. They run in the engine's transactions, with the instance locked: SQL only."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """The row's conditions hold: check what else has to, and change what acceptance changes. Returns the payload
        that the action keeps; None: there is nothing to do."""
        return payload

    def record(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        """A step is done: the instance becomes what the step says."""
        instance.task_state = None
        if step.becomes is not None:
            instance.vm_state, instance.fault = step.becomes, None

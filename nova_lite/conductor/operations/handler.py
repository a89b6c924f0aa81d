"""The base class of operations that need more in the conductor than their row; most do not."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from nova_lite.base.context import RequestContext
from nova_lite.db.claims import Place
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance
from nova_lite.objects import Image, RequestSpec
from nova_lite.operations import Step


class OperationHandler:
    """Hooks of an operation. They run in the engine's transactions, with the instance locked: SQL only."""

    #: Whether `preflight` has one.
    has_preflight = False

    def preflight(
        self,
        uow: UnitOfWork,
        conf: cfg.ConfigOpts,
        context: RequestContext,
        instance: Instance,
        payload: dict[str, Any],
    ) -> RequestSpec | None:
        """What the scheduler has to agree to before the operation is accepted, if anything; asked in a transaction that
        only reads. Raises what speaks against it already."""
        return None

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """The row's conditions hold: check what else has to, and change what acceptance changes. Returns the payload
        that the action keeps; None: there is nothing to do."""
        return payload

    def claimed(self, uow: UnitOfWork, instance: Instance, place: Place) -> None:
        """The destination of a move is claimed."""

    def record(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        """A step is done: the instance becomes what the step says."""
        instance.task_state = None
        if step.becomes is not None:
            instance.vm_state, instance.fault = step.becomes, None

    def published(self, uow: UnitOfWork, instance: Instance, image: Image) -> None:
        """The image that the operation has made is there; `record` of the step follows."""

    def failed(self, uow: UnitOfWork, instance: Instance) -> None:
        """The action has ended without success, and what it had begun is undone."""

    def superseded(self, uow: UnitOfWork, instance: Instance) -> None:
        """Another operation took the action's place; what its host has begun of it is not called back."""
        self.failed(uow, instance)

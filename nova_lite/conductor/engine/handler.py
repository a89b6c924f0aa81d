"""The base class of operation handlers: hooks for operations that need more than their definition. Most do not."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.servers.claims import Place
from nova_lite.objects import Image, RequestSpec
from nova_lite.operations import Step


class OperationHandler:
    """Hooks of one operation. They run in the engine's transactions, with the instance locked, so they do SQL only."""

    #: True if `preflight` is implemented.
    has_preflight = False

    def preflight(
        self,
        uow: UnitOfWork,
        conf: cfg.ConfigOpts,
        context: RequestContext,
        instance: Instance,
        payload: dict[str, Any],
    ) -> RequestSpec | None:
        """Return the request that the scheduler has to agree to before the operation is accepted, if any.

        Runs in a read-only transaction. Raises an error if the operation has to be refused anyhow.
        """
        return None

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Check what the definition does not say, and make the changes that acceptance makes.

        Returns the payload that the action keeps, or None if there is nothing to do.
        """
        return payload

    def on_claimed(self, uow: UnitOfWork, instance: Instance, place: Place) -> None:
        """Record the claimed place of the instance, or of a move's destination."""

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        """Change the instance as a finished step says."""
        instance.task_state = None
        if step.becomes is not None:
            instance.vm_state, instance.fault = step.becomes, None

    def on_published(self, uow: UnitOfWork, instance: Instance, image: Image) -> None:
        """Record the image that the operation has made. `on_step_done` follows."""

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        """Clean up after an action that has failed, once its undo is over."""

    def on_superseded(self, uow: UnitOfWork, instance: Instance, by: str) -> None:
        """Clean up after an action that a later one of kind ``by`` has replaced. Its host may still be working on it.

        The handler of the later action has accepted it already.
        """
        self.on_failed(uow, instance)

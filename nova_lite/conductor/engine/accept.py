"""Accepts operations: checks them, writes the action, and plans its first step."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.context import ActionContext, check, command_of
from nova_lite.conductor.engine.unavailable_hosts import Transitions
from nova_lite.db import actions, instances
from nova_lite.db.action_changes import Change
from nova_lite.db.engine import Database, UnitOfWork
from nova_lite.db.models import Instance, InstanceAction
from nova_lite.objects import ActionCommand, RequestSpec
from nova_lite.operations import ImageStep, Operation
from nova_lite.scheduler.rpcapi import SchedulerRPC


class Acceptor:
    """Accepts requests for operations on existing servers. Creates are in `nova_lite.conductor.operations.create`."""

    def __init__(self, db: Database, conf: cfg.ConfigOpts, transitions: Transitions, scheduler: SchedulerRPC) -> None:
        self.db = db
        self.conf = conf
        self.transitions = transitions
        self.handlers = transitions.handlers
        self.scheduler = scheduler

    def accept(self, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]) -> ActionCommand:
        """Write the action and return the command for its host.

        A repeated request gets the same command again. Raises a 404 or 409 if the operation is refused.
        """
        if self.handlers(kind).has_preflight:
            spec = self.db.read(self._preflight, context, instance_uuid, kind, payload)
            if spec is not None:
                self._check_placement(context, spec)
        return self.db.write(self._accept_action, context, instance_uuid, kind, payload)

    def accept_in(
        self, uow: UnitOfWork, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]
    ) -> ActionCommand:
        """`accept` within a transaction of the caller. The reconciler sends the command."""
        return self._accept_action(uow, context, instance_uuid, kind, payload)

    def _preflight(
        self, uow: UnitOfWork, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]
    ) -> RequestSpec | None:
        instance = instances.get_row(uow, context, instance_uuid, deleted=True)
        if instance.deleted or actions.find_by_request(uow, context.request_id, kind, instance_uuid) is not None:
            return None
        check(context, instance, operations.get(kind, payload))
        return self.handlers(kind).preflight(uow, self.conf, context, instance, payload)

    def _check_placement(self, context: RequestContext, spec: RequestSpec) -> None:
        """Raise `UnsuitableHost` unless the scheduler agrees."""
        try:
            self.scheduler.select_destinations(context, spec)
        except exceptions.NoValidHost as error:
            raise exceptions.UnsuitableHost(reason=error.kwargs.get("reason", error.message)) from error

    def _accept_action(
        self, uow: UnitOfWork, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]
    ) -> ActionCommand:
        instance = instances.get_row(uow, context, instance_uuid, deleted=True, lock=True)
        known = actions.open_or_of(uow, instance_uuid, context.request_id, kind)
        same_kind = [action for action in known if action.action == kind]
        for action in same_kind:
            if action.request_id == context.request_id:
                return command_of(ActionContext(uow, instance, action))
        if instance.deleted:
            raise exceptions.InstanceNotFound(instance_id=instance_uuid)
        try:
            definition = operations.get(kind, payload)
        except KeyError:
            raise exceptions.InvalidInput(reason=f"there is no action {kind!r}") from None
        if definition.deduplicates and same_kind and instance.task_state == definition.steps[0].task:
            return command_of(ActionContext(uow, instance, same_kind[0]))
        check(context, instance, definition)
        kept_payload = self.handlers(kind).accept(uow, context, instance, payload)
        if kept_payload is None:
            return _nothing_to_do(uow, context, instance, kind)
        if definition.supersedes and known:
            self._supersede(uow, instance, definition, known)
        instance.updated_at = uow.now
        action = actions.open_action(uow, self.conf, context, instance, kind, kept_payload)
        ctx = ActionContext(uow, instance, action)
        steps = ctx.definition.steps
        if steps:
            self.transitions.begin(ctx, steps[0])
        else:
            action.step = operations.PERFORM
            actions.start_event(uow, action, f"api_{kind}", self.conf.host)
            actions.finish(uow, action)
        uow.session.flush()
        return command_of(ctx)

    def _supersede(
        self, uow: UnitOfWork, instance: Instance, definition: Operation, open_actions: list[InstanceAction]
    ) -> None:
        """Close the open actions, because a new one takes their place.

        Raises `InstanceInvalidState` while an action is undone that has to end first. The undo of an action's image
        goes on beside the new action.
        """
        cause = f"superseded by {definition.kind}"
        for action in open_actions:
            ctx = ActionContext(uow, instance, action)
            step = ctx.step
            if isinstance(step, ImageStep) and step.outlives_action:
                continue
            is_undo = ctx.definition.is_undo(step.name)
            if is_undo and not definition.preempts:
                raise exceptions.InstanceInvalidState(
                    method=definition.method, instance_id=instance.uuid, attr="unfinished action", state=action.action
                )
            if not is_undo:
                uow.note_change(action, Change.FAILED, step, cause)
            undos = () if is_undo else ctx.definition.undos(step.name)
            discard = next((undo for undo in undos if isinstance(undo, ImageStep)), None)
            if discard is None:
                actions.finish(uow, action, cause)
                self.handlers(action.action).on_superseded(uow, instance)
                continue
            actions.finish_events(uow, action, cause)
            actions.free(uow, action)
            action.payload = {**action.payload, "superseded": cause}
            self.transitions.begin(ctx, discard)
        uow.session.flush()


def _nothing_to_do(uow: UnitOfWork, context: RequestContext, instance: Instance, kind: str) -> ActionCommand:
    """Return the reply to a request that would change nothing. No action is written for it."""
    return ActionCommand(
        action_id=0,
        action=kind,
        instance=instances.to_object(uow, instance),
        generation=instance.generation,
        host=None,
        request_id=context.request_id,
    )

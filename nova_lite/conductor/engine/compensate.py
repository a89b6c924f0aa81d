"""Undoes an action that has failed: its steps' undos run like steps, newest step first."""

from __future__ import annotations

from nova_lite import operations
from nova_lite.base import metrics
from nova_lite.conductor.engine import faults
from nova_lite.conductor.engine.advance import StepMachine
from nova_lite.conductor.engine.context import ActionContext
from nova_lite.db.core import actions
from nova_lite.db.core.action_changes import Change
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.operations import HostStep, ScheduleStep, ServiceStep, states
from nova_lite.operations.states import PowerState


class Compensator(StepMachine):
    """Adds failures to the step machine."""

    def fail(self, ctx: ActionContext, cause: str, details: str = "", *, reported: bool, begun: bool = True) -> None:
        """End the current step as failed, and begin to undo it and the steps before it.

        ``reported``: its host or service said so, so that nothing of the step continues there. Without ``begun`` no
        command was sent, so that only the steps before it have to be undone.
        """
        ctx.cause, ctx.details = cause, details
        uow, instance, definition, step = ctx.uow, ctx.instance, ctx.definition, ctx.step
        if not ctx.is_undoing:
            uow.note_change(ctx.action, Change.FAILED, step, cause)
        undos = () if ctx.is_undoing else definition.undos(step.name, begun)
        instance.task_state = None
        instance.updated_at = uow.now
        if undos and definition.failed is not None:
            faults.set_error(uow, instance, cause, details)
            reason = "not_placed" if isinstance(step, ScheduleStep) else "reported" if reported else "silent"
            metrics.BUILDS_FAILED.labels(reason).inc()
        elif undos:
            ctx.action.payload = {**ctx.action.payload, "cause": cause}
        if reported and (all(isinstance(undo, ServiceStep) for undo in undos) if undos else step.becomes is not None):
            _follow_guest(uow, instance, cause, details)
        if reported and isinstance(step, HostStep) and step.self_compensating:
            undos = undos[1:]
        undo = operations.first_applicable(undos, ctx.action.payload)
        if undo is None:
            instance.request = {}
            actions.finish(uow, ctx.action, cause, details)
            self.handlers(ctx.action.action).on_failed(uow, instance)
            return
        actions.finish_events(uow, ctx.action, cause, details)
        actions.free(uow, ctx.action)
        ctx.action.payload = {**ctx.action.payload, operations.UNDONE_FROM: undo.name}
        self.begin(ctx, undo)
        self.send_after_commit(ctx)

    def completed_late(self, ctx: ActionContext) -> None:
        """Record the step as done that the current undo belongs to: its host has found that it succeeded."""
        ctx.action.step = ctx.definition.undone_by(ctx.step.name).name
        self.done(ctx)


def _follow_guest(uow: UnitOfWork, instance: Instance, error: str, details: str) -> None:
    """Keep the vm state if the guest matches it. Otherwise set that of the guest, or ERROR if there is no guest."""
    power_state = PowerState(instance.power_state)
    if power_state in states.EXPECTED_POWER_STATES.get(instance.vm_state, ()):
        return
    follows = {**states.VM_STATE_OF, PowerState.PAUSED: states.PAUSED}
    if power_state in follows:
        instance.vm_state = follows[power_state]
    else:
        faults.set_error(uow, instance, error, details)

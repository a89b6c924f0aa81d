"""Passes steps whose host the operator has forced down or retired.

A host that is forced down is off. Before it serves again, it destroys whatever does not belong there. A host that is
retired will never come back, and everything that it had is lost.
"""

from __future__ import annotations

from nova_lite import operations
from nova_lite.conductor.engine import faults
from nova_lite.conductor.engine.compensate import Compensator
from nova_lite.conductor.engine.context import ActionContext, is_retired
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.hosts import hosts
from nova_lite.db.servers import claims
from nova_lite.operations import MOVE_ROLES, HostRole, HostStep
from nova_lite.operations.states import PowerState


class Transitions(Compensator):
    """All transitions of an action: steps, failures, and unavailable hosts."""

    def pass_forced_down_host(self, ctx: ActionContext) -> None:
        """Pass the steps of a move whose host is forced down.

        Nothing is left to remove there, so such steps are done. Other steps have failed, or wait until the host is
        back. The host can no longer report whether a guest has moved, and a guest that has needs nothing there.
        """
        while ctx.action.finish_time is None:
            step = ctx.step
            if not isinstance(step, HostStep) or step.at not in MOVE_ROLES:
                return
            if not hosts.is_forced_down(ctx.uow, str(ctx.action.host)):
                return
            if ctx.is_undoing and step.may_complete_late and not step.fences:
                self._skip(ctx, step)
            elif step.fences or (step.at is HostRole.DESTINATION and step.retry_forever):
                self.done(ctx)
            elif not step.retry_forever:
                self.fail(ctx, f"Host {ctx.action.host} is forced down.", reported=False)
            else:
                return

    def retire_host(self, ctx: ActionContext, host: str) -> None:
        """Let the action continue without ``host``, at its current step and at later ones."""
        ctx.action.payload = {**ctx.action.payload, "retired": [*ctx.action.payload.get("retired", []), host]}
        ctx.retiring = True
        self.skip_retired_host(ctx)

    def skip_retired_host(self, ctx: ActionContext) -> None:
        """Skip the steps of a retired host.

        Whatever was to be removed or undone there is gone with the host. Other steps have failed: no host can finish
        a build that was begun there.
        """
        while ctx.action.finish_time is None and is_retired(ctx):
            step = ctx.step
            assert isinstance(step, HostStep)
            if ctx.is_undoing and not step.fences:
                ctx.instance.power_state = PowerState.NOSTATE
                self._skip(ctx, step)
            elif step.retry_forever or step.fences:
                self.done_at_host(ctx, step)
            else:
                self.fail(ctx, f"Host {ctx.action.host} is retired.", reported=False)

    def lose(self, uow: UnitOfWork, instance: Instance) -> None:
        """Put an instance into ERROR because it is gone with its retired host."""
        cause = f"Host {instance.host} was retired: the server and its disks are lost."
        for held in claims.held_hosts(uow, instance):
            if held.host == instance.host:
                claims.release(uow, instance.uuid, held)
        claims.leave(instance)
        instance.power_state = PowerState.NOSTATE
        faults.set_error(uow, instance, cause)

    def lose_if_retired(self, ctx: ActionContext) -> None:
        """Mark the instance as lost if a move has led to a host that was retired meanwhile."""
        retired = ctx.action.payload.get("retired", ())
        if ctx.instance.host in retired and not ctx.instance.deleted and not ctx.retiring:
            self.lose(ctx.uow, ctx.instance)

    def _skip(self, ctx: ActionContext, step: HostStep) -> None:
        """Leave out an undo, so that the record of carried out undos ends.

        If only the move's source knew whether the guest has moved, ask the destination later.
        """
        payload = {key: value for key, value in ctx.action.payload.items() if key != operations.UNDONE_FROM}
        if step.may_complete_late and step.at is HostRole.SOURCE:
            payload[operations.LOST_SOURCE] = True
        ctx.action.payload = payload
        self.advance(ctx)

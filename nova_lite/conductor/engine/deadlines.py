"""Takes due actions for the reconciler: those whose lease has expired or whose deadline has passed."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable

from oslo_config import cfg

from nova_lite.conductor.engine import faults
from nova_lite.conductor.engine.context import ActionContext, is_away
from nova_lite.conductor.engine.unavailable_hosts import Transitions
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.servers import instances
from nova_lite.operations import HostStep, Step

LOG = logging.getLogger(__name__)


class Deadlines:
    """Ends late actions, and leases the other due ones."""

    def __init__(self, conf: cfg.ConfigOpts, transitions: Transitions) -> None:
        self.conf = conf
        self.transitions = transitions

    def take_due(self, uow: UnitOfWork, owner: str, ids: Iterable[int]) -> list[ActionContext]:
        """Lease the due ones of these actions to ``owner``, and return the actions that need another daemon.

        Actions past their deadline are failed. Steps that need no other daemon are recorded in the same transaction.
        Actions that need a host that is away wait for it.
        """
        due = []
        for action in actions.take_due(uow, self.conf, owner, ids):
            instance = instances.lock(uow, action.instance_uuid)
            uow.session.refresh(action)
            if instance is None or action.finish_time is not None:
                continue
            ctx = ActionContext(uow, instance, action, from_reconciler=True)
            try:
                step = ctx.step
            except LookupError:
                LOG.error("Action %d: this version has no step %s of %s", action.id, action.step, action.action)
                continue
            if action.deadline <= uow.now:
                self._expire(ctx, step)
            elif isinstance(step, HostStep) and step.offline_step not in (None, action.step) and is_away(ctx):
                self.transitions.record_offline(ctx, step)
            else:
                self.transitions.pass_forced_down_host(ctx)
            if action.finish_time is None and not _block_on_host(ctx):
                if action.lease_owner != owner:
                    actions.take_up(uow, self.conf, action, owner)
                due.append(ctx)
        return due

    def _expire(self, ctx: ActionContext, step: Step) -> None:
        """Fail an action that is past its deadline. It keeps its claim until its host has confirmed the undo.

        A step that is retried forever continues, and the server shows the cause meanwhile.
        """
        uow, instance, action = ctx.uow, ctx.instance, ctx.action
        cause = self._cause(ctx)
        LOG.warning("Giving up %s of %s: %s", action.action, instance.uuid, cause)
        if isinstance(step, HostStep) and step.retry_forever:
            faults.set_error(uow, instance, cause)
            instance.task_state = step.task
            action.deadline = uow.now + datetime.timedelta(seconds=self.conf.conductor.action_deadline)
        else:
            self.transitions.fail(ctx, cause, reported=False)

    def _cause(self, ctx: ActionContext) -> str:
        action = ctx.action
        cause = f"The {action.action} was not finished within {self.conf.conductor.action_deadline} s"
        if is_away(ctx):
            return f"{cause}: its compute host does not answer."
        last_error = action.payload.get("last_error")
        return f"{cause}: {last_error}" if last_error else f"{cause}."


def _block_on_host(ctx: ActionContext) -> bool:
    """Let the action wait if only a host that is away can continue with it. Returns whether it waits."""
    if not isinstance(ctx.step, HostStep) or not is_away(ctx):
        return False
    actions.block_on_host(ctx.uow, ctx.action)
    return True
